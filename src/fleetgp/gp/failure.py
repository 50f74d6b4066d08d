"""The error of a GP that has no answer at a theta, which is told in the units and by the names of the user."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from fleetgp.arrays import Array
from fleetgp.errors import NumericalError
from fleetgp.gp.hyperparameters import names

#: What helps where sigma_eps is too small, whoever chose it; and where theta is nothing that data can be like.
MORE_NOISE = "give a theta with a larger sigma_eps, or train with a larger noise_floor"
OUT_OF_RANGE = "that is out of range: give one closer to the scale of the data"


class ThetaError(NumericalError):
    """No answer at a theta, in natural units. what: that went wrong.  advice: what to do about it.

    An engine knows neither the units of the data nor the inputs' names: `retold` puts them in on the way to the user.

    >>> raise ThetaError("agent 0: no likelihood", np.array([1.0, 2.0, 0.1234567]), "use another")
    Traceback (most recent call last):
    fleetgp.gp.failure.ThetaError: agent 0: no likelihood at theta = (l_1 = 1, sigma_f = 2, sigma_eps = 0.1235): use ...
    """

    def __init__(self, what: str, theta: Array, advice: str) -> None:
        super().__init__(what, theta, advice)
        self.what, self.theta, self.advice = what, theta, advice
        self.inputs: Sequence[str] | None = None

    def __str__(self) -> str:
        return f"{self.what} at {told_theta(self.theta, self.inputs)}: {self.advice}"


def told_theta(theta: Array, inputs: Sequence[str] | None = None) -> str:
    """For a message: every hyperparameter by its name, to four digits.

    >>> told_theta(np.array([1.23456, 0.3, 1e-9]), ["lon"])
    'theta = (l_lon = 1.235, sigma_f = 0.3, sigma_eps = 1e-09)'
    """
    labels = names(len(theta) - 2 if inputs is None else inputs)
    return f"theta = ({', '.join(f'{label} = {value:.4g}' for label, value in zip(labels, theta, strict=True))})"


def owner(agent: int | None) -> str:
    """Whose data they are, for a message: an agent's, or, where they come from all agents, the fleet's."""
    return "the fleet" if agent is None else f"agent {agent}"


def out_of_range(agent: int | None, log_theta: Array) -> ThetaError:
    """The error of a theta with which no engine can compute."""
    with np.errstate(over="ignore", under="ignore"):
        return ThetaError(f"{owner(agent)}: no covariance", np.exp(log_theta), OUT_OF_RANGE)


@contextmanager
def retold(*, scale: float = 1.0, inputs: Sequence[str] | None = None, lengths: Sequence[float] = ()) -> Iterator[None]:
    """Errors about theta from within, as the user would say it.

    scale: one unit of the model's observations, in units of the data.  inputs: their names.  lengths: one unit of the
    model's inputs, likewise.

    >>> with retold(scale=4.0):
    ...     raise ThetaError("agent 0: no likelihood", np.array([1.0, 2.0, 0.1]), "use another")
    Traceback (most recent call last):
    fleetgp.gp.failure.ThetaError: agent 0: no likelihood at theta = (l_1 = 1, sigma_f = 8, sigma_eps = 0.4): use ...
    """
    try:
        yield
    except ThetaError as error:
        units = np.ones(len(error.theta))
        units[-2:] = scale
        units[: len(lengths)] = lengths
        error.theta = error.theta * units
        error.inputs = error.inputs if inputs is None else inputs
        raise
