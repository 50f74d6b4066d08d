"""Groups of rows that an agent has forgotten: what stays of them, for dec-summary.

They describe data, not a model: places and values are as a user has them, so they survive another theta, scaling and
other coordinates. What the model needs to know of their error follows at its theta:

    y_g = sum_i a_i y_i = (1 / S) sum_s f(p_s) + e_g        e_g ~ N(0, sigma_eps^2 sum_i a_i^2 + sum_i a_i^2 s_i^2 + m)

with a_i the weights of the rows and s_i their known standard deviations. m, what the sigma points p_s miss of the rows,
is computed from places that stand for those of the rows, with the same mean and scatter.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.data.transforms import Coordinates, Scaling, shortest_arc, turned_into
from fleetgp.kernels.stationary import Kernel
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations
from fleetgp.prediction.groups import MOST_SCATTERED, Groups, group_sizes, missed, packed_group, sigma_points, split

#: Places that stand for those of a group's rows, at most.
STAND_INS = 32


@dataclass(frozen=True, eq=False)
class KeptGroups:
    """G groups of forgotten rows of one agent.

    counts: (G,) rows.  places: (G, D) their weighted mean.  scatters: (G, D, D) their covariance.
    values: (G,) the weighted mean of the observations.  shares: (G,) the sum of the squared weights.
    known: (G,) the sum of these times the known variances.
    low, high: (G, D + 1) the extremes of the inputs and of the observations.  requests: the requests that brought them.
    The last three are for the agent alone, to find the groups that may contain a row.

    >>> rows = Observations(np.arange(8.0)[:, None], np.arange(8.0))
    >>> kept = KeptGroups.of(rows, [np.arange(4), np.arange(4, 8)])
    >>> kept.values.tolist(), kept.shares.tolist(), kept.joined(5, np.ones(1)).places.tolist()
    ([1.5, 5.5], [0.25, 0.25], [[3.5]])
    >>> again = KeptGroups.unpacked(kept.packed, 1, kept.requests)
    >>> bool((again.scatters == kept.scatters).all()), kept.joined(5, np.ones(1)).scatters.tolist()
    (True, [[[5.25]]])
    """

    counts: Array
    places: Array
    scatters: Array
    values: Array
    shares: Array
    known: Array
    low: Array
    high: Array
    requests: tuple[frozenset[str], ...]

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def dimension(self) -> int:
        """D, how many inputs there are."""
        return int(self.places.shape[1])

    @staticmethod
    def width(dimension: int) -> int:
        """How many numbers describe a group."""
        return 4 + dimension + dimension**2 + 2 * (dimension + 1)

    @classmethod
    def none(cls, dimension: int) -> KeptGroups:
        """Of an agent that has forgotten nothing."""
        return cls.unpacked(np.zeros((0, cls.width(dimension))), dimension, ())

    @classmethod
    def of(
        cls,
        data: Observations,
        members: Sequence[IntArray],
        requests: NDArray[np.object_] | None = None,
        table: Array | None = None,
    ) -> KeptGroups:
        """Of rows. members: the rows of each group.  requests: the name of each row's request, empty for none.

        table: (N, D + 1) the columns whose extremes count, where longitudes in `data` have been turned.
        """
        table = np.column_stack([data.inputs, data.values]) if table is None else table
        result = [_of_rows(data.rows(rows), table[rows]) for rows in members]
        packed = np.array(result).reshape(-1, cls.width(data.dimension))
        names = [frozenset() if requests is None else {requests[row] for row in rows} - {""} for rows in members]
        return cls.unpacked(packed, data.dimension, [frozenset(some) for some in names])

    @property
    def packed(self) -> Array:
        """All numbers, (G, width), to be stored."""
        flat = self.scatters.reshape(len(self), self.dimension**2)
        return np.column_stack(
            [self.counts, self.places, flat, self.values, self.shares, self.known, self.low, self.high]
        )

    @classmethod
    def unpacked(cls, packed: Array, dimension: int, requests: Sequence[Collection[str]]) -> KeptGroups:
        """The converse."""
        count, width = len(packed), cls.width(dimension)
        packed = packed.reshape(count, width)
        ends = np.cumsum([1, dimension, dimension**2, 1, 1, 1, dimension + 1])
        counts, places, scatters, values, shares, known, low, high = np.split(packed, ends, axis=1)
        return cls(
            counts[:, 0],
            places,
            scatters.reshape(count, dimension, dimension),
            values[:, 0],
            shares[:, 0],
            known[:, 0],
            low,
            high,
            tuple(frozenset(names) for names in requests),
        )

    def rows(self, chosen: BoolArray) -> KeptGroups:
        """Some of them."""
        names = [one for one, mine in zip(self.requests, chosen, strict=True) if mine]
        return KeptGroups.unpacked(self.packed[chosen], self.dimension, names)

    def plus(self, other: KeptGroups) -> KeptGroups:
        """These and others."""
        packed = np.concatenate([self.packed, other.packed])
        return KeptGroups.unpacked(packed, self.dimension, (*self.requests, *other.requests))

    def joined(self, size: int, scales: Array, longitude: int = -1) -> KeptGroups:
        """With neighbours joined until each group has at least so many rows; one group if there are fewer.

        scales: (D,) by which near places are near.  longitude: which input it is; -1 for none.
        """
        if not len(self) or (self.counts >= size).all():
            return self
        whole = self
        if longitude >= 0:
            places, own = self.places.copy(), self.places[:, longitude]
            places[:, longitude] = turned_into(own, *shortest_arc(own, own))
            whole = replace(self, places=places)
        parts = split(whole.places / scales, size, np.rint(self.counts).astype(np.int64))
        names = [frozenset().union(*(self.requests[i] for i in part)) for part in parts]
        return KeptGroups.unpacked(np.array([_joined(whole, part) for part in parts]), self.dimension, names)

    def within(self, most: int, scales: Array, longitude: int = -1) -> KeptGroups:
        """With neighbours joined where there are more than so many groups."""
        result = self
        while len(result) > most:
            result = result.joined(int(2 * np.median(result.counts)), scales, longitude)
        return result

    def at(self, coordinates: Coordinates) -> KeptGroups:
        """The same in other coordinates; extremes and requests do not matter there."""
        if not coordinates.origin:
            return self
        points = coordinates.places(sigma_points(self.places, self.scatters))  # (G, 2 D, D')
        places = points.mean(axis=1)
        apart = points - places[:, None]
        scatters = np.swapaxes(apart, 1, 2) @ apart / points.shape[1]
        extremes = np.zeros((len(self), places.shape[1] + 1))
        return replace(self, places=places, scatters=scatters, low=extremes, high=extremes)


def _of_rows(data: Observations, table: Array) -> Array:
    """One group, packed."""
    variances = np.zeros(len(data)) if data.noise_std is None else data.noise_std**2
    floor = 0.5 * float(np.median(variances))
    weights = 1.0 / np.maximum(variances, floor) if floor > 0.0 else np.ones(len(data))
    weights /= weights.sum()
    place = weights @ data.inputs
    apart = data.inputs - place
    scatter = (weights[:, None] * apart).T @ apart
    sums = [weights @ data.values, weights @ weights, weights**2 @ variances]
    return np.concatenate([[len(data)], place, scatter.ravel(), sums, table.min(axis=0), table.max(axis=0)])


def _joined(kept: KeptGroups, part: IntArray) -> Array:
    """Some groups as one, packed: each counts by its rows."""
    weights = kept.counts[part] / kept.counts[part].sum()
    place = weights @ kept.places[part]
    apart = kept.places[part] - place
    scatter = np.tensordot(weights, kept.scatters[part], 1) + (weights[:, None] * apart).T @ apart
    sums = [weights @ kept.values[part], weights**2 @ kept.shares[part], weights**2 @ kept.known[part]]
    extremes = [kept.low[part].min(axis=0), kept.high[part].max(axis=0)]
    return np.concatenate([[kept.counts[part].sum()], place, scatter.ravel(), sums, *extremes])


# ---- as a model sees them --------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class KeptInModel:
    """Kept groups of one agent as a model sees them.

    kept: in its coordinates.  h: in its units.  noise: the trained variance of one of the agent's observations.
    """

    kept: KeptGroups
    scaling: Scaling
    kernel: Kernel
    h: Hyperparameters
    noise: float

    def counted(self, min_rows: int) -> IntArray:
        """How many groups there are of each of the `group_sizes`."""
        rows, sizes = int(self.kept.counts.sum()), group_sizes(min_rows).tolist()
        one = int(rows >= min_rows)
        return np.array([len(self.kept.joined(n, self._scales)) if rows >= 2 * n else one for n in sizes])

    @property
    def _scales(self) -> Array:
        return self.kernel.scales(self.h, self.kept.dimension)[0]

    def of_size(self, size: int, min_rows: int) -> Groups:
        """Groups of at least so many rows, as they travel; none of fewer than min_rows."""
        kept = self.kept.joined(size, self._scales)
        kept = kept.rows(kept.counts >= min_rows)
        dimension = kept.dimension
        values = (kept.values - self.scaling.mean(kept.places)) / self.scaling.scale
        noise = kept.known / self.scaling.scale**2 + kept.shares * self.noise
        packed = [self._packed(kept, g, values[g], noise[g]) for g in range(len(kept))]
        nobody = (np.zeros(0, dtype=np.int64),) * len(kept)
        rows = np.array(packed).reshape(len(kept), -1) if packed else Groups.none(dimension).packed
        return replace(Groups.unpacked(rows, dimension), members=nobody)

    def _packed(self, kept: KeptGroups, g: int, value: float, noise: float) -> Array:
        place, scatter, dimension = kept.places[g], kept.scatters[g], kept.dimension
        stand_ins = places_like(place, scatter, int(min(kept.counts[g], STAND_INS)))
        points = place[None] if dimension > MOST_SCATTERED else sigma_points(place[None], scatter[None])[0]
        weights = np.full(len(stand_ins), 1.0 / len(stand_ins))
        error = noise + missed(stand_ins, weights, points, self.kernel, self.h)
        if dimension > MOST_SCATTERED:
            scatter = np.array([[(np.diagonal(scatter) / self._scales**2).sum()]])
        return packed_group(kept.counts[g], place, scatter, value, error, dimension)


def places_like(place: Array, scatter: Array, count: int) -> Array:
    """So many places (count, D) with this mean and scatter, spread evenly.

    >>> p = places_like(np.array([1.0, 2.0]), np.array([[4.0, 1.0], [1.0, 3.0]]), 20)
    >>> p.mean(axis=0).round(12).tolist(), np.cov(p.T, bias=True).round(12).tolist()
    ([1.0, 2.0], [[4.0, 1.0], [1.0, 3.0]])
    """
    values, vectors = np.linalg.eigh(scatter)
    return np.asarray(place + _uniform(count, len(place)) * np.sqrt(np.maximum(values, 0.0)) @ vectors.T)


@cache
def _uniform(count: int, dimension: int) -> Array:
    """(count, D) places in a cube; with enough of them, their mean is 0 and their covariance 1."""
    drawn = np.random.default_rng(dimension).uniform(-1.0, 1.0, (count, dimension))
    drawn -= drawn.mean(axis=0)
    if count <= 2 * dimension:
        return np.asarray(np.sqrt(3.0) * drawn)
    values, vectors = np.linalg.eigh(drawn.T @ drawn / count)
    return np.asarray(drawn @ vectors / np.sqrt(values))
