"""The Zenoh network: the same suite as in process, over real sockets, and whatever a stranger may send."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.errors import NetworkError
from fleetgp.graph import Graph, GraphSequence, Topology
from fleetgp.network.base import Network
from fleetgp.network.testing import check_ends, check_lost_neighbour, check_network
from fleetgp.network.wire import Frame, Part, encode
from fleetgp.network.zenoh.links import Links
from fleetgp.network.zenoh.network import ZenohNetwork
from fleetgp.operator.launch import free_ports
from tests.shared import observed

#: Most trainings here are cut short on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning")

zenoh = pytest.importorskip("zenoh")

#: Seconds that nothing here takes, on any machine: only a hang is longer.
LONG = 120.0


def fleet(
    topology: Topology, hosting: list[list[int]], function: Callable[[ZenohNetwork], Any], **options: Any
) -> list[Any]:
    """function(network) at every end, each with a session of its own; all begin and leave together."""
    ends = [f"tcp/127.0.0.1:{port}" for port in free_ports(len(hosting))]
    endpoints = {agent: ends[k] for k, group in enumerate(hosting) for agent in group}
    linked, finished = threading.Barrier(len(hosting)), threading.Barrier(len(hosting))

    def one(k: int) -> Any:
        with Links.along(topology, hosting[k], listen=ends[k], endpoints=endpoints, run=99) as links:
            links.wait(30.0)
            linked.wait(LONG)
            try:
                return function(ZenohNetwork(links, topology, hosting[k], **options))
            finally:
                finished.wait(LONG)

    with ThreadPoolExecutor(len(hosting)) as pool:
        return list(pool.map(one, range(len(hosting))))


ODD_EVEN = GraphSequence([Graph(4, [(0, 1), (2, 3)], connected=False), Graph(4, [(1, 2)], connected=False)])


@pytest.mark.parametrize("topology", [Graph.path(5), Graph.star(4), Graph.complete(4), Graph.cycle(5), ODD_EVEN])
def test_it_passes_the_suite_of_all_networks(topology: Topology) -> None:
    hosting = [[agent] for agent in range(topology.agents)]
    check_network(lambda function: fleet(topology, hosting, function), topology)


def test_ends_that_host_several_agents() -> None:
    check_network(lambda function: fleet(Graph.path(5), [[0, 1], [2], [3, 4]], function), Graph.path(5))


def test_no_link_beyond_the_graph_and_no_server() -> None:
    def look(network: Network) -> Any:
        assert isinstance(network, ZenohNetwork)
        network.neighbour_sum(np.ones(1), "statistics")
        info = network._links.session.info
        seen = len(list(info.peers_zid()))
        assert len(list(info.links())) == seen, "one connection to each neighbour: only one end of a link dials"
        network.neighbour_sum(np.ones(1), "statistics")
        with pytest.raises(NetworkError, match="central node"):
            network.gather({"statistics": np.ones(1)})
        return seen

    assert fleet(Graph.path(4), [[0], [1], [2], [3]], look) == [1, 2, 2, 1]


@pytest.mark.parametrize("topology", [Graph.path(3), ODD_EVEN], ids=["path", "alternating"])
def test_it_ends_as_all_networks_do(topology: Topology) -> None:
    hosting = [[agent] for agent in range(topology.agents)]
    check_ends(lambda function: fleet(topology, hosting, function, timeout=LONG), topology)


def test_a_neighbour_that_is_lost_is_named_as_in_all_networks() -> None:
    check_lost_neighbour(
        lambda function: fleet(Graph.star(4), [[0], [1], [2, 3]], function, timeout=0.5), Graph.star(4)
    )


def test_a_neighbour_that_never_comes_is_named() -> None:
    own, other = (f"tcp/127.0.0.1:{port}" for port in free_ports(2))
    with (
        Links([(0, 1)], listen=own, endpoints={1: other}) as links,
        pytest.raises(NetworkError, match=r"agent 1 did not answer within 0\.3 s"),
    ):
        links.wait(0.3)


def test_whatever_else_arrives_is_counted_and_stops_nothing() -> None:
    """Ten thousand random frames, of which some are nearly right, while two agents work."""
    rng = np.random.default_rng(0)
    good = encode(Frame(1, 0, 0, (Part("statistics", 1, np.ones(3)),), 0, 99, 0))
    sent = 10_000

    def junk(n: int) -> bytes:
        if n % 4 == 0:
            return rng.bytes(int(rng.integers(0, 200)))
        broken = bytearray(good)
        if n % 4 == 1:
            broken[int(rng.integers(0, 4))] ^= 255  # not a frame
        elif n % 4 == 2:
            return bytes(broken[: int(rng.integers(0, len(broken)))])
        else:
            broken[8] ^= 1 + n % 250  # another run
        return bytes(broken)

    def work(network: ZenohNetwork) -> Any:
        if network.hosted == (1,):
            for n in range(sent):
                network._links.send(1, 0, junk(n))
            strange = network._links.session.declare_publisher(f"fleetgp/{99:016x}/0/7/frame")
            strange.put(encode(Frame(1, 0, 0, (Part("statistics", 1, np.zeros(1)),), 0, 99, 0)))
            network._links.send(1, 0, encode(Frame(7, 0, 0, (Part("statistics", 7, np.zeros(1)),), 0, 99, 0)))
            strange.put(encode(Frame(7, 0, 0, (Part("statistics", 7, np.zeros(1)),), 0, 99, 0)))
        sums = [network.neighbour_sum(np.full(1, 10.0 + network.hosted[0] + k), "statistics") for k in range(3)]
        return [float(value[0]) for value in sums], dict(network._links.dropped)

    (zero, dropped), (one, none) = fleet(Graph.path(2), [[0], [1]], work)
    assert zero == [11.0, 12.0, 13.0]
    assert one == [10.0, 11.0, 12.0]
    assert not none
    assert dropped["malformed"] + dropped["foreign"] == sent
    assert dropped["foreign"] == sent // 4
    assert dropped["impostor"] == 1  # what comes under another's key does not come at all


def test_replayed_and_late_frames_are_not_taken() -> None:
    def work(network: ZenohNetwork) -> Any:
        link = network._links
        for k in range(3):
            if network.hosted == (1,):
                old = encode(Frame(1, 0, max(0, k - 1), (Part("statistics", 1, np.array([-9.0])),), 0, 99, 0))
                if k:
                    link.send(1, 0, old)
            total = network.neighbour_sum(np.full(1, float(k)), "statistics")
            assert total[0] == float(k)
        return dict(network._links.dropped)

    assert fleet(Graph.path(2), [[0], [1]], work)[0] == {"late": 2}


@pytest.mark.parametrize("method", ["dec-fact-gp", "dec-apx-gp", "dec-gapx-gp"])
def test_training_over_sockets_equals_training_in_process(method: str) -> None:
    from fleetgp.kernels.expression import as_kernel
    from fleetgp.training import TrainingOptions, train, training_method

    field = fg.synthetic_field(160, seed=2)
    shards = fg.partition(field.inputs, field.observations, agents=4)
    options = TrainingOptions(starts=np.log([fg.PAPER_THETA0]), rounds=60)

    def one(network: ZenohNetwork) -> Any:
        return train(
            training_method(method), observed(shards[i] for i in network.hosted), network, as_kernel("se"), options
        ).thetas

    thetas = np.concatenate(fleet(Graph.path(4), [[0], [1], [2], [3]], one))
    expected = (
        fg.Fleet(shards, "path", kernel="se", normalize=False).train(method, theta0=fg.PAPER_THETA0, rounds=60).thetas
    )
    assert np.array_equal(thetas, expected)
