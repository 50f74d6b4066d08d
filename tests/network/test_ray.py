"""The network over Ray: the same suite as in process, in processes of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fleetgp.graph import Graph, GraphSequence, Topology
from fleetgp.network.testing import check_network
from fleetgp.network.testing_shutdown import check_ends, check_lost_neighbour
from tests.cluster import LONG, SharedSemaphore, run_on

pytest.importorskip("ray", reason="Ray is not installed: pip install fleetgp[cluster]")

ODD_EVEN = GraphSequence([Graph(4, [(0, 1), (2, 3)], connected=False), Graph(4, [(1, 2)], connected=False)])


@pytest.fixture(scope="module")
def crew(cluster: None) -> Iterator[Any]:
    from fleetgp.network.ray.crew import Crew

    found = Crew([[0, 2], [1], [3]], timeout=LONG)
    yield found
    found.close()


@pytest.mark.parametrize("topology", [Graph.path(4), Graph.star(4), Graph.complete(4), ODD_EVEN])
def test_it_passes_the_suite_of_all_networks(crew: Any, topology: Topology) -> None:
    check_network(run_on(crew, topology), topology)


@pytest.mark.parametrize("topology", [Graph.path(4), ODD_EVEN], ids=["path", "alternating"])
def test_it_ends_as_all_networks_do(crew: Any, topology: Topology) -> None:
    check_ends(run_on(crew, topology), topology, SharedSemaphore)


def test_a_neighbour_that_is_lost_is_named_as_in_all_networks(crew: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "timeout", 0.5)
    check_lost_neighbour(run_on(crew, Graph.star(4)), Graph.star(4), SharedSemaphore)
