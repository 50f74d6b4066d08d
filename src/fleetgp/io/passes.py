"""Passes over files, as a listener hears of them: rows that were read, rows per second, and the time left."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Self

from fleetgp.arrays import Array
from fleetgp.io.chunks import size_of
from fleetgp.io.survey import Survey
from fleetgp.progress import Listener, Pace, Progress

#: Seconds between two things that a listener hears of a pass.
OFTEN = 0.1
#: Bytes of a text file from which the length of its lines is guessed.
START = 1 << 16

_LISTENER: ContextVar[Listener | None] = ContextVar("the listener of passes over files", default=None)


@contextmanager
def passes_told_to(listener: Listener | None) -> Iterator[None]:
    """Of passes over files that this thread begins in the meantime, somebody hears."""
    before = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(before)


def listener_of_passes() -> Listener | None:
    return _LISTENER.get()


class Pass:
    """Counts the rows of one pass, in any thread. Only at its end as many are told as there are to be read.

    task: what the pass is called.  rows: how many there are to be read; None if nobody knows.  about: that is a guess.
    """

    def __init__(self, task: str, rows: float | None, *, about: bool = False) -> None:
        self._task, self._expected, self._about = task, rows, about
        self._listener, self._lock, self._pace = _LISTENER.get(), Lock(), Pace()
        self._read, self._told = 0, -float("inf")

    def __enter__(self) -> Self:
        self.read(0)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None and self._listener is not None:
            self._listener(Progress(self._task, self._read, self._read, self._pace.told(self._read), unit="row"))

    def read(self, rows: int) -> None:
        """So many more."""
        with self._lock:
            self._read += rows
            if self._listener is None or time.monotonic() < self._told + OFTEN:
                return
            self._told = time.monotonic()
            expected = None if self._expected is None else max(round(self._expected), self._read + 1)
            detail = self._pace.told(self._read, expected, about=self._about)
            self._listener(Progress(self._task, self._read, expected, detail, unit="row"))

    def expect(self, rows: float | None) -> None:
        """So many more, or fewer, than was thought."""
        with self._lock:
            self._expected = None if rows is None or self._expected is None else self._expected + rows

    def counted(self, parts: Iterable[tuple[str, Array]]) -> Iterator[tuple[str, Array]]:
        """The same, as they are read."""
        for name, rows in parts:
            yield name, rows
            self.read(len(rows))


class FirstPass(Pass):
    """The first pass over files: how many rows there are is guessed, until a file has been read."""

    def __init__(self, files: Sequence[Path]) -> None:
        heard = listener_of_passes() is not None
        self._guesses = {file: guessed_rows(file) if heard else None for file in files}
        guesses = [guess for guess in self._guesses.values() if guess is not None]
        super().__init__("first pass", sum(guesses) if len(guesses) == len(files) else None, about=True)

    def known(self, file: Path, rows: int, *, before: bool) -> None:
        """A file has so many rows. before: that was known, and they were not read."""
        guess = self._guesses[file]
        self.expect(None if guess is None else (0 if before else rows) - guess)

    def followed(self, files: Iterable[Path], surveys: Iterable[Survey]) -> Iterator[Survey]:
        """The same, where files are read elsewhere: a file counts when it is there."""
        for file, found in zip(files, surveys, strict=True):
            self.known(file, found.rows, before=False)
            self.read(found.rows)
            yield found


def guessed_rows(file: Path) -> float | None:
    """About how many rows a file has, at hardly any cost; None if that cannot be told, or the file is none."""
    try:
        if file.suffix.lower() == ".parquet":
            from pyarrow.parquet import read_metadata

            return float(read_metadata(file).num_rows)
        if file.suffix.lower() == ".csv":
            with file.open("rb") as stream:
                start = stream.read(START)
            return size_of(file)[0] * start.count(b"\n") / max(1, len(start))
    except (ImportError, OSError, ValueError):  # whoever reads it will say what is wrong
        return None
    return None
