"""Who relays between the agents of a query."""

from __future__ import annotations

import numpy as np
import pytest

from fleetgp.graph import Graph
from fleetgp.prediction.selection import bridged


@pytest.mark.parametrize(
    ("graph", "members", "expected"),
    [
        (Graph.cycle(5), [0, 1, 2, 3], [0, 1, 2, 3]),  # though 4 lies on the shortest way from 0 to 3
        (Graph.cycle(6), [0, 1, 3], [0, 1, 2, 3]),
        (Graph.star(5), [1, 4], [0, 1, 4]),
        (Graph.complete(4), [1, 3], [1, 3]),
        (Graph.path(4), [2], [2]),
    ],
)
def test_bridges_are_added_only_between_agents_that_are_apart(
    graph: Graph, members: list[int], expected: list[int]
) -> None:
    assert bridged(graph, np.array(members)).tolist() == expected
