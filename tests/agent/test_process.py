"""The process of an agent: how it ends, and what it says."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fleetgp.agent import service
from fleetgp.agent.agent import Agent
from fleetgp.agent.logs import Log
from fleetgp.agent.threads import Threads
from fleetgp.errors import FleetGPError, NetworkError
from fleetgp.operator.client import AgentClient
from tests.agent.fleets import QUERIES, ask, describe, running, serving, until


class _Exited(BaseException):
    """In place of the end of the process."""


@pytest.mark.parametrize(("error", "code"), [(None, 0), (NetworkError("the end"), 1), (RuntimeError("the end"), 1)])
def test_an_error_is_an_exit_code_even_if_the_session_does_not_end(
    error: Exception | None, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python would wait for the session's threads; the process ends without them, and not as if all were well."""
    codes: list[int] = []

    def exit(code: int) -> None:
        codes.append(code)
        raise _Exited

    def start(description: Any, name: str, log: Log, before: Any) -> Any:
        return SimpleNamespace(node=SimpleNamespace(left=False), threads=Threads(log))

    def run(*_: Any) -> None:
        if error is not None:
            raise error

    monkeypatch.setattr("os._exit", exit)
    monkeypatch.setattr(service, "Agent", start)
    monkeypatch.setattr(service, "_run", run)
    description, _ = describe(tmp_path, 1)
    with pytest.raises(_Exited):
        service.run_agent(description, "a0", log_file=tmp_path / "a0.log")
    assert codes == [code]
    lines = [json.loads(line) for line in (tmp_path / "a0.log").read_text(encoding="utf-8").splitlines()]
    assert [line["error"] for line in lines] == ([] if error is None else ["the end"])


def test_an_agent_whose_thread_fails_ends_with_an_error(tmp_path: Path) -> None:
    """Whatever fails beside the work: an agent that only seems to work would be worse."""
    description, _ = describe(tmp_path, 1)
    log = Log("a0", file=tmp_path / "a0.log")
    agent = Agent(description, "a0", log)
    with ThreadPoolExecutor(1) as pool:
        try:
            living = pool.submit(agent.run)
            until(lambda: serving([agent]))
            agent.threads.start("odd", lambda: 1 / 0)
            with pytest.raises(FleetGPError, match="a0: its thread 'odd' failed: ZeroDivisionError"):
                living.result(60.0)
        finally:
            agent.stop()
    assert (agent.activity.phase, agent.threads.names, agent.node.left) == ("stopped", [], True)
    log.close()


def test_an_agent_whose_links_do_not_close_begins_again_in_a_new_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer roster has come, and its port is still taken."""
    description, _ = describe(tmp_path, 1)
    images: list[list[str]] = []

    def replace(program: str, arguments: list[str]) -> None:
        images.append([program, *arguments])
        raise _Exited

    def start(description: Any, name: str, log: Log, before: Any) -> Any:
        return SimpleNamespace(node=SimpleNamespace(left=False), threads=Threads(log))

    monkeypatch.setattr("os.execv", replace)
    monkeypatch.setattr("os._exit", lambda _: None)
    monkeypatch.setattr(service, "Agent", start)
    monkeypatch.setattr(service, "_run", lambda *_: description)
    with pytest.raises(_Exited):
        service.run_agent(description, "a0", log_file=tmp_path / "a0.log")
    assert images == [[sys.executable, sys.executable, *sys.orig_argv[1:]]]


def test_a_fleet_may_begin_without_any_rows(tmp_path: Path) -> None:
    """It waits, and trains when the first rows come."""
    description, shards = describe(tmp_path, 2)
    for name in ("a0", "a1"):
        (tmp_path / f"{name}.npz").unlink()
    with running(description, tmp_path) as agents:
        until(lambda: all(agent.node.view is not None and len(agent.node.view.members) == 2 for agent in agents))
        with pytest.raises(NetworkError, match="no agent has rows yet"):
            ask(description, "a0", QUERIES)
        inputs, values = shards[1]
        with AgentClient(description, "a1") as client:
            number = client.request("train")["training"]
            until(lambda: client.request("status")["fulfilled"] == number)
            assert client.request("status")["outcome"] == "no agent has rows yet"
            client.request("observe", rows=np.column_stack([inputs, values]).tolist(), request="first")
        until(lambda: serving(agents))
        assert np.isfinite(ask(description, "a0", QUERIES)["mean"]).all()
