"""A graph without some agents that still pass on what others say: their neighbours are linked as through them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from fleetgp.graph.graph import Graph
from fleetgp.graph.sequence import GraphSequence, Topology


def relayed(topology: Topology, members: Sequence[int]) -> Topology:
    """The graph of the members alone, numbered in their order; the others have nothing to say, but relay.

    Whoever is next to the same relays is linked in a row, the first with the second and so on: as few links as keep all
    in touch. In a sequence these links are there in every round.

    >>> relayed(Graph.path(4), [0, 2, 3]).edges.tolist(), relayed(Graph.star(4), [1, 2, 3]).edges.tolist()
    ([[0, 1], [1, 2]], [[0, 1], [1, 2]])
    """
    if len(members) == topology.agents:
        return topology
    whole = topology.union
    number = {agent: place for place, agent in enumerate(members)}
    rest = np.setdiff1d(np.arange(whole.agents), members)
    apart = Graph(whole.agents, whole.edges[np.isin(whole.edges, rest).all(axis=1)], connected=False)
    links = []
    for relays in (part for part in apart.components if part[0] not in number):
        around = {number[near] for relay in relays for near in whole.neighbours(relay) if near in number}
        links += list(pairwise(sorted(around)))

    def among_members(graph: Graph, *, connected: bool) -> Graph:
        kept = graph.edges[np.isin(graph.edges, members).all(axis=1)].tolist()
        return Graph(len(members), [(number[a], number[b]) for a, b in kept] + links, connected=connected)

    if isinstance(topology, Graph):
        return among_members(topology, connected=True)
    return GraphSequence([among_members(graph, connected=False) for graph in topology.graphs])
