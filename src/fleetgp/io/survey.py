"""The first pass over a file: whose rows it has, how many and where they are, and what is strange about them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fleetgp.arrays import Array, IntArray, Keys
from fleetgp.data.partition import is_present
from fleetgp.data.sketch import Copies, Sample, row_keys
from fleetgp.data.streamed import FIRST
from fleetgp.data.summary import Summary
from fleetgp.data.tally import Tally
from fleetgp.errors import InputError
from fleetgp.given import LARGEST
from fleetgp.io.chunks import Chunk, chunks
from fleetgp.io.columns import Columns
from fleetgp.io.formats import pandas_for
from fleetgp.io.tables import label_text, missing_rows
from fleetgp.model.observations import Observations

T = TypeVar("T")


@dataclass(frozen=True)
class Scan:
    """How files are read. rows: at most so many at once.  drop: leave out rows that cannot be used, or refuse them.

    sample: how many rows of each agent are loaded where rows are needed, 0 for all; drawn by the seed.
    """

    columns: Columns
    rows: int
    drop: bool
    sample: int
    seed: int

    @property
    def drawn(self) -> int:
        """Rows of each agent that are kept: those of the sample, and for a first look, of which one has the other."""
        return max(self.sample, FIRST)


@dataclass(frozen=True)
class Survey:
    """What is known of a file, or of several: all of it adds up.

    named: all agents that are named, in their order.  summaries, samples: of those that have rows; the samples may be
        kept elsewhere.
    rows: how many there are, dropped ones included.  empty: cells of fields that hold nothing.
    units: of the columns, where files tell them.  notes: what was done to the values.
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


def survey(file: Path, own: str, scan: Scan, heard: Callable[[int], None] | None = None) -> Survey:
    """Of one file, checked. own: whose rows these are, where no column says it.  heard: is told how many were read."""
    found: Survey | None = None
    first = None
    for chunk in chunks(file, scan.columns, scan.rows):
        names, codes = _owners(file, own, chunk)
        if first is None and (codes < 0).any():
            first = chunk.before + int((codes < 0).argmax())
        part = _of_chunk(file, names, codes, chunk, scan)
        found = part if found is None else found.plus(part, scan.drawn)
        if heard is not None:
            heard(len(chunk.numbers))
    if found is None or not (found.summaries or scan.columns.agent):
        raise InputError(f"{file}: no row with values in all of {list(scan.columns.numbers)}")
    found.tally.refuse(scan.columns.numbers, str(file), fills=scan.columns.judged)
    if first is not None and not scan.drop:
        raise missing_rows(file, found.dropped, found.rows, first)
    return found


def rows_of(file: Path, own: str, scan: Scan) -> Iterator[tuple[str, Array]]:
    """The rows of a file that can be used, (n, D + 1), and whose they are, chunk by chunk."""
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
    keys = row_keys(str(file.resolve()), chunk.before, len(numbers), scan.seed)
    samples = {name: _drawn(numbers, keys, rows, scan.drawn) for name, rows in parts.items()}
    return Survey(
        tuple(names),
        {name: Summary.of(Observations(numbers[rows, :-1], numbers[rows, -1])) for name, rows in parts.items()},
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
    """The agents that are named, and which of them each row is of; -1 where a row cannot be used."""
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
    """Whose rows are which, in their order, of those who have any."""
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(len(names) + 1))
    return {name: order[a:b] for name, (a, b) in zip(names, pairwise(ends.tolist()), strict=True) if b > a}


def _added(one: dict[str, T], other: dict[str, T], plus: Callable[[T, T], T]) -> dict[str, T]:
    return {**one, **{name: plus(one[name], its) if name in one else its for name, its in other.items()}}
