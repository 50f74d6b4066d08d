"""Agents in groups of nearly equal size with few edges between the groups: who is hosted with whom."""

from __future__ import annotations

import numpy as np
from scipy.sparse.csgraph import reverse_cuthill_mckee

from fleetgp.arrays import IntArray
from fleetgp.errors import InputError
from fleetgp.graph.graph import Graph

#: How often every agent may change its place.
PASSES = 20


def groups_of(graph: Graph, count: int) -> list[list[int]]:
    """The agents in so many groups, whose sizes differ by one at most: neighbours together, as far as that goes.

    Two orders, that of the ids and one in which neighbours are close to each other, are cut into equal parts; then two
    agents of different groups change places as long as that spares edges between the groups. The better one is taken.

    >>> groups_of(Graph.path(6), 2)
    [[0, 1, 2], [3, 4, 5]]
    """
    if not 1 <= count <= graph.agents:
        raise InputError(f"expected between 1 and {graph.agents} groups for {graph.agents} agents, got {count}")
    by_id = np.arange(graph.agents)
    close = reverse_cuthill_mckee(graph.sparse_adjacency.tocsr(), symmetric_mode=True)
    return min((_grouped(graph, order, count) for order in (by_id, close)), key=lambda groups: cut(graph, groups))


def _grouped(graph: Graph, order: IntArray, count: int) -> list[list[int]]:
    group = np.empty(graph.agents, dtype=np.int64)
    group[order] = np.arange(graph.agents) * count // graph.agents
    _refine(graph, group, count)
    return sorted(np.flatnonzero(group == k).tolist() for k in range(count))


def cut(graph: Graph, groups: list[list[int]]) -> int:
    """How many edges have their ends in different groups.

    >>> cut(Graph.cycle(6), [[0, 1, 2], [3, 4, 5]])
    2
    """
    group = np.empty(graph.agents, dtype=np.int64)
    for k, members in enumerate(groups):
        group[members] = k
    receivers, senders = graph.directed.T
    return int((group[receivers] != group[senders]).sum()) // 2


def _refine(graph: Graph, group: IntArray, count: int) -> None:
    """Change places, two agents at a time, each time with the one that spares most edges."""
    near = np.zeros((graph.agents, count), dtype=np.int64)  # neighbours of each agent in each group
    receivers, senders = graph.directed.T
    np.add.at(near, (receivers, group[senders]), 1)
    for _ in range(PASSES):
        changed = False
        for agent in range(graph.agents):
            changed |= _change_places(graph, group, near, agent)
        if not changed:
            return


def _change_places(graph: Graph, group: IntArray, near: IntArray, agent: int) -> bool:
    own = group[agent]
    at_stake = near[agent] - near[agent, own]  # edges spared if it goes there
    if at_stake.max() <= 0:
        return False
    others = np.flatnonzero(group != own)
    spared = at_stake[group[others]] + near[others, own] - near[others, group[others]]
    spared = spared - 2 * np.isin(others, graph.neighbours(agent))
    best = int(spared.argmax())
    if spared[best] <= 0:
        return False
    other = int(others[best])
    for moved, old, new in ((agent, own, group[other]), (other, group[other], own)):
        neighbours = graph.neighbours(moved)
        near[neighbours, old] -= 1
        near[neighbours, new] += 1
    group[agent], group[other] = group[other], own
    return True
