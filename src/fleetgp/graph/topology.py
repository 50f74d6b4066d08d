"""Whatever a caller calls a graph, as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fleetgp.arrays import Array
from fleetgp.errors import GraphError, InputError, shortened, unknown_name
from fleetgp.graph.checks import NetworkxGraph, require_connected
from fleetgp.graph.graph import Graph
from fleetgp.graph.places import gabriel_graph
from fleetgp.graph.sequence import GraphSequence, Topology

#: Graphs by name, of so many agents.
GRAPHS: dict[str, Callable[[int], Graph]] = {
    "path": Graph.path,
    "cycle": Graph.cycle,
    "star": Graph.star,
    "grid": Graph.grid,
    "complete": Graph.complete,
    "geometric": Graph.geometric,
}


#: The name of the graph of those whose data are neighbours.
PLACES = "places"
GRAPH_NAMES = (*GRAPHS, PLACES)


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
            raise unknown_name("graph", graph, GRAPHS if places is None else GRAPH_NAMES)
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
