"""The graph of places, against its definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.errors import GraphError
from fleetgp.graph import topology as module
from fleetgp.graph.topology import gabriel_graph


def by_definition(places: Array) -> set[tuple[int, int]]:
    """Linked where |ik|^2 + |jk|^2 >= |ij|^2 for every third k: none sees the two under more than a right angle."""
    squares, count = cdist(places, places) ** 2, len(places)
    return {
        (i, j)
        for i in range(count)
        for j in range(i + 1, count)
        if all(squares[i, k] + squares[j, k] >= squares[i, j] * (1 - 1e-9) for k in range(count) if k not in (i, j))
    }


@given(st.integers(1, 25), st.integers(1, 4), st.integers(0, 2**31), st.booleans())
def test_it_is_the_gabriel_graph_and_connected(agents: int, dimension: int, seed: int, coarse: bool) -> None:
    places = np.random.default_rng(seed).random((agents, dimension))
    if coarse:
        places = np.round(4 * places)  # copies, and many on one line
    graph = gabriel_graph(places)
    assert {(int(a), int(b)) for a, b in graph.edges} == by_definition(places)
    assert len(graph.components) == 1


@pytest.mark.parametrize("dimension", [2, 3])
def test_the_triangulation_finds_the_same_edges(dimension: int, monkeypatch: pytest.MonkeyPatch) -> None:
    places = np.random.default_rng(5).random((120, dimension))
    every_pair = gabriel_graph(places)
    monkeypatch.setattr(module, "ALL_PAIRS", 0)
    assert gabriel_graph(places) == every_pair
    line = np.stack([np.arange(50.0)] * dimension, axis=1)
    assert gabriel_graph(line) == fg.Graph.path(50)


def test_a_fleet_links_those_whose_data_are_neighbours() -> None:
    field = fg.synthetic_field(300, seed=1)
    shards = fg.partition(field.inputs, field.observations, agents=6, by="stripes", axis=0)
    order = [3, 0, 5, 1, 4, 2]
    fleet = fg.Fleet([shards[i] for i in order], "places", theta=fg.PAPER_THETA, kernel="se", normalize=False)
    linked = {tuple(sorted((order[a], order[b]))) for a, b in fleet.graph.union.edges.tolist()}
    assert linked >= {(i, i + 1) for i in range(5)}
    assert fleet.predict([[1.0, 1.0]], "dec-nn-rbcm").status == "converged"
    with pytest.raises(GraphError, match="finite places"):
        gabriel_graph(np.array([[0.0, np.nan]]))
