"""How far agents are from each other, in hops."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order

from fleetgp.arrays import IntArray


def hops_from(source: int, adjacency: csr_array) -> IntArray:
    """(M,) from one agent to every other that it can reach; M for those it cannot.

    >>> hops_from(1, csr_array([[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]])).tolist()
    [1, 0, 1, 4]
    """
    agents = adjacency.shape[0]
    order, parents = breadth_first_order(adjacency, source, directed=False)
    hops = np.full(agents, agents, dtype=np.int64)
    hops[source] = 0
    place = np.empty(agents, dtype=np.int64)
    place[order] = np.arange(len(order))
    # Breadth first, agents come in the order of their parents: a level ends with the last child of the one before.
    above, end, level = place[parents[order[1:]]], 1, 0
    while end < len(order):
        start, end, level = end, 1 + int(np.searchsorted(above, end)), level + 1
        hops[order[start:end]] = level
    return hops
