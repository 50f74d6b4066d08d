"""The Zenoh network: the same suite as in process, over real sockets, and whatever a stranger may send."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import fleetgp as fg
from fleetgp.agent.description.certificates import Credentials, make_certificate
from fleetgp.cli.app import app
from fleetgp.errors import InputError, NetworkError
from fleetgp.graph import Graph, GraphSequence, Topology
from fleetgp.network.base import Network
from fleetgp.network.testing import check_network
from fleetgp.network.wire import Frame, Part, encode
from fleetgp.network.zenoh.epoch import NeighbourLostError, ZenohNetwork
from fleetgp.network.zenoh.links import Links
from fleetgp.network.zenoh.session import Security

zenoh = pytest.importorskip("zenoh")


def ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    found = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return found


def fleet(
    topology: Topology, hosting: list[list[int]], function: Callable[[ZenohNetwork], Any], **options: Any
) -> list[Any]:
    """function(network) at every end, each with a session of its own."""
    ends = [f"tcp/127.0.0.1:{port}" for port in ports(len(hosting))]
    endpoints = {agent: ends[k] for k, group in enumerate(hosting) for agent in group}

    def one(k: int) -> Any:
        with Links.along(topology, hosting[k], listen=ends[k], endpoints=endpoints, run=99) as links:
            links.wait(30.0)
            return function(ZenohNetwork(links, topology, hosting[k], **options))

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
        seen = len(list(network._links.session.info.peers_zid()))
        network.neighbour_sum(np.ones(1), "statistics")
        with pytest.raises(NetworkError, match="central node"):
            network.gather({"statistics": np.ones(1)})
        return seen

    assert fleet(Graph.path(4), [[0], [1], [2], [3]], look) == [1, 2, 2, 1]


def test_a_silent_neighbour_is_named_in_time() -> None:
    def leave(network: ZenohNetwork) -> Any:
        network.neighbour_sum(np.ones(1), "statistics")
        if network.hosted == (0,):
            return None
        try:
            network.neighbour_sum(np.ones(1), "statistics")
        except NeighbourLostError as lost:
            return lost.neighbours
        return ()

    answers = fleet(Graph.path(3), [[0], [1], [2]], leave, timeout=4.0)
    assert answers[1] == (0,)


def test_a_neighbour_that_never_comes_is_named() -> None:
    with pytest.raises(NetworkError, match=r"agent 1 did not answer within 0\.3 s"):
        Links(
            [(0, 1)],
            listen=f"tcp/127.0.0.1:{ports(1)[0]}",
            endpoints={1: f"tcp/127.0.0.1:{ports(1)[0]}"},
        ).wait(0.3)


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


@pytest.mark.parametrize("method", ["dec-apx-gp", "dec-gapx-gp"])
def test_training_over_sockets_equals_training_in_process(method: str) -> None:
    from fleetgp.gp.kernels import as_kernel
    from fleetgp.training import TrainingOptions, train, training_method

    field = fg.synthetic_field(160, seed=2)
    shards = fg.partition(field.inputs, field.observations, agents=4)
    options = TrainingOptions(starts=np.log([fg.PAPER_THETA0]), rounds=60)

    def one(network: ZenohNetwork) -> Any:
        return train(
            training_method(method), [shards[i] for i in network.hosted], network, as_kernel("se"), options
        ).thetas

    thetas = np.concatenate(fleet(Graph.path(4), [[0], [1], [2], [3]], one))
    expected = fg.Fleet(shards, "path").train(method, theta0=fg.PAPER_THETA0, rounds=60).thetas
    assert np.array_equal(thetas, expected)


# ---- who is believed ---------------------------------------------------------------------------------------


NAMES = ("Ada", "Bo")


def secured(folder: Path, agent: int, *, certificate: str | None = None, authority: Path | None = None) -> Security:
    name = certificate or NAMES[agent]
    own = Credentials.of(folder, name)
    return Security(authority or own.authority, own.certificate, own.key, NAMES)


def two_ends(zero: Security | None, one: Security | None, *, scheme: str = "tls", patience: float = 4.0) -> list[Any]:
    """What becomes of two neighbours with these credentials: a sum, or the error of each.

    patience: seconds. Whoever must be believed gets many, so that a busy machine is not taken for a refusal.
    """
    places = ports(2)

    def work(agent: int) -> Any:
        security = (zero, one)[agent]
        kind = "tcp" if security is None else scheme
        try:
            with Links(
                [(agent, 1 - agent)],
                listen=f"{kind}/127.0.0.1:{places[agent]}",
                endpoints={1 - agent: f"{kind}/127.0.0.1:{places[1 - agent]}"},
                security=security,
                run=5,
            ) as links:
                links.wait(patience)
                network = ZenohNetwork(links, Graph.path(2), [agent], timeout=patience)
                return float(network.neighbour_sum(np.full(1, 1.0 + agent), "statistics")[0])
        except NetworkError as error:
            return str(error)

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(work, range(2)))


@pytest.fixture
def fleet_keys(tmp_path: Path) -> Path:
    for name in NAMES:
        make_certificate(tmp_path / "keys", name)
    return tmp_path / "keys"


@pytest.mark.parametrize("kind", ["tls", "quic"])
def test_neighbours_with_their_certificates_are_believed(fleet_keys: Path, kind: str) -> None:
    assert two_ends(secured(fleet_keys, 0), secured(fleet_keys, 1), scheme=kind, patience=60.0) == [2.0, 1.0]


def test_over_quic_too_a_name_must_be_ones_own(fleet_keys: Path) -> None:
    make_certificate(fleet_keys, "Eve")
    found = two_ends(secured(fleet_keys, 0), secured(fleet_keys, 1, certificate="Eve"), scheme="quic")
    assert "agent 1 did not answer" in found[0] or "nothing came from agent 1" in found[0]


def test_no_certificate_is_refused(fleet_keys: Path) -> None:
    found = two_ends(secured(fleet_keys, 0), None)
    assert "agent 1 did not answer" in found[0]


def test_an_expired_certificate_is_refused(fleet_keys: Path) -> None:
    make_certificate(fleet_keys, "Bo", days=-1)
    found = two_ends(secured(fleet_keys, 0), secured(fleet_keys, 1))
    assert "agent 1 did not answer" in found[0]


def test_a_foreign_authority_is_refused(fleet_keys: Path, tmp_path: Path) -> None:
    make_certificate(tmp_path / "foreign", "Bo")
    stranger = secured(tmp_path / "foreign", 1, authority=fleet_keys / "authority.crt")
    found = two_ends(secured(fleet_keys, 0), stranger)
    assert "agent 1 did not answer" in found[0]


def test_a_valid_certificate_under_another_name_is_refused(fleet_keys: Path) -> None:
    make_certificate(fleet_keys, "Eve")
    found = two_ends(secured(fleet_keys, 0), secured(fleet_keys, 1, certificate="Eve"))
    assert "agent 1 did not answer" in found[0] or "nothing came from agent 1" in found[0]
    # The name alone makes the difference.
    agreed = [replace(secured(fleet_keys, 0), names=("Ada", "Eve")), secured(fleet_keys, 1, certificate="Eve")]
    assert two_ends(*agreed, patience=60.0) == [2.0, 1.0]


def test_outside_of_this_machine_certificates_are_a_must() -> None:
    with pytest.raises(InputError, match="need certificates"):
        Links([(0, 1)], listen="tcp/0.0.0.0:7447", endpoints={1: "tcp/10.0.0.2:7447"})


def test_keys_are_their_owners_alone_and_certificates_say_who(fleet_keys: Path) -> None:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    certificate = x509.load_pem_x509_certificate((fleet_keys / "Ada.crt").read_bytes())
    authority = x509.load_pem_x509_certificate((fleet_keys / "authority.crt").read_bytes())
    assert certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == "Ada"
    certificate.verify_directly_issued_by(authority)
    for key in fleet_keys.glob("*.key"):
        assert key.stat().st_mode & 0o077 == 0
    before = (fleet_keys / "authority.crt").read_bytes()
    make_certificate(fleet_keys, "Cy")
    assert (fleet_keys / "authority.crt").read_bytes() == before
    with pytest.raises(InputError, match="cannot be called"):
        make_certificate(fleet_keys, "a/b")
    (fleet_keys / "authority.key").unlink()  # where the operator is, it is not
    with pytest.raises(InputError, match="authority's key is not here"):
        make_certificate(fleet_keys, "Di")
    assert (fleet_keys / "authority.crt").read_bytes() == before


def test_certificates_from_the_command_line(tmp_path: Path) -> None:
    arguments = [
        "certs",
        str(tmp_path / "k"),
        "--agents",
        "auv1",
        "auv2",
        "--hosts",
        "10.0.0.1",
        "boat.example",
        "--json",
    ]
    found = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert found.exit_code == 0, found.output
    assert set(json.loads(found.stdout)["certificates"]) == {"auv1", "auv2", "operator"}
    assert {p.name for p in (tmp_path / "k").iterdir()} == {
        f"{name}.{end}" for name in ("authority", "auv1", "auv2", "operator") for end in ("crt", "key")
    }
    refused = CliRunner().invoke(app, ["certs", str(tmp_path / "k"), "--agents", "authority"], catch_exceptions=False)
    assert refused.exit_code == 2
