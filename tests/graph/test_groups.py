"""Groups of agents: equal sizes, every agent once, and few edges between them."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from fleetgp.arrays import IntArray
from fleetgp.errors import InputError
from fleetgp.graph import Graph
from fleetgp.graph.topology import cut, groups_of
from tests.conftest import every_graph


def by_agent(groups: list[list[int]]) -> IntArray:
    """The group of each agent."""
    return np.array([next(k for k, group in enumerate(groups) if i in group) for i in range(sum(map(len, groups)))])


@pytest.mark.parametrize("count", [1, 2, 3, 5, 12])
@pytest.mark.parametrize("name", [name for name in every_graph(12) if name != "alternating"])
def test_every_agent_is_in_one_of_nearly_equal_groups(name: str, count: int) -> None:
    graph = every_graph(12)[name].union
    groups = groups_of(graph, count)
    assert sorted(agent for group in groups for agent in group) == list(range(12))
    assert {len(group) for group in groups} <= {12 // count, -(-12 // count)}
    assert all(group == sorted(group) for group in groups)
    in_order = [part.tolist() for part in np.array_split(np.arange(12), count)]
    if 12 % count == 0:
        assert cut(graph, by_agent(groups)) <= cut(graph, by_agent(in_order))


@pytest.mark.parametrize("seed", range(5))
def test_two_halves_are_found_whatever_the_ids(seed: int) -> None:
    """Two crowds with one edge between them."""
    ids = np.random.default_rng(seed).permutation(10)
    crowds = [ids[:5].tolist(), ids[5:].tolist()]
    edges = [pair for crowd in crowds for pair in combinations(crowd, 2)]
    graph = Graph(10, [*edges, (crowds[0][0], crowds[1][0])])
    assert groups_of(graph, 2) == sorted(sorted(crowd) for crowd in crowds)


def test_a_cut_is_counted_by_hand() -> None:
    assert cut(Graph.complete(4), np.array([0, 0, 1, 1])) == 4
    assert cut(Graph.star(5), np.array([0, 0, 0, 1, 1])) == 2


@pytest.mark.parametrize("count", [0, 4])
def test_more_groups_than_agents_are_refused(count: int) -> None:
    with pytest.raises(InputError, match=f"expected between 1 and 3 groups for 3 agents, got {count}"):
        groups_of(Graph.path(3), count)
