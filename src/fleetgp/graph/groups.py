"""Agents in groups of nearly equal size with few edges between the groups: who is hosted with whom."""

from __future__ import annotations

import numpy as np
from scipy.sparse.csgraph import reverse_cuthill_mckee

from fleetgp.arrays import IntArray
from fleetgp.errors import InputError
from fleetgp.graph.graph import Graph

#: How often every agent may change its place.
PASSES = 20
#: Agents up to which both orders are improved before the better one is taken.
LARGE = 2000


def groups_of(graph: Graph, count: int) -> list[list[int]]:
    """The agents in so many groups, whose sizes differ by one at most: neighbours together, as far as that goes.

    Two orders, that of the ids and one in which neighbours are close to each other, are cut into equal parts; then two
    agents of different groups change places as long as that spares edges between the groups. The better one is taken;
    of large graphs, the one that is better before anybody changes places.

    >>> groups_of(Graph.path(6), 2)
    [[0, 1, 2], [3, 4, 5]]
    """
    if not 1 <= count <= graph.agents:
        raise InputError(f"expected between 1 and {graph.agents} groups for {graph.agents} agents, got {count}")
    by_id = np.arange(graph.agents)
    close = reverse_cuthill_mckee(graph.sparse_adjacency.tocsr(), symmetric_mode=True)
    cuts = [_in_parts(order, count) for order in (by_id, close)]
    if graph.agents > LARGE:
        cuts = [min(cuts, key=lambda group: _cut(graph, group))]
    for group in cuts:
        _refine(graph, group, count)
    best = min(cuts, key=lambda group: _cut(graph, group))
    return sorted(np.flatnonzero(best == k).tolist() for k in range(count))


def _in_parts(order: IntArray, count: int) -> IntArray:
    """(M,) the group of each agent."""
    group = np.empty(len(order), dtype=np.int64)
    group[order] = np.arange(len(order)) * count // len(order)
    return group


def cut(graph: Graph, groups: list[list[int]]) -> int:
    """How many edges have their ends in different groups.

    >>> cut(Graph.cycle(6), [[0, 1, 2], [3, 4, 5]])
    2
    """
    group = np.empty(graph.agents, dtype=np.int64)
    for k, members in enumerate(groups):
        group[members] = k
    return _cut(graph, group)


def _cut(graph: Graph, group: IntArray) -> int:
    receivers, senders = graph.directed.T
    return int((group[receivers] != group[senders]).sum()) // 2


def _refine(graph: Graph, group: IntArray, count: int) -> None:
    """Change places, two agents at a time, each time with the one that spares most edges, of those at a border."""
    receivers, senders = graph.directed.T
    starts = np.searchsorted(receivers, np.arange(graph.agents + 1))
    near = np.zeros((graph.agents, count), dtype=np.int64)  # neighbours of each agent in each group
    np.add.at(near, (receivers, group[senders]), 1)
    ids = np.arange(graph.agents)
    for _ in range(PASSES):
        at_border = near[ids, group] < graph.degrees
        others = np.flatnonzero(at_border)
        eager = np.flatnonzero(near.max(axis=1) > near[ids, group])
        changed = False
        for agent in eager.tolist():
            own = int(group[agent])
            other = _partner(group, near, agent, others, senders[starts[agent] : starts[agent + 1]])
            if other is None:
                continue
            changed = True
            for moved, old, new in ((agent, own, int(group[other])), (other, int(group[other]), own)):
                neighbours = senders[starts[moved] : starts[moved + 1]]
                near[neighbours, old] -= 1
                near[neighbours, new] += 1
            group[agent], group[other] = group[other], own
        if not changed:
            return


def _partner(group: IntArray, near: IntArray, agent: int, others: IntArray, neighbours: IntArray) -> int | None:
    """With whom an agent changes places; None if that spares nothing."""
    own = group[agent]
    at_stake = near[agent] - near[agent, own]  # edges spared if it goes there
    others = others[group[others] != own]
    if at_stake.max() <= 0 or not len(others):
        return None
    spared = at_stake[group[others]] + near[others, own] - near[others, group[others]]
    spared = spared - 2 * np.isin(others, neighbours)
    best = int(spared.argmax())
    return int(others[best]) if spared[best] > 0 else None
