"""Communication graphs: who can talk to whom, fixed or varying over time.

A graph is a frozen list of undirected edges between agents 0 .. M-1, always connected. A sequence of
graphs repeats with its period; each graph may be disconnected as long as their union is not. Both offer
`agents`, `at(round)`, `union`, `period` and `diameter`, so that algorithms need not know which they have.
"""

from fleetgp.graph.graph import Graph, metropolis_weights, perron_epsilon, require_connected
from fleetgp.graph.topology import (
    GRAPHS,
    PLACES,
    GraphSequence,
    Topology,
    as_topology,
    check_topology,
    graph_names,
    register_graph,
)
from fleetgp.graph.tree import Tree

__all__ = [
    "GRAPHS",
    "PLACES",
    "Graph",
    "GraphSequence",
    "Topology",
    "Tree",
    "as_topology",
    "check_topology",
    "graph_names",
    "metropolis_weights",
    "perron_epsilon",
    "register_graph",
    "require_connected",
]
