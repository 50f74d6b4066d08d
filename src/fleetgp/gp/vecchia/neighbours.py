"""The nearest earlier points of every point."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from fleetgp.arrays import Array
from fleetgp.linalg.threads import cores

Neighbours = NDArray[np.int32]

#: Trees grow by this factor: of what a tree finds, few are later points.
GROWTH = 1.25
#: Neighbours that are asked for beyond those that are expected to be needed.
SPARE = 1.15
#: Points that are asked for at a time.
CHUNK = 1 << 15


def nearest_earlier(places: Array, count: int, begin: int, rows: NDArray[np.int64] | None = None) -> Neighbours:
    """The `count` nearest of the earlier places of each of the places from `begin` on (at least `count`), (n, count).

    Sorted by their numbers. Among equally near ones the earlier count: places decide, and nothing else.
    rows: of these places alone, ascending, all from `begin` on.
    """
    wanted = np.arange(begin, len(places)) if rows is None else rows
    found = np.empty((len(wanted), count), dtype=np.int32)
    start = 0
    while start < len(wanted):
        first = int(wanted[start])
        end = min(len(places), int(GROWTH * first) + 64)
        stop = int(np.searchsorted(wanted, end))
        tree = cKDTree(places[:end], balanced_tree=False, compact_nodes=False)
        for part in range(start, stop, CHUNK):
            some = wanted[part : min(part + CHUNK, stop)]
            found[part : part + len(some)] = _nearest(tree, some, count, int(SPARE * count * end / first) + 4)
        start = stop
    return found


def _nearest(tree: cKDTree, rows: NDArray[np.int64], count: int, asked: int) -> Neighbours:
    """The same for some rows, from a tree that has them all: ask for more, and leave out the later ones."""
    asked = min(asked, tree.n)
    distances, near = tree.query(tree.data[rows], k=np.arange(1, asked + 1), workers=cores())
    earlier = near < rows[:, None]
    rank = np.cumsum(earlier, axis=1)
    last = np.argmax(rank >= count, axis=1)  # the place of the count-th
    farthest = distances[np.arange(len(rows)), last]
    # Complete, unless there may be others as near as the last one.
    complete = (rank[:, -1] >= count) & ((distances[:, -1] > farthest) | (asked == tree.n))
    found = np.empty((len(rows), count), dtype=np.int32)
    tied = complete & ((earlier & (distances <= farthest[:, None])).sum(axis=1) > count)
    plain = complete & ~tied
    found[plain] = near[plain][earlier[plain] & (rank[plain] <= count)].reshape(-1, count)
    for i in np.flatnonzero(tied):
        mine, away = near[i][earlier[i]], distances[i][earlier[i]]
        found[i] = mine[np.lexsort((mine, away))[:count]]
    found.sort(axis=1)
    rest = np.flatnonzero(~complete)
    if len(rest):
        found[rest] = _nearest(tree, rows[rest], count, 2 * asked)
    return found
