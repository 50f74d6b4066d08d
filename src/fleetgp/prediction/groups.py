"""Groups of rows: what an agent tells the fleet about its data without sending a row.

An agent splits its rows into groups of at least `min_rows` and sends a few numbers about each: how many rows there are,
their mean place, the scatter of their places, their mean value, and the variance of its error. To the others a group is
one observation, the mean of the field over a few points that have the same mean place and scatter:

    y_g = sum_i a_i y_i = (1 / S) sum_s f(p_s) + e_g        a_i proportional to 1 / max(v_i, half the median of v)

    e_g ~ N(0, sum_i a_i^2 v_i + (a, -1/S)' K (a, -1/S))    v_i the noise of row i, K the covariance of f at all places

The second term is what the points miss of the rows. The agent knows it exactly, since it knows its rows. With up to
three inputs the points are the 2 D sigma points of the scatter. With more inputs it is the mean place alone, and only
the size of the scatter is sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
import scipy

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.consensus.reductions import total
from fleetgp.kernels.stationary import Kernel
from fleetgp.linalg.threads import side_by_side
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations, Points
from fleetgp.network import Network
from fleetgp.network.wire import check_from_peers, part_bytes
from fleetgp.options import PredictionOptions
from fleetgp.prediction.reach import nearest

#: Inputs up to which the scatter of a group's places is sent. With more inputs the points would be many.
MOST_SCATTERED = 3
#: Rows of a group that the variance of its error is computed from; of a larger group evenly chosen ones.
MOST_ROWS = 200
#: A split leaves at least this share of the rows on either side.
SHARE = 4
NONE: IntArray = np.zeros(0, dtype=np.int64)


def width(dimension: int) -> int:
    """How many numbers describe a group: its count, mean place, scatter, mean value and the variance of its error.

    >>> width(2), width(9)
    (8, 13)
    """
    return 3 + dimension + len(scatter_entries(dimension)[0])


def scatter_entries(dimension: int) -> tuple[IntArray, IntArray]:
    """Rows and columns of the entries of a scatter that travel: a triangle, or beyond three inputs a single one."""
    rows, columns = np.triu_indices(dimension if dimension <= MOST_SCATTERED else 1)
    return rows, columns


@dataclass(frozen=True, eq=False)
class Groups:
    """G groups of one agent, in the order of their places.

    counts: (G,) rows.  places: (G, D) their mean.  scatters: (G, D, D) their covariance; beyond three inputs (G, 1, 1)
    the trace of it, in units of the length-scales.
    values: (G,) their weighted mean.  variances: (G,) of its error.
    members: the rows of each, which only the agent itself knows; none of a group whose rows it has forgotten.
    """

    counts: Array
    places: Array
    scatters: Array
    values: Array
    variances: Array
    members: tuple[IntArray, ...] = ()

    def __len__(self) -> int:
        return len(self.counts)

    @classmethod
    def none(cls, dimension: int) -> Groups:
        """Of an agent with too few rows."""
        return cls.unpacked(np.zeros((0, width(dimension))), dimension)

    @property
    def dimension(self) -> int:
        """D, how many inputs there are."""
        return int(self.places.shape[1])

    @property
    def packed(self) -> Array:
        """As they travel, (G, width)."""
        entries = scatter_entries(self.dimension)
        columns = [self.counts, self.places, self.scatters[:, *entries], self.values, self.variances]
        return np.column_stack(columns)

    @classmethod
    def unpacked(cls, rows: Array, dimension: int) -> Groups:
        """The converse, in the order of their places."""
        rows = rows.reshape(-1, width(dimension))
        rows = rows[order_of(rows, dimension)]
        upper, lower = scatter_entries(dimension)
        scatters = np.zeros((len(rows), 1 + upper.max(), 1 + upper.max()))
        scatters[:, upper, lower] = scatters[:, lower, upper] = rows[:, 1 + dimension : -2]
        return cls(rows[:, 0], rows[:, 1 : 1 + dimension], scatters, rows[:, -2], rows[:, -1])

    @cached_property
    def observations(self) -> Observations:
        """As one observation each, whose noise is known."""
        count, dimension = self.places.shape
        points = None
        if dimension <= MOST_SCATTERED:
            single = self.counts == 1.0
            every = zip(single, self.places, sigma_points(self.places, self.scatters), strict=True)
            points = Points.of([place[None] if one else sigma for one, place, sigma in every]) if count else None
        return Observations(
            self.places, self.values, noise_std=np.sqrt(self.variances), weight=np.zeros(count), points=points
        )

    def radii(self, scales: Array) -> Array:
        """(G,) the root of the mean squared distance of the rows from their mean place, in units of length-scales."""
        if self.dimension > MOST_SCATTERED:
            return np.sqrt(self.scatters[:, 0, 0])
        squares = np.diagonal(self.scatters, axis1=1, axis2=2) / scales**2
        return np.asarray(np.sqrt(squares.sum(axis=1)))

    def rows(self, chosen: BoolArray) -> Groups:
        """Some of them."""
        members = tuple(rows for rows, own in zip(self.members, chosen, strict=False) if own)
        return replace(Groups.unpacked(self.packed[chosen], self.dimension), members=members)

    def plus(self, other: Groups) -> Groups:
        """These and others of the same agent, with their members."""
        packed, members = np.concatenate([self.packed, other.packed]), (*self.members, *other.members)
        order = order_of(packed, self.dimension)
        return replace(Groups.unpacked(packed, self.dimension), members=tuple(members[i] for i in order))

    @property
    def of_rows(self) -> tuple[IntArray, ...]:
        """The members of the agent's own groups, without those whose rows it has forgotten."""
        return tuple(rows for rows in self.members if len(rows))

    @property
    def without_rows(self) -> BoolArray:
        """(G,) which of the agent's own groups are of rows that it has forgotten."""
        return np.array([not len(rows) for rows in self.members], dtype=bool)

    def change(self, old: Groups) -> tuple[IntArray, Array]:
        """What makes these of others: the positions of those that go, and the groups that are new, as they travel."""
        mine, its = ([row.tobytes() for row in groups.packed] for groups in (self, old))
        gone, new = _beyond(its, mine), _beyond(mine, its)
        return np.flatnonzero(gone), self.packed[new]

    def changed(self, gone: IntArray, new: Array) -> Groups:
        """Without some, and with others."""
        kept = np.delete(self.packed, gone, axis=0)
        return Groups.unpacked(np.concatenate([kept, new.reshape(-1, kept.shape[1])]), self.dimension)


def _beyond(rows: Sequence[bytes], others: Sequence[bytes]) -> BoolArray:
    """(n,) which rows are not among others, or more often than there.

    >>> _beyond([b"x", b"y", b"x"], [b"x", b"z"])
    array([False,  True,  True])
    """
    left, result = Counter(others), []
    for row in rows:
        result.append(left[row] < 1)
        left[row] -= 1
    return np.array(result, dtype=bool)


def order_of(rows: Array, dimension: int) -> IntArray:
    """The order of packed groups: by their places, and of those with the same place by the rest."""
    columns = [*range(1, 1 + dimension), 0, *range(1 + dimension, rows.shape[1])]
    return np.lexsort(tuple(rows[:, k] for k in reversed(columns)))


def sigma_points(places: Array, scatters: Array) -> Array:
    """(G, 2 D, D) points that have these means (G, D) and covariances (G, D, D).

    >>> p = sigma_points(np.array([[1.0, 2.0]]), np.array([[[4.0, 1.0], [1.0, 3.0]]]))[0]
    >>> p.mean(axis=0).round(12).tolist(), np.cov(p.T, bias=True).round(12).tolist()
    ([1.0, 2.0], [[4.0, 1.0], [1.0, 3.0]])
    """
    dimension = places.shape[1]
    values, vectors = np.linalg.eigh(scatters)
    roots = np.sqrt(dimension * np.maximum(values, 0.0))[:, None, :] * vectors
    apart = np.swapaxes(roots, 1, 2)
    return np.concatenate([places[:, None] + apart, places[:, None] - apart], axis=1)


# ---- which rows ------------------------------------------------------------------------------------------------------


def split(places: Array, size: int, weights: IntArray | None = None) -> list[IntArray]:
    """The rows (N, D) in groups of at least so many; one group if there are fewer.

    The leaves of a k-d tree: a cell is cut across its longest side as long as both parts have enough rows. The cut is
    at the roundest number (the multiple of the highest power of two) that leaves a quarter of the rows on either side.
    So the groups are a function of the set of rows. weights: (N,) for how many rows each place stands; None for 1.

    >>> sorted(rows.tolist() for rows in split(np.array([[0.1], [5.0], [0.2], [5.1], [0.3]]), 2))
    [[0, 2, 4], [1, 3]]
    """
    weights = np.ones(len(places), dtype=np.int64) if weights is None else weights
    result: list[IntArray] = []
    waiting = [np.arange(len(places))]
    while waiting:
        rows = waiting.pop()
        left = _left_of_cut(places[rows], weights[rows], size)
        if left is None:
            result.append(rows)
        else:
            waiting += [rows[~left], rows[left]]
    return result


def _left_of_cut(places: Array, weights: IntArray, size: int) -> BoolArray | None:
    """(n,) which rows are below the cut; None where there are too few, or ties leave no place for one."""
    count = int(weights.sum())
    if count < 2 * size:
        return None
    fewest = max(size, count // SHARE)
    for axis in np.argsort(-np.ptp(places, axis=0), kind="stable"):
        column = places[:, axis]
        order = np.argsort(column, kind="stable")
        below = np.cumsum(weights[order])
        low, high = (
            column[order[np.searchsorted(below, fewest)]],
            column[order[np.searchsorted(below, count - fewest, "right")]],
        )
        if low < high:
            return np.asarray(column < roundest(low, high))
    return None


def roundest(low: float, high: float) -> float:
    """The number above `low`, and at most `high`, that is a multiple of the highest power of two.

    >>> roundest(0.3, 0.9), roundest(-1.0, 5.0), roundest(5.1, 5.9), roundest(2.0, 4.0)
    (0.5, 0.0, 5.5, 4.0)
    """
    if low < 0.0 <= high:
        return 0.0
    step = 2.0 ** np.floor(np.log2(max(abs(low), abs(high))))
    while np.floor(high / step) * step <= low:
        step /= 2.0
    return float(np.floor(high / step) * step)


def regrouped(places: Array, size: int, min_rows: int, old: Sequence[IntArray]) -> list[IntArray]:
    """The rows (N, D) in groups, where some of them are in groups that have been sent.

    These stay, or are joined with others where `size` has grown: if rows moved from one group to another, the
    difference of two summaries would describe a few rows, or a single one. New rows make groups of their own as soon as
    they are min_rows; until then they wait. There are no groups if all groups together have fewer rows than min_rows,
    which was smaller before. Groups with rows after the N that there are here stay out, with all their rows.

    >>> places = np.arange(12.0)[:, None]
    >>> pairs = regrouped(places[:4], 2, 2, [])
    >>> [sorted(map(len, regrouped(places, size, size, pairs))) for size in (1, 2, 4, 12, 13)]
    [[1, 1, 1, 1, 1, 1, 1, 1, 2, 2], [2, 2, 2, 2, 2, 2], [4, 4, 4], [], []]
    """
    rows = np.setdiff1d(np.arange(len(places)), np.concatenate([NONE, *old]))
    old = [some for some in old if some.max() < len(places)]
    if len(rows) < min_rows:
        new = []
    else:
        new = [rows[some] for some in split(places[rows], size if not old else min_rows)]
    every = [*old, *new]
    if sum(map(len, every)) < min_rows:
        return []
    if not old or all(len(some) >= size for some in every):
        return every
    centres, counts = np.array([places[some].mean(axis=0) for some in every]), np.array([len(some) for some in every])
    return [np.sort(np.concatenate([every[i] for i in part])) for part in split(centres, size, counts)]


def with_earlier(new: Sequence[IntArray], old: Sequence[IntArray]) -> tuple[IntArray, ...]:
    """New groups, made of whole old ones and of other rows, with the old groups that are in none of them.

    >>> with_earlier([np.array([0, 1, 2, 3])], [np.array([0, 1]), np.array([4, 5])])
    (array([0, 1, 2, 3]), array([4, 5]))
    """
    first = np.array([some[0] for some in old], dtype=np.int64)
    there = np.isin(first, np.concatenate([NONE, *new]))
    return (*new, *(some for some, joined in zip(old, there.tolist(), strict=True) if not joined))


# ---- what is said of them --------------------------------------------------------------------------------------------


def summarize(data: Observations, members: Sequence[IntArray], kernel: Kernel, h: Hyperparameters) -> Groups:
    """The groups of an agent's rows, at theta. members: the rows of each."""
    noise = kernel.noise(data, h)
    dimension = data.dimension
    step = max(1, -(-len(members) // 64))
    parts = [members[start : start + step] for start in range(0, len(members), step)]
    rows = side_by_side(lambda part: [_described(data, some, noise[some], kernel, h) for some in part], parts)
    packed = np.array([row for part in rows for row in part]).reshape(-1, width(dimension))
    order = order_of(packed, dimension)
    return replace(Groups.unpacked(packed, dimension), members=tuple(members[i] for i in order))


def _described(data: Observations, rows: IntArray, noise: Array, kernel: Kernel, h: Hyperparameters) -> Array:
    """One group as it travels."""
    # In one order in memory, whatever that of the data, so that sums are rounded alike.
    places, values, dimension = np.ascontiguousarray(data.inputs[rows]), data.values[rows], data.dimension
    # A row that is far more precise than the others would be the group.
    weights = 1.0 / np.maximum(noise, 0.5 * np.median(noise))
    weights /= weights.sum()
    own = float(weights**2 @ noise)
    place = weights @ places
    apart = places - place
    if dimension > MOST_SCATTERED:
        scatter = np.array([[weights @ ((apart / kernel.scales(h, dimension)[0]) ** 2).sum(axis=1)]])
        points = place[None]
    else:
        scatter = (weights[:, None] * apart).T @ apart
        points = sigma_points(place[None], scatter[None])[0]
    if len(rows) > 1:
        own += missed(places, weights, points, kernel, h)
    return packed_group(len(rows), place, scatter, float(weights @ values), own, dimension)


def packed_group(count: float, place: Array, scatter: Array, value: float, variance: float, dimension: int) -> Array:
    """One group as it travels."""
    return np.concatenate([[count], place, scatter[scatter_entries(dimension)], [value, variance]])


def missed(places: Array, weights: Array, points: Array, kernel: Kernel, h: Hyperparameters) -> float:
    """The variance of the difference between the weighted mean of f over the rows and its mean over the points."""
    some = slice(None, None, -(-len(places) // MOST_ROWS))
    share = weights[some] / weights[some].sum()
    both = np.concatenate([places[some], points])
    signed = np.concatenate([share, np.full(len(points), -1.0 / len(points))])
    return max(float(signed @ kernel(both, None, h) @ signed), 0.0)


# ---- agreement -------------------------------------------------------------------------------------------------------


class ForgottenGroups(Protocol):
    """Groups of rows that an agent has forgotten; see `kept`."""

    def counted(self, min_rows: int) -> IntArray:
        """(LEVELS,) how many groups of each size there are."""

    def of_size(self, size: int, min_rows: int) -> Groups:
        """Groups of at least so many rows."""


#: Bytes of a number as it travels.
NUMBER = 8
#: Sizes of groups to choose from: up to two million times min_rows.
LEVELS = 43


def agree_on_groups(
    network: Network,
    shards: Sequence[Observations],
    kernel: Kernel,
    h: Hyperparameters,
    options: PredictionOptions,
    before: Sequence[Groups] | None = None,
    sent: Sequence[Sequence[IntArray]] | None = None,
    kept: Sequence[ForgottenGroups] = (),
) -> tuple[Groups, ...]:
    """Every agent's groups at every agent, each once over each edge of the tree.

    before: what all agents hold already; only groups that have changed are sent.
    sent: the rows of the groups that the hosted agents have sent, of this model or an earlier one, by any options.
    kept: of the hosted agents, those of rows that they have forgotten; none for none.
    """
    dimension = shards[0].dimension
    if network.agents == 1:  # its rows need no groups
        return (kept[0].of_size(options.min_rows, options.min_rows) if kept else Groups.none(dimension),)
    scales, _ = kernel.scales(h, dimension)
    with network.phase("groups"):
        places = [data.inputs / scales for data in shards]
        old = [Groups.none(dimension) if before is None else before[agent] for agent in network.hosted]
        sent = [own.of_rows for own in old] if sent is None else sent
        forgotten = [one.counted(options.min_rows) for one in kept]
        size = size_that_fits(network, places, options, sent, forgotten=forgotten)
        own: list[Groups] = []
        parts: dict[str, list[Array]] = {"groups": [], "statistics": []}
        for data, where, known, whose in zip(shards, places, old, sent, strict=True):
            new = summarize(data, regrouped(where, size, options.min_rows, whose), kernel, h)
            if kept:
                new = new.plus(kept[len(own)].of_size(size, options.min_rows))
            gone, more = new.change(known)
            own.append(new)
            parts["groups"].append(more)
            parts["statistics"].append(gone.astype(float))
        everyone = network.collect(parts if before is not None else {"groups": parts["groups"]})
    assert everyone is not None, "all agents receive it"
    return _merged(network, everyone, own, before, dimension, options.min_rows)


def size_that_fits(
    network: Network,
    places: Sequence[Array],
    options: PredictionOptions,
    old: Sequence[Sequence[IntArray]],
    others: int = 0,
    forgotten: Sequence[IntArray] = (),
) -> int:
    """How many rows a group has at least, so that all groups fit: min_rows, or 1.4, 2, 2.8, 4, .. times as many.

    Each agent counts its own groups of every size; one reduction adds them up. places: (A,) of the hosted agents' rows,
    in units of the length-scales.  old: the rows of the groups that they have sent.  others: how many groups there are
    besides, of agents that are away.  forgotten: (A, LEVELS) of the hosted agents, groups of forgotten rows.
    """
    sizes = group_sizes(options.min_rows).tolist()
    counts = np.array([[_count(own, n, options, some) for n in sizes] for own, some in zip(places, old, strict=True)])
    if len(forgotten):
        counts += np.stack(forgotten)
    return rows_per_group(network, counts.astype(float), options, places[0].shape[1], others)


def group_sizes(min_rows: int) -> IntArray:
    """Rows that a group may have at least."""
    return np.asarray(np.ceil(min_rows * 2.0 ** (0.5 * np.arange(LEVELS))), dtype=np.int64)


def rows_per_group(network: Network, counts: Array, options: PredictionOptions, dimension: int, others: int = 0) -> int:
    """How many rows a group has at least, so that all groups fit.

    counts: (A, LEVELS) how many groups of each of the sizes the hosted agents have; one reduction adds them up.
    """
    sizes = group_sizes(options.min_rows)
    fits = total(network, counts) + others <= groups_within(options.budget, network.agents, dimension)
    return int(sizes[np.argmax(fits)] if fits.any() else sizes[-1])


def groups_within(budget: float, agents: int, dimension: int) -> int:
    """How many groups of so many agents may cross a link.

    >>> groups_within(100_000, 10, 2)
    1560
    """
    return max(0, int((budget - agents * part_bytes(2, 0)) // (NUMBER * width(dimension))))


def most_groups(counts: Sequence[int], size: int, min_rows: int) -> IntArray:
    """How many groups of so many rows agents have at most: none of fewer than min_rows, one of fewer than `size`.

    >>> most_groups([4, 7, 35], 10, 5).tolist()
    [0, 1, 3]
    """
    rows = np.array(counts, dtype=np.int64)
    return np.where(rows >= min_rows, np.maximum(rows // size, 1), 0)


def _count(places: Array, size: int, options: PredictionOptions, old: Sequence[IntArray]) -> int:
    """How many groups an agent has; where these alone are more than fit, some number that is, too.

    Of rows that are in no group yet it is more than half of the bound.
    """
    (bound,) = most_groups([len(places)], size, options.min_rows).tolist()
    too_many = not len(old) and 0.5 * bound > groups_within(options.budget, 1, places.shape[1])
    return bound if bound < 2 or too_many else len(regrouped(places, size, options.min_rows, old))


def _merged(
    network: Network,
    everyone: dict[str, list[Array]],
    own: Sequence[Groups],
    before: Sequence[Groups] | None,
    dimension: int,
    min_rows: int,
) -> tuple[Groups, ...]:
    """All agents' groups, from what was there and what has changed."""
    old = [Groups.none(dimension)] * network.agents if before is None else list(before)
    columns, hosted = width(dimension), dict(zip(network.hosted, own, strict=True))
    check_from_peers(
        everyone["groups"],
        lambda _, rows: rows.size == 0 or (rows.ndim == 2 and are_sound(rows, columns, min_rows)),
        f"groups of at least {min_rows} rows, {columns} numbers each",
    )
    gone = everyone.get("statistics", [np.zeros(0)] * network.agents)
    check_from_peers(gone, lambda i, rows: bool(np.isin(rows, np.arange(len(old[i]))).all()), "positions of its groups")
    return tuple(
        hosted[agent]
        if agent in hosted
        else old[agent].changed(gone[agent].astype(np.int64), everyone["groups"][agent])
        for agent in range(network.agents)
    )


def are_sound(rows: Array, columns: int, min_rows: int) -> bool:
    """Whether packed groups can be what an agent says of its rows."""
    if rows.shape[1] != columns or not np.isfinite(rows).all():
        return False
    return bool((rows[:, 0] >= min_rows).all() and (rows[:, -1] > 0.0).all())


# ---- as data ---------------------------------------------------------------------------------------------------------


def all_of(groups: Sequence[Groups], like: Observations) -> Iterator[Observations]:
    """Groups of several agents as observations, with the columns of an agent's rows."""
    for own in groups:
        data = own.observations
        yield data if like.group is None else replace(data, group=np.zeros(len(data), dtype=np.int64))


def as_observed(data: Observations) -> Observations:
    """An agent's rows, such that they can be joined with groups: with the columns that these have."""
    count = len(data)
    known = np.zeros(count) if data.noise_std is None else data.noise_std
    weight = np.ones(count) if data.weight is None else data.weight
    # In one order in memory, whatever that of the data, so that posteriors are rounded alike.
    return replace(data, inputs=np.ascontiguousarray(data.inputs), noise_std=known, weight=weight)


# ---- who knows most about a query ------------------------------------------------------------------------------------

#: Groups near a query that are looked at, at most: so many agents may take part in it.
NEAREST = 16
#: An agent takes part where its nearest group is at most so many radii of a group farther away than the nearest of all.
REACH = 2.0


def nearness(groups: Sequence[Groups], queries: Array, kernel: Kernel, h: Hyperparameters) -> tuple[Array, Array]:
    """(M, T) by how much each agent's knowledge of each query counts, from 0 to 1, and (M, T, D) its derivatives.

    With d the distance of the agent's nearest group, d_1 <= .. <= d_K+1 those of the nearest groups of all, and r their
    mean radius, it is 1 - (d - d_1) / min(2 r, d_K+1 - d_1), or 0. So where the agents' areas meet there are two or
    three who count, and where areas overlap all who are there. The weight fades out before an agent stops taking
    part, so that maps have no seams. If each group is a single row, every agent knows what all know: one is enough.
    """
    agents, (count, dimension) = len(groups), queries.shape
    every = np.concatenate([own.places for own in groups])
    single = all((own.counts == 1.0).all() for own in groups)
    most = min(1 if single else NEAREST, len(every) - 1)
    if most < 1:
        weight = np.array([len(own) > 0 or not len(every) for own in groups], dtype=float)
        return np.tile(weight[:, None], (1, count)), np.zeros((agents, count, dimension))
    scales, _ = kernel.scales(h, dimension)
    places, asked = every / scales, queries / scales
    distance, near = nearest(scipy.spatial.cKDTree(places), asked, most + 1)
    with np.errstate(divide="ignore", invalid="ignore"):  # a distance |x - c| changes along the unit vector from c to x
        units = (asked[:, None] - places[near]) / distance[:, :, None] / scales
    units = np.where(np.isfinite(units), units, 0.0)  # (T, K + 1, D)
    reach, of_reach = _reach(distance, units, np.concatenate([own.radii(scales) for own in groups])[near])
    whose = np.repeat(np.arange(agents), [len(own) for own in groups])[near]
    positions, here = np.full((agents, count), -1), np.arange(count)
    for k in reversed(range(most + (len(every) <= NEAREST))):
        positions[whose[:, k], here] = k
    own = np.take_along_axis(distance.T, np.maximum(positions, 0), axis=0)
    weight = np.where(positions >= 0, 1.0 - (own - distance[:, 0]) / reach, 0.0)
    change = units[:, 0] - units[here, np.maximum(positions, 0)]  # (M, T, D) of d_1 - d
    slope = (change + (1.0 - weight)[..., None] * of_reach) / reach[:, None]
    return np.maximum(weight, 0.0), np.where((weight > 0.0)[..., None], slope, 0.0)


def _reach(distance: Array, units: Array, radii: Array) -> tuple[Array, Array]:
    """(T,) within how much more than the nearest group's distance an agent's must be, and (T, D) its derivatives.

    distance, radii: (T, K + 1) of the nearest groups.  units: (T, K + 1, D) the derivatives of the distances.
    """
    gap, of_gap = distance[:, -1] - distance[:, 0], units[:, -1] - units[:, 0]
    weights, of_weights = distance[:, -1:] - distance, units[:, -1:] - units
    total = weights.sum(axis=1)
    known = total > 0.0
    share = weights / np.where(known, total, 1.0)[:, None]
    radius = np.where(known, (share * radii).sum(axis=1), radii[:, 0])
    of_radius = np.einsum("tk,tkd->td", radii - radius[:, None], of_weights) / np.where(known, total, np.inf)[:, None]
    wide = REACH * radius < gap
    reach = np.where(wide, REACH * radius, gap)
    least = np.finfo(float).tiny
    return np.maximum(reach, least), np.where(wide[:, None], REACH * of_radius, of_gap)
