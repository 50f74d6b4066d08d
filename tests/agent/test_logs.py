"""Logs: one document a line, bounded, for their owner alone, also on a disk that is full."""

from __future__ import annotations

import errno
import io
import json
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from fleetgp.agent import logs
from fleetgp.agent.logs import Log
from fleetgp.errors import StorageError
from fleetgp.operator.launch import Launched


def documents(*files: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def test_logs_are_one_document_a_line(tmp_path: Path) -> None:
    stream = io.StringIO()
    log = Log("a0", stream, tmp_path / "a.log")
    log("view", members=["a0"], missing=[])
    log.warn("suspended", neighbour="ü\n")
    log.close()
    lines = documents(tmp_path / "a.log")
    assert [(line["level"], line["event"], line["agent"]) for line in lines] == [
        ("info", "view", "a0"),
        ("warning", "suspended", "a0"),
    ]
    assert stream.getvalue() == (tmp_path / "a.log").read_text(encoding="utf-8")


def test_a_full_log_is_moved_aside_and_no_line_is_lost_before_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "LARGEST", 2000)
    path = tmp_path / "new" / "a.log"
    log = Log("a0", file=path)

    def write(thread: int) -> None:
        for n in range(10):
            log("n", of=thread, n=n)

    threads = [threading.Thread(target=write, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n in range(100):
        log("later", n=n)
    log.close()
    files = [path.with_name("a.log.2"), path.with_name("a.log.1"), path]
    assert sorted(path.parent.iterdir()) == sorted(files)
    assert all(file.stat().st_size <= 2000 for file in files)
    assert [file.stat().st_mode & 0o777 for file in files] == [0o600] * 3
    assert path.parent.stat().st_mode & 0o777 == 0o700
    numbers = [line["n"] for line in documents(*files)]
    assert numbers == list(range(100 - len(numbers), 100))
    assert len(numbers) > 40


def test_an_open_log_of_an_older_version_is_closed_to_others(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("", encoding="utf-8")
    (tmp_path / "a.log").chmod(0o644)
    Log("a0", file=tmp_path / "a.log").close()
    assert (tmp_path / "a.log").stat().st_mode & 0o777 == 0o600


def test_a_device_can_be_logged_to_and_stays_as_it_is() -> None:
    before = os.stat("/dev/null").st_mode
    log = Log("a0", file=Path("/dev/null"))
    log("view")
    log.close()
    assert os.stat("/dev/null").st_mode == before


def test_lines_that_a_full_disk_does_not_take_are_counted(tmp_path: Path) -> None:
    log = Log("a0", file=tmp_path / "a.log")
    log("before")
    write, left = os.write, 20

    def full(file: int, data: Any) -> int:
        nonlocal left
        if not left:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = write(file, bytes(data)[:left])
        left -= count
        return count

    with mock.patch("os.write", full):
        for _ in range(3):
            log("lost")
    log("after")
    log.close()
    lines = documents(tmp_path / "a.log")
    assert [line["event"] for line in lines] == ["before", "log lines lost", "after"]
    assert lines[1]["lines"] == 3


def test_a_log_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    for place in ("file/a.log", "."):
        with pytest.raises(StorageError, match="no log can be written there"):
            Log("a0", file=tmp_path / place)


def test_last_words_are_found_in_a_log_that_was_moved_aside(tmp_path: Path) -> None:
    path = tmp_path / "a" / "agent.log"
    path.parent.mkdir()

    def words(before: int) -> str:
        launched = Launched.__new__(Launched)
        launched.description = SimpleNamespace(state=tmp_path)  # type: ignore[assignment]
        launched._before = {"a": before}
        return launched._last_words("a")

    assert words(0) == "it left no word"
    path.write_text('{"event": "started"}\n{"event": "ended", "error": "the port is taken"}\n', encoding="utf-8")
    assert words(0) == "the port is taken"
    assert words(10_000) == "the port is taken"  # there were more bytes before: this is another file
    assert words(path.stat().st_size) == "it left no word"  # all of it was there before
    path.write_text('{"event": "' + 300_000 * "x" + '"}\n{"event": "fine"}\n', encoding="utf-8")
    assert words(0) == "fine"
    path.write_text("[]\n", encoding="utf-8")
    assert words(0) == "it left no word"
