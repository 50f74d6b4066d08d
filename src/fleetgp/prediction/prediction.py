"""The result of a prediction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.consensus import Status
from fleetgp.network import Ledger
from fleetgp.prediction.posteriors import first_used

#: An answer that explains less than this share of the variance is no better than the prior.
INFORMED = 0.01
Values = NDArray[Any]
#: From the best to the worst.
STATUSES: tuple[Status, ...] = get_args(Status)


@dataclass(frozen=True)
class Prediction:
    """What the fleet answers at T queries, and how it came by it, for the agents hosted here.

    means, variances: (A, T) each agent's own answer; of f, or of y where noisy. NaN at agents that were not told, since
        another one asked.
    participants: (M, T) who had a say in which query; nobody, where no hosted agent was told. With dec-nearest:
        whose observations are among the nearest.
    query_rounds: (T,) rounds that each query took: of the reduction along the tree, of averaging, or of DALE; 0 with a
        central node.
    solver_rounds: (T,) iterations of JOR before that; a flood each.
    residual: (T,) the relative disagreement that was left when it was last judged; infinite if never.
    status: "converged", "round limit" or "diverged", of the worst query.
    jitter: the largest that any covariance needed; 0 if none.
    engine: (A,) where each agent's own posterior came from, "dense" or "moments"; for full-gp the one posterior, for
        dec-nearest those of the nearest observations.
        "unused": with dec-nn-, of an agent that is too far from all queries for its posterior to be needed.
    explained: (A, T) the share of the variance of f that the answer explains: 0 where it is the prior. That of
        the method itself, without a factor.
    factors: (A, T) what a calibration (`Fleet.calibrate`) has multiplied the standard deviations by; 1 without one.
    asked: position of the agent whose answer `mean` and `variance` are.
    drawn, held: (A,) where the answer is of a random sample of each agent's own observations (`Fleet.from_files` with
        sample): how many these are, and how many are in the files; empty if it is of all of them.

    >>> from fleetgp import Fleet
    >>> out = Fleet([([[0.0], [1.0]], [1.0, 2.0])], theta=[1, 1, 0.1]).predict([[0.5]], "full-gp")
    >>> out.mean.round(2).tolist(), out.variance.round(2).tolist(), out.participants.tolist()
    ([1.7], [0.12], [[True]])
    """

    method: str
    means: Array
    variances: Array
    participants: BoolArray
    query_rounds: IntArray
    solver_rounds: IntArray
    residual: Array
    status: Status
    jitter: float
    engine: tuple[str, ...]
    ledger: Ledger
    explained: Array
    factors: Array
    asked: int = 0
    drawn: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    held: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def mean(self) -> Array:
        """(T,) the answer of the agent that asked."""
        return np.asarray(self.means[self.asked])

    @property
    def variance(self) -> Array:
        """(T,) the same; of f, or of an observation where noisy."""
        return np.asarray(self.variances[self.asked])

    @property
    def factor(self) -> Array:
        """(T,) what the calibration has multiplied the standard deviations by; 1 without one."""
        return np.asarray(self.factors[self.asked])

    @property
    def uninformed(self) -> BoolArray:
        """(T,) where the answer is no better than the prior: far from all data, or nobody took part."""
        return np.asarray(self.explained[self.asked] < INFORMED)

    @property
    def rounds(self) -> int:
        """The rounds of the slowest query: of the reduction, of averaging or of DALE."""
        return int(self.query_rounds.max(initial=0))

    @property
    def disagreement(self) -> float:
        """The largest difference between two agents' means, in units of the largest standard deviation."""
        told = ~np.isnan(self.means).all(axis=1)
        means, variances = self.means[told], self.variances[told]
        if not means.size:
            return 0.0
        spread = means.max(axis=0) - means.min(axis=0)
        return float((spread / max(float(variances.max()) ** 0.5, 1e-300)).max())

    def __repr__(self) -> str:
        return (
            f"Prediction({self.method}: {self.means.shape[1]} queries, status={self.status!r}, rounds={self.rounds}, "
            f"disagreement={self.disagreement:.1e})"
        )


def worst(statuses: Iterable[Status]) -> Status:
    """Of several parts of an answer; of none, "converged".

    >>> worst(["converged", "diverged", "round limit"])
    'diverged'
    """
    return max(statuses, key=STATUSES.index, default="converged")


def kept_once(rows: Values) -> Values:
    """Rows (A, T), in memory once where they are all the same: one answer of many agents to many queries is large.

    >>> kept_once(np.ones((1000, 3))).strides, kept_once(np.eye(2)).strides
    ((0, 8), (16, 8))
    """
    if len(rows) < 2 or not (rows == rows[:1]).all():
        return rows
    return np.broadcast_to(rows[0].copy(), rows.shape)


def _beside(parts: Sequence[Values]) -> Values:
    """Arrays one after the other along their last axis; rows that are kept once still are."""
    if parts[0].ndim == 2 and all(part.strides[0] == 0 for part in parts):
        row = np.concatenate([part[0] for part in parts])
        return np.broadcast_to(row, (len(parts[0]), len(row)))
    return np.concatenate(parts, axis=-1)


def joined(parts: Sequence[Prediction]) -> Prediction:
    """One answer from those at blocks of the queries, in their order, by one method over one network."""
    if len(parts) == 1:
        return parts[0]
    along_queries = ["means", "variances", "participants", "query_rounds", "solver_rounds", "residual", "explained"]
    along_queries.append("factors")
    whole: dict[str, Any] = {name: _beside([getattr(part, name) for part in parts]) for name in along_queries}
    return replace(
        parts[0],
        **whole,
        status=worst(part.status for part in parts),
        jitter=max(part.jitter for part in parts),
        engine=first_used(*(part.engine for part in parts)),
        ledger=parts[-1].ledger,  # which counts all blocks
    )
