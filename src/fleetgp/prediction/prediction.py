"""The result of a prediction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.consensus import Status
from fleetgp.data.points import Points
from fleetgp.errors import InputError
from fleetgp.given import as_flag, check_number
from fleetgp.network import Ledger
from fleetgp.prediction.frames import answer_dataset, answer_frame
from fleetgp.prediction.posteriors import first_used

#: An answer that explains less than this share of the variance is no better than the prior.
INFORMED = 0.01
Values = NDArray[Any]
#: From the best to the worst.
STATUSES: tuple[Status, ...] = get_args(Status)


@dataclass(frozen=True)
class Prediction:
    """What the fleet answers at T queries, and how it came by it, for the agents hosted here.

    means: (A, T) each agent's own answer. NaN at agents that were not told, since another one asked.
    field_variances: (A, T) likewise, of f.
    noise: (A, 1) the variance of each agent's own observations about f, sigma_eps^2.
    noisy: whether `variances` are of an observation, as `predict(noisy=True)` has them, or of f.
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
    asked: position of the agent whose answer `mean`, `variance`, `std` and `std_observed` are.
    drawn, held: (A,) where the answer is of a random sample of each agent's own observations (`Fleet.from_files` with
        sample): how many these are, and how many are in the files; empty if it is of all of them.
    points: the queries, with the names of the inputs; None for one block of many.

    >>> from fleetgp import Fleet, partition, synthetic_field
    >>> field = synthetic_field(120, seed=1)
    >>> fleet = Fleet(partition(field.inputs, field.observations, agents=4), theta=[1.2, 0.3, 1.3, 0.1])
    >>> out = fleet.predict([[0.5, 0.5], [1.5, 0.5]])
    >>> np.allclose(out.std_observed**2 - out.std**2, 0.1**2)
    True
    >>> low, high = out.interval(0.95)
    >>> np.allclose(high - low, 2 * 1.96 * out.std_observed, rtol=1e-4)
    True
    >>> out.to_frame().columns.tolist()
    ['x1', 'x2', 'mean', 'std', 'std_observed', 'agents', 'uninformed']
    """

    method: str
    means: Array
    field_variances: Array
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
    noise: Array
    noisy: bool = False
    asked: int = 0
    drawn: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    held: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    points: Points | None = None

    @property
    def mean(self) -> Array:
        """(T,) the answer of the agent that asked."""
        return np.asarray(self.means[self.asked])

    @property
    def variances(self) -> Array:
        """(A, T) each agent's own; of an observation where `noisy`, else of f."""
        return self.field_variances + self.factors**2 * self.noise if self.noisy else self.field_variances

    @property
    def variance(self) -> Array:
        """(T,) of an observation where `noisy`, else of f."""
        return np.asarray(self._variance(observed=self.noisy))

    @property
    def std(self) -> Array:
        """(T,) the standard deviation of f, whatever `noisy` was."""
        return np.sqrt(self._variance(observed=False))

    @property
    def std_observed(self) -> Array:
        """(T,) that of an observation of the agent that asks, with its sigma_eps, whatever `noisy` was."""
        return np.sqrt(self._variance(observed=True))

    def _variance(self, *, observed: bool) -> Array:
        field = self.field_variances[self.asked]
        return np.asarray(field + self.factor**2 * self.noise[self.asked] if observed else field)

    def interval(self, level: float = 0.95, observed: bool = True) -> tuple[Array, Array]:
        """The ends (T,) and (T,) of the central interval that holds so much of the probability.

        observed: of an observation, to compare measurements with; False for f.
        """
        check_number("level", level, above=0.0)
        if not level < 1.0:
            raise InputError(f"level must lie between 0 and 1, got {level!r}")
        std = self.std_observed if as_flag(observed, "observed") else self.std
        half = float(ndtri(0.5 + 0.5 * level)) * std
        return self.mean - half, self.mean + half

    def to_frame(self, queries: Any = None) -> Any:
        """A pandas data frame, a row for each query: inputs, mean, std, std_observed, agents, uninformed.

        The inputs are called x1, x2, ... where they have no names; those that are times are times again.
        agents: how many took part.
        queries: columns to have in the place of the inputs, as a data frame; also needed where `points` is None.
        """
        return answer_frame(self.points, self._columns, queries)

    def to_dataset(self) -> Any:
        """An xarray dataset over the axes of the grid that the queries are, with the columns of `to_frame`.

        The queries may be in any order; every combination of their coordinates must be there once.
        """
        return answer_dataset(self.points, self._columns)

    @property
    def _columns(self) -> dict[str, Any]:
        return {
            "mean": self.mean,
            "std": self.std,
            "std_observed": self.std_observed,
            "agents": np.asarray(self.participants.sum(axis=0)),
            "uninformed": self.uninformed,
        }

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


def explained_share(rule: str, prior: Array, participants: BoolArray, variances: Array) -> Array:
    """The share of the prior's variance (.., T) that variances of f explain. participants: (M, T).

    PoE is measured by the product of priors alone, which is as sure of itself as there are agents in it.
    """
    if rule == "poe":
        prior = prior / np.maximum(participants.sum(axis=0), 1)
    return np.asarray(1.0 - variances / prior)


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
    along_queries = [
        "means",
        "field_variances",
        "participants",
        "query_rounds",
        "solver_rounds",
        "residual",
        "explained",
    ]
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
