"""One owner of all threads: none is forgotten, and none fails unseen."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from fleetgp.agent.logs import Log
from fleetgp.agent.threads import Threads


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log("a0", file=tmp_path / "a0.log")


def events(tmp_path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (tmp_path / "a0.log").read_text(encoding="utf-8").splitlines()]


def test_all_threads_end_with_their_owner(log: Log) -> None:
    threads, door = Threads(log), threading.Event()
    looks: list[int] = []

    def look() -> None:
        while not threads.ending.wait(0.001):
            looks.append(1)

    threads.start("look", look)
    threads.start("wait", lambda: door.wait(60.0), wake=door.set)
    assert threads.names == ["look", "wait"]
    assert threads.close(60.0) == []
    assert door.is_set()
    assert threads.names == []
    assert threads.close(0.0) == []  # twice does no harm


def test_who_does_not_end_in_time_is_named(log: Log, tmp_path: Path) -> None:
    threads, stuck = Threads(log), threading.Event()
    threads.start("stuck", lambda: stuck.wait(60.0))
    assert threads.close(0.01) == ["stuck"]
    assert [line["threads"] for line in events(tmp_path) if line["event"] == "threads did not end"] == [["stuck"]]
    stuck.set()
    assert threads.close(60.0) == []


def test_a_thread_that_fails_is_logged_and_told(log: Log, tmp_path: Path) -> None:
    ended = threading.Event()

    def work() -> None:
        raise SystemExit("no way on")  # also what `except Exception` does not catch

    threads = Threads(log, ended.set)
    threads.start("watch", work)
    assert ended.wait(60.0)
    assert threads.failure == "its thread 'watch' failed: SystemExit: no way on"
    (line,) = events(tmp_path)
    assert (line["event"], line["thread"], line["error"]) == ("a thread failed", "watch", "SystemExit: no way on")


def test_a_thread_may_close_its_own_owner(log: Log) -> None:
    """An agent that is stopped by one of its threads must not wait for that thread."""
    threads, late = Threads(log), []
    thread = threads.start("service", lambda: late.extend(threads.close(60.0)))
    thread.join(60.0)
    assert not thread.is_alive()
    assert late == []
