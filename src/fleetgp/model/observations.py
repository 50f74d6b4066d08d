"""Observations: where they were made, what was observed, and what is known about the noise of each.

An observation is of the field f at one place, or of the mean of f over a few points.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fleetgp.arrays import Array, IntArray, order_by_place

#: Bytes of the version: a float holds it exactly.
VERSION_BYTES = 6


@dataclass(frozen=True, eq=False)
class Points:
    """A few points for each of N observations: those of observation n are places[starts[n] : starts[n + 1]].

    places: (P, D).  starts: (N + 1,) ascending from 0 to P; every observation has at least one point.

    >>> points = Points.of([np.array([[0.0], [1.0]]), np.array([[5.0]])])
    >>> points.starts.tolist(), points.counts.tolist(), points.mean(points.places).tolist()
    ([0, 2, 3], [2, 1], [[0.5], [5.0]])
    """

    places: Array
    starts: IntArray

    def __post_init__(self) -> None:
        sound = self.starts[0] == 0 and self.starts[-1] == len(self.places) and bool((np.diff(self.starts) > 0).all())
        if not sound:
            raise ValueError(f"expected starts from 0 to {len(self.places)}, ascending, got {self.starts}")

    @classmethod
    def of(cls, groups: Sequence[Array] | Array) -> Points:
        """From the points of each observation, (S_n, D); or (N, S, D) where all have equally many."""
        if isinstance(groups, np.ndarray):
            count, each, width = groups.shape
            return cls(groups.reshape(-1, width), each * np.arange(count + 1))
        counts = [len(group) for group in groups]
        return cls(np.concatenate(list(groups)), np.cumsum([0, *counts]))

    @classmethod
    def single(cls, inputs: Array) -> Points:
        """One point for each observation."""
        return cls(inputs, np.arange(len(inputs) + 1))

    @classmethod
    def joined(cls, parts: Sequence[Points]) -> Points:
        """Several as one, in their order."""
        starts = np.cumsum(np.concatenate([np.zeros(1, dtype=np.int64), *(part.counts for part in parts)]))
        return cls(np.concatenate([part.places for part in parts]), starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def counts(self) -> IntArray:
        """(N,) how many points each observation has."""
        return np.diff(self.starts)

    def rows(self, chosen: Any) -> Points:
        """Those of some observations: a slice, a mask, or the numbers of rows."""
        numbers = np.arange(len(self))[chosen]
        counts = self.counts[numbers]
        starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
        shift = np.repeat(self.starts[numbers] - starts[:-1], counts)
        return Points(self.places[shift + np.arange(starts[-1])], starts)

    def mean(self, values: Array) -> Array:
        """Of values at all points, (P, ..), the mean over those of each observation, (N, ..)."""
        if not len(self):
            return values[:0]
        if values.flags.f_contiguous:  # along the axis that lies together in memory
            totals = np.add.reduceat(values.T, self.starts[:-1], axis=-1).T
        else:
            totals = np.add.reduceat(values, self.starts[:-1], axis=0)
        return np.asarray(totals / self.counts.reshape(-1, *(1,) * (values.ndim - 1)))

    def mean_of_pairs(self, values: Array) -> Array:
        """Of values at all pairs of points, (P, P), the mean over those of each pair of observations, (N, N)."""
        return self.mean(self.mean(values).T).T

    def share_pairs(self, weights: Array) -> Array:
        """The weights (P, P) with which pairs of points count where their means have these weights, (N, N)."""
        shared = weights / np.multiply.outer(self.counts, self.counts)
        return np.repeat(np.repeat(shared, self.counts, axis=0), self.counts, axis=1)


@dataclass(frozen=True, eq=False)
class Observations:
    """N observations y_n = f(x_n) + noise, a row each. The arrays must not be written to.

    inputs: (N, D).  values: (N,).
    noise_std: (N,) the known standard deviation of each; None where there is none.
    group: (N,) the number of the noise group that each is of; None where all are of one.
    weight: (N,) by what the trained variance of the noise is multiplied; None for 1.
    points: of observations that are means of f over a few points, y_n = (1 / S_n) sum_s f(p_ns) + noise. Their `inputs`
        are then the means of their points, by which neighbours are found. None where all are of f at their inputs.

    Only engines and kernels know what an observation is of: everything else passes it on.

    >>> data = Observations(np.array([[0.0], [1.0]]), np.array([2.0, 3.0]), noise_std=np.array([0.1, 0.2]))
    >>> len(data), data.dimension, data.rows([1]).values.tolist(), data.packed.tolist()
    (2, 1, [3.0], [[0.0, 0.1], [1.0, 0.2]])

    Means of four rows and of two, joined with a single row:

    >>> points = [np.array([[0.0], [1.0]]), np.array([[5.0], [6.0]])]
    >>> means = Observations.of_means(points, np.array([2.0, 3.0]), rows=np.array([4, 2]))
    >>> means.inputs.tolist(), means.weight.tolist()
    ([[0.5], [5.5]], [0.25, 0.5])
    >>> Observations.joined([Observations(np.array([[9.0]]), np.array([7.0])), means]).weight.tolist()
    [1.0, 0.25, 0.5]
    """

    inputs: Array
    values: Array
    noise_std: Array | None = None
    group: IntArray | None = None
    weight: Array | None = None
    points: Points | None = None

    @classmethod
    def of_means(
        cls,
        points: Points | Sequence[Array] | Array,
        values: Array,
        rows: Array | IntArray | None = None,
        noise_std: Array | None = None,
        group: IntArray | None = None,
    ) -> Observations:
        """Of means of f over a few points each.

        points: of each observation (S_n, D), or (N, S, D).  values: (N,).
        rows: (N,) how many rows each value is the mean of: the trained variance of its noise is sigma_eps^2 / rows.
            Where rows count by weights w, which sum to 1, this is 1 / sum w^2. None for 1.
        noise_std: (N,) the known standard deviation of each value.  group: (N,) its noise group.
        """
        points = points if isinstance(points, Points) else Points.of(points)
        weight = None if rows is None else 1.0 / np.asarray(rows, dtype=float)
        return cls(points.mean(points.places), values, noise_std, group, weight, points)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def dimension(self) -> int:
        """D, how many inputs there are."""
        return int(self.inputs.shape[1])

    @property
    def places(self) -> Array:
        """(P, D) where f is observed: the points, or the inputs where each observation has one."""
        return self.inputs if self.points is None else self.points.places

    def mean(self, values: Array) -> Array:
        """Of values at all places, (P, ..), the mean over those of each observation, (N, ..)."""
        return values if self.points is None else self.points.mean(values)

    @property
    def arrays(self) -> tuple[Array, ...]:
        """All that there are."""
        points: tuple[Any, ...] = () if self.points is None else (self.points.places, self.points.starts)
        every: tuple[Any, ...] = (self.inputs, self.values, self.noise_std, self.group, self.weight, *points)
        return tuple(array for array in every if array is not None)

    @property
    def as_given(self) -> tuple[Any, ...]:
        """(X, y), or (X, y, s) where there are known standard deviations: as a user gives them."""
        known = () if self.noise_std is None else (self.noise_std,)
        return (self.inputs, self.values, *known)

    @cached_property
    def version(self) -> int:
        """A number that differs where anything else is observed; the same in every process."""
        result = hashlib.blake2b(digest_size=VERSION_BYTES)
        points = () if self.points is None else (self.points.places, self.points.starts)
        for part in (self._columns, self.values, *points):
            result.update(np.ascontiguousarray(part).tobytes())
        return int.from_bytes(result.digest(), "big")

    def same(self, other: Observations) -> bool:
        """Whether all numbers are the same."""
        if self is other:
            return True
        mine, its = self.arrays, other.arrays
        return len(mine) == len(its) and all(a is b or np.array_equal(a, b) for a, b in zip(mine, its, strict=True))

    # ---- other rows ------------------------------------------------------------------------------------------

    def rows(self, chosen: Any) -> Observations:
        """Some of them: a slice, a mask, or the numbers of rows."""
        return type(self)(
            self.inputs[chosen],
            self.values[chosen],
            None if self.noise_std is None else self.noise_std[chosen],
            None if self.group is None else self.group[chosen],
            None if self.weight is None else self.weight[chosen],
            None if self.points is None else self.points.rows(chosen),
        )

    def drawn(self, count: int, seed: int) -> IntArray:
        """The numbers of the first rows in the order of `order_by_place`, as they were given."""
        return np.sort(order_by_place(self.inputs, self.values, seed)[:count])

    @staticmethod
    def joined(parts: Sequence[Observations]) -> Observations:
        """Several as one, in their order.

        All must know the same about their noise. Where some have points, those without have one each, their input; and
        those without a weight have 1.
        """
        return parts[0].followed_by(parts[1:])

    def followed_by(self, others: Sequence[Observations]) -> Observations:
        """These and others as one."""
        parts = (self, *others)
        if any(part.points is not None for part in parts):
            parts = tuple(part._with_points(weighted=any(one.weight is not None for one in parts)) for part in parts)
        if len({len(part.arrays) for part in parts}) != 1:
            raise ValueError("expected observations that all know the same about their noise")

        def column(name: str) -> Any:
            own = [getattr(part, name) for part in parts]
            return None if own[0] is None else np.concatenate(own)

        points = [part.points for part in parts if part.points is not None]
        return type(self)(
            column("inputs"),
            column("values"),
            column("noise_std"),
            column("group"),
            column("weight"),
            Points.joined(points) if points else None,
        )

    def _with_points(self, *, weighted: bool) -> Observations:
        """The same with points, one each if there are none, and with weights if they are wanted."""
        return replace(
            self,
            points=Points.single(self.inputs) if self.points is None else self.points,
            weight=np.ones(len(self)) if weighted and self.weight is None else self.weight,
        )

    # ---- other numbers in the same rows ----------------------------------------------------------------------

    def at(self, inputs: Array, places: Array | None = None) -> Observations:
        """The same observations, with inputs in other coordinates. places: their points in these, if they have any."""
        if self.points is None:
            return replace(self, inputs=inputs)
        if places is None:
            raise ValueError("expected the points in the other coordinates too")
        return replace(self, inputs=inputs, points=replace(self.points, places=places))

    def with_values(self, values: Array) -> Observations:
        """Other values observed in the same way."""
        return replace(self, values=values)

    def weighted(self, weight: Array) -> Observations:
        """The same with other weights (N,)."""
        return replace(self, weight=weight)

    def divided(self, scale: float) -> Observations:
        """In another unit: values and known standard deviations over the scale."""
        known = None if self.noise_std is None else self.noise_std / scale
        return replace(self, values=np.asarray(self.values / scale), noise_std=known)

    def locked(self) -> Observations:
        """The same, after which nobody can write to the arrays."""
        for array in self.arrays:
            array.setflags(write=False)
        return self

    # ---- as they travel --------------------------------------------------------------------------------------

    @property
    def packed(self) -> Array:
        """All but the values as one matrix: the inputs, then what is known about the noise."""
        if self.points is not None:
            raise ValueError("expected observations at single places: means over several points are not sent as rows")
        return self._columns

    @property
    def _columns(self) -> Array:
        columns = [array for array in (self.noise_std, self.weight, self.group) if array is not None]
        return np.column_stack([self.inputs, *columns]) if columns else self.inputs

    def unpacked(self, matrix: Array, values: Array) -> Observations:
        """The converse, for rows that are like these; they may come from a peer."""
        width = self.dimension
        rows = matrix.reshape(-1, self.packed.shape[1])
        columns = iter(rows[:, width:].T)
        noise_std, weight, group = (
            None if array is None else next(columns) for array in (self.noise_std, self.weight, self.group)
        )
        return type(self)(rows[:, :width], values, noise_std, None if group is None else group.astype(np.int64), weight)


@dataclass(frozen=True)
class Summary:
    """low, high, centre: (D,) of the inputs.  count, mean and squares, the sum of squared deviations: of the y_n.

    spread, cross: (D, D) and (D,) the sums of products of the inputs' deviations with each other, and with those of y;
    NaN where they were not kept.
    Of no rows the means and sums are 0, and the box contains nothing: low is infinite, high minus infinite.
    """

    low: Array
    high: Array
    centre: Array
    count: int
    mean: float
    squares: float
    spread: Array
    cross: Array

    @classmethod
    def of(cls, data: Observations) -> Summary:
        x, y = data.inputs, data.values
        if not len(y):
            zero, nowhere = np.zeros(data.dimension), np.full(data.dimension, np.inf)
            return cls(nowhere, -nowhere, zero, 0, 0.0, 0.0, np.outer(zero, zero), zero)
        mean, centre = y.mean(), x.mean(axis=0)
        apart, above = x - centre, y - mean
        squares = float((above**2).sum())
        return cls(x.min(axis=0), x.max(axis=0), centre, len(y), float(mean), squares, apart.T @ apart, apart.T @ above)

    def plus(self, other: Summary) -> Summary:
        """That of both data sets (Chan et al., 1979).

        >>> data = Observations(np.arange(12.0).reshape(6, 2), np.arange(6.0))
        >>> both = Summary.of(data.rows(slice(2))).plus(Summary.of(data.rows(slice(2, None))))
        >>> both.count, both.mean, both.squares, both.centre.tolist()
        (6, 2.5, 17.5, [5.0, 6.0])
        >>> both.spread.tolist(), both.cross.tolist()
        ([[70.0, 70.0], [70.0, 70.0]], [35.0, 35.0])
        """
        count = self.count + other.count
        share, apart, away = other.count / max(count, 1), other.mean - self.mean, other.centre - self.centre
        return Summary(
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            self.centre + share * away,
            count,
            self.mean + share * apart,
            self.squares + other.squares + share * self.count * apart**2,
            self.spread + other.spread + share * self.count * np.outer(away, away),
            self.cross + other.cross + share * self.count * apart * away,
        )

    @property
    def packed(self) -> Array:
        """All numbers in a row."""
        numbers = [self.count, self.mean, self.squares]
        return np.concatenate([self.low, self.high, self.centre, numbers, self.spread.ravel(), self.cross])

    @classmethod
    def unpacked(cls, row: Array, dimension: int) -> Summary:
        """From a row, which may end before the products."""
        numbers = 3 * dimension
        low, high, centre = np.split(row[:numbers], 3)
        count, mean, squares = row[numbers : numbers + 3].tolist()
        rest = row[numbers + 3 :] if len(row) > numbers + 3 else np.full(dimension * (dimension + 1), np.nan)
        spread, cross = rest[: dimension**2].reshape(dimension, dimension), rest[dimension**2 :]
        return cls(low, high, centre, int(count), mean, squares, spread, cross)

    @staticmethod
    def widths(dimension: int) -> tuple[int, int]:
        """How many numbers a row may have: without and with the products."""
        return 3 * dimension + 3, (dimension + 1) * (dimension + 3)
