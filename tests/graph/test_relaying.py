"""Graphs without some agents, who still relay: whoever could be reached still can be, and nobody else."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fleetgp as fg
from fleetgp.graph.topology import relayed
from tests.conftest import alternating_path, every_graph


@given(st.integers(2, 12), st.integers(0, 1000), st.data())
def test_links_are_those_that_there_were_and_those_over_relays(agents: int, seed: int, data: st.DataObject) -> None:
    graph = fg.Graph.geometric(agents, seed=seed)
    members = sorted(data.draw(st.sets(st.integers(0, agents - 1), min_size=1)))
    found = relayed(graph, members)
    assert isinstance(found, fg.Graph)  # which is connected, or there would be an error
    whole = nx.Graph(graph.edges.tolist())
    for a, b in found.edges.tolist():
        one, other = members[a], members[b]
        between = nx.Graph(whole.subgraph([one, other, *(set(range(agents)) - set(members))]))
        assert nx.has_path(between, one, other), "a link that no relay can carry"
    kept = {(members[a], members[b]) for a, b in found.edges.tolist()}
    assert {(a, b) for a, b in graph.edges.tolist() if a in members and b in members} <= kept


@pytest.mark.parametrize("name", every_graph(6))
def test_everyone_is_the_same_graph(name: str) -> None:
    graph = every_graph(6)[name]
    assert relayed(graph, range(6)) is graph


def test_graphs_that_vary_stay_jointly_connected() -> None:
    found = relayed(alternating_path(6), [0, 2, 5])
    assert isinstance(found, fg.GraphSequence)
    assert found.period == 3
    assert np.array_equal(found.union.edges, [[0, 1], [1, 2]])
