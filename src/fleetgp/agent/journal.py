"""The rows an agent was sent, in a file that only grows: a batch is there whole, or not at all.

One line a batch, {"request": ID, "columns": [...], "rows": [[...], ...], "check": CRC-32 of what stands before it}; the
end of the line makes it count. Older files have one line a row, {"x": 1.0, "y": 2.0, ...}; these are still read.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import stat
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fleetgp.arrays import Array
from fleetgp.errors import InputError, StorageError
from fleetgp.files import private_folder, sync_folder, whole

_CHECK = re.compile(r', "check": "([0-9a-f]{8})"\}$')
_JSON = json.JSONDecoder()


@dataclass(frozen=True)
class Batch:
    """Rows that were sent at once, and their text. request, check: empty for a row of an older file."""

    rows: list[list[float]]
    text: str
    request: str = ""
    check: str = ""


class Journal:
    """columns: what a row holds.  largest: numbers beyond it are damage.

    rows: (N, C), all that is kept.  damaged: lines in the middle that could not be read when the file was opened; what
    was sound in them is kept, and the file as it was is `aside` (None if there was no room for a copy).
    missing_rows, missing_bytes: how much was acknowledged and is not in the file when it is opened.
    """

    def __init__(self, path: Path, columns: Sequence[str], largest: float) -> None:
        self.path, self.columns, self._largest = path, tuple(columns), largest
        self.damaged = 0
        self.aside: Path | None = None
        self._requests: dict[str, tuple[int, str]] = {}  # how many rows, and their check
        self._size = 0
        self._doubtful = False  # behind `_size` there may be something that was refused
        self._mark = path.with_suffix(".acknowledged")
        acknowledged_bytes, acknowledged_rows = self._acknowledged = _read_mark(self._mark)
        self.missing_bytes = acknowledged_bytes
        batches: list[Batch] = []
        if os.path.lexists(path):
            with self._opened() as file:
                batches = self._recall(file)
        rows = [row for batch in batches for row in batch.rows]
        self.rows: Array = np.array(rows) if rows else np.zeros((0, len(self.columns)))
        self.missing_rows = max(0, acknowledged_rows - len(rows))
        if self._acknowledged != (0, 0) and not self._doubtful:
            self._note()  # what is missing is reported once

    @property
    def problem(self) -> str:
        """What was acknowledged and is missing, in a sentence; empty if nothing is."""
        if not (self.missing_rows or self.missing_bytes):
            return ""
        kept = f"the file as it was is {self.aside}" if self.aside else "restore a backup, or observe them again"
        return (
            f"{self.path}: {self.missing_rows} acknowledged rows ({self.missing_bytes} bytes) are missing, since "
            f"the file was cut or changed: {kept}"
        )

    def knows(self, request: str) -> bool:
        return request in self._requests

    def append(self, values: Array, request: str) -> bool:
        """Keep a batch: on disk when this returns, and nowhere if it fails. False if this request is there already."""
        body = json.dumps({"request": request, "columns": self.columns, "rows": values.tolist()})
        check = f"{zlib.crc32(body.encode()):08x}"
        if request in self._requests:
            count, earlier = self._requests[request]
            if earlier != check:
                raise InputError(
                    f"request {request!r} was used for other rows: expected the same {count} rows again, "
                    f"got {len(values)} others: give new rows a new request"
                )
            return False
        line = f'{body[:-1]}, "check": "{check}"}}'.encode()
        private_folder(self.path.parent)
        with self._opened() as file:
            self._repair(file)
            try:
                self._doubtful = True
                for part in (line, b"\n"):  # the end once the rest is safe: a line that was refused has none
                    _write(file, part)
                    os.fsync(file)
                if self._size == 0:
                    sync_folder(self.path.parent)
                self._doubtful = False
            except BaseException:
                with suppress(OSError):  # then before the next append, or at the next start
                    self._repair(file)
                raise
        self._size += len(line) + 1
        self._requests[request] = len(values), check
        self.rows = np.concatenate([self.rows, values])
        self._note()
        return True

    def _note(self) -> None:
        """Write down how much is acknowledged from now on. A crash before it leaves a lower number, which does no harm.

        It is not synced, and a failure is none of the append: then less is noticed, and nothing is lost.
        """
        mark = f"{self._size:020d} {len(self.rows):020d}"
        with suppress(OSError):
            file = os.open(self._mark, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
            try:
                os.pwrite(file, f"{mark} {zlib.crc32(mark.encode()):08x}\n".encode(), 0)
            finally:
                os.close(file)

    # ---- the file -------------------------------------------------------------------------------------------

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """The file's descriptor, for this process alone."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            file = os.open(self.path, flags, 0o600)
        except IsADirectoryError as error:
            raise StorageError(f"{self.path}: expected a file, got a folder: move it away") from error
        except OSError as error:
            raise StorageError(f"{self.path}: it cannot be read and written: {error.strerror}") from error
        try:
            facts = os.fstat(file)
            if not stat.S_ISREG(facts.st_mode):
                raise StorageError(f"{self.path}: expected a file, got a device or a pipe: move it away")
            self._lock(file)
            if facts.st_mode & 0o077:
                os.fchmod(file, 0o600)
            yield file
        finally:
            os.close(file)

    def _lock(self, file: int) -> None:
        """Another process of this agent, started by mistake, must not mend what this one is writing."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StorageError(f"{self.path}: another process is writing to it: does the agent run twice?") from error
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP):  # a file system without locks
                raise

    def _repair(self, file: int) -> None:
        """Cut off what was refused and could not be cut off then; one error if somebody else changed the file."""
        size = os.fstat(file).st_size
        if size < self._size or (size > self._size and not self._doubtful):
            raise StorageError(
                f"{self.path}: expected {self._size} bytes, as this agent left it, got {size}: somebody else changed "
                "the file; start the agent again, which takes it as it is"
            )
        if self._doubtful:
            os.ftruncate(file, self._size)
            os.fsync(file)
            self._doubtful = False

    def _recall(self, file: int) -> list[Batch]:
        """All batches. What a crash cut short was never acknowledged; what is damaged is left out, and a copy kept."""
        with open(file, "rb", closefd=False) as stream:
            data = stream.read()
        self.missing_bytes = max(0, self._acknowledged[0] - len(data))
        end = data.rfind(b"\n") + 1
        torn = end < len(data) and end < self._acknowledged[0]  # the last line was whole, and acknowledged
        lines = data + b"\n" if torn else data[:end]
        self._size, self._doubtful = end, end < len(data)
        kept: list[Batch] = []
        strangers: list[int] = []
        for number, line in enumerate(lines.split(b"\n")[:-1], start=1):
            batches, sound = self._read(line, number, strangers)
            self.damaged += not sound
            for batch in batches:
                fact = (len(batch.rows), batch.check)
                if batch.request and self._requests.get(batch.request) == fact:
                    continue  # the same request twice, as after joining two copies of a file
                self._requests[batch.request] = fact
                kept.append(batch)
        self._requests.pop("", None)
        if strangers and not kept:
            raise self._stranger(strangers[0])
        if self.damaged or torn:
            self._set_aside(data, "".join(f"{batch.text}\n" for batch in kept).encode())
        else:
            with suppress(OSError):  # then before the next append
                self._repair(file)
        return kept

    def _set_aside(self, data: bytes, sound: bytes) -> None:
        """Keep a copy of a damaged file, and its sound lines in its place; without room for both it stays as it is."""
        number = 1
        while (aside := self.path.with_name(f"{self.path.stem}.damaged-{number}{self.path.suffix}")).exists():
            number += 1
        try:
            _write_whole(aside, data)
            sync_folder(aside.parent)
            _write_whole(self.path, sound)
            sync_folder(self.path.parent)
        except OSError:
            aside.unlink(missing_ok=True)
            return
        self.aside, self._size, self._doubtful = aside, len(sound), False

    # ---- lines ----------------------------------------------------------------------------------------------

    def _read(self, line: bytes, number: int, strangers: list[int]) -> tuple[list[Batch], bool]:
        """The batches of a line, and whether it is sound. In a damaged one whole batches may stand beside fragments."""
        if not line:
            return [], True
        text = line.decode(errors="replace")  # what is replaced fails its check, or is no JSON
        batch = self._batch(text, number, strangers)
        if batch is not None and batch.text == text:
            return [batch], True
        pieces = [self._batch(piece, number, []) for piece in re.split(r'(?=\{")', text)]
        return [batch for batch in pieces if batch is not None], False

    def _batch(self, text: str, number: int, strangers: list[int]) -> Batch | None:
        """What begins here, or None if that is no batch. A sound one with other columns is of another fleet."""
        try:
            record, end = _JSON.raw_decode(text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(record, dict):
            return None
        if isinstance(record.get("rows"), list):
            return self._checked(record, text[:end], number)
        if not all(isinstance(value, float | int) for value in record.values()):
            return None
        if not set(self.columns) <= set(record):
            strangers.append(number)
            return None
        rows = self._sound([[record[name] for name in self.columns]])
        return None if rows is None else Batch(rows, text[:end])

    def _checked(self, record: dict[str, Any], text: str, number: int) -> Batch | None:
        check = _CHECK.search(text)
        if check is None or check[1] != f"{zlib.crc32((text[: check.start()] + '}').encode()):08x}":
            return None
        if not set(self.columns) <= set(record["columns"]):
            raise self._stranger(number)
        order = [record["columns"].index(name) for name in self.columns]
        rows = self._sound([[row[k] for k in order] for row in record["rows"]])
        return None if rows is None else Batch(rows, text, record["request"], check[1])

    def _sound(self, rows: list[list[Any]]) -> list[list[float]] | None:
        try:
            values = np.array(rows, dtype=float)
        except (TypeError, ValueError, OverflowError):
            return None
        numbers: list[list[float]] = values.tolist()
        return numbers if (np.abs(values) <= self._largest).all() else None  # not for NaN

    def _stranger(self, number: int) -> InputError:
        return InputError(
            f"{self.path}, line {number}: expected rows with {', '.join(self.columns)}, got other columns: "
            "move the file away, if its rows are of another fleet"
        )


def _read_mark(path: Path) -> tuple[int, int]:
    """How many bytes and rows were acknowledged; zeros where nothing, or nothing sound, says so."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as stream:
            size, rows, check = stream.read(51).decode().split()
    except (OSError, ValueError):
        return 0, 0
    return (int(size), int(rows)) if check == f"{zlib.crc32(f'{size} {rows}'.encode()):08x}" else (0, 0)


def _write(file: int, data: bytes) -> None:
    """All of it, without a buffer that could be written later."""
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def _write_whole(path: Path, data: bytes) -> None:
    with whole(path) as partial:
        file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write(file, data)
            os.fsync(file)
        finally:
            os.close(file)
