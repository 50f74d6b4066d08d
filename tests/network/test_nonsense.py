"""Peers that send nonsense, too much, or the same again: they are named and left out, and nobody else stops."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zenoh

import fleetgp as fg
from fleetgp.agent.agenda import Item, Trained
from fleetgp.agent.agent import Agent
from fleetgp.agent.membership import Hello, Record
from fleetgp.agent.node import HELLOS
from fleetgp.agent.requests import MOST_WAITING, PendingQuestion, Question, Requests
from fleetgp.agent.view_loop import ViewLoop
from fleetgp.consensus import total
from fleetgp.errors import NetworkError, NonsenseError
from fleetgp.graph import Graph
from fleetgp.network import Network
from fleetgp.network.loopback import Loopback, LoopbackNetwork
from fleetgp.network.wire import (
    Frame,
    Part,
    absent_from_parts,
    absent_to_parts,
    content,
    decode,
    encode,
    from_parts,
    to_parts,
)
from fleetgp.network.zenoh.links import Links
from fleetgp.operator.client import AgentClient
from tests.agent.fleets import QUERIES, ask, describe, running, serving, until


def named(*numbers: int) -> Part:
    return Part("participants", 1, np.array(numbers, dtype="<u2"))


def bits(*values: int) -> Part:
    return Part("participants", 1, np.packbits(np.array(values, dtype=bool)))


# ---- where it comes in --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("hyperparameters", np.array([0.1, np.nan])),
        ("hyperparameters", np.array([0.1, 800.0])),
        ("inputs", np.array([0.1, np.inf])),
        ("statistics", np.array([0.1, np.nan])),
    ],
)
def test_frames_with_nonsense_name_their_sender(kind: str, value: Any) -> None:
    """In an exchange and, by the first to hear it, in a flood: nobody passes it on."""

    def values(network: Any) -> Any:
        return (value if network.hosted == (2,) else np.zeros(2))[None]

    hosting = [[0], [1], [2], [3]]
    with pytest.raises(NonsenseError) as caught:
        Loopback(Graph.path(4), hosting).run(lambda network: network.exchange(values(network), kind))
    assert caught.value.sender == 2
    with pytest.raises(NonsenseError) as caught:
        Loopback(Graph.path(4), hosting).run(lambda network: network.flood(values(network), kind))
    assert caught.value.sender == 2


def test_a_value_of_another_shape_names_its_sender() -> None:
    frame = Frame(3, 0, 1, (Part("statistics", 3, np.zeros(2)),))
    assert content(frame.parts, "statistics", 3, (2,)).tolist() == [0.0, 0.0]
    for kind, shape in (("statistics", (3,)), ("statistics", ()), ("hyperparameters", (2,))):
        with pytest.raises(NonsenseError, match=rf"expected {kind} of shape .*, got (none|an array)") as caught:
            content(frame.parts, kind, 3, shape)
        assert caught.value.sender == 3


def test_nonsense_under_another_name_is_its_senders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Honest agents never relay it, so whoever sends it has made it."""
    real = LoopbackNetwork.swap

    def swap(self: Any, frames: list[Any], expected: list[Any], round: int) -> Any:
        if self.hosted == (1,) and round == 1:
            spoilt = Part("statistics", 0, np.array([np.nan]))
            frames = [replace(frame, parts=(spoilt,)) if frame.receiver == 2 else frame for frame in frames]
        return real(self, frames, expected, round)

    monkeypatch.setattr(LoopbackNetwork, "swap", swap)
    with pytest.raises(NonsenseError) as caught:
        Loopback(Graph.path(3), [[0], [1], [2]]).run(lambda network: network.flood(np.zeros((1, 1)), "statistics"))
    assert caught.value.sender == 1


def sums(network: Any) -> int:
    """Of x = 1 at every agent but 0; whom an error names, or -1."""
    try:
        total(network, np.array([[np.inf if network.hosted == (0,) else 1.0]]))
    except NonsenseError as error:
        return error.sender
    except NetworkError:
        return -1
    return -2


def test_a_sum_names_who_makes_it_impossible() -> None:
    """The agent itself knows it, before it has sent anything; the others wait for it in vain."""
    assert Loopback(Graph.path(3), [[0], [1], [2]], timeout=0.2).run(sums) == [0, -1, -1]


def test_everybody_checks_before_merging_so_the_sender_has_made_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Network, "_check_own", lambda *_: None)
    assert Loopback(Graph.path(3), [[0], [1], [2]], timeout=0.2).run(sums) == [-1, 0, -1]


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ((Part("predictions", 1, np.zeros((2, 1))),), "got no such list"),
        ((Part("predictions", 1, np.zeros((1, 1))), named(1, 1, 1, 1)), "an array of shape"),
        ((Part("predictions", 1, np.zeros((2, 1))), named(1, 1, 1)), "others than it says"),
        ((Part("predictions", 1, np.zeros((2, 1))), named(1)), "others than it says"),
        ((Part("predictions", 1, np.zeros((2, 1))), bits(1, 1, 1, 0)), "others than it says"),
        ((Part("predictions", 1, np.zeros((2, 1))), bits(*[1] * 9)), "others than it says"),
        ((Part("predictions", 1, np.zeros((1, 1))), bits(1, 1, 1, 1)), "an array of shape"),
        ((Part("predictions", 1, np.zeros((2, 1))), named(1, 1, 1, 0)), "cannot be present"),
        ((Part("predictions", 1, np.zeros((1, 1))), named(2, 0, 1, 1)), "others than it says"),
        ((Part("predictions", 1, np.zeros((2, 1))), Part("participants", 1, np.ones(4))), "got no such list"),
        ((named(1, 1, 1, 1),), "expected predictions"),
    ],
)
def test_rows_of_a_reduction_are_checked_where_they_come_in(parts: tuple[Part, ...], said: str) -> None:
    """Rows from agent 1, below which nobody else is, of two rows of a fleet of three."""
    with pytest.raises(NonsenseError, match=said) as caught:
        from_parts(parts, "predictions", 1, (2, 1), np.array([1]), 3)
    assert caught.value.sender == 1


def test_rows_and_who_is_present_survive_the_way() -> None:
    rows = np.arange(6.0).reshape(3, 2)
    for agents, kind in ((2, "uint8"), (200, "uint16")):  # bits, or a list, whichever is shorter
        who = np.zeros((agents, 3), dtype=bool)
        who[:2] = [[1, 0, 0], [1, 0, 1]]
        parts = to_parts("predictions", 0, rows, who, np.arange(agents))
        assert [part.value.dtype.name for part in parts] == ["float64", kind]
        back, present = from_parts(parts, "predictions", 0, (3, 2), np.arange(agents), agents)
        assert np.array_equal(back, np.where([[True], [False], [True]], rows, 0.0))
        assert present is not None
        assert np.array_equal(present, who)
    absent = np.array([True, False, False, True] * 5)
    assert np.array_equal(absent_from_parts(absent_to_parts(0, absent), 0, 20), absent)
    with pytest.raises(NonsenseError, match="a bit for each of 9 rows"):
        absent_from_parts(absent_to_parts(0, absent), 0, 9)


# ---- agents among whom one talks nonsense -------------------------------------------------------------------


def without(agents: list[Agent], members: tuple[int, ...]) -> bool:
    """Whether just these serve a model that just they have trained."""
    views = [agents[m].node.view for m in members]
    return all(view is not None and view.members == members for view in views) and all(
        agents[m].activity.phase == "serving" and agents[m].memory.trained is not None for m in members
    )


def wide(item: Item) -> Item:
    return replace(item, estimates=np.zeros((1, 9)))


def huge(item: Item) -> Item:
    return replace(item, trained=Trained((0.0, 0.0, 800.0, 0.0), 7, (0, 1, 2, 3), "dec-apx-gp", "converged", 4))


def many(item: Item) -> Item:
    return replace(item, question=Question(np.zeros((300_000, 2)), "dec-rbcm"))


@pytest.mark.parametrize(
    "absurd", [wide, pytest.param(huge, marks=pytest.mark.long), pytest.param(many, marks=pytest.mark.long)]
)
def test_an_absurd_agenda_stops_nobody_but_its_sender(
    absurd: Callable[[Item], Item], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others leave it out and work; when it talks sense again it is taken in again."""
    description, _ = describe(tmp_path, 4, round=3, edges=[(0, 1), (1, 2), (2, 3), (3, 0)])
    lying = True
    real = ViewLoop._item

    def item(self: ViewLoop, view: Any, asked: Any) -> Item:
        told = real(self, view, asked)
        return absurd(told) if lying and self.id == 3 else told

    monkeypatch.setattr(ViewLoop, "_item", item)
    with running(description, tmp_path) as agents:
        until(lambda: without(agents, (0, 1, 2)))
        assert ask(description, "a1", QUERIES)["missing"] == ["a3"]
        logs = (tmp_path / "a0.log").read_text(encoding="utf-8") + (tmp_path / "a2.log").read_text(encoding="utf-8")
        assert '"event": "nonsense", "sender": "a3"' in logs
        assert '"event": "suspended", "neighbour": "a3", "why": "it sends nonsense' in logs
        lying = False
        with AgentClient(description, "a3") as client:
            client.request("train")  # it had failed by its own account, and must be told to try again
        until(lambda: without(agents, (0, 1, 2, 3)))


def test_values_that_are_no_numbers_in_a_training_leave_the_others_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    description, _ = describe(tmp_path, 3, round=3)
    with running(description, tmp_path) as agents:
        links = agents[2].node.links
        real = links.send

        def send(own: int, neighbour: int, data: bytes) -> None:
            frame = decode(data)
            parts = tuple(
                Part(p.kind, p.origin, p.value * np.nan if p.kind == "hyperparameters" else p.value)
                for p in frame.parts
            )
            real(own, neighbour, encode(replace(frame, parts=parts)))

        monkeypatch.setattr(links, "send", send)
        until(lambda: without(agents, (0, 1)))
        until(lambda: agents[1].node.neighbours()["a2"].startswith("suspended: it sends nonsense"))


def test_numbers_beyond_all_bounds_do_not_split_a_fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hellos with incarnations that nobody can exceed, about others: their sender is left out, and they do no harm."""
    description, _ = describe(tmp_path, 3, round=3)
    with running(description, tmp_path) as agents:
        until(lambda: serving(agents))
        links = agents[2].node.links
        absurd = tuple(Record(agent, 2**63 - 1, 2**63 - 1) for agent in (0, 1))
        real = links.greet

        def greet(own: int, neighbour: int, data: bytes) -> None:
            hello = Hello.decode(data)
            real(own, neighbour, replace(hello, records=(*hello.records, *absurd)).encode())

        with monkeypatch.context() as patch:
            patch.setattr(links, "greet", greet)
            until(lambda: agents[1].node.links.dropped["nonsense"] >= 1)
            until(lambda: without(agents, (0, 1)))
            until(lambda: agents[1].node.neighbours()["a2"].startswith("suspended: it sends nonsense"))
        until(lambda: without(agents, (0, 1, 2)))


def test_hellos_do_not_pile_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hundred of a megabyte are refused unread; of many small ones, those beyond what may wait."""
    description, _ = describe(tmp_path, 2)
    with running(description, tmp_path) as agents:
        until(lambda: serving(agents))
        links = agents[0].node.links
        key = f"fleetgp/{description.run:016x}/0/1/hello"
        session = agents[1].node.links.session
        flood = session.declare_publisher(key, congestion_control=zenoh.CongestionControl.BLOCK)
        large = json.dumps({"digest": description.digest, "theta": [0.0] * 200_000}).encode()
        for _ in range(200):
            flood.put(large)
        until(lambda: links.dropped["malformed"] >= 200)
        rested, real = threading.Event(), links.up

        def up(own: int, neighbour: int) -> bool:
            rested.wait(60.0)
            return real(own, neighbour)

        monkeypatch.setattr(links, "up", up)  # its peer monitor is busy from the next beat on
        small = Hello(description.digest, 1, 1, 0).encode()
        try:
            for _ in range(1500):
                flood.put(small)
            until(lambda: links.dropped["flooded"] >= 1500 - 2 * HELLOS)
        finally:
            rested.set()
        assert ask(description, "a0", QUERIES)["members"] == ["a0", "a1"]


def test_questions_and_trainings_do_not_pile_up() -> None:
    requests = Requests(None)  # type: ignore[arg-type]
    asked = [
        PendingQuestion(Question(np.zeros((1, 2)), "dec-rbcm"), 1.0, 0.0, lambda _: None)
        for _ in range(MOST_WAITING + 1)
    ]
    for one in asked[:-1]:
        requests.ask(one)
    with pytest.raises(NetworkError, match="questions wait here already"):
        requests.ask(asked[-1])


# ---- the same again -----------------------------------------------------------------------------------------


def test_replayed_frames_and_hellos_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every frame comes twice, old ones come again, and so do hellos: the same answer to the last bit."""
    rng = np.random.default_rng(5)
    frames: list[tuple[Links, int, int, bytes]] = []
    hellos: list[tuple[Links, int, int, bytes]] = []
    send, greet = Links.send, Links.greet

    def send_twice(self: Links, own: int, neighbour: int, frame: bytes) -> None:
        frames.append((self, own, neighbour, frame))
        for _ in range(2):
            send(self, own, neighbour, frame)
        send(*frames[int(rng.integers(len(frames)))])

    def greet_twice(self: Links, own: int, neighbour: int, data: bytes) -> None:
        hellos.append((self, own, neighbour, data))
        greet(self, own, neighbour, data)
        greet(*hellos[int(rng.integers(len(hellos)))])

    monkeypatch.setattr(Links, "send", send_twice)
    monkeypatch.setattr(Links, "greet", greet_twice)
    description, shards = describe(tmp_path, 3)
    with running(description, tmp_path) as agents:
        until(lambda: serving(agents))
        answer = ask(description, "a1", QUERIES)
        dropped = agents[1].node.links.dropped
        assert dropped["replayed"] > 0
        assert dropped["late"] > 0
        assert agents[0].activity.views == 1
        theta = [agent.node.theta for agent in agents]
    expected = fg.Fleet(shards, "path", normalize=True, kernel="se")
    fit = expected.train("dec-apx-gp", theta0=fg.PAPER_THETA0)
    np.testing.assert_array_equal(np.exp(theta), fit.thetas)
    np.testing.assert_array_equal(answer["mean"], expected.predict(QUERIES, "dec-rbcm", agent=1).mean)
