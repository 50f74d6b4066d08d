"""How long an agent waits for a neighbour, and what it sends again meanwhile: with a clock of our own."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fleetgp.errors import NeighbourLostError
from fleetgp.graph import Graph
from fleetgp.network.wire import Frame, Part
from fleetgp.network.zenoh import network as module
from fleetgp.network.zenoh.links import Arrived, Departures
from fleetgp.network.zenoh.network import PATIENCE, Waiting, ZenohNetwork

pytest.importorskip("zenoh")

TIMEOUT = 10.0
HERE, ELSEWHERE = 7, 6


class Neighbourhood:
    """An agent of a path of three, by itself. frames: what comes, and when; words: what neighbours say, at any time."""

    def __init__(self, agent: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.frames: list[tuple[float, Frame]] = []
        self.words: Callable[[int, float], Waiting | None] = lambda _, __: None
        self.again: list[tuple[int, int, int]] = []
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))
        links: Any = SimpleNamespace(
            departures=Departures(),
            arrivals=SimpleNamespace(claim=lambda _: self, consumed=lambda _: None, retire=lambda _: None),
            run=0,
            send=lambda *_: None,
            send_again=lambda _, *lacking: self.again.append(lacking),
        )
        self.network = ZenohNetwork(
            links, Graph.path(3), [agent], epoch=HERE, timeout=TIMEOUT, waiting_of=lambda j: self.words(j, self.now)
        )

    def get(self, timeout: float) -> Arrived | None:
        """In the place of the mail."""
        until = self.now + timeout
        if self.frames and self.frames[0][0] <= until:
            self.now, frame = max(self.now, self.frames[0][0]), self.frames.pop(0)[1]
            return Arrived((frame.sender, frame.receiver), frame, 1)
        self.now = until
        return None

    def send(self, at: float, sender: int, receiver: int, round: int = 0) -> None:
        value = np.full((1, 1), 5.0)
        self.frames.append((at, Frame(sender, receiver, round, (Part("statistics", sender, value),))))


@pytest.fixture
def first(monkeypatch: pytest.MonkeyPatch) -> Neighbourhood:
    return Neighbourhood(0, monkeypatch)


def step(fleet: Neighbourhood) -> None:
    """It waits for what its parent sends down."""
    fleet.network.swap([], [(1, 0)], 0)


def lost(fleet: Neighbourhood) -> tuple[tuple[int, ...], float]:
    with pytest.raises(NeighbourLostError) as error:
        step(fleet)
    return error.value.neighbours, fleet.now


def test_who_computes_too_long_is_blamed_at_its_deadline(first: Neighbourhood) -> None:
    assert lost(first) == ((1,), TIMEOUT)


def test_who_waits_is_blamed_in_the_end(first: Neighbourhood) -> None:
    first.words = lambda _, __: (HERE, 0, frozenset({2}))
    assert lost(first) == ((1,), PATIENCE * TIMEOUT)


@pytest.mark.parametrize("epoch", [HERE, ELSEWHERE])
def test_whose_neighbour_was_slow_has_its_own_time_after_that(first: Neighbourhood, epoch: int) -> None:
    """A waits for B, B for C, which takes nearly a deadline; then B takes as long. Nobody was too slow."""
    first.words = lambda _, now: (epoch, 0, frozenset({2})) if now <= 0.9 * TIMEOUT else None
    first.send(1.8 * TIMEOUT, 1, 0)
    step(first)
    assert first.now == 1.8 * TIMEOUT


def test_who_waited_and_then_takes_too_long_is_blamed_before_the_end(first: Neighbourhood) -> None:
    first.words = lambda _, now: (HERE, 0, frozenset({2})) if now <= 0.9 * TIMEOUT else None
    neighbours, at = lost(first)
    assert neighbours == (1,)
    assert at == 1.9 * TIMEOUT


def test_what_a_parent_lacks_is_sent_again_by_who_waits_for_its_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of a path: the frame to agent 0 was lost, while this one waits for agent 2."""
    middle = Neighbourhood(1, monkeypatch)
    middle.words = lambda j, _: (HERE, 3, frozenset({1})) if j == 0 else (ELSEWHERE, 9, frozenset({1}))
    middle.send(2.5, 2, 1)
    middle.network.swap([], [(2, 1)], 0)
    assert middle.again == [(0, HERE, 3)] * 2  # what is asked for of another task, the peer monitor sends
