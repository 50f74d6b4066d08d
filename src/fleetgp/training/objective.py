"""The local likelihoods of the hosted agents, evaluated side by side.

Curvature of the local likelihoods: one positive definite P x P matrix per agent, measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.engines.base import Evaluation
from fleetgp.engines.expert import Expert, evaluate, reweighed
from fleetgp.errors import NumericalError
from fleetgp.linalg.threads import side_by_side
from fleetgp.training.constraints import Prior


@dataclass(frozen=True)
class Values:
    """What is minimized at one log theta per agent: nll (A,), its log-gradient (A, P); a failed agent has nll = inf.

    jitter: (A,) what it took to factorize.  engine: (A,) the name of the engine that evaluated it.
    penalty: (A,) what priors have added to nll.
    """

    nll: Array
    gradient: Array
    jitter: Array
    engine: NDArray[np.object_]
    penalty: Array = field(default_factory=lambda: np.zeros(1))

    @property
    def likelihood(self) -> Array:
        """(A,) nll without what priors have added."""
        return self.nll - self.penalty

    def part(self, agents: IntArray | slice) -> Values:
        return self._each(lambda values: values[agents])

    def replaced(self, where: BoolArray, other: Values) -> Values:
        """These values, with the agents in `where` taken from `other`."""
        return self._each(lambda own, new: np.where(where.reshape(-1, *[1] * (own.ndim - 1)), new, own), other)

    def _each(self, change: Callable[..., Any], *others: Values) -> Values:
        """What becomes of every array, (A, ...) of each."""

        def arrays(values: Values) -> tuple[Any, ...]:
            penalty = np.broadcast_to(values.penalty, values.nll.shape)
            return values.nll, values.gradient, values.jitter, values.engine, penalty

        return Values(*(change(*rows) for rows in zip(arrays(self), *map(arrays, others), strict=True)))


class Objective:
    """l_i and its gradient for every hosted agent i, each at its own log theta, with its share of the priors' penalty.

    share: of each expert in the penalty, so that the fleet's sum has it once: known to all, and never sent.
    """

    def __init__(self, experts: Sequence[Expert], prior: Prior | None = None, share: float = 1.0) -> None:
        self.experts = tuple(experts)
        self.prior = Prior() if prior is None else prior
        self.share = share

    def of(self, experts: Sequence[Expert]) -> Objective:
        return Objective(experts, self.prior, self.share)

    def changed(self, change: Callable[[Expert], Expert]) -> Objective:
        """The same for what becomes of each expert."""
        return self.of([change(expert) for expert in self.experts])

    def reweighed(self, log_thetas: Array) -> Objective:
        """The same with weights against outliers for these log theta, (A, P)."""
        return self.of(reweighed_experts(self.experts, log_thetas))

    @property
    def sizes(self) -> IntArray:
        """(A,) how many observations each has."""
        return np.array([expert.size for expert in self.experts])

    def __call__(self, log_thetas: Array, agents: IntArray | None = None) -> Values:
        """Evaluate some agents (K,), each at its own log theta (K, P); without `agents` all of them, once.

        An agent may come several times.
        """
        experts = self.experts if agents is None else [self.experts[i] for i in agents]
        return self.values(log_thetas, evaluate(experts, log_thetas))

    def values(self, log_thetas: Array, answers: Sequence[Evaluation | NumericalError]) -> Values:
        """The answers as arrays, with the priors' penalty at these log theta."""
        # Where the covariance cannot be factorized the likelihood is taken as infinite.
        failed = Evaluation(np.inf, np.full(log_thetas.shape[1], np.nan), 0.0)
        sound = [failed if isinstance(each, NumericalError) else each for each in answers]
        values = Values(
            np.array([each.nll for each in sound]),
            np.array([each.gradient for each in sound]).reshape(log_thetas.shape),
            np.array([each.jitter for each in sound]),
            np.array([each.engine for each in sound], dtype=object),
        )
        if not self.prior.given:
            return values
        penalty = self.share * self.prior.penalty(log_thetas)
        values.gradient[:] += self.share * self.prior.gradient(log_thetas)
        return replace(values, nll=values.nll + penalty, penalty=penalty)

    def renewed(self, values: Values, log_thetas: Array, where: BoolArray) -> Values:
        """Evaluate the agents in `where` again, at their rows of (A, P)."""
        if not where.any():
            return values
        agents = np.flatnonzero(where)
        return values.replaced(where, self(log_thetas[agents], agents).part(np.cumsum(where) - 1))

    @property
    def silent(self) -> BoolArray:
        """(A, P) which hyperparameters say nothing about an agent's data."""
        return np.stack([expert.silent for expert in self.experts])

    @property
    def bend(self) -> Array:
        """(P,) or (1,) the second derivatives of an agent's share of the penalty."""
        return self.share * self.prior.precision

    def settle(self, log_thetas: Array) -> None:
        """Have each agent settle on one engine for what comes, around its own log theta."""
        for expert, x in zip(self.experts, log_thetas, strict=True):
            expert.settle(x)

    def error_estimates(self, log_thetas: Array, values: Values) -> Array:
        """(A,) what the likelihoods at (A, P) may be wrong by: estimates, for the engine that approximates."""
        rows = zip(self.experts, log_thetas, values.engine, strict=True)
        return np.array([expert.error_estimate(x) if name == "vecchia" else 0.0 for expert, x, name in rows])


def reweighed_experts(experts: Sequence[Expert], log_thetas: Array) -> list[Expert]:
    """Each with weights against outliers at its own log theta, (A, P)."""

    def one(pair: tuple[Expert, Array]) -> Expert:
        try:
            return reweighed(*pair)
        except NumericalError:  # nor is there a likelihood, which says so
            return pair[0]

    return side_by_side(one, list(zip(experts, np.exp(log_thetas), strict=True)))


#: Step of the forward differences, and the smallest eigenvalue relative to the largest.
STEP = 1e-4
FLOOR = 1e-3
#: The smallest eigenvalue of all, where a likelihood is flat in every direction.
FLATTEST = 1e-6


@dataclass(frozen=True)
class Curvature:
    """matrix: (A, P, P) positive definite, |Hessian|.  concavity: (A, P), the diagonal of its negative part.

    measured_at: (A, P), the log theta at which it was measured.
    """

    matrix: Array
    concavity: Array
    measured_at: Array

    @classmethod
    def constant(cls, value: float, x: Array) -> Curvature:
        """value * I for every agent: nothing is measured."""
        width = x.shape[1]
        return cls(np.tile(value * np.eye(width), (len(x), 1, 1)), np.zeros_like(x), np.full_like(x, np.inf))

    def replaced(self, where: BoolArray, other: Curvature) -> Curvature:
        return Curvature(
            np.where(where[:, None, None], other.matrix, self.matrix),
            np.where(where[:, None], other.concavity, self.concavity),
            np.where(where[:, None], other.measured_at, self.measured_at),
        )


@dataclass(frozen=True)
class Local:
    """Where the hosted agents stand: log theta (A, P), the likelihood there, and the model's curvature."""

    x: Array
    values: Values
    curvature: Curvature

    @classmethod
    def unevaluated(cls, x: Array) -> Local:
        """At a start (A, P), before anything is known there."""
        none = np.zeros(len(x), dtype=bool)
        nothing = Values(np.full(len(x), np.inf), np.full_like(x, np.nan), np.zeros(len(x)), none)
        return cls(x, nothing, Curvature.constant(1.0, x))


class ForwardDifferences:
    """Hessians at log theta (A, P) by forward differences of the gradient, P evaluations for an agent.

    Fewer for agents whose data do not depend on all of x: along such coordinates only the priors bend.

    where: (A,) which agents are measured; None for all.
    agents, places: (K,) and (K, P), where the likelihoods have to be evaluated.
    """

    def __init__(self, objective: Objective, x: Array, where: BoolArray | None = None) -> None:
        self.silent, self._bend = objective.silent, np.broadcast_to(objective.bend, x.shape[1])
        measured = ~self.silent if where is None else where[:, None] & ~self.silent
        self.agents, self._coordinates = np.nonzero(measured)
        self.places = x[self.agents] + STEP * np.eye(x.shape[1])[self._coordinates]

    def hessian(self, here: Values, there: Values) -> Array:
        """Symmetric, (A, P, P), from the likelihoods at x and at `places`.

        It is not finite where a likelihood nearby is not, and without meaning for agents that are not measured.
        """
        agents, width = self.silent.shape
        hessian = np.zeros((agents, width, width))
        for i, k in np.argwhere(self.silent):
            hessian[i, k, k] = self._bend[k]
        hessian[self.agents, self._coordinates] = (there.gradient - here.gradient[self.agents]) / STEP
        return np.asarray(0.5 * (hessian + np.swapaxes(hessian, 1, 2)))


def measure_hessian(objective: Objective, x: Array, values: Values, where: BoolArray) -> Array:
    """The Hessians (A, P, P) at x (A, P), where the likelihoods are known, of the agents in `where`."""
    steps = ForwardDifferences(objective, x, where)
    return steps.hessian(values, objective(steps.places, steps.agents))


def measure_curvature(objective: Objective, x: Array, values: Values, where: BoolArray) -> Curvature:
    """The Hessians at x (A, P), made positive.

    P evaluations for the agents in `where`; the others hold no meaning. Eigenvalues are taken by magnitude,
    so that a saddle direction counts as stiff as it is, and floored. (Secant updates would be free, but on
    this likelihood they overshoot the true curvature by factors of a hundred before they settle.)
    """
    hessian = measure_hessian(objective, x, values, where)
    usable = where & np.isfinite(hessian).all(axis=(1, 2))
    hessian = np.where(usable[:, None, None], hessian, np.eye(x.shape[1]))
    eigenvalues, vectors = np.linalg.eigh(hessian)
    magnitude = np.abs(eigenvalues)
    bounded = np.maximum(magnitude, np.maximum(FLOOR * magnitude.max(axis=1, keepdims=True), FLATTEST))
    matrix = (vectors * bounded[:, None, :]) @ np.swapaxes(vectors, 1, 2)
    concavity = (vectors**2 * np.maximum(-eigenvalues, 0.0)[:, None, :]).sum(axis=2)
    return Curvature(matrix, concavity, x)
