"""The network over Ray: the same suite as in process, in processes of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetgp.graph import Graph, GraphSequence, Topology
from fleetgp.network.testing import check_ends, check_lost_neighbour, check_network
from tests.cluster import LONG, SharedSemaphore, failing, run_on, telling

pytest.importorskip("ray", reason="Ray is not installed: pip install fleetgp[cluster]")

ODD_EVEN = GraphSequence([Graph(4, [(0, 1), (2, 3)], connected=False), Graph(4, [(1, 2)], connected=False)])


@pytest.fixture(scope="module")
def crew(cluster: None) -> Iterator[Any]:
    from fleetgp.network.ray.crew import Crew

    found = Crew([[0, 2], [1], [3]], timeout=LONG)
    yield found
    found.close()


@pytest.mark.parametrize("topology", [Graph.path(4), ODD_EVEN], ids=["path", "alternating"])
def test_it_passes_the_suite_of_all_networks(crew: Any, topology: Topology) -> None:
    check_network(run_on(crew, topology), topology)


@pytest.mark.parametrize(
    "topology", [pytest.param(Graph.path(4), marks=pytest.mark.long), ODD_EVEN], ids=["path", "alternating"]
)
def test_it_ends_as_all_networks_do(crew: Any, topology: Topology) -> None:
    check_ends(run_on(crew, topology), topology, SharedSemaphore)


def test_a_neighbour_that_is_lost_is_named_as_in_all_networks(crew: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "timeout", 0.5)
    check_lost_neighbour(run_on(crew, Graph.star(4)), Graph.star(4), SharedSemaphore)


def test_an_error_at_one_host_ends_the_task_and_the_next_one_goes_well(crew: Any) -> None:
    with pytest.raises(ValueError, match="agent 1 broke"):
        crew.task(Graph.path(4), failing, [()] * 3).finish()
    check_network(run_on(crew, Graph.path(4)), Graph.path(4))


def test_what_hosts_tell_comes_in_order_however_much_it_is(crew: Any) -> None:
    """More than may wait to be heard."""
    from fleetgp.network.ray.host import AHEAD

    task = crew.task(Graph.path(4), telling, [(3 * AHEAD,)] * 3)
    heard = list(task)
    assert heard == [[(number, hosted) for hosted in ((0, 2), (1,), (3,))] for number in range(3 * AHEAD)]
    assert task.results == [3 * AHEAD] * 3


def test_a_post_sends_again_what_it_sent_unless_that_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    from fleetgp.network.ray.host import Post, Readings

    heard: dict[str, list[bytes]] = {"first": [], "second": [], "third": []}
    first, second, third = heard.values()

    def to(name: str) -> Any:
        return lambda packet, _: heard[name].append(packet)

    post = Post({1: to("first"), 2: to("third")})
    for host, packet in ((1, b"a"), (1, b"b"), (2, b"c")):
        post.send(host, packet, Readings())
    assert post.replace(1, to("second"))
    post.send(1, b"d", Readings())
    assert (first, second, third) == ([b"a", b"b"], [b"a", b"b", b"d"], [b"c"])
    monkeypatch.setattr("fleetgp.network.ray.host.KEPT_BYTES", 4)
    post.send(2, b"e", Readings())
    assert not post.replace(1, to("first"))
    post.send(1, b"f", Readings())
    assert second[-1] == b"f"


def test_a_local_cluster_needs_no_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ray would write a token there: where it may not, the token is in the environment, and where it may, it does."""
    from fleetgp.network.ray.session import ensure_token

    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    ensure_token()
    assert "RAY_AUTH_TOKEN" not in os.environ
    monkeypatch.setenv("HOME", "/proc/nobody")
    ensure_token()
    assert len(os.environ["RAY_AUTH_TOKEN"]) == 64
