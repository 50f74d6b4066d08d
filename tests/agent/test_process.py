"""The process of an agent: how it ends, and what it says."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fleetgp.agent import service
from fleetgp.agent.agent import Agent
from fleetgp.agent.logs import Log
from fleetgp.agent.threads import Threads
from fleetgp.errors import FleetGPError, NetworkError
from tests.agent.fleets import describe, serving, until


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
