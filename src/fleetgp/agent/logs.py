"""Structured logs, one JSON document per line; and what an agent is doing."""

from __future__ import annotations

import datetime
import json
import logging
import os
import stat
import sys
import threading
import time
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TextIO, get_args

from fleetgp.errors import StorageError
from fleetgp.files import private_folder

#: Bytes after which a log file is moved aside, as FILE.1, and how many such files are kept.
LARGEST = 5_000_000
OLDER = 2
#: The last lines, which are also kept in memory: how many, and how much of each value.
RECENT, LONGEST, MOST = 32, 200, 32


class Log:
    """log("neighbour down", neighbour="auv2") -> {"time": ..., "level": "info", "agent": ..., "event": ..., ...}."""

    def __init__(self, agent: str, stream: TextIO | None = None, file: Path | None = None) -> None:
        self._agent = agent
        self._logger = logging.Logger(f"fleetgp.agent.{agent}")
        self._recent: deque[dict[str, Any]] = deque(maxlen=RECENT)
        self._lines = 0
        self._lock = threading.Lock()
        if file is not None:
            self._logger.addHandler(_LogFile(agent, file))
        if file is None or stream is not None:
            self._logger.addHandler(logging.StreamHandler(stream or sys.stderr))

    def __call__(self, event: str, **fields: Any) -> None:
        self._write(logging.INFO, event, fields)

    def warn(self, event: str, **fields: Any) -> None:
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._write(logging.ERROR, event, fields)

    def _write(self, severity: int, event: str, fields: dict[str, Any]) -> None:
        level = logging.getLevelName(severity).lower()
        self._logger.log(severity, "%s", _document(self._agent, level, event, fields))
        short = {name: _brief(value) for name, value in fields.items()}
        with self._lock:
            self._lines += 1
            line = {"number": self._lines, "time": time.time(), "level": level, "event": event, **short}
            self._recent.append(line)

    def recent(self, after: int = 0) -> list[dict[str, Any]]:
        """Return the last lines after a number, shortened. Callers give the last one that they have seen."""
        with self._lock:
            return [line for line in self._recent if line["number"] > after]

    def close(self) -> None:
        for handler in list(self._logger.handlers):
            handler.close()
            self._logger.removeHandler(handler)


class _LogFile(logging.Handler):
    """Whole lines at the end of a file, for its owner alone. What a full disk does not take is logged later.

    There is no buffer: what cannot be written now must not come between later lines.
    """

    def __init__(self, agent: str, path: Path) -> None:
        super().__init__()
        self._agent, self._path, self._lost = agent, path, 0
        try:
            private_folder(path.parent)
            self._file = self._open()
        except OSError as error:
            raise StorageError(f"{path}: no log can be written there: {error.strerror}") from error

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage() + "\n"
        if self._lost:
            line = _document(self._agent, "warning", "log lines lost", {"lines": self._lost}) + "\n" + line
        try:
            self._append(line.encode())
            self._lost = 0
        except OSError:
            self._lost += 1

    def close(self) -> None:
        self.acquire()  # another thread may be writing
        try:
            if self._file >= 0:
                os.close(self._file)
            self._file = -1
        finally:
            self.release()
        super().close()

    def _open(self) -> int:
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if stat.S_ISREG(os.fstat(file).st_mode):
            os.fchmod(file, 0o600)
        return file

    def _append(self, data: bytes) -> None:
        facts = os.fstat(self._file)
        regular = stat.S_ISREG(facts.st_mode)
        if regular and facts.st_size and facts.st_size + len(data) > LARGEST:
            with suppress(OSError):  # then it grows on: a long log is better than none
                self._move_aside()
                facts = os.fstat(self._file)
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError:
            if regular and len(left) < len(data):
                os.ftruncate(self._file, facts.st_size)
            raise

    def _move_aside(self) -> None:
        for number in range(OLDER, 0, -1):
            newer = self._path if number == 1 else self._aside(number - 1)
            if newer.exists():
                newer.replace(self._aside(number))
        full, self._file = self._file, self._open()
        os.close(full)

    def _aside(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")


def _brief(value: Any) -> Any:
    """A value of a line, as far as it is kept in memory."""
    if isinstance(value, list | tuple):
        return [_brief(item) for item in value[:MOST]]
    return value if isinstance(value, bool | int | float | None) else str(value)[:LONGEST]


def _document(agent: str, level: str, event: str, fields: dict[str, Any]) -> str:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    line = {"time": now, "level": level, "agent": agent, "event": event, **fields}
    return json.dumps(line, ensure_ascii=False, default=str)


Phase = Literal["starting", "agreeing", "training", "calibrating", "predicting", "serving", "failed", "stopped"]
PHASES: tuple[Phase, ...] = get_args(Phase)


@dataclass
class Activity:
    """round: of the training under way.  problem, data_problem: what is wrong, with the work and with the watched file.

    rounds, questions, views: how many there were.  kinds: bytes sent in rounds, by kind of content.
    began: on the wall clock.
    """

    phase: Phase = "starting"
    round: int = 0
    problem: str = ""
    data_problem: str = ""
    rounds: int = 0
    questions: int = 0
    views: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    began: float = field(default_factory=time.time)

    def __str__(self) -> str:
        return f"training, round {self.round}" if self.phase == "training" else self.phase
