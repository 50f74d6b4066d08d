"""The spanning tree: from a centre, breadth first, the same for everybody."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import shortest_path

from fleetgp.graph import Graph, Tree
from fleetgp.graph.tree import SEARCHES, centre
from tests.conftest import every_graph


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    agents = draw(st.integers(1, 25))
    edges = [(i, draw(st.integers(0, i - 1))) for i in range(1, agents)]
    pairs = st.tuples(st.integers(0, agents - 1), st.integers(0, agents - 1))
    more = draw(st.lists(pairs, max_size=2 * agents))
    return Graph(agents, [*edges, *((a, b) for a, b in more if a != b)])


@given(graphs())
def test_the_root_is_the_first_centre_and_depths_are_distances(graph: Graph) -> None:
    tree = Tree.of(graph)
    reference = nx.Graph(graph.edges.tolist())
    reference.add_nodes_from(range(graph.agents))
    assert tree.root == min(nx.center(reference))
    assert tree.height == nx.radius(reference)
    assert tree.depths.tolist() == [nx.shortest_path_length(reference, tree.root, i) for i in range(graph.agents)]
    for agent in set(range(graph.agents)) - {tree.root}:
        nearer = [j for j in graph.neighbours(agent) if tree.depths[j] < tree.depths[agent]]
        assert tree.parents[agent] == min(nearer)


@given(graphs())
def test_turns_name_every_agent_once_after_all_below_it(graph: Graph) -> None:
    tree = Tree.of(graph)
    seen: list[int] = []
    for below, above in tree.turns:
        assert len(set(above.tolist())) == len(above)
        for agent, parent in zip(below.tolist(), above.tolist(), strict=True):
            assert parent == tree.parents[agent]
            assert set(tree.children[agent]) <= set(seen), "its children came before"
            assert parent not in seen
            assert not any(child in seen and child > agent for child in tree.children[parent]), "by id"
            seen.append(agent)
    assert sorted([*seen, tree.root]) == list(range(graph.agents))
    assert [len(tree.below(agent)) for agent in range(graph.agents)] == [
        1 + sum(len(tree.below(child)) for child in tree.children[agent]) for agent in range(graph.agents)
    ]
    assert all(tree.heights[a] == max([0, *(tree.heights[c] + 1 for c in tree.children[a])]) for a in seen)


@pytest.mark.parametrize("name", every_graph(6))
def test_a_way_leads_from_the_root_to_the_agent(name: str) -> None:
    graph = every_graph(6)[name].union
    tree = Tree.of(graph)
    for agent in range(6):
        way = [tree.root, *tree.way_to(agent)]
        assert way[-1] == agent
        assert all(b in graph.neighbours(a) for a, b in itertools.pairwise(way))
        assert len(way) == tree.depths[agent] + 1


def test_a_long_cycle_has_a_root_after_a_bounded_search() -> None:
    """Every agent of a cycle is a centre, which no bound can prove: any of them will do."""
    cycle = Graph.cycle(4 * SEARCHES)
    assert Tree.of(cycle).height == cycle.diameter
    grid = Graph.grid(900)
    eccentricity = shortest_path(grid.sparse_adjacency, unweighted=True).max(axis=1)
    assert centre(grid) == np.argmin(eccentricity)
