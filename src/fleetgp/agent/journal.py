"""The rows an agent was sent, and those that left it, in one file: each line is there whole, or not at all.

A line is a JSON object whose last entry is the CRC-32 of what stands before it; the end of the line makes it count.

- {"request": NAME, "columns": [...], "rows": [[...], ...]}: a batch.
- {"leave": NAME, ...}: a `Departure`, rows that count no more. A row is known by its request and its number there.
- {"base": ...}, {"known": [[NAME, rows, check], ...]} and {"part": NAME, "numbers": [[first, end], ...], ...}: what
  `Journal.compact` leaves of an older file: what has left, the names of requests, and the rows that still count.

Older files have one line a row, {"x": 1.0, "y": 2.0, ...}; these are still read.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from fleetgp.agent.journal_lines import (
    Base,
    Batch,
    Departure,
    Known,
    Record,
    base_line,
    crc,
    departed,
    leave_line,
    spans,
    with_check,
)
from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.errors import InputError, StorageError
from fleetgp.files import private_folder, sync_folder, whole

_CHECK = re.compile(r', "check": "([0-9a-f]{8})"\}$')
_JSON = json.JSONDecoder()

#: The names of so many requests are kept after their rows have left; those of rows that count stay in any case.
KNOWN = 10_000
#: So many receipts of removals are kept.
RECEIPTS = 1_000
#: Bytes below which a file is not compacted on its own.
SMALL = 2**16
#: Names on one line of a compacted file, and rows.
PER_LINE = 500


class Journal:
    """columns: what a row holds.  largest: numbers beyond it are damage.

    rows: (N, C), all that count.  damaged: lines in the middle that could not be read when the file was opened; what
    was sound in them is kept, and the file as it was is `aside` (None if there was no room for a copy).
    missing_rows, missing_bytes: how much was acknowledged and is not in the file when it is opened.
    horizon: rows of the data file with an earlier time do not count.  keys, times: hashes of its other rows that left,
    and their times.  gone: how many rows that were sent have left.  removed: how many rows were taken back.
    kept: groups that stand for forgotten rows, as plain values.  receipts: of removals, by request.
    """

    def __init__(self, path: Path, columns: Sequence[str], largest: float) -> None:
        self.path, self.columns, self._largest = path, tuple(columns), largest
        self._size = 0
        self._doubtful = False  # behind `_size` there may be something that was refused
        self._mark = path.with_suffix(".acknowledged")
        self.damaged = 0
        self.aside: Path | None = None
        self._begin()
        acknowledged_bytes, acknowledged_rows = self._acknowledged = _read_mark(self._mark)
        self.missing_bytes = acknowledged_bytes
        if os.path.lexists(path):
            with self._opened() as file:
                self._recall(file)
        self.missing_rows = max(0, acknowledged_rows - len(self.rows))
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

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._size

    @property
    def copies(self) -> list[Path]:
        """Copies of damaged files, which keep the rows that they have."""
        return sorted(self.path.parent.glob(f"{self.path.stem}.damaged-*{self.path.suffix}"))

    def knows(self, request: str) -> bool:
        return request in self._requests

    @property
    def names(self) -> Any:
        """(N,) the name of each row's request; empty for a row of an older file."""
        return np.array(self._names, dtype=object)[self._whose] if self._names else np.zeros(0, dtype=object)

    def requests_of(self, name: str, others: Iterable[str] = ()) -> set[str]:
        """The requests that a name means: the one of this name, or else its numbered parts; none if it is unknown.

        others: names of requests whose rows have left.
        """
        parts = {one for one in (*self._names, *self._requests, *others) if is_part(one, name)}
        return parts & {name} or parts

    def of_requests(self, requests: set[str]) -> BoolArray:
        """(N,) which rows were sent as one of these requests."""
        return np.asarray(np.isin(self._whose, [k for k, one in enumerate(self._names) if one in requests]))

    def sent(self, rows: BoolArray) -> tuple[tuple[str, int, int], ...]:
        """Rows of the journal (N,), as a `Departure` has them."""
        chosen = np.flatnonzero(rows)
        order = chosen[np.lexsort((self._numbers[chosen], self._whose[chosen]))]
        whose, numbers = self._whose[order], self._numbers[order]
        runs = _runs((np.diff(whose) != 0) | (np.diff(numbers) != 1), len(order))
        return tuple((self._names[whose[a]], int(numbers[a]), int(numbers[b - 1]) + 1) for a, b in runs)

    def append(self, values: Array, request: str) -> bool:
        """Keep a batch: on disk when this returns, and nowhere if it fails. False if this request is there already."""
        body = json.dumps({"request": request, "columns": self.columns, "rows": values.tolist()})
        check = crc(body)
        if request in self._requests:
            count, earlier = self._requests[request]
            if earlier != check:
                raise InputError(
                    f"request {request!r} was used for other rows: expected the same {count} rows again, "
                    f"got {len(values)} others: give new rows a new request"
                )
            return False
        self._write_line(body, Batch(values.tolist(), request, check))
        return True

    def leave(self, departure: Departure) -> bool:
        """Let rows leave: on disk when this returns; nothing has changed if it fails. False if it is there already."""
        if departure.request and departure.request in self.receipts:
            return False
        self._write_line(leave_line(departure, self.columns), departure)
        return True

    # ---- what the lines mean ---------------------------------------------------------------------------------

    def _begin(self) -> None:
        """As without a file."""
        self.rows: Array = np.zeros((0, len(self.columns)))
        self._whose: IntArray = np.zeros(0, dtype=np.int64)  # the number of each row's name
        self._numbers: IntArray = np.zeros(0, dtype=np.int64)
        self._names: list[str] = []
        self._costs: list[float] = []  # bytes for each row of a name
        self._positions: dict[str, int] = {}
        self._unnamed = 0
        self._requests: dict[str, tuple[int, str]] = {}  # how many rows, and their check
        self._waiting: list[tuple[Array, IntArray, IntArray]] = []
        self._based = 0  # bytes of a compacted file's lines before its rows
        self.horizon = -np.inf
        self.keys: Any = np.zeros(0, dtype=np.uint64)
        self.times: Array = np.zeros(0)
        self.gone = self.removed = 0
        self.kept: Any = None
        self.receipts: dict[str, Any] = {}

    def _apply(self, record: Record, size: int) -> None:
        """Take in a line of so many bytes; rows count after `_settle`."""
        if isinstance(record, Batch):
            self._add(record, size)
        elif isinstance(record, Known):
            self._requests.update({name: (count, check) for name, count, check in record.requests})
            self._based += size
        elif isinstance(record, Departure):
            self._settle()
            self._leave(record)
        elif not self._based:  # of the two copies of a base the second counts where the first is damaged
            self._leave(record.departure)
            self.gone, self.receipts = record.gone, dict(record.receipts)
            self._based = 2 * size

    def _add(self, batch: Batch, size: int) -> None:
        count = len(batch.rows)
        if batch.check:
            if self._requests.get(batch.request) == (count, batch.check):
                return  # the same request twice, as after joining two copies of a file
            self._requests[batch.request] = count, batch.check
        if batch.request not in self._positions:
            self._positions[batch.request] = len(self._names)
            self._names.append(batch.request)
            self._costs.append(0.0)
        whose = self._positions[batch.request]
        self._costs[whose] = max(self._costs[whose], size / count)
        numbers = np.arange(count) if batch.numbers is None else np.array(batch.numbers, dtype=np.int64)
        if not batch.request and batch.numbers is None:
            numbers = numbers + self._unnamed
        if not batch.request:
            self._unnamed = max(self._unnamed, int(numbers.max()) + 1)
        self._waiting.append((np.array(batch.rows), np.full(count, whose), numbers))

    def _settle(self) -> None:
        """Let the rows of earlier batches count."""
        if self._waiting:
            rows, whose, numbers = (np.concatenate(parts) for parts in zip(*self._waiting, strict=True))
            self._waiting = []
            self.rows = np.concatenate([self.rows, rows])
            self._whose = np.concatenate([self._whose, whose])
            self._numbers = np.concatenate([self._numbers, numbers])

    def _leave(self, departure: Departure) -> None:
        if departure.horizon is not None:
            self.horizon = max(self.horizon, departure.horizon)
        leaving = np.zeros(len(self.rows), dtype=bool)
        leave: dict[int, list[tuple[int, int]]] = {}
        for name, first, end in departure.sent:
            if name in self._positions:
                leave.setdefault(self._positions[name], []).append((first, end))
        if leave:
            chosen = np.flatnonzero(np.isin(self._whose, list(leave)))
            whose, numbers = self._whose[chosen], self._numbers[chosen]
            for position, parts in leave.items():
                mine = whose == position
                for first, end in parts:
                    leaving[chosen[mine & (numbers >= first) & (numbers < end)]] = True
        self.gone += int(leaving.sum())
        stay = ~leaving
        self.rows, self._whose, self._numbers = self.rows[stay], self._whose[stay], self._numbers[stay]
        keys, times = np.append(self.keys, departure.keys), np.append(self.times, departure.times)
        needed = ~(times < self.horizon)  # the others do not count in any case
        self.keys, self.times = keys[needed], times[needed]
        self.removed += departure.removed
        if departure.kept is not None:
            self.kept = departure.kept
        if departure.request:
            self.receipts[departure.request] = departure.receipt
        for old in list(self.receipts)[:-RECEIPTS]:
            del self.receipts[old]

    # ---- compaction ------------------------------------------------------------------------------------------

    @property
    def wasteful(self) -> bool:
        """Whether more than half of the file is of rows that do not count any more."""
        counted = self._based + float(np.array(self._costs)[self._whose].sum()) if self._names else 0.0
        return self._size > max(SMALL, 2 * counted)

    def compact(self) -> None:
        """Rewrite the file with what still counts, in one step; a crash leaves the file before or after it.

        Of the requests whose rows have left, the newest `KNOWN` names stay: repeating one of them has no effect.
        """
        used = {self._names[number] for number in np.unique(self._whose).tolist()}
        old = set(list(self._requests)[:-KNOWN]) - used
        known = tuple((name, *fact) for name, fact in self._requests.items() if name not in old)
        horizon = self.horizon if np.isfinite(self.horizon) else None
        sums = Departure("", (), self.keys, self.times, horizon, self.removed, self.kept)
        base = Base(sums, self.gone, tuple(self.receipts.items()))
        text = base_line(base, self.columns)
        records: list[tuple[str, Record]] = [(text, base), (text, base)]  # twice: what has left must not come back
        for start in range(0, len(known), PER_LINE):
            part = Known(known[start : start + PER_LINE])
            records.append((json.dumps({"known": part.requests}), part))
        records += self._parts()
        lines = [with_check(body) for body, _ in records]
        data = b"".join(line + b"\n" for line in lines)
        with self._opened() as file:
            self._repair(file)
            try:
                _write_mark(self._mark, 0, 0, sync=True)  # the numbers of the longer file would report a loss
                _write_whole(self.path, data)
            except BaseException:
                self._note()
                raise
            self._begin()
            for line, (_, record) in zip(lines, records, strict=True):
                self._apply(record, len(line) + 1)
            self._settle()
            self._size, self._doubtful = len(data), False
            sync_folder(self.path.parent)
        self._note()

    def _parts(self) -> Iterator[tuple[str, Batch]]:
        """The rows that count, in their order, with their names and numbers."""
        for first, end in _runs(np.diff(self._whose) != 0, len(self._whose)):
            for start in range(first, end, PER_LINE):
                some = slice(start, min(end, start + PER_LINE))
                name, numbers = self._names[self._whose[start]], tuple(self._numbers[some].tolist())
                rows = self.rows[some].tolist()
                facts = {"part": name, "numbers": spans(numbers), "columns": self.columns, "rows": rows}
                yield json.dumps(facts), Batch(rows, name, "", numbers)

    # ---- the file -------------------------------------------------------------------------------------------

    def _write_line(self, body: str, record: Record) -> None:
        """Write a line and take it in; without its end, which is written last, it does not count."""
        line = with_check(body)
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
        self._apply(record, len(line) + 1)
        self._settle()
        self._note()

    def _note(self) -> None:
        """Write down how much is acknowledged from now on. A crash before it leaves a lower number, which does no harm.

        It is not synced, and a failure is none of the append: then less is noticed, and nothing is lost.
        """
        with suppress(OSError):
            _write_mark(self._mark, self._size, len(self.rows))

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
        twice = f"{self.path}: another process is writing to it: does the agent run twice?"
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StorageError(twice) from error
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP):  # a file system without locks
                raise
        if os.fstat(file).st_ino != os.stat(self.path).st_ino:  # it was compacted in between
            raise StorageError(twice)

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

    def _recall(self, file: int) -> None:
        """All lines. What a crash cut short was never acknowledged; what is damaged is left out, and a copy kept."""
        with open(file, "rb", closefd=False) as stream:
            data = stream.read()
        self.missing_bytes = max(0, self._acknowledged[0] - len(data))
        end = data.rfind(b"\n") + 1
        torn = end < len(data) and end < self._acknowledged[0]  # the last line was whole, and acknowledged
        lines = data + b"\n" if torn else data[:end]
        self._size, self._doubtful = end, end < len(data)
        kept: list[str] = []
        strangers: list[int] = []
        for number, line in enumerate(lines.split(b"\n")[:-1], start=1):
            records, sound = self._read(line, number, strangers)
            self.damaged += not sound
            for text, record in records:
                self._apply(record, len(text.encode()) + 1)
                kept.append(text)
        self._settle()
        if strangers and not kept:
            raise self._stranger(strangers[0])
        if self.damaged or torn:
            self._set_aside(data, "".join(f"{text}\n" for text in kept).encode())
        else:
            with suppress(OSError):  # then before the next append
                self._repair(file)

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

    def _read(self, line: bytes, number: int, strangers: list[int]) -> tuple[list[tuple[str, Record]], bool]:
        """The records of a line, and whether it is sound. In a damaged one whole records may stand beside fragments."""
        if not line:
            return [], True
        text = line.decode(errors="replace")  # what is replaced fails its check, or is no JSON
        record = self._record(text, number, strangers)
        if record is not None and record[0] == text:
            return [record], True
        pieces = [self._record(piece, number, []) for piece in re.split(r'(?=\{")', text)]
        return [record for record in pieces if record is not None], False

    def _record(self, text: str, number: int, strangers: list[int]) -> tuple[str, Record] | None:
        """What begins here, and its text, if it is a record. A sound one with other columns is of another fleet."""
        try:
            facts, end = _JSON.raw_decode(text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(facts, dict):
            return None
        text = text[:end]
        if "check" in facts:
            try:
                record = self._checked(facts, text, number)
            except InputError:
                raise
            except (TypeError, KeyError, ValueError, AttributeError):
                return None
            return None if record is None else (text, record)
        if not all(isinstance(value, float | int) for value in facts.values()):
            return None
        if not set(self.columns) <= set(facts):
            strangers.append(number)
            return None
        rows = self._sound([[facts[name] for name in self.columns]])
        return None if rows is None else (text, Batch(rows))

    def _checked(self, facts: dict[str, Any], text: str, number: int) -> Record | None:
        check = _CHECK.search(text)
        if check is None or check[1] != crc(text[: check.start()] + "}"):
            return None
        if "known" in facts:
            return Known(tuple((name, count, one) for name, count, one in facts["known"]))
        columns = set(facts["columns"])
        if "leave" in facts or "base" in facts:
            if facts["file"] and columns != set(self.columns):
                raise self._stranger(number)
            return departed(facts)
        if not set(self.columns) <= columns:
            raise self._stranger(number)
        order = [facts["columns"].index(name) for name in self.columns]
        rows = self._sound([[row[k] for k in order] for row in facts["rows"]])
        if rows is None:
            return None
        if "part" in facts:
            numbers = tuple(number for first, end in facts["numbers"] for number in range(first, end))
            return Batch(rows, facts["part"], "", numbers) if len(numbers) == len(rows) else None
        return Batch(rows, facts["request"], check[1])

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


def is_part(request: str, name: str) -> bool:
    """Whether rows were sent under this name, or under it and the number of a part.

    >>> is_part("dive-7", "dive"), is_part("dive", "dive"), is_part("dives", "dive")
    (True, True, False)
    """
    head, dash, number = request.rpartition("-")
    return request == name or (bool(dash) and head == name and number.isdecimal())


def _runs(edges: BoolArray, count: int) -> list[tuple[int, int]]:
    """Intervals of so many places. edges: (count - 1,) whether the next place begins another one.

    >>> _runs(np.array([False, True]), 3), _runs(np.zeros(0, dtype=bool), 0)
    ([(0, 2), (2, 3)], [])
    """
    ends = [*(np.flatnonzero(edges) + 1).tolist(), count]
    return list(pairwise([0, *ends])) if count else []


def _read_mark(path: Path) -> tuple[int, int]:
    """How many bytes and rows were acknowledged; zeros where nothing, or nothing sound, says so."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as stream:
            size, rows, check = stream.read(51).decode().split()
    except (OSError, ValueError):
        return 0, 0
    return (int(size), int(rows)) if check == crc(f"{size} {rows}") else (0, 0)


def _write_mark(path: Path, size: int, rows: int, *, sync: bool = False) -> None:
    mark = f"{size:020d} {rows:020d}"
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    try:
        os.pwrite(file, f"{mark} {crc(mark)}\n".encode(), 0)
        if sync:
            os.fsync(file)
    finally:
        os.close(file)


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
