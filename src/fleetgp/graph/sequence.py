"""Graphs that vary over time: a periodic sequence of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from fleetgp.errors import GraphError, shortened
from fleetgp.graph.checks import require_connected
from fleetgp.graph.graph import Graph


class GraphSequence:
    """A periodic sequence of graphs on the same agents: round t uses graphs[t mod period].

    The paper's Assumption 1: the union over a period is connected.

    >>> odd_even = GraphSequence([Graph(4, [(0, 1), (2, 3)], connected=False), Graph(4, [(1, 2)], connected=False)])
    >>> odd_even.period, odd_even.diameter, odd_even.union == Graph.path(4)
    (2, 4, True)
    >>> odd_even.at(3).edges.tolist()
    [[1, 2]]
    """

    def __init__(self, graphs: Sequence[Graph]) -> None:
        if not isinstance(graphs, list | tuple) or not all(isinstance(graph, Graph) for graph in graphs):
            raise GraphError(f"expected a list of graphs for a time-varying one, got {shortened(graphs)}")
        if not graphs:
            raise GraphError("expected at least one graph for a time-varying one, got an empty list")
        sizes = sorted({g.agents for g in graphs})
        if len(sizes) > 1:
            raise GraphError(f"expected graphs with the same agents, got sizes {sizes}")
        self.graphs: tuple[Graph, ...] = tuple(graphs)
        self.agents = graphs[0].agents
        edges = np.concatenate([g.edges for g in graphs])
        self.union = Graph(self.agents, edges, connected=False)
        require_connected(self.union, "the union of the graph sequence")

    @property
    def period(self) -> int:
        """How many rounds pass before the graphs repeat."""
        return len(self.graphs)

    def at(self, round: int) -> Graph:
        """The graph of a round."""
        return self.graphs[round % self.period]

    @cached_property
    def diameter(self) -> int:
        """The rounds after which a flood has reached everyone, whatever round it starts in."""
        return max(self._flood_rounds(start) for start in range(self.period))

    def _flood_rounds(self, start: int) -> int:
        known = np.eye(self.agents, dtype=bool)
        rounds = 0
        while not known.all():
            receivers, senders = self.at(start + rounds).directed.T
            step = known.copy()
            np.logical_or.at(step, receivers, known[senders])
            known = step
            rounds += 1
        return rounds

    def __repr__(self) -> str:
        return f"GraphSequence(agents={self.agents}, period={self.period})"


Topology = Graph | GraphSequence
