"""The result of asking for gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.consensus import Status
from fleetgp.data.points import Points, names_of
from fleetgp.network import Ledger
from fleetgp.prediction.frames import answer_frame


@dataclass(frozen=True)
class Gradient:
    """The gradient of the mean at T queries, and how the fleet came by it. `Fleet.gradient` makes it.

    gradient: (T, D) in units of the data per unit of each input as it was given. NaN where no hosted agent was told.
    covariance: (T, D, D) of the gradient of f itself, by methods that are exact GPs, with kernels that have one; None
        for others.
    kinks: (T, D) where the mean has a kink along an input, as it has at data with matern12: the gradient is then the
        mean of the slopes on either side.
    participants: (M, T) who had a say in which query.
    status: "converged": every gradient is exact, in a fixed number of rounds.
    rounds: how many the slowest block of queries took.
    jitter: the largest that any covariance needed; 0 if none.
    engine: (A,) where each agent's own posterior came from.
    points: the queries, with the names of the inputs.

    >>> from fleetgp import Fleet, partition, synthetic_field
    >>> field = synthetic_field(120, seed=1)
    >>> shards, theta = partition(field.inputs, field.observations, agents=4), [1.2, 0.3, 1.3, 0.1]
    >>> fleet = Fleet(shards, theta=theta, kernel="se")
    >>> found = fleet.gradient([[0.5, 0.5], [1.5, 0.5]], "dec-full-gp")
    >>> found.gradient.shape, found.std.shape, found.covariance.shape, found.status
    ((2, 2), (2, 2), (2, 2, 2), 'converged')
    >>> found.to_frame().columns.tolist()
    ['x1', 'x2', 'd_x1', 'd_x2', 'std_d_x1', 'std_d_x2', 'kink']
    """

    method: str
    gradient: Array
    covariance: Array | None
    kinks: BoolArray
    participants: BoolArray
    engine: tuple[str, ...]
    rounds: int
    status: Status
    jitter: float
    ledger: Ledger
    points: Points | None = None

    @property
    def std(self) -> Array | None:
        """(T, D) standard deviations of the gradient of f; None where `covariance` is."""
        if self.covariance is None:
            return None
        return np.asarray(np.sqrt(np.maximum(np.diagonal(self.covariance, axis1=1, axis2=2), 0.0)))

    def to_frame(self, queries: Any = None) -> Any:
        """A pandas data frame, a row for each query: the inputs, and d_x1, d_x2, ... by their names.

        std_d_x1, ...: the standard deviations, where `std` has them.  kink: whether the mean has one there.
        queries: columns to have in the place of the inputs, as a data frame; also needed where `points` is None.
        """
        names = names_of(None if self.points is None else self.points.names, self.gradient.shape[1])
        columns: dict[str, Any] = {f"d_{name}": own for name, own in zip(names, self.gradient.T, strict=True)}
        if self.std is not None:
            columns |= {f"std_d_{name}": own for name, own in zip(names, self.std.T, strict=True)}
        return answer_frame(self.points, columns | {"kink": self.kinks.any(axis=1)}, queries)

    def __repr__(self) -> str:
        return f"Gradient({self.method}: {len(self.gradient)} queries, status={self.status!r}, rounds={self.rounds})"
