"""What a prediction returns: `Prediction`, `Joint` and `Gradient`, also as data frames and datasets.

An answer as a data frame or as a dataset. Needs the extra "data" (pandas, xarray).

The result of a prediction.

The result of a joint prediction: mean and covariance of f at several queries together, and draws from it.

The result of asking for gradients.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, get_args

import numpy as np
import scipy
from numpy.typing import NDArray

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.consensus import Status
from fleetgp.data.transforms import Points, coordinate_facts, names_of
from fleetgp.errors import InputError
from fleetgp.io.fields import xarray
from fleetgp.io.formats import pandas_for
from fleetgp.network import Ledger
from fleetgp.prediction.posteriors import first_used
from fleetgp.validation import as_flag, as_numbers, check_number, check_whole, column_names

#: Of the target itself: columns whose units are its own.
OF_TARGET = ("mean", "std", "std_observed")


def answer_frame(points: Points | None, columns: Mapping[str, Any], queries: Any) -> Any:
    """The columns of an answer beside the queries that were asked, or beside those that are given."""
    pd = pandas_for("to_frame")
    count = len(next(iter(columns.values())))
    if queries is not None:
        named = column_names(queries, "queries") is not None
        given: Any = queries if named else as_numbers(queries, "queries")
        if given.ndim != 2 or len(given) != count:
            raise InputError(f"queries: expected those of the answer, {count} rows, got the shape {np.shape(given)}")
        inputs = {name: given[name].to_numpy() for name in given.columns} if named else {}
        inputs |= {} if named else dict(zip(names_of(None, given.shape[1]), given.T, strict=True))
    elif points is not None:
        inputs = {name: points.shown(own, name) for name, own in zip(points.names, points.values.T, strict=True)}
    else:
        raise InputError("to_frame: the answer does not know its queries: give them, to_frame(queries)")
    clash = [name for name in inputs if name in columns]
    if clash:
        raise InputError(f"the answer has a column {clash[0]!r} too: rename that of the queries")
    return pd.DataFrame({**inputs, **columns})


def shown_axis(points: Points, values: Array, name: str) -> Any:
    """The coordinates along an axis; times as xarray has them."""
    shown = points.shown(values, name)
    return shown.astype("datetime64[ns]") if shown.dtype.kind == "M" else shown


def answer_dataset(points: Points | None, columns: Mapping[str, Any]) -> Any:
    """The columns of an answer over the axes of the grid that its queries are, the last input first."""
    xr = xarray()
    if points is None:
        raise InputError("to_dataset: the answer does not know its queries: ask for all of them at once")
    found = [np.unique(own, return_inverse=True) for own in points.values.T]
    sizes = tuple(len(values) for values, _ in found)
    count = len(points.values)
    cells = np.ravel_multi_index(tuple(place for _, place in found), sizes) if count else np.zeros(0, dtype=np.int64)
    if not count or prod(sizes) != count or len(np.unique(cells)) != count:
        told = " x ".join(map(str, sizes))
        raise InputError(
            f"to_dataset: expected queries on a grid, every combination of their coordinates once, got {count} that "
            f"have {told} different coordinates: to_frame takes any"
        )
    shown = {name: shown_axis(points, values, name) for name, (values, _) in zip(points.names, found, strict=True)}
    axes = [name for name, size in zip(points.names, sizes, strict=True) if size > 1][::-1]
    order = np.argsort(cells)
    shape = [size for size in sizes if size > 1]
    unit = points.units.get(points.target, "")

    def variable(name: str, values: Any) -> tuple[Any, ...]:
        facts = {"units": unit} if unit and name in OF_TARGET else {}
        return axes, np.asarray(values)[order].reshape(shape).T, facts

    coordinates = {
        name: (name if name in axes else (), own if name in axes else own[0], coordinate_facts(name, points.units))
        for name, own in shown.items()
    }
    clash = [name for name in coordinates if name in columns]
    if clash:
        raise InputError(f"the dataset has a variable {clash[0]!r} too: rename that input")
    return xr.Dataset({name: variable(name, own) for name, own in columns.items()}, coords=coordinates)


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
    observed: whether `variances` are of an observation, as `predict(observed=True)` has them, or of f.
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
    ['x1', 'x2', 'mean', 'std', 'std_observed', 'n_agents', 'prior_only']
    >>> dict(out.to_dataset().sizes)  # x2 is the same for both: a coordinate, and no axis
    {'x1': 2}
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
    observed: bool = False
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
        """(A, T) each agent's own; of an observation where `observed`, else of f."""
        return self.field_variances + self.factors**2 * self.noise if self.observed else self.field_variances

    @property
    def variance(self) -> Array:
        """(T,) of an observation where `observed`, else of f."""
        return np.asarray(self._variance(observed=self.observed))

    @property
    def std(self) -> Array:
        """(T,) the standard deviation of f, whatever `observed` was."""
        return np.sqrt(self._variance(observed=False))

    @property
    def std_observed(self) -> Array:
        """(T,) that of an observation of the agent that asks, with its sigma_eps, whatever `observed` was."""
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
        half = float(scipy.special.ndtri(0.5 + 0.5 * level)) * std
        return self.mean - half, self.mean + half

    def to_frame(self, queries: Any = None) -> Any:
        """A pandas data frame, a row for each query: inputs, mean, std, std_observed, n_agents, prior_only.

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
            "n_agents": np.asarray(self.participants.sum(axis=0)),
            "prior_only": self.prior_only,
        }

    @property
    def factor(self) -> Array:
        """(T,) what the calibration has multiplied the standard deviations by; 1 without one."""
        return np.asarray(self.factors[self.asked])

    @property
    def prior_only(self) -> BoolArray:
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
        spread = float((means.max(axis=0) - means.min(axis=0)).max())
        largest = max(float(variances.max()), 0.0) ** 0.5  # a wrong theta can leave no variance positive
        return float(spread / max(largest, 1e-300))

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


#: Of draws, at one time: more do not fit into the memory of most machines.
MOST_NUMBERS = 100_000_000


@dataclass(frozen=True)
class Joint:
    """What the fleet knows of f at T queries together, and how it came by it. `Fleet.joint` makes it.

    mean: (T,), covariance: (T, T), in the units of the data; of f, or of observations. NaN where no hosted
        agent was told, since another one asked.
    participants: (M, T) who had a say in which query.
    status: "converged": every joint answer is exact, in a fixed number of rounds.
    rounds: how many it took.
    jitter: the largest that any covariance needed, or the nugget of a committee: a variance, in the scaled units of the
        model; 0 if none.
    engine: (A,) where each agent's own posterior came from.
    noise: the variance of an observation of the agent that asks, beyond that of f.
    factor: (T,) what a calibration has multiplied the standard deviations by; 1 without one.
    prior_only: (T,) where the answer is no better than the prior: a FleetGPWarning says so too.

    >>> from fleetgp import Fleet, partition, synthetic_field
    >>> field = synthetic_field(120, seed=1)
    >>> shards, theta = partition(field.inputs, field.observations, agents=4), [1.2, 0.3, 1.3, 0.1]
    >>> fleet = Fleet(shards, theta=theta, kernel="se")
    >>> found = fleet.joint([[0.5, 0.5], [0.5, 0.6]], "dec-full-gp")
    >>> found.mean.shape, found.covariance.shape, bool((found.std == found.variance**0.5).all())
    ((2,), (2, 2), True)
    """

    method: str
    mean: Array
    covariance: Array
    participants: BoolArray
    status: Status
    rounds: int
    jitter: float
    engine: tuple[str, ...]
    ledger: Ledger
    noise: float
    factor: Array
    prior_only: BoolArray

    @property
    def variance(self) -> Array:
        """(T,) the diagonal of the covariance."""
        return np.diagonal(self.covariance).copy()

    @property
    def std(self) -> Array:
        """(T,) standard deviations."""
        return np.asarray(np.sqrt(self.variance))

    def sample(self, n: int = 1, seed: int = 0) -> Array:
        """Draws (n, T), the same for the same seed.

        >>> from fleetgp import Fleet, partition, synthetic_field
        >>> field = synthetic_field(120, seed=1)
        >>> shards, theta = partition(field.inputs, field.observations, agents=4), [1.2, 0.3, 1.3, 0.1]
        >>> fleet = Fleet(shards, theta=theta, kernel="se")
        >>> draws = fleet.joint([[0.5, 0.5], [0.5, 0.6]], "dec-rbcm").sample(1000, seed=3)
        >>> draws.shape, bool(np.corrcoef(draws.T)[0, 1] > 0.3)
        ((1000, 2), True)
        """
        check_whole("n", n, least=1)
        check_whole("seed", seed, least=0)
        if n * len(self.mean) > MOST_NUMBERS:
            most = MOST_NUMBERS // len(self.mean)
            raise InputError(f"n: expected at most {most:,} draws of {len(self.mean):,} points, got {n:,}")
        # The symmetric root: it takes covariances that are only just positive, as of two equal queries.
        values, vectors = np.linalg.eigh(self.covariance)
        root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
        return np.asarray(self.mean + np.random.default_rng(seed).standard_normal((n, len(self.mean))) @ root)

    def __repr__(self) -> str:
        return f"Joint({self.method}: {len(self.mean)} queries, status={self.status!r}, rounds={self.rounds})"


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
