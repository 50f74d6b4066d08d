"""The order of the points, in which every beginning covers all of the data about evenly; the nearest earlier ones."""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import NDArray

from fleetgp.arrays import Array, BoolArray, IntArray, order_by_place
from fleetgp.linalg.threads import cores

#: Levels at most; the distance between chosen points halves from one to the next.
LEVELS = 40
#: Once this part of the points is chosen, the rest follows at random: its order no longer matters.
MOST = 0.8
#: The first distance is the width of the data over this, an odd number, so that distances on a grid are not at it.
COARSEST = 4.13
#: The offset of cells, in cells, so that rows on a grid do not lie on their edges.
EDGE = 0.381966


def coarse_to_fine(inputs: Array, observations: Array) -> IntArray:
    """Order the rows, (N,), almost by the maximum-minimum rule: each is the farthest from all before.

    Each level takes points that are farther than r from all before and, in a random order, from each other. With 20
    neighbours and 1,500 points in the plane this halves the likelihood's error with a random order (Matern 1/2: 0.19
    nats instead of 0.39; 0.13 with the exact rule, which costs more). The order does not depend on how the rows are
    numbered: its randomness depends on places (`arrays.py`), and rows at the same place are ordered by their values.
    Axes are in units of their standard deviations.
    """
    size = len(inputs)
    shuffled = order_by_place(inputs, observations, seed=0)
    deviations = np.sort(inputs, axis=0).std(axis=0)  # to the last bit, whatever the rows' order
    places = (inputs / np.where(deviations > 0.0, deviations, 1.0))[shuffled]
    places -= places.min(axis=0)
    radius = float(np.linalg.norm(places.max(axis=0))) / COARSEST
    order, taken, count = [np.zeros(1, dtype=np.int64)], np.arange(size) == 0, 1
    nearest = np.linalg.norm(places - places[0], axis=1)  # at most so far from what is taken
    for _ in range(LEVELS):
        if count >= MOST * size or radius == 0.0:
            break
        far = np.flatnonzero(~taken & (nearest > radius))
        if len(far):
            chosen = far[_apart(places[far], radius)]
            order.append(chosen)
            taken[chosen] = True
            count += len(chosen)
            distances, _ = scipy.spatial.cKDTree(places[chosen]).query(places[far], workers=cores())
            nearest[far] = np.minimum(nearest[far], distances)
        radius /= 2.0
    return np.asarray(shuffled[np.concatenate([*order, np.flatnonzero(~taken)])])


def _apart(places: Array, radius: float) -> IntArray:
    """Of places in the order of preference, the first in each cell of a grid as wide as the radius, without those that
    are within the radius of a preferred one.
    """
    cells = np.floor(places / radius + EDGE).astype(np.int64)
    numbers = cells @ np.cumprod([1, *(cells.max(axis=0)[:-1] + 2)])
    firsts = np.sort(np.unique(numbers, return_index=True)[1])
    pairs = scipy.spatial.cKDTree(places[firsts]).query_pairs(radius, output_type="ndarray")
    return np.asarray(firsts[_independent(len(firsts), pairs[:, 0], pairs[:, 1])])


def _independent(count: int, better: IntArray, worse: IntArray) -> BoolArray:
    """(count,) the greedy independent set of a graph, whose edges lead from a better to a worse number."""
    stays, leaves = np.zeros(count, dtype=bool), np.zeros(count, dtype=bool)
    while len(better):
        waits = np.zeros(count, dtype=bool)
        waits[worse] = True
        stays |= ~waits & ~leaves
        leaves[worse[stays[better]]] = True
        open_pairs = ~(stays[better] | leaves[better] | leaves[worse])
        better, worse = better[open_pairs], worse[open_pairs]
    return ~leaves


Neighbours = NDArray[np.int32]

#: Trees grow by this factor, so that few of the points that they find are later ones.
GROWTH = 1.25
#: Neighbours to query relative to the expected number.
SPARE = 1.15
#: Points of a query.
CHUNK = 1 << 15


def nearest_earlier(places: Array, count: int, begin: int, rows: NDArray[np.int64] | None = None) -> Neighbours:
    """The `count` nearest of the earlier places of each of the places from `begin` on (at least `count`), (n, count).

    Sorted by their numbers. Of equally near ones the earlier count.  rows: only of these, ascending, from `begin` on.
    """
    wanted = np.arange(begin, len(places)) if rows is None else rows
    result = np.empty((len(wanted), count), dtype=np.int32)
    start = 0
    while start < len(wanted):
        first = int(wanted[start])
        end = min(len(places), int(GROWTH * first) + 64)
        stop = int(np.searchsorted(wanted, end))
        tree = scipy.spatial.cKDTree(places[:end], balanced_tree=False, compact_nodes=False)
        for part in range(start, stop, CHUNK):
            some = wanted[part : min(part + CHUNK, stop)]
            result[part : part + len(some)] = _nearest(tree, some, count, int(SPARE * count * end / first) + 4)
        start = stop
    return result


def _nearest(tree: scipy.spatial.cKDTree, rows: NDArray[np.int64], count: int, asked: int) -> Neighbours:
    """The same for some rows from a tree of all: query more, and leave out the later ones."""
    asked = min(asked, tree.n)
    distances, near = tree.query(tree.data[rows], k=np.arange(1, asked + 1), workers=cores())
    earlier = near < rows[:, None]
    rank = np.cumsum(earlier, axis=1)
    last = np.argmax(rank >= count, axis=1)  # the place of the count-th
    farthest = distances[np.arange(len(rows)), last]
    # Complete, unless there may be others as near as the last one.
    complete = (rank[:, -1] >= count) & ((distances[:, -1] > farthest) | (asked == tree.n))
    result = np.empty((len(rows), count), dtype=np.int32)
    tied = complete & ((earlier & (distances <= farthest[:, None])).sum(axis=1) > count)
    plain = complete & ~tied
    result[plain] = near[plain][earlier[plain] & (rank[plain] <= count)].reshape(-1, count)
    for i in np.flatnonzero(tied):
        mine, away = near[i][earlier[i]], distances[i][earlier[i]]
        result[i] = mine[np.lexsort((mine, away))[:count]]
    result.sort(axis=1)
    rest = np.flatnonzero(~complete)
    if len(rest):
        result[rest] = _nearest(tree, rows[rest], count, 2 * asked)
    return result
