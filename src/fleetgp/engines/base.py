"""What an engine is, what it answers with, its errors, and what all engines share."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self, runtime_checkable

import numpy as np

from fleetgp.arrays import Array
from fleetgp.engines.basis import Basis
from fleetgp.errors import NumericalError
from fleetgp.kernels.stationary import Kernel
from fleetgp.linalg.threads import blas_threads
from fleetgp.model.hyperparameters import Hyperparameters, names
from fleetgp.model.observations import Observations

# ---- engines ---------------------------------------------------------------------------------------------------------


class Engine(abc.ABC):
    """The GP of one agent's data, with answers that are exact or certified; None where there is none.

    `register_engine` adds another one; tests/engines/test_conformance.py has what it must pass. Observations may be
    means of f over several points: `covariances` has their covariances, with any kernel.
    """

    name: ClassVar[str]
    agent: int | None  # whose data they are, for errors; None for data from all agents

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """How many observations there are."""

    @abc.abstractmethod
    def grow(self, data: Observations) -> None:
        """Take all observations, of which the first are the present ones."""

    @abc.abstractmethod
    def cost(self, theta: Array) -> float:
        """The expected seconds of an evaluation on one core; inf where it cannot answer. Theta is in natural units.

        A function of the data and theta alone, not of the machine: all hosts of an agent choose the same engine.
        """

    @abc.abstractmethod
    def evaluate(self, log_theta: Array) -> Evaluation | None:
        """NLL and log-gradient; None where they cannot be certified. Raises NumericalError."""

    @abc.abstractmethod
    def condition(self, theta: Array, before: Posterior | None = None) -> Posterior | None:
        """The posterior at theta, in natural units; None where it cannot be certified. Raises NumericalError.

        before: the posterior of the first rows at the same theta, by any engine, from which this one may start.
        """

    @abc.abstractmethod
    def products(self, theta: Array, trend: Trend) -> Array | None:
        """Z'C^-1 Z for Z = (H, y), the functions of a mean function and the observations, (count + 1, count + 1).

        None where it cannot be certified. Raises NumericalError.
        """

    @classmethod
    def evaluate_many(cls, engines: Sequence[Self], log_thetas: Array) -> Sequence[Evaluation | NumericalError | None]:
        """Each at its own log theta; a failure in its place.

        By default in turn, with one BLAS thread: for engines of many short steps.
        """
        result: list[Evaluation | NumericalError | None] = []
        with blas_threads(1):
            for engine, log_theta in zip(engines, log_thetas, strict=True):
                try:
                    result.append(engine.evaluate(log_theta))
                except NumericalError as failure:
                    result.append(failure)
        return result


class DataEngine(Engine):
    """An engine that keeps the observations themselves, for any kernel."""

    def __init__(self, data: Observations, kernel: Kernel, agent: int | None) -> None:
        self.data, self.kernel, self.agent = data, kernel, agent

    @property
    def size(self) -> int:
        return len(self.data)

    def grow(self, data: Observations) -> None:
        self.data = data


# ---- answers ---------------------------------------------------------------------------------------------------------

#: exp(2 * 150) is still far inside the range of a double.
LARGEST_LOG = 150.0


@dataclass(frozen=True)
class Evaluation:
    """l(theta) = (y'C^-1 y + log|C|) / 2, its gradient in log theta, the jitter it needed, and the engine.

    error: a bound on the error of the likelihood beyond that of the dense engine; 0 for the dense engine.
    """

    nll: float
    gradient: Array
    jitter: float
    engine: str = "dense"
    error: float = 0.0


class Posterior(Protocol):
    """f | D_i at fixed theta."""

    engine: str
    jitter: float
    hyperparameters: Hyperparameters

    def mean_and_variance(self, queries: Array) -> tuple[Array, Array]: ...

    def mean_and_covariance(self, queries: Array) -> tuple[Array, Array]:
        """Mean (T,) and covariance (T, T) of f at the queries, which is symmetric."""
        ...

    def slopes(self, queries: Array) -> Slopes:
        """The derivatives of mean and variance by the inputs of the queries."""
        ...

    def explained_variance(self, queries: Array) -> Array: ...

    def projected(self, basis: Basis, queries: Array) -> Array: ...


@runtime_checkable
class WeightedPosterior(Posterior, Protocol):
    """One whose means are sums over single observations."""

    def weighted(self, queries: Array) -> tuple[Observations, Array]:
        """The n observations that count for these queries, and their weights C_i^-1 k_i*, (n, T)."""
        ...

    def left_out(self) -> tuple[Array, Array]:
        """The error of each observation's prediction from all others, and the variance of f there, (N,) each."""
        ...


@dataclass(frozen=True)
class Slopes:
    """By the D columns of T queries: of the mean and of the variance of f, (T, D) each.

    covariance: (T, D, D) of the derivatives of f; infinite where it has none.
    """

    mean: Array
    variance: Array
    covariance: Array


@dataclass(frozen=True)
class Trend:
    """centre: (D,).  linear: with slopes, or a constant alone."""

    centre: Array
    linear: bool

    @property
    def count(self) -> int:
        """How many coefficients there are."""
        return 1 + len(self.centre) if self.linear else 1

    def columns(self, inputs: Array) -> Array:
        """h(x) at inputs (.., D), (.., count)."""
        ones = np.ones((*inputs.shape[:-1], 1))
        if not self.linear:
            return ones
        return np.concatenate([ones, inputs[..., : len(self.centre)] - self.centre], axis=-1)

    def with_observations(self, data: Observations) -> Array:
        """(N, count + 1): h(x_n) and y_n."""
        return np.concatenate([self.columns(data.inputs), data.values[:, None]], axis=1)


# ---- errors ----------------------------------------------------------------------------------------------------------

#: What helps where sigma_eps is too small, and where theta is out of range.
MORE_NOISE = "give a theta with a larger sigma_eps, or train with a larger noise_floor"

OUT_OF_RANGE = "that is out of range: give one closer to the scale of the data"


class ThetaError(NumericalError):
    """No answer at a theta, in natural units. what: went wrong.  advice: what to do about it.

    Engines do not know the units of the data nor the names of the inputs: `translate_theta_errors` adds them.

    >>> str(ThetaError("agent 0: no likelihood", np.array([1.0, 2.0, 0.1234567]), "use another"))
    'agent 0: no likelihood at theta = (l_1 = 1, sigma_f = 2, sigma_eps = 0.1235): use another'
    """

    def __init__(self, what: str, theta: Array, advice: str) -> None:
        super().__init__(what, theta, advice)
        self.what, self.theta, self.advice = what, theta, advice
        self.names: Sequence[str] | None = None

    def __str__(self) -> str:
        return f"{self.what} at {describe_theta(self.theta, self.names)}: {self.advice}"


def describe_theta(theta: Array, labels: Sequence[str] | None = None) -> str:
    """For a message: every hyperparameter by its name, to four digits. labels: their names, if these are known.

    >>> describe_theta(np.array([1.23456, 0.3, 1e-9]))
    'theta = (l_1 = 1.235, sigma_f = 0.3, sigma_eps = 1e-09)'
    """
    labels = names(len(theta) - 2) if labels is None or len(labels) != len(theta) else labels
    return f"theta = ({', '.join(f'{label} = {value:.4g}' for label, value in zip(labels, theta, strict=True))})"


def owner(agent: int | None) -> str:
    """Whose data they are, for a message."""
    return "the fleet" if agent is None else f"agent {agent}"


def out_of_range(agent: int | None, log_theta: Array) -> ThetaError:
    """The error of a theta with which no engine can compute."""
    with np.errstate(over="ignore", under="ignore"):
        return ThetaError(f"{owner(agent)}: no covariance", np.exp(log_theta), OUT_OF_RANGE)


@contextmanager
def translate_theta_errors(*, units: Array | None = None, names: Sequence[str] | None = None) -> Iterator[None]:
    """Put theta in errors into the units of the data, with the user's names.

    units: of the model's hyperparameters, in those of the data, (P,).  names: what they are called.

    >>> with translate_theta_errors(units=np.array([1.0, 4.0, 4.0])):
    ...     raise ThetaError("agent 0: no likelihood", np.array([1.0, 2.0, 0.1]), "use another")
    Traceback (most recent call last):
    fleetgp.engines.base.ThetaError: agent 0: no likelihood at theta = (l_1 = 1, sigma_f = 8, sigma_eps = 0.4): use ...
    """
    try:
        yield
    except ThetaError as error:
        error.theta = error.theta if units is None else error.theta * units
        error.names = error.names if names is None else names
        raise


# ---- what posteriors share -------------------------------------------------------------------------------------------


def symmetric(covariance: Array) -> Array:
    """Undo what rounding did to the symmetry of a covariance, and to variances of zero.

    >>> symmetric(np.array([[1.0, 0.5], [0.3, -1e-17]])).tolist()
    [[1.0, 0.4], [0.4, 0.0]]
    """
    result = 0.5 * (covariance + covariance.T)
    np.fill_diagonal(result, np.maximum(np.diagonal(result), 0.0))
    return np.asarray(result)


def joined(parts: list[Slopes], dimension: int) -> Slopes:
    """One after the other, of queries with so many columns."""
    empty = np.zeros((0, dimension))
    return Slopes(
        np.concatenate([empty, *(part.mean for part in parts)]),
        np.concatenate([empty, *(part.variance for part in parts)]),
        np.concatenate([np.zeros((0, dimension, dimension)), *(part.covariance for part in parts)]),
    )
