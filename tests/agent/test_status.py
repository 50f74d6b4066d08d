"""What an agent tells of itself: enough for a page, bounded, and rows only where it shows them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fleetgp.agent import logs
from fleetgp.agent.agent import Agent
from fleetgp.agent.description import read_description
from fleetgp.agent.logs import Log
from fleetgp.agent.service import status_of
from fleetgp.errors import InputError
from fleetgp.operator.client import AgentClient
from tests.agent.fleets import QUERIES, ask, describe, running, serving, until
from tests.agent.stores import store


def adds_up(state: dict[str, Any]) -> bool:
    """What ledgers say of rounds, and hellos, are all that the links carried; a hello may fall between two counts."""
    by_kind = sum(state["kinds"].values()) + state["overhead"]
    return bool(by_kind == state["bytes"] == sum(state["sent"].values()))


def test_an_agent_tells_its_place_its_traffic_and_what_happened(tmp_path: Path) -> None:
    description, shards = describe(tmp_path, 2)
    text = (tmp_path / "fleet.toml").read_text(encoding="utf-8")
    (tmp_path / "fleet.toml").write_text(
        text.replace('data = "a1.npz"', 'data = "a1.npz"\nshow_rows = true'), encoding="utf-8"
    )
    shown = read_description(tmp_path / "fleet.toml")
    assert shown.digest == description.digest, "what an agent shows is its own affair"
    with running(shown, tmp_path) as agents:
        until(lambda: serving(agents))
        ask(shown, "a0", QUERIES, asker="a test")
        with AgentClient(shown, "a0") as client, AgentClient(shown, "a1") as other:
            state = client.request("status")
            inputs = shards[0][0]
            np.testing.assert_array_equal(state["place"]["low"], inputs.min(axis=0))
            np.testing.assert_array_equal(state["place"]["high"], inputs.max(axis=0))
            np.testing.assert_allclose(state["place"]["centre"], inputs.mean(axis=0), rtol=1e-12)
            until(lambda: adds_up(client.request("status")))
            assert {"hyperparameters", "agenda", "framing"} <= set(state["kinds"])
            answered = [line for line in state["events"] if line["event"] == "answered"]
            assert [(line["asker"], line["queries"], line["took_part"]) for line in answered] == [
                ("a test", 2, ["a0", "a1"])
            ]
            last = state["events"][-1]["number"]
            assert client.request("status", after=last)["events"] == []
            assert client.request("status", after="nonsense")["events"]
            with pytest.raises(InputError, match="a0 does not show its rows: `show_rows = true`"):
                client.request("rows")
            told = other.request("rows")
            np.testing.assert_array_equal(told["inputs"], shards[1][0])
            np.testing.assert_array_equal(told["targets"], shards[1][1])
            assert told["of"] == 40


def test_a_place_is_that_of_all_rows(tmp_path: Path) -> None:
    data = store(tmp_path)
    before = data.place
    assert data.place is before, "nothing new: nothing is computed"
    data.append([[-7.0, 100.0, 1.0]])
    inputs, targets = data.shard.inputs, data.shard.values
    assert (data.place["low"][0], data.place["high"][1]) == (-7.0, 100.0)
    np.testing.assert_allclose(data.place["centre"], inputs.mean(axis=0))
    assert targets[-1] == 1.0


def test_the_last_lines_of_a_log_are_kept_and_bounded() -> None:
    log = Log("a0", io.StringIO())
    for number in range(3 * logs.RECENT):
        log.warn("long", text="x" * 1_000, many=[{"a": "y" * 1_000}] * 100, number_of=number, why=None)
    lines = log.recent()
    assert [line["number"] for line in lines] == list(range(2 * logs.RECENT + 1, 3 * logs.RECENT + 1))
    assert len(json.dumps(lines)) < logs.RECENT * logs.LONGEST * (logs.MOST + 10)
    assert (lines[0]["level"], lines[0]["number_of"], lines[0]["why"]) == ("warning", 2 * logs.RECENT, None)
    assert [line["number"] for line in log.recent(lines[-2]["number"])] == [lines[-1]["number"]]


def test_rows_that_were_acknowledged_and_are_missing_are_in_the_log_and_in_the_status(tmp_path: Path) -> None:
    """Until the next start; then what is there is what counts."""
    description, _ = describe(tmp_path, 1)
    seen = []
    for number in range(3):
        log = Log("a0", file=tmp_path / f"{number}.log")
        agent = Agent(description, "a0", log)
        try:
            if number == 0:
                agent.data.append([[0.5, 0.5, 1.0], [0.6, 0.5, 1.1]], "first")
                agent.data.append([[0.7, 0.5, 1.2]], "second")
                kept = agent.data.journal.path
            seen.append((status_of(agent), [line for line in log.recent() if line["event"] == "observed rows damaged"]))
        finally:
            agent.stop()
            agent.close()
            log.close()
        if number == 0:
            kept.write_bytes(b"".join(kept.read_bytes().splitlines(keepends=True)[:-1]))
    sound, damaged, after = seen
    for state, lines in (sound, after):
        assert (state["missing_rows"], state["problem"], lines) == (0, "", [])
    state, (line,) = damaged
    assert state["missing_rows"] == line["rows_missing"] == 1
    assert f"1 acknowledged rows ({line['bytes_missing']} bytes) are missing" in state["problem"]
    assert line["level"] == "error"
    assert line["file"] == str(kept)
    assert line["rows_kept"] == 2
