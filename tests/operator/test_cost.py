"""What a question costs a real fleet: rounds, and bytes of frames of all its agents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fleetgp.agent.description import Description, read_description
from fleetgp.operator.client import AgentClient
from fleetgp.operator.example import write_example
from fleetgp.operator.launch import Launched
from tests.agent.fleets import until

pytest.importorskip("zenoh")


def test_five_boats_answer_in_twelve_rounds_and_thirty_kilobytes(tmp_path: Path) -> None:
    """The README's example: the frames of all five, from the agenda on; fewer once the samples are there."""
    write_example(tmp_path / "fleet.toml", 5)
    description = read_description(tmp_path / "fleet.toml")
    points = np.loadtxt(tmp_path / "points.csv", delimiter=",", skiprows=1).tolist()
    launched = Launched(tmp_path / "fleet.toml", description, detach=True)
    try:
        launched.wait_until_reachable(60.0)
        costs = [cost_of(description, name, points) for name in ("boat3", "boat1", "boat4")]
    finally:
        launched.stop(60.0)
    for rounds, sent in costs:
        assert rounds <= 12
        assert sent <= 30_000
    assert [rounds for rounds, _ in costs] == [12, 8, 8]
    assert max(sent for _, sent in costs[1:]) <= 18_000


def cost_of(description: Description, asked: str, points: Any) -> tuple[int, int]:
    """The rounds and bytes of frames that a question costs a fleet that does nothing else: by what its agents count."""

    def counted() -> tuple[set[int], int, list[int]]:
        states = [request(description, name, "status") for name in description.names]
        calm = all(s["phase"] == "serving" and s["members"] == list(description.names) for s in states)
        rounds = {s["rounds"] for s in states}
        questions = [s["questions"] for s in states]
        return rounds if calm else set(), sum(s["bytes"] - s["told"] for s in states), questions

    until(lambda: len(counted()[0]) == 1)
    (before,), sent, asked_before = counted()
    answer = request(description, asked, "ask", 60.0, queries=points)
    until(lambda: len(counted()[0]) == 1 and counted()[2] == [number + 1 for number in asked_before])
    (after,), now, _ = counted()
    assert (answer["status"], answer["members"]) == ("converged", list(description.names))
    assert answer["rounds"] == after - before
    assert answer["bytes_sent"] < now - sent
    return after - before, now - sent


def request(description: Description, agent: str, verb: str, within: float = 10.0, **content: Any) -> Any:
    with AgentClient(description, agent) as client:
        return client.request(verb, within, **content)
