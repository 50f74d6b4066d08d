"""The first pass over files, some thousand rows at a time: whose rows they have, how many, where, and what is strange.

Needs the extra "data". A listener gets the progress of each pass: rows read, rows per second, and the time left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np

from fleetgp.arrays import Array, IntArray, Keys
from fleetgp.data.dataset import FIRST
from fleetgp.data.partition import is_present
from fleetgp.data.suspicions import Copies, Sample, Tally, row_keys
from fleetgp.errors import InputError
from fleetgp.io.fields import field_chunks
from fleetgp.io.formats import (
    Columns,
    Reading,
    Table,
    check_fields,
    check_file,
    check_names,
    csv_errors,
    csv_names,
    csv_options,
    pandas_for,
)
from fleetgp.io.tables import check_deviation_column, label_text, missing_rows
from fleetgp.model.observations import Summary
from fleetgp.progress import Listener, Pace, Progress
from fleetgp.validation import LARGEST

#: The kinds of files that are read in chunks, by their endings.
CHUNKED = (".csv", ".parquet", ".nc", ".zarr")
#: Values of all columns of a text file that are in memory at once, at most: wide tables come in fewer rows.
MOST_VALUES = 1 << 22
#: What pandas takes for a missing number.
NO_NUMBER = ("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A",
             "NA", "NULL", "NaN", "None", "n/a", "nan", "null")  # fmt: skip


@dataclass(frozen=True)
class Chunk:
    """Some rows. numbers: (n, ..) of `Columns.numbers`, NaN where missing.  labels: (n,), the agent of each row.

    before: how many rows of the file come before these.  empty: cells of a field without a value, which are no rows.
    units: of the columns, where the file has them.  notes: what was done to the values.
    """

    numbers: Array
    labels: Any | None
    before: int
    empty: int = 0
    units: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def chunks(file: Path, columns: Columns, rows: int) -> Iterator[Chunk]:
    """Yield all rows of a file in their order, at most `rows` at once; errors name the file and the row."""
    _check(file, columns.reading)
    reader = {".csv": _csv, ".parquet": _parquet}.get(file.suffix.lower(), field_chunks)
    read = 0
    blocks = reader(file, columns, rows)
    while True:
        try:
            part = next(blocks)
        except StopIteration:
            return
        except InputError as error:
            raise InputError(f"{error}{_after(read)}") from error
        except (OSError, ValueError, KeyError, IndexError, EOFError, RuntimeError, NotImplementedError) as error:
            kind = file.suffix[1:].upper()
            raise InputError(f"{file}: it cannot be read as {kind}: {str(error).strip():.300}{_after(read)}") from error
        numbers, times = columns.numbers_of(part, file, read)
        if columns.deviation is not None:
            check_deviation_column(file, columns.deviation, numbers[:, len(columns.inputs)])
        labels = part.columns[columns.agent] if columns.agent else None
        units = {**part.units, **times}
        listed = tuple(units.get(name, "") for name in columns.numbers) if units else ()
        yield Chunk(numbers, labels, read, part.empty, listed, part.notes)
        read += len(numbers)


def size_of(file: Path) -> tuple[int, int]:
    """Return the bytes of a file or folder, and when it was last changed (in nanoseconds)."""
    files = [entry for entry in file.rglob("*") if entry.is_file()] if file.is_dir() else [file]
    facts = [entry.stat() for entry in files]
    return sum(fact.st_size for fact in facts), max((fact.st_mtime_ns for fact in facts), default=0)


def _after(read: int) -> str:
    return f" (after row {read})" if read else ""


def _check(file: Path, reading: Reading) -> None:
    """Refuse what cannot be read in chunks."""
    kind = file.suffix.lower()
    if kind not in CHUNKED:
        hint = ": NPZ is read as a whole only, write Parquet" if kind == ".npz" else ""
        raise InputError(f"{file}: expected a file that ends in {', '.join(CHUNKED)}{hint}")
    check_file(file, reading)


def _csv(file: Path, columns: Columns, rows: int) -> Iterator[Table]:
    how = columns.reading
    options = csv_options(how)
    with csv_errors(file, how):
        have = csv_names(file, options)
    check_names(file, columns.all, have, how)
    written: dict[str, Any] = {}
    if columns.agent is not None:  # it may be called NA, or 007
        gaps = {name: list(NO_NUMBER) for name in columns.numbers}
        written = {"dtype": {columns.agent: str}, "keep_default_na": False, "na_values": gaps}
    few = max(1, min(rows, MOST_VALUES // len(have)))
    # All columns are read: with some of them, pandas would not notice rows that are too long.
    with csv_errors(file, how):
        reader = pandas_for(file).read_csv(file, low_memory=False, chunksize=few, **written, **options)
    with reader:
        while True:
            with csv_errors(file, how):
                table = next(reader, None)
            if table is None:
                return
            check_fields(table, have, file, how)
            yield Table({name: table[name].to_numpy() for name in columns.all})


def _parquet(file: Path, columns: Columns, rows: int) -> Iterator[Table]:
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise InputError(f'{file}: Parquet needs pyarrow: pip install "fleetgp[data]"') from error
    # Pages come one by one through a small buffer, however long a row group is.
    options = {"pre_buffer": False, "buffer_size": 1 << 20, "page_checksum_verification": True}
    with ParquetFile(file, **options) as table:
        check_names(file, columns.all, table.schema_arrow.names, columns.reading)
        for batch in table.iter_batches(batch_size=rows, columns=list(columns.all), use_threads=False):
            yield Table({name: np.asarray(batch.column(name).to_pandas()) for name in columns.all})


T = TypeVar("T")


@dataclass(frozen=True)
class Scan:
    """How to read files. rows: the most at once.  drop: leave out rows that cannot be used, instead of refusing them.

    sample: how many rows of each agent are loaded where rows are needed, 0 for all; drawn by the seed.
    """

    columns: Columns
    rows: int
    drop: bool
    sample: int
    seed: int

    @property
    def drawn(self) -> int:
        """Rows of each agent that are kept: the sample, or more for a first look."""
        return max(self.sample, FIRST)


@dataclass(frozen=True)
class Survey:
    """What a first pass finds in a file, or in several: everything adds up.

    named: all agents that are named, in their order.  summaries, samples: of the agents that have rows; samples may be
        kept by workers.
    rows: how many there are, including dropped ones.  empty: cells of fields without a value.
    units: of the columns, where files have them.  notes: what was done to the values.
    """

    named: tuple[str, ...]
    summaries: dict[str, Summary]
    samples: dict[str, Sample]
    rows: int
    dropped: int
    empty: int
    tally: Tally
    copies: Copies
    units: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def plus(self, other: Survey, sample: int) -> Survey:
        return Survey(
            tuple(dict.fromkeys([*self.named, *other.named])),
            _added(self.summaries, other.summaries, Summary.plus),
            _added(self.samples, other.samples, lambda one, its: one.plus(its, sample)),
            self.rows + other.rows,
            self.dropped + other.dropped,
            self.empty + other.empty,
            self.tally.plus(other.tally),
            self.copies.plus(other.copies),
            self.units or other.units,
            tuple(dict.fromkeys([*self.notes, *other.notes])),
        )

    @property
    def count(self) -> int:
        """How many observations there are."""
        return self.rows - self.dropped

    @property
    def piece(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "named": self.named,
            "dimension": next((len(one.low) for one in self.summaries.values()), 0),
            "summaries": {name: one.packed.tolist() for name, one in self.summaries.items()},
            "samples": {name: [one.keys.tolist(), one.rows.tolist()] for name, one in self.samples.items()},
            "counts": [self.rows, self.dropped, self.empty],
            "tally": {name: array.tolist() for name, array in self.tally.arrays.items()},
            "copies": [self.copies.hashes.tolist(), self.copies.times.tolist()],
            "units": self.units,
            "notes": self.notes,
        }

    @classmethod
    def from_piece(cls, piece: dict[str, Any]) -> Survey:
        rows, dropped, empty = piece["counts"]
        hashes, times = piece["copies"]
        dimension = piece["dimension"]
        return cls(
            tuple(piece["named"]),
            {name: Summary.unpacked(np.array(row), dimension) for name, row in piece["summaries"].items()},
            {
                name: Sample(np.array(keys, dtype=np.uint64), np.array(own, dtype=float))
                for name, (keys, own) in piece["samples"].items()
            },
            rows,
            dropped,
            empty,
            Tally.from_arrays({name: np.array(values, dtype=float) for name, values in piece["tally"].items()}),
            Copies(np.array(hashes, dtype=np.uint64), np.array(times, dtype=float)),
            tuple(piece["units"]),
            tuple(piece["notes"]),
        )


def survey(file: Path, own: str, scan: Scan, progress: Callable[[int], None] | None = None) -> Survey:
    """Survey and check one file. own: the agent of the rows, unless a column names it.  progress: gets rows read."""
    result: Survey | None = None
    first = None
    for chunk in chunks(file, scan.columns, scan.rows):
        names, codes = _owners(file, own, chunk)
        if first is None and (codes < 0).any():
            first = chunk.before + int((codes < 0).argmax())
        part = _of_chunk(file, names, codes, chunk, scan)
        result = part if result is None else result.plus(part, scan.drawn)
        if progress is not None:
            progress(len(chunk.numbers))
    if result is None or not (result.summaries or scan.columns.agent):
        raise InputError(f"{file}: no row with values in all of {list(scan.columns.numbers)}")
    result.tally.refuse(scan.columns.numbers, str(file), fills=scan.columns.judged)
    if first is not None and not scan.drop:
        raise missing_rows(file, result.dropped, result.rows, first)
    return result


def rows_of(file: Path, own: str, scan: Scan) -> Iterator[tuple[str, Array]]:
    """Yield the name of an agent and its usable rows (n, D + 1), chunk by chunk."""
    for chunk in chunks(file, scan.columns, scan.rows):
        for name, rows in _parts(*_owners(file, own, chunk)).items():
            yield name, chunk.numbers[rows]


def _of_chunk(file: Path, names: Sequence[str], codes: IntArray, chunk: Chunk, scan: Scan) -> Survey:
    numbers, sound = chunk.numbers, codes >= 0
    large = np.flatnonzero(sound & (np.abs(numbers) > LARGEST).any(axis=1))
    if large.size:
        row = chunk.before + int(large[0]) + 1
        raise InputError(f"{file}: expected values of at most 1e100, got a larger one in row {row}: use other units")
    parts = _parts(names, codes)
    keys = row_keys(numbers, chunk.before, scan.seed)
    samples = {name: _drawn(numbers, keys, rows, scan.drawn) for name, rows in parts.items()}
    return Survey(
        tuple(names),
        {name: Summary.of(scan.columns.observations(numbers[rows])) for name, rows in parts.items()},
        samples,
        len(numbers),
        int((~sound).sum()),
        chunk.empty,
        Tally.of(numbers),
        Copies.of(numbers[sound]),
        chunk.units,
        chunk.notes,
    )


def _drawn(numbers: Array, keys: Keys, rows: IntArray, most: int) -> Sample:
    if len(rows) > most:
        rows = rows[np.argpartition(keys[rows], most)[:most]]
    return Sample.of(numbers[rows], keys[rows], most)


def _owners(file: Path, own: str, chunk: Chunk) -> tuple[list[str], IntArray]:
    """Return the agents that are named, and the number of each row's agent, -1 where a row cannot be used."""
    sound = np.isfinite(chunk.numbers).all(axis=1)
    if chunk.labels is None:
        return [own], np.where(sound, 0, -1)
    codes, values = pandas_for(file).factorize(np.asarray(chunk.labels, dtype=object))
    texts = [label_text(value) if is_present(value) else "" for value in values]
    names = list(dict.fromkeys(text for text in texts if text))
    numbers = {name: number for number, name in enumerate(names)}
    number = np.array([*(numbers.get(text, -1) for text in texts), -1])
    return names, np.where(sound, number[codes], -1)


def _parts(names: Sequence[str], codes: IntArray) -> dict[str, IntArray]:
    """Return the positions of each agent's rows, in their order, for the agents that have any."""
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(len(names) + 1))
    return {name: order[a:b] for name, (a, b) in zip(names, pairwise(ends.tolist()), strict=True) if b > a}


def _added(one: dict[str, T], other: dict[str, T], plus: Callable[[T, T], T]) -> dict[str, T]:
    return {**one, **{name: plus(one[name], its) if name in one else its for name, its in other.items()}}


#: Seconds between two reports of a pass to its listener.
OFTEN = 0.1
#: Bytes of a text file from which the length of its lines is guessed.
START = 1 << 16

_LISTENER: ContextVar[Listener | None] = ContextVar("the listener of passes over files", default=None)


@contextmanager
def report_passes_to(listener: Listener | None) -> Iterator[None]:
    """Send the progress of passes that this thread begins meanwhile to a listener."""
    before = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(before)


def listener_of_passes() -> Listener | None:
    return _LISTENER.get()


class Pass:
    """Counts the rows of one pass, in any thread, and reports them; only its end reports that all are read.

    task: the name of the pass.  rows: how many are to be read; None if unknown.  about: whether that is a guess.
    """

    def __init__(self, task: str, rows: float | None, *, about: bool = False) -> None:
        self._task, self._expected, self._about = task, rows, about
        self._listener, self._lock, self._pace = _LISTENER.get(), Lock(), Pace()
        self._read, self._reported = 0, -float("inf")

    def __enter__(self) -> Self:
        self.read(0)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None and self._listener is not None:
            self._listener(Progress(self._task, self._read, self._read, self._pace.describe(self._read), unit="row"))

    def read(self, rows: int) -> None:
        """Count more rows."""
        with self._lock:
            self._read += rows
            if self._listener is None or time.monotonic() < self._reported + OFTEN:
                return
            self._reported = time.monotonic()
            expected = None if self._expected is None else max(round(self._expected), self._read + 1)
            detail = self._pace.describe(self._read, expected, about=self._about)
            self._listener(Progress(self._task, self._read, expected, detail, unit="row"))

    def expect(self, rows: float | None) -> None:
        """Expect more rows, or fewer, than before."""
        with self._lock:
            self._expected = None if rows is None or self._expected is None else self._expected + rows

    def counted(self, parts: Iterable[tuple[str, Array]]) -> Iterator[tuple[str, Array]]:
        """Yield the parts, and count their rows."""
        for name, rows in parts:
            yield name, rows
            self.read(len(rows))


class FirstPass(Pass):
    """The first pass over files: the number of rows is a guess until a file has been read."""

    def __init__(self, files: Sequence[Path]) -> None:
        reported = listener_of_passes() is not None
        self._guesses = {file: guessed_rows(file) if reported else None for file in files}
        guesses = [guess for guess in self._guesses.values() if guess is not None]
        super().__init__("first pass", sum(guesses) if len(guesses) == len(files) else None, about=True)

    def known(self, file: Path, rows: int, *, before: bool) -> None:
        """Replace the guess for a file. before: the rows were known, and are not read."""
        guess = self._guesses[file]
        self.expect(None if guess is None else (0 if before else rows) - guess)

    def followed(self, files: Iterable[Path], surveys: Iterable[Survey]) -> Iterator[Survey]:
        """Yield the surveys of files that workers read: a file counts when its survey arrives."""
        for file, result in zip(files, surveys, strict=True):
            self.known(file, result.rows, before=False)
            self.read(result.rows)
            yield result


def guessed_rows(file: Path) -> float | None:
    """Guess how many rows a file has, at hardly any cost; None if that is impossible."""
    try:
        if file.suffix.lower() == ".parquet":
            from pyarrow.parquet import read_metadata

            return float(read_metadata(file).num_rows)
        if file.suffix.lower() == ".csv":
            with file.open("rb") as stream:
                start = stream.read(START)
            return size_of(file)[0] * start.count(b"\n") / max(1, len(start))
    except (ImportError, OSError, ValueError):  # reading it will raise a clear error
        pass
    return None
