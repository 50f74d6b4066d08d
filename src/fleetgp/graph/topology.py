"""Graphs by name and by place, graphs that vary over time, and what groups and relays make of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np
import scipy
from scipy.sparse.csgraph import reverse_cuthill_mckee

from fleetgp.arrays import Array, IntArray
from fleetgp.errors import GraphError, InputError, shortened, unknown_name
from fleetgp.graph.graph import Graph, NetworkxGraph, require_connected
from fleetgp.registry import Registry

#: Up to so many agents all pairs are looked at; beyond, in the plane and in space, the edges of a triangulation.
ALL_PAIRS = 400
#: Two agents are linked if no other is nearer to the middle between them, but for rounding.
ROUNDING = 1e-9


def gabriel_graph(places: Array) -> Graph:
    """Agents at places (M, D), linked where the ball with the two at its ends holds no third; always connected.

    >>> gabriel_graph(np.array([[0.0, 0.0], [1.0, 0.1], [2.0, 0.0], [9.0, 9.0]])).edges.tolist()
    [[0, 1], [1, 2], [2, 3]]
    """
    points = np.asarray(places, dtype=float)
    if points.ndim != 2 or not np.isfinite(points).all():
        raise GraphError(f"expected finite places of shape (M, D), got {points.shape}")
    first, second = _candidates(points).T
    middle = 0.5 * (points[first] + points[second])
    radius = np.linalg.norm(middle - points[first], axis=1)
    nearest = scipy.spatial.cKDTree(points).query(middle)[0] if len(middle) else np.zeros(0)
    linked = nearest >= radius * (1.0 - ROUNDING)
    return Graph(len(points), np.stack([first[linked], second[linked]], axis=1).tolist())


def _candidates(points: Array) -> IntArray:
    """(E, 2) pairs among which all edges are: the Gabriel graph is a part of every Delaunay triangulation."""
    agents, dimension = points.shape
    if agents > ALL_PAIRS and dimension in (2, 3):
        try:
            simplices = scipy.spatial.Delaunay(points).simplices
        except scipy.spatial.QhullError:  # they lie on a line, or in a plane
            simplices = None
        if simplices is not None and len(np.unique(simplices)) == agents:  # else some are copies of others
            corners = np.triu_indices(dimension + 1, 1)
            pairs = np.concatenate([simplices[:, [a, b]] for a, b in zip(*corners, strict=True)])
            return np.asarray(np.unique(np.sort(pairs, axis=1), axis=0), dtype=np.int64)
    return np.stack(np.triu_indices(agents, 1), axis=1).astype(np.int64)


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


#: Graphs by name, of so many agents.
GRAPHS: Registry[Callable[[int], Graph]] = Registry(
    "graph",
    {
        "path": Graph.path,
        "cycle": Graph.cycle,
        "star": Graph.star,
        "grid": Graph.grid,
        "complete": Graph.complete,
        "geometric": Graph.geometric,
    },
)


def register_graph(name: str, make: Callable[[int], Graph]) -> None:
    """Add a graph by name: `Fleet` and the command line take it. make: the connected graph of so many agents.

    >>> import fleetgp as fg
    >>> fg.register_graph("wheel", lambda agents: fg.Graph(agents, [*fg.Graph.cycle(agents).edges, (0, 2)]))
    >>> fg.Fleet([([[i], [i + 0.5]], [i, 1.0]) for i in range(4)], graph="wheel").graph
    Graph(agents=4, edges=5)
    """
    GRAPHS.add(name, make)


#: The name of the graph of those whose data are neighbours.
PLACES = "places"


def graph_names() -> tuple[str, ...]:
    """Those that a fleet takes, with PLACES."""
    return (*GRAPHS, PLACES)


def as_topology(graph: object, agents: int, *, seed: int = 0, places: Array | None = None) -> Topology:
    """A name, a Graph, a networkx graph, an adjacency matrix, or a list of any of them (time-varying).

    places: (M, D) where the agents are, for "places".

    >>> as_topology("star", 3)
    Graph(agents=3, edges=2)
    """
    if isinstance(graph, list | tuple) and graph and not _is_matrix(graph):
        topology: Topology = GraphSequence([_as_graph(g, agents, seed, places, connected=False) for g in graph])
    elif isinstance(graph, GraphSequence):
        topology = graph
    else:
        topology = _as_graph(graph, agents, seed, places, connected=True)
    if topology.agents != agents:
        raise GraphError(f"expected a graph of {agents} agents, as many as the data have, got {topology.agents}")
    return topology


def _as_graph(graph: object, agents: int, seed: int, places: Array | None, *, connected: bool) -> Graph:
    if isinstance(graph, Graph):
        if connected:
            require_connected(graph)
        return graph
    if isinstance(graph, str):
        if graph == PLACES and places is not None:
            return gabriel_graph(places)
        if graph not in GRAPHS:
            raise unknown_name("graph", graph, GRAPHS if places is None else graph_names())
        return Graph.geometric(agents, seed=seed) if graph == "geometric" else GRAPHS[graph](agents)
    if isinstance(graph, NetworkxGraph):
        return Graph.from_networkx(graph, connected=connected)
    if hasattr(graph, "shape") or isinstance(graph, list | tuple):
        return Graph.from_adjacency(graph, connected=connected)
    raise InputError(
        "expected a name, a Graph, a networkx graph, an adjacency matrix or a list of them as the graph, "
        f"got {type(graph).__name__}"
    )


def check_topology(given: object) -> None:
    """A graph that a network can be on, or one clear error."""
    if not isinstance(given, Graph | GraphSequence):
        raise GraphError(f"expected a Graph or a GraphSequence, got {shortened(given)}")


def _is_matrix(value: Sequence[object]) -> bool:
    return all(isinstance(row, list | tuple) and all(isinstance(v, int | float) for v in row) for row in value)


def relayed(topology: Topology, members: Sequence[int]) -> Topology:
    """The graph of the members alone, numbered in their order; the others only relay.

    Members next to the same relays are linked in a row, the first with the second and so on: as few links as keep all
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
        cuts = [min(cuts, key=lambda group: cut(graph, group))]
    for group in cuts:
        _refine(graph, group, count)
    best = min(cuts, key=lambda group: cut(graph, group))
    return sorted(np.flatnonzero(best == k).tolist() for k in range(count))


def _in_parts(order: IntArray, count: int) -> IntArray:
    """(M,) the group of each agent."""
    group = np.empty(len(order), dtype=np.int64)
    group[order] = np.arange(len(order)) * count // len(order)
    return group


def cut(graph: Graph, group: IntArray) -> int:
    """How many edges have their ends in different groups. group: (M,) of each agent.

    >>> cut(Graph.cycle(6), np.array([0, 0, 0, 1, 1, 1]))
    2
    """
    first, second = group[graph.edges].T
    return int((first != second).sum())


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
