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
        self.names: Sequence[str] | None = None

    def __str__(self) -> str:
        return f"{self.what} at {told_theta(self.theta, self.names)}: {self.advice}"


def told_theta(theta: Array, labels: Sequence[str] | None = None) -> str:
    """For a message: every hyperparameter by its name, to four digits. labels: their names, if these are known.

    >>> told_theta(np.array([1.23456, 0.3, 1e-9]))
    'theta = (l_1 = 1.235, sigma_f = 0.3, sigma_eps = 1e-09)'
    """
    labels = names(len(theta) - 2) if labels is None or len(labels) != len(theta) else labels
    return f"theta = ({', '.join(f'{label} = {value:.4g}' for label, value in zip(labels, theta, strict=True))})"


def owner(agent: int | None) -> str:
    """Whose data they are, for a message: an agent's, or, where they come from all agents, the fleet's."""
    return "the fleet" if agent is None else f"agent {agent}"


def out_of_range(agent: int | None, log_theta: Array) -> ThetaError:
    """The error of a theta with which no engine can compute."""
    with np.errstate(over="ignore", under="ignore"):
        return ThetaError(f"{owner(agent)}: no covariance", np.exp(log_theta), OUT_OF_RANGE)


@contextmanager
def retold(*, units: Array | None = None, names: Sequence[str] | None = None) -> Iterator[None]:
    """Errors about theta from within, as the user would say it.

    units: of the model's hyperparameters, in those of the data, (P,).  names: what they are called.

    >>> with retold(units=np.array([1.0, 4.0, 4.0])):
    ...     raise ThetaError("agent 0: no likelihood", np.array([1.0, 2.0, 0.1]), "use another")
    Traceback (most recent call last):
    fleetgp.gp.failure.ThetaError: agent 0: no likelihood at theta = (l_1 = 1, sigma_f = 8, sigma_eps = 0.4): use ...
    """
    try:
        yield
    except ThetaError as error:
        error.theta = error.theta if units is None else error.theta * units
        error.names = error.names if names is None else names
        raise
