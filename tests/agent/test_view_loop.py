"""The life of an agent: what ends a view, and what comes after it."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fleetgp.agent.service import status_of
from fleetgp.errors import InputError, NeighbourLostError, NetworkError, NumericalError
from fleetgp.operator.client import AgentClient
from tests.agent.fleets import QUERIES, ask, describe, running, serving, until


def test_an_agent_that_cannot_work_leaves_the_others_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fleetgp.training import train as real

    broken = threading.Event()
    broken.set()

    def train(method: Any, shards: Any, network: Any, *rest: Any) -> Any:
        if broken.is_set() and network._links.hosted == (1,):
            raise NumericalError("agent 1: its covariance cannot be factorized")
        return real(method, shards, network, *rest)

    monkeypatch.setattr("fleetgp.agent.training_task.train", train)
    description, _ = describe(tmp_path, 2)
    with running(description, tmp_path) as agents:
        until(lambda: agents[0].activity.phase == "serving" and agents[1].activity.phase == "failed")
        assert status_of(agents[0])["missing"] == ["a1"]
        assert status_of(agents[0])["pid"] == os.getpid()
        assert "cannot be factorized" in status_of(agents[1])["problem"]
        with pytest.raises(NetworkError, match="a1 cannot work: NumericalError"):
            ask(description, "a1", QUERIES)
        assert ask(description, "a0", QUERIES)["members"] == ["a0"]
        broken.clear()
        with AgentClient(description, "a1") as client:
            client.request("train")
        until(lambda: serving(agents) and status_of(agents[0])["trained"]["by"] == ["a0", "a1"])
        assert status_of(agents[1])["problem"] == ""


def test_an_agent_alone_can_be_interrupted(tmp_path: Path) -> None:
    """Without neighbours there is nobody to wait for: the end must be noticed all the same."""
    description, _ = describe(tmp_path, 1, points=200, training_options="tol = 0.0\nrounds = 100000")
    with running(description, tmp_path) as agents:
        until(lambda: agents[0].activity.round > 5)
        agents[0].stop()
        until(lambda: agents[0].activity.phase == "stopped")  # the rounds that are left would take hours


def test_a_lost_frame_is_sent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of an agenda, the last of a training: each is asked for, and nobody is left out."""
    from fleetgp.network.wire import decode
    from fleetgp.network.zenoh.links import Links

    lost: list[int] = []
    real = Links.send

    def send(self: Links, own: int, neighbour: int, frame: bytes) -> None:
        round = decode(frame).round
        if len(lost) < 6 and own == 1 and round % 17 == len(lost) % 2 and round not in lost[-1:]:
            lost.append(round)
            return
        real(self, own, neighbour, frame)

    monkeypatch.setattr(Links, "send", send)
    monkeypatch.setattr("fleetgp.network.zenoh.network.AGAIN", 0.2)
    description, _ = describe(tmp_path, 3, round=20)
    with running(description, tmp_path) as agents:
        until(lambda: serving(agents))
        answer = ask(description, "a1", QUERIES)
        assert answer["members"] == ["a0", "a1", "a2"]
        assert len(lost) == 6
        assert agents[1].node.links.resent >= 6
        assert agents[0].activity.views == 1


def test_logs_name_agents_instead_of_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a lost neighbour, of a calibration and of totals: the algorithms know agents by number."""
    from fleetgp.training import train as real

    lost = [NeighbourLostError(3, [1], 30.0)]

    def train(method: Any, shards: Any, network: Any, *rest: Any) -> Any:
        if lost and network._links.hosted == (0,):
            raise lost.pop()
        return real(method, shards, network, *rest)

    def calibrate(*_: Any) -> Any:
        raise InputError("agent 0: too few rows")

    def hold(*_: Any, **__: Any) -> Any:
        raise NumericalError("agent 1: its rows are too far away")

    monkeypatch.setattr("fleetgp.agent.training_task.train", train)
    monkeypatch.setattr("fleetgp.agent.training_task.calibrate", calibrate)
    monkeypatch.setattr("fleetgp.agent.totals.MomentsSync.run", hold)
    options = {"training": "dec-full-gp", "training_options": 'calibrate = "rows"', "prediction": "dec-full-gp"}
    description, _ = describe(tmp_path, 2, points=15, round=1, **options)
    expected = {
        ("suspended", "round 3: nothing came from a1 within 30 s"),
        ("not calibrated", "a0: too few rows"),
        ("no totals", "a1: its rows are too far away"),
    }

    def lines(agents: Sequence[Any]) -> set[tuple[str, Any]]:
        recent = [line for agent in agents for line in agent.log.recent()]
        return {(line["event"], line.get("why", line.get("error"))) for line in recent}

    with running(description, tmp_path) as agents:
        until(lambda: expected <= lines(agents))


def test_a_fleet_recovers_once_the_member_that_sent_wrong_values_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a0 sends ends the training of the others; nobody has to restart them or to ask for a training."""
    from fleetgp.training import train as real

    def train(method: Any, shards: Any, network: Any, *rest: Any) -> Any:
        if 0 in network._members and network._links.hosted != (0,):
            raise NumericalError("agent 0: no covariance at its values")
        return real(method, shards, network, *rest)

    monkeypatch.setattr("fleetgp.agent.training_task.train", train)
    edges = [(0, 1), (1, 2), (0, 2)]
    description, _ = describe(tmp_path, 3, points=15, edges=edges, training="dec-full-gp", training_options="")
    with running(description, tmp_path) as agents:
        liar, *honest = agents
        until(lambda: all("no covariance" in agent.activity.problem for agent in honest))
        liar.stop()
        until(lambda: serving(honest))
        assert all(status_of(agent)["trained"]["by"] == ["a1", "a2"] for agent in honest)
        assert all(status_of(agent)["problem"] == "" for agent in honest)
