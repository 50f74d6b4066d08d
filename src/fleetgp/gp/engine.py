"""What an engine is: one way to compute the GP of one agent's data."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import ClassVar, Self

from fleetgp.arrays import Array
from fleetgp.errors import NumericalError
from fleetgp.gp.evaluation import Evaluation, Posterior
from fleetgp.gp.kernels import Kernel
from fleetgp.gp.trend import Trend
from fleetgp.linalg.threads import blas_threads
from fleetgp.model.observations import Observations


class Engine(abc.ABC):
    """The GP of one agent's data, with answers that are exact or certified; None where there is none.

    To add an engine: implement these methods, let `Expert` hold it, and add it to tests/gp/test_conformance.py.
    """

    name: ClassVar[str]
    agent: int | None  # whose data they are, for errors; None for data from all agents

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """How many observations there are."""

    @abc.abstractmethod
    def grow(self, data: Observations) -> None:
        """All observations, of which the first are those that there are: the others have come since."""

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

        before: that of the first rows at the same theta, by any engine: what of it can be used need not be computed.
        """

    @abc.abstractmethod
    def products(self, theta: Array, trend: Trend) -> Array | None:
        """Z'C^-1 Z for Z = (H, y), the functions of a mean function and the observations, (count + 1, count + 1).

        None where it cannot be certified. Raises NumericalError.
        """

    @classmethod
    def evaluate_many(cls, engines: Sequence[Self], log_thetas: Array) -> Sequence[Evaluation | NumericalError | None]:
        """Each at its own log theta; a failure in its place.

        Here in turn, with one BLAS thread: for engines of many short steps, which are mostly the interpreter's.
        """
        found: list[Evaluation | NumericalError | None] = []
        with blas_threads(1):
            for engine, log_theta in zip(engines, log_thetas, strict=True):
                try:
                    found.append(engine.evaluate(log_theta))
                except NumericalError as failure:
                    found.append(failure)
        return found


class DataEngine(Engine):
    """An engine that keeps the observations themselves, for any kernel."""

    def __init__(self, data: Observations, kernel: Kernel, agent: int | None) -> None:
        self.data, self.kernel, self.agent = data, kernel, agent

    @property
    def size(self) -> int:
        return len(self.data)

    def grow(self, data: Observations) -> None:
        self.data = data
