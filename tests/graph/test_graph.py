"""Graphs against networkx and against the spectral facts that the algorithms rest on."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fleetgp as fg
from fleetgp.errors import GraphError, InputError
from fleetgp.graph import GRAPHS, as_topology
from tests.conftest import alternating_path, every_graph

REFERENCES = {
    "path": nx.path_graph,
    "cycle": lambda m: nx.cycle_graph(m),
    "star": lambda m: nx.star_graph(m - 1),
    "complete": nx.complete_graph,
}


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("agents", [3, 4, 9])
def test_families_are_those_of_networkx(name: str, agents: int) -> None:
    ours, theirs = GRAPHS[name](agents), REFERENCES[name](agents)
    assert ours == fg.Graph.from_networkx(theirs)
    assert ours.diameter == nx.diameter(theirs)


@settings(max_examples=60)
@given(st.integers(2, 25), st.integers(0, 10**6), st.floats(0.05, 0.6))
def test_random_graphs_against_networkx(agents: int, seed: int, density: float) -> None:
    theirs = nx.gnp_random_graph(agents, density, seed=seed)
    theirs.add_edges_from(nx.random_labeled_tree(agents, seed=seed).edges)
    ours = fg.Graph.from_networkx(theirs)
    assert ours.diameter == nx.diameter(theirs)
    assert ours.degrees.tolist() == [d for _, d in theirs.degree]
    assert np.array_equal(ours.laplacian, nx.laplacian_matrix(theirs).toarray())
    assert ours.algebraic_connectivity == pytest.approx(np.linalg.eigvalsh(ours.laplacian)[1], abs=1e-9)
    assert ours == fg.Graph.from_adjacency(nx.to_numpy_array(theirs))
    assert ours.neighbours(0) == sorted(theirs.neighbors(0))


@pytest.mark.parametrize("agents", [1, 2, 3, 5, 12, 60])
@pytest.mark.parametrize("name", GRAPHS)
def test_every_family_is_connected_at_every_size(name: str, agents: int) -> None:
    graph = as_topology(name, agents)
    assert len(graph.union.components) == 1
    assert graph.agents == agents


def test_large_sparse_graph_uses_the_same_definitions() -> None:
    graph = fg.Graph.geometric(1600, seed=1)
    theirs = nx.Graph(graph.edges.tolist())
    assert graph.diameter == nx.diameter(theirs, usebounds=True)
    assert graph.algebraic_connectivity == pytest.approx(np.linalg.eigvalsh(graph.laplacian)[1], rel=1e-6)


@pytest.mark.parametrize("name", ["path", "cycle", "star", "grid", "complete", "geometric"])
@pytest.mark.parametrize("agents", [2, 6, 7])
def test_averaging_matrices(name: str, agents: int) -> None:
    graph = GRAPHS[name](agents)
    for weights in (graph.metropolis(), graph.perron()):
        assert np.allclose(weights.sum(axis=0), 1.0)
        assert np.allclose(weights.sum(axis=1), 1.0)
        assert np.allclose(weights, weights.T)
        others = np.sort(np.abs(np.linalg.eigvalsh(weights)))[:-1]
        assert others.max(initial=0.0) < 1.0 - 1e-6, "averaging would never end"


def test_the_papers_epsilon_is_on_the_boundary() -> None:
    """Erratum 18: with epsilon = 1/Delta an even cycle has the eigenvalue -1."""
    cycle = fg.Graph.cycle(6)
    boundary = np.eye(6) - 0.5 * cycle.laplacian
    assert np.linalg.eigvalsh(boundary)[0] == pytest.approx(-1.0)
    with pytest.raises(InputError, match=r"strictly between 0 and 1/Delta = 0\.5"):
        cycle.perron(0.5)


def test_sequence_diameter_is_the_slowest_flood() -> None:
    sequence = alternating_path(5)
    rounds = []
    for start in range(sequence.period):
        known = np.eye(5, dtype=bool)
        count = 0
        while not known.all():
            known = known | ((sequence.at(start + count).adjacency @ known) > 0)
            count += 1
        rounds.append(count)
    assert sequence.diameter == max(rounds)
    assert sequence.union == fg.Graph.path(5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fg.Graph(5, [(0, 1), (2, 3)]), r"components are \{0, 1\}; \{2, 3\}; \{4\}"),
        (lambda: fg.Graph(3, []), r"not connected.*\{0\}; \{1\}; \{2\}"),
        (lambda: fg.Graph(0, []), "at least one agent"),
        (lambda: fg.Graph(3, [(0, 0), (0, 1), (1, 2)]), "agents 0 have an edge to themselves"),
        (lambda: fg.Graph(3, [(0, 3)]), r"between agents 0 \.\. 2, got \[0, 3\]"),
        (lambda: fg.Graph.from_adjacency([[0, 1], [0, 0]]), r"undirected.*got edge \(0, 1\) without \(1, 0\)"),
        (lambda: fg.Graph.from_adjacency(np.ones((2, 3))), "square"),
        (lambda: fg.Graph.from_networkx(nx.DiGraph([(0, 1)])), "directed networkx graph"),
        (lambda: fg.GraphSequence([]), "got an empty list"),
        (lambda: fg.GraphSequence([fg.Graph.path(3), fg.Graph.path(4)]), r"sizes \[3, 4\]"),
        (
            lambda: as_topology([fg.Graph(4, [(0, 1)], connected=False), fg.Graph(4, [(2, 3)], connected=False)], 4),
            r"union of the graph sequence is not connected.*\{0, 1\}; \{2, 3\}",
        ),
        (lambda: as_topology("ring", 4), "choose one of path, cycle, star, grid, complete, geometric"),
        (lambda: as_topology(fg.Graph.path(3), 4), "expected a graph of 4 agents, .* got 3"),
        (lambda: as_topology(42, 4), "got int"),
    ],
)
def test_bad_graphs_get_one_clear_error(make: object, message: str) -> None:
    with pytest.raises((GraphError, InputError), match=message):
        make()  # type: ignore[operator]


def test_all_ways_to_name_a_graph_agree() -> None:
    matrix = [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    ways = ["path", fg.Graph.path(3), nx.path_graph(3), np.array(matrix), matrix]
    assert all(as_topology(way, 3) == fg.Graph.path(3) for way in ways)
    assert isinstance(as_topology(["path", "star"], 3), fg.GraphSequence)
    assert every_graph(3)["alternating"].period == 3
