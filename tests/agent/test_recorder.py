"""New rows are written by a thread of their own: what a slow or full disk does to it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from fleetgp.agent.logs import Log
from fleetgp.agent.observations import ObservationStore
from fleetgp.agent.recorder import WAITING, Recorder
from fleetgp.agent.threads import Threads
from fleetgp.errors import NetworkError
from tests.agent.stores import failing, store


def test_a_slow_disk_holds_up_only_those_who_tell_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = store(tmp_path)
    disk, writing = threading.Event(), threading.Event()
    real = ObservationStore.append

    def slow(self: ObservationStore, rows: Any, request: Any = None) -> Any:
        writing.set()
        assert disk.wait(20.0)
        return real(self, rows, request)

    monkeypatch.setattr(ObservationStore, "append", slow)
    log = Log("a", file=tmp_path / "a.log")
    woken = threading.Semaphore(0)
    recorder, threads = Recorder("a", data, log, woken.release), Threads(log)
    threads.start("recorder", recorder.work, wake=recorder.close)
    answers: list[dict[str, Any]] = []
    told_all = threading.Semaphore(0)

    def reply(answer: dict[str, Any]) -> None:
        answers.append(answer)
        told_all.release()
        raise RuntimeError("the asker is gone")

    recorder.observe([[0, 0, 0]], "r", reply)
    assert writing.wait(20.0)
    for number in range(WAITING):  # none of these waits
        recorder.observe([[0, 0, 0]] if number % 2 else "nonsense", "r", reply)
    with pytest.raises(NetworkError, match=f"a has {WAITING} requests to write down before this one"):
        recorder.observe([[0, 0, 0]], "s", reply)
    assert (answers, data.rows) == ([], 1)
    disk.set()
    assert all(told_all.acquire(timeout=20.0) for _ in range(1 + WAITING))
    assert threads.close(20.0) == []
    log.close()
    assert answers[0] == {"answer": {"rows": 1, "repeated": False, "in_all": 2}}
    assert answers[1]["wrong"]
    assert answers[2] == {"answer": {"rows": 1, "repeated": True, "in_all": 2}}
    assert woken.acquire(blocking=False)
    assert not woken.acquire(blocking=False)  # only new rows wake the agent
    assert "nobody there to answer" in (tmp_path / "a.log").read_text(encoding="utf-8")


def test_an_agent_whose_disk_is_full_says_so_and_goes_on(tmp_path: Path) -> None:
    log = Log("a", file=tmp_path / "a.log")
    answers: list[dict[str, Any]] = []
    told_all = threading.Semaphore(0)

    def reply(answer: dict[str, Any]) -> None:
        answers.append(answer)
        told_all.release()

    recorder, threads = Recorder("a", store(tmp_path), log, lambda: None), Threads(log)
    threads.start("recorder", recorder.work, wake=recorder.close)
    with failing(after=3):
        # The log goes by the same os.write: what it loses is told when there is room again.
        recorder.observe([[1, 2, 3]], "r", reply)
        assert told_all.acquire(timeout=20.0)
    recorder.observe([[1, 2, 3]], "r", reply)
    assert told_all.acquire(timeout=20.0)
    assert threads.close(20.0) == []
    log.close()
    assert "a cannot keep these rows, and has kept none of them" in answers[0]["error"]
    assert "No space left on device" in answers[0]["error"]
    assert "wrong" not in answers[0]
    assert answers[1]["answer"]["rows"] == 1
