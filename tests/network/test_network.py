"""Every network passes the conformance suite; frames and ledger are checked on their own."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.errors import Cancelled, InputError, NeighbourLostError, NetworkError, NonsenseError
from fleetgp.graph import Topology, Tree
from fleetgp.network import KINDS, SERVER, Network
from fleetgp.network.loopback import LoopbackGroup, LoopbackNetwork
from fleetgp.network.testing import Run, check_ends, check_lost_neighbour, check_network
from fleetgp.network.wire import HEADER_BYTES, Frame, Part, decode, encode, part_bytes
from tests.conftest import alternating_path, every_graph

AGENTS = 6
HOSTINGS = {
    "1 x M": [list(range(AGENTS))],
    "2 x M/2": [[0, 2, 4], [1, 3, 5]],
    "uneven": [[5], [0, 3, 1], [2, 4]],
    "M x 1": [[i] for i in range(AGENTS)],
}


@pytest.mark.parametrize("name", every_graph(AGENTS))
def test_in_process_conforms(name: str) -> None:
    topology = every_graph(AGENTS)[name]
    check_network(lambda function: [function(fg.InProcess(topology))], topology)
    check_ends(lambda function: [function(fg.InProcess(topology))], topology)


def often(hosting: str, name: str, grouped: bool) -> bool:
    """Every hosting, every graph and both ways to send in every run; the rest in long runs."""
    if hosting in ("M x 1", "uneven"):
        return grouped == (hosting == "uneven")
    return name in ("path", "alternating")


@pytest.mark.parametrize(
    ("hosting", "name", "grouped"),
    [
        pytest.param(
            *case,
            marks=[] if often(*case) else [pytest.mark.long],
            id=f"{case[0]}-{case[1]}-{'packets' if case[2] else 'frames'}",
        )
        for case in itertools.product(HOSTINGS, every_graph(AGENTS), (False, True))
    ],
)
def test_loopback_conforms(hosting: str, name: str, grouped: bool) -> None:
    topology = every_graph(AGENTS)[name]
    check_network(fg.Loopback(topology, HOSTINGS[hosting], grouped=grouped).run, topology)
    check_ends(lambda function: fg.Loopback(topology, HOSTINGS[hosting], grouped=grouped).run(function), topology)


@pytest.mark.parametrize("seed", range(4))
def test_packets_conform_on_trees_that_wind_between_groups(seed: int) -> None:
    """The way to the root crosses between groups again and again, or never."""
    agents = 15
    graph = fg.Graph.path(agents) if seed == 0 else fg.Graph.geometric(agents, seed=seed)
    group_of = np.arange(agents) % 2 if seed == 0 else np.random.default_rng(seed).integers(0, 4, agents)
    hosting = [np.flatnonzero(group_of == k).tolist() for k in np.unique(group_of)]
    fleet = fg.Loopback(graph, hosting, grouped=True)
    check_network(fleet.run, graph)
    waves = [len(network._waves) for network in fleet.networks]  # type: ignore[attr-defined]
    assert len(set(waves)) == 1, "all groups count the same packets"
    assert waves[0] == 8 if seed == 0 else waves[0] > 1


@pytest.mark.parametrize("grouped", [False, True], ids=["frames", "packets"])
@pytest.mark.parametrize("hosting", HOSTINGS)
@pytest.mark.parametrize("name", ["star", "complete", "alternating"])
def test_a_neighbour_that_loopback_loses_is_named(name: str, hosting: str, grouped: bool) -> None:
    topology = every_graph(AGENTS)[name]
    check_lost_neighbour(
        lambda function: fg.Loopback(topology, HOSTINGS[hosting], grouped=grouped, timeout=0.1).run(function), topology
    )


def _without_last(value: Array) -> Array:
    return value.ravel()[:-1]


def _short_numbers(value: Array) -> Array:
    return value.ravel()[:-1] if value.dtype == float else value


def _not_a_number(value: Array) -> Array:
    return value * np.nan if value.dtype == float else value


@pytest.mark.parametrize("wrong", [_without_last, _short_numbers, _not_a_number])
@pytest.mark.parametrize("verb", ["exchange", "reduce", "present", "collect"])
def test_a_group_that_sends_nonsense_is_named_by_one_of_its_agents(
    verb: str, wrong: Callable[[Array], Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = LoopbackGroup.send

    def send(self: LoopbackGroup, group: int, frame: Frame) -> None:
        if self.own == 1:
            frame = replace(frame, parts=tuple(Part(p.kind, p.origin, wrong(p.value)) for p in frame.parts))
        real(self, group, frame)

    def work(network: Network) -> BaseException | None:
        x = np.ones((len(network.hosted), 2, 3))
        verbs: dict[str, Callable[[], object]] = {
            "exchange": lambda: network.exchange(x, "statistics"),
            "reduce": lambda: network.reduce(x, "moments"),
            "present": lambda: network.reduce_present(x, np.ones((len(x), 2), dtype=bool), "moments"),
            "collect": lambda: network.collect({"statistics": x}),
        }
        try:
            verbs[verb]()
        except NetworkError as error:
            return error
        return None

    monkeypatch.setattr(LoopbackGroup, "send", send)
    graph = fg.Graph.path(6)
    fleet = fg.Loopback(graph, [[1, 2, 3], [0, 4, 5]], grouped=True, timeout=0.5)
    assert Tree.of(graph).root == 2
    found = fleet.run(work)[0]
    assert isinstance(found, NonsenseError), found
    assert found.sender in (0, 4, 5)


def test_the_suite_notices_a_network_that_lies() -> None:
    class Deaf(fg.InProcess):
        def neighbour_max(self, x: Array, kind: str) -> Array:
            super().neighbour_max(x, kind)
            return x

    class Cheap(fg.InProcess):
        def flood_parts(self, parts):  # type: ignore[no-untyped-def]
            return {kind: [np.asarray(v) for v in values] for kind, values in parts.items()}

    class Undead(fg.InProcess):
        def close(self) -> None:
            pass

    class Excused(fg.InProcess):
        def cancel(self, why: Cancelled) -> None:
            super().close()

    class Forgetful(fg.InProcess):
        def _as_hosted(self, x: Array) -> Array:
            return np.asarray(x, dtype=float)[: len(self.hosted)]

    def one(network: type[fg.InProcess]) -> Run:
        return lambda function: [function(network(fg.Graph.path(4)))]

    for lying in (Deaf, Cheap):
        with pytest.raises(AssertionError):
            check_network(one(lying), fg.Graph.path(4))
    for endless in (Undead, Excused, Forgetful):
        with pytest.raises(AssertionError):
            check_ends(one(endless), fg.Graph.path(4))


def test_the_suite_notices_a_network_that_waits_on_or_trusts_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    path = fg.Graph.path(3)
    check_ends(lambda function: fg.Loopback(path, [[0], [1], [2]]).run(function), path)
    with monkeypatch.context() as patch:
        patch.setattr(LoopbackNetwork, "wake", lambda _: None)
        with pytest.raises(AssertionError, match="expected 'closed', got 'round"):
            check_ends(lambda function: fg.Loopback(path, [[0], [1], [2]], timeout=0.2).run(function), path)
    with monkeypatch.context() as patch:
        patch.setattr("fleetgp.network.frames.phase_number", lambda _: 0)
        with pytest.raises(AssertionError, match="expected NonsenseError, got None"):
            check_ends(lambda function: fg.Loopback(path, [[0], [1], [2]]).run(function), path)


def test_peer_to_peer_networks_refuse_the_server_verbs() -> None:
    loopback = fg.Loopback(fg.Graph.path(2), [[0], [1]])
    with pytest.raises(NetworkError, match="use a dec- method"):
        loopback.run(lambda network: network.gather({"statistics": np.zeros(1)}))
    with pytest.raises(NetworkError, match="use a dec- method"):
        loopback.networks[0].scatter(np.zeros(1), "statistics")


def test_one_failing_group_ends_all_without_a_hang() -> None:
    def work(network: Network) -> None:
        if 2 in network.hosted:
            raise ValueError("agent 2 broke")
        network.neighbour_sum(np.zeros(1), "statistics")
        network.neighbour_sum(np.zeros(1), "statistics")

    before = threading.active_count()
    with pytest.raises(ValueError, match="agent 2 broke"):
        fg.Loopback(fg.Graph.path(4), [[i] for i in range(4)]).run(work)
    assert threading.active_count() == before


def test_a_silent_neighbour_is_an_error_not_a_hang() -> None:
    def work(network: Network) -> None:
        if network.hosted != (1,):
            network.neighbour_sum(np.zeros(1), "statistics")

    with pytest.raises(NeighbourLostError, match="nothing came from agent 1 within"):
        fg.Loopback(fg.Graph.path(3), [[0], [1], [2]], timeout=0.2).run(work)


def test_wrong_use_is_refused() -> None:
    network = fg.InProcess(fg.Graph.path(3))
    with pytest.raises(NetworkError, match="3 hosted agents"):
        network.exchange(np.zeros(2), "statistics")
    with pytest.raises(InputError, match="unknown kind of content 'secrets'"):
        network.exchange(np.zeros(3), "secrets")
    with pytest.raises(NetworkError, match="expected one value per hosted agent"):
        network.flood([np.zeros(1)], "statistics")
    with pytest.raises(InputError, match=r"expected each of the agents 0 .. 2 once in hosting"):
        fg.Loopback(fg.Graph.path(3), [[0], [1]])


# ---- the ledger, counted by hand -------------------------------------------------------------------------


def test_exchange_is_counted_edge_by_edge() -> None:
    network = fg.InProcess(fg.Graph.star(4))
    with network.phase("a"):
        network.exchange(np.zeros((4, 3)), "hyperparameters")
        network.exchange_parts({"hyperparameters": np.zeros((4, 3)), "stopping": np.zeros((4, 2))})
    with network.phase("b"):
        network.exchange(np.zeros((4, 5)), "predictions")
    ledger = network.ledger
    assert (ledger.rounds, ledger.messages, ledger.scalars) == (3, 18, 6 * (3 + 5 + 5))
    frame = HEADER_BYTES + part_bytes(1, 3)
    assert ledger.bytes == 6 * (frame + frame + part_bytes(1, 2) + HEADER_BYTES + part_bytes(1, 5))
    assert ledger.rounds_by_phase == {"a": 2, "b": 1}
    assert ledger.by_phase()["b"].scalars == 30
    assert ledger.by_kind()["stopping"].messages == 6
    assert ledger.total(sender=0, kind="predictions").scalars == 15
    assert ledger.by_edge()[2, 0].messages == 3
    assert set(ledger.sent_by(3)) == {"hyperparameters", "predictions", "stopping", "framing"}
    assert (2, 3) not in ledger.by_edge()


@pytest.mark.parametrize(
    ("topology", "copies"),
    [
        (fg.Graph.path(5), 4),  # on a tree every value crosses every edge once
        (fg.Graph.star(5), 4),
        (fg.Graph.complete(5), 4),  # one round: straight to each neighbour
        (alternating_path(5), 4),
    ],
)
def test_flood_carries_every_value_once_per_edge(topology: Topology, copies: int) -> None:
    network = fg.InProcess(topology)
    rows = [np.zeros((i + 1, 2)) for i in range(5)]
    network.flood(rows, "inputs")
    assert network.ledger.scalars == copies * sum(row.size for row in rows)
    assert network.ledger.rounds == topology.diameter


def test_server_traffic_is_on_the_links_to_the_centre() -> None:
    network = fg.InProcess(fg.Graph.path(3))
    network.gather({"inputs": [np.zeros((n, 2)) for n in (1, 2, 3)]})
    network.scatter(np.zeros(4), "hyperparameters")
    assert network.ledger.total(receiver=SERVER).scalars == 12
    assert network.ledger.total(sender=SERVER, kind="hyperparameters").scalars == 12
    assert network.ledger.total(sender=1).scalars == 4
    assert network.ledger.rounds == 1


# ---- frames -------------------------------------------------------------------------------------------------

parts = st.builds(
    lambda kind, origin, shape, seed: Part(
        kind, origin, np.asarray(np.random.default_rng(seed).standard_normal(shape))
    ),
    st.sampled_from(KINDS),
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(0, 5), max_size=4).map(tuple),
    st.integers(0, 1000),
)
number = st.integers(0, 2**32 - 1)
frames = st.builds(Frame, number, number, number, st.lists(parts, max_size=4).map(tuple), number, number, number)


@settings(max_examples=100)
@given(frames)
def test_frames_survive_the_wire_and_have_the_size_the_ledger_books(frame: Frame) -> None:
    data = encode(frame)
    assert len(data) == HEADER_BYTES + sum(part_bytes(p.value.ndim, p.value.size) for p in frame.parts)
    back = decode(data)
    assert (back.sender, back.receiver, back.round, back.phase, back.run, back.epoch) == (
        frame.sender,
        frame.receiver,
        frame.round,
        frame.phase,
        frame.run,
        frame.epoch,
    )
    for got, sent in zip(back.parts, frame.parts, strict=True):
        assert (got.kind, got.origin) == (sent.kind, sent.origin)
        assert np.array_equal(got.value, sent.value)


@settings(max_examples=300)
@given(frames, st.data())
def test_damaged_frames_are_refused_and_never_crash(frame: Frame, data: st.DataObject) -> None:
    raw = bytearray(encode(frame))
    if data.draw(st.booleans()):
        raw = raw[: data.draw(st.integers(0, len(raw) - 1))]
    else:
        for _ in range(data.draw(st.integers(1, 8))):
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(NetworkError):
        decode(bytes(raw))


def test_a_huge_empty_shape_is_refused() -> None:
    raw = bytearray(encode(Frame(0, 1, 0, (Part("inputs", 0, np.zeros((0, 1, 1))),))))
    raw[-8:] = b"\xff" * 8
    with pytest.raises(NetworkError):
        decode(bytes(raw))


@given(st.binary(max_size=400))
def test_noise_is_refused(noise: bytes) -> None:
    with pytest.raises(NetworkError):
        decode(noise)
