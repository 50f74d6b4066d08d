"""Records on the disk, to the last bit, and what is different between two of them."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.same.calls import Record

#: The part of a path behind which the sums of a ledger are.
LEDGER = "ledger"


def flat(record: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, value) of everything in a record; a value is an array of floats, or what JSON can hold."""
    if isinstance(record, Mapping):
        for name, value in record.items():
            yield from flat(value, f"{path}.{name}" if path else str(name))
    elif isinstance(record, list | tuple) and any(not isinstance(one, str | int | bool) for one in record):
        for number, value in enumerate(record):
            yield from flat(value, f"{path}[{number}]")
    elif isinstance(record, float | np.floating) or (isinstance(record, np.ndarray) and record.dtype.kind == "f"):
        yield path, np.array(record, dtype=float)
    elif isinstance(record, np.ndarray | np.generic):
        yield path, record.astype(str).tolist() if record.dtype.kind in "MmO" else record.tolist()
    elif isinstance(record, list | tuple):
        yield path, list(record)
    elif record is None or isinstance(record, str | int | bool):
        yield path, record
    else:
        raise TypeError(f"{path}: expected numbers, texts and arrays, got {type(record).__name__}")


def encoded(record: Record) -> dict[str, Any]:
    """A flat record for JSON: floats as their bytes."""
    return {
        path: {"shape": list(value.shape), "bits": base64.b64encode(value.astype("<f8").tobytes()).decode()}
        if isinstance(value, np.ndarray)
        else value
        for path, value in flat(record)
    }


def decoded(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The converse, as paths and values."""
    return {
        path: np.frombuffer(base64.b64decode(value["bits"]), dtype="<f8").reshape(value["shape"])
        if isinstance(value, dict)
        else value
        for path, value in facts.items()
    }


@dataclass(frozen=True)
class Difference:
    """Between two records of one configuration.

    missing, added: paths that only the old, only the new one has.
    rounds, traffic, others: what is different, in words, of the rounds and of messages and bytes in ledgers, and of all
        else but floats.
    apart: the largest difference of floats, relative to the largest number of their array; 0 where all bits are the
        same.  worst: the path where that is.
    """

    missing: tuple[str, ...]
    added: tuple[str, ...]
    rounds: tuple[str, ...]
    traffic: tuple[str, ...]
    others: tuple[str, ...]
    apart: float
    worst: str

    @property
    def same(self) -> bool:
        return self.verdict == "same bits"

    @property
    def verdict(self) -> str:
        parts = [] if self.apart == 0.0 else [f"{closeness(self.apart)} ({self.worst})"]
        for word, result in (("rounds differ", self.rounds), ("bytes differ", self.traffic), ("others", self.others)):
            parts += [f"{word}: {_first(result)}"] if result else []
        parts += [f"missing: {_first(self.missing)}"] if self.missing else []
        parts += [f"new: {_first(self.added)}"] if self.added else []
        return "; ".join(parts) or "same bits"


def closeness(apart: float) -> str:
    """
    >>> closeness(3e-13), closeness(0.2), closeness(math.inf)
    ('same to 1e-12', 'results differ by 0.2', 'results differ in shape, or where they are NaN')
    """
    if not math.isfinite(apart):
        return "results differ in shape, or where they are NaN"
    if apart > 1e-3:
        return f"results differ by {apart:.2g}"
    return f"same to 1e-{math.floor(-math.log10(apart))}"


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> Difference:
    """Of two decoded records."""
    rounds: list[str] = []
    traffic: list[str] = []
    others: list[str] = []
    apart, worst = 0.0, ""
    for path in old.keys() & new.keys():
        before, after = old[path], new[path]
        if isinstance(before, np.ndarray) and isinstance(after, np.ndarray):
            gap = distance(before, after)
            if gap > apart:
                apart, worst = gap, path
        elif before != after:
            change = f"{path}: {_shortened(before)} -> {_shortened(after)}"
            _, ledger, place = path.rpartition(f"{LEDGER}.")
            of_rounds = (place.startswith(("rounds", "phases"))) if ledger else path.endswith("rounds")
            (rounds if of_rounds else traffic if ledger else others).append(change)
    missing, added = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
    changes = [tuple(sorted(each)) for each in (rounds, traffic, others)]
    return Difference(tuple(missing), tuple(added), changes[0], changes[1], changes[2], apart, worst)


def distance(before: Any, after: Any) -> float:
    """0 where all bits are the same; infinite where arrays cannot be compared.

    >>> distance(np.array([1.0, 2.0]), np.array([1.0, 2.5])), distance(np.array([np.nan]), np.array([1.0]))
    (0.25, inf)
    """
    if before.shape != after.shape:
        return math.inf
    if before.tobytes() == after.tobytes():
        return 0.0
    finite = np.isfinite(before)
    if not np.array_equal(finite, np.isfinite(after)) or not np.array_equal(
        before[~finite], after[~finite], equal_nan=True
    ):
        return math.inf
    if not finite.any():
        return 0.0
    gap, size = np.abs(before[finite] - after[finite]).max(), np.abs(before[finite]).max()
    if gap == 0.0:  # -0.0 and 0.0
        return 1e-300
    return float(gap / size) if size > 0.0 else math.inf


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _first(result: tuple[str, ...], most: int = 3) -> str:
    more = f", and {len(result) - most} more" if len(result) > most else ""
    return ", ".join(result[:most]) + more
