"""What operators and neighbours send to an agent: done, or refused; it stops nothing."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zenoh

import fleetgp as fg
from fleetgp.agent.agent import Agent
from fleetgp.agent.description import read_description
from fleetgp.agent.membership import Hello
from fleetgp.agent.service import status_of
from fleetgp.errors import InputError
from fleetgp.operator.client import AgentClient
from tests.agent.fleets import QUERIES, ask, describe, running, serving, until


def test_ten_thousand_malformed_messages_stop_nothing(tmp_path: Path) -> None:
    """Frames and hellos of a neighbour, and requests of an operator, while two agents train and answer."""
    description, shards = describe(tmp_path, 2)
    rng = np.random.default_rng(3)
    with running(description, tmp_path) as agents:
        spoiler = agents[1].node.links
        spoiler.wait(10.0)
        key = f"fleetgp/{description.run:016x}/0/1/hello"
        hello = spoiler.session.declare_publisher(key, congestion_control=zenoh.CongestionControl.BLOCK)
        for n in range(10_000):
            size = int(rng.integers(0, 120))
            data = rng.bytes(size) if n % 3 else json.dumps({"digest": n, "records": [[]] * (n % 5)}).encode()
            if n % 2:
                spoiler.send(1, 0, data)
            else:
                hello.put(data)
        until(lambda: serving(agents))
        until(lambda: agents[0].node.links.dropped["malformed"] >= 10_000)
        with AgentClient(description, "a0") as client:
            for verb, payload in (("ask", {}), ("ask", {"queries": "x"}), ("ask", {"queries": [[1, 2, 3]]})):
                with pytest.raises(InputError):
                    client.request(verb, **payload)
            with pytest.raises(InputError, match="unknown request"):
                client.request("nonsense")
            with pytest.raises(InputError, match="unknown prediction method"):
                client.request("ask", queries=QUERIES, method="grbcm")
            with pytest.raises(InputError, match="rows of 3 numbers"):
                client.request("observe", rows=[[1, 2]])
        answer = ask(description, "a0", QUERIES)
        expected = fg.Fleet(shards, "path", normalize=True, kernel="se")
        fit = expected.train("dec-apx-gp", theta0=fg.PAPER_THETA0)
        assert agents[0].node.links.dropped["malformed"] == 10_000
        np.testing.assert_array_equal(np.exp([agent.node.theta for agent in agents]), fit.thetas)
        np.testing.assert_array_equal(answer["mean"], expected.predict(QUERIES, "dec-rbcm").mean)


def test_a_slow_disk_stops_neither_heartbeats_nor_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fleetgp.agent.journal import Journal

    disk, writing, real = threading.Event(), threading.Event(), Journal.append

    def append(self: Journal, values: Any, request: str) -> bool:
        writing.set()
        assert disk.wait(60.0)
        return real(self, values, request)

    monkeypatch.setattr(Journal, "append", append)
    description, _ = describe(tmp_path, 2)
    with running(description, tmp_path) as agents, ThreadPoolExecutor(1) as pool, AgentClient(description, "a1") as one:
        until(lambda: serving(agents))
        views = agents[0].activity.views
        told = pool.submit(one.request, "observe", 60.0, rows=[[0.1, 0.1, 0.0]], request="slow")
        try:
            assert writing.wait(20.0)
            with AgentClient(description, "a1") as other:
                assert other.request("status")["rows"] == 40
            assert ask(description, "a1", QUERIES)["members"] == ["a0", "a1"]
            assert not told.done()
        finally:
            disk.set()
        assert told.result(60.0) == {"rows": 1, "repeated": False, "in_all": 41}
        assert agents[0].activity.views == views  # nobody took it for lost


def test_whoever_asks_must_have_the_same_description(tmp_path: Path) -> None:
    """Else columns could change places on the way."""
    description, _ = describe(tmp_path, 1)
    text = (tmp_path / "fleet.toml").read_text(encoding="utf-8")
    (tmp_path / "swapped.toml").write_text(text.replace('inputs = ["x", "y"]', 'inputs = ["y", "x"]'), encoding="utf-8")
    (tmp_path / "named.toml").write_text(text.replace('name = "threads"', 'name = "others"'), encoding="utf-8")
    swapped, named = (read_description(tmp_path / f"{name}.toml") for name in ("swapped", "named"))
    with running(description, tmp_path) as agents:
        until(lambda: serving(agents))
        for verb, content in (("ask", {"queries": QUERIES}), ("observe", {"rows": [[1, 2, 3]]}), ("train", {})):
            with AgentClient(swapped, "a0") as client, pytest.raises(InputError, match="another fleet description"):
                client.request(verb, **content)
        with AgentClient(named, "a0") as client, pytest.raises(InputError, match="belongs to the fleet 'threads'"):
            client.request("stop")
        assert agents[0].data.rows == 40


def test_heartbeats_go_on_while_a_request_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator whose request takes long holds up other operators, but no neighbour."""
    serving_it, served = threading.Event(), threading.Event()

    def slow(agent: Agent, after: int) -> dict[str, Any]:
        serving_it.set()
        assert served.wait(60.0)
        return status_of(agent, after)

    monkeypatch.setattr("fleetgp.agent.node.HEARTBEAT", 0.1)
    description, _ = describe(tmp_path, 2)
    with running(description, tmp_path) as agents, ThreadPoolExecutor(1) as pool, AgentClient(description, "a1") as one:
        until(lambda: serving(agents))
        monkeypatch.setattr("fleetgp.agent.service.status_of", slow)
        told = pool.submit(one.request, "status", 60.0)
        try:
            assert serving_it.wait(20.0)
            views, links = agents[0].activity.views, agents[1].node.links
            longest = len(Hello(digest=description.digest, theta=(-0.1234567890123456,) * 4).encode()) + 200
            enough = links.overhead + 4 * longest  # bytes of more than four hellos
            until(lambda: links.overhead > enough)
            assert ask(description, "a0", QUERIES)["members"] == ["a0", "a1"]
            assert not told.done()
        finally:
            served.set()
        assert told.result(60.0)["agent"] == "a1"
        assert agents[0].activity.views == views
