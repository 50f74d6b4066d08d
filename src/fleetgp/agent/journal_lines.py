"""The lines of an agent's journal: what they say of rows that came and rows that left, and how they are written."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fleetgp.arrays import Array


@dataclass(frozen=True)
class Batch:
    """Rows that were sent at once. check: of their line; empty for a row of an older file and for a part.

    numbers: of the rows in the request; None: all, in order.
    """

    rows: list[list[float]]
    request: str = ""
    check: str = ""
    numbers: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Known:
    """Names of requests, each with how many rows it had, and their check."""

    requests: tuple[tuple[str, int, str], ...]


@dataclass(frozen=True, eq=False)
class Departure:
    """Rows that leave at once, and what is to be remembered of them.

    request: the name of an operator's request; empty if there was none.
    sent: rows of the journal, as (request, first number, end).
    keys, times: hashes of rows of the data file, one for each row that leaves, and their times (NaN: they have none).
    horizon: rows of the data file with an earlier time do not count from now on; None: as before.
    removed: how many of the rows were taken back; the others are forgotten.
    kept: the groups that stand for forgotten rows from now on, as plain values; None: as before.
    receipt: what the operator is told, as plain values.
    """

    request: str = ""
    sent: tuple[tuple[str, int, int], ...] = ()
    keys: Any = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))
    times: Array = field(default_factory=lambda: np.zeros(0))
    horizon: float | None = None
    removed: int = 0
    kept: Any = None
    receipt: Any = None


@dataclass(frozen=True, eq=False)
class Base:
    """What is remembered of all that left before: a `Departure` with the sums, and how many sent rows are gone."""

    departure: Departure
    gone: int
    receipts: tuple[tuple[str, Any], ...]


Record = Batch | Known | Departure | Base


def crc(body: str) -> str:
    return f"{zlib.crc32(body.encode()):08x}"


def with_check(body: str) -> bytes:
    return f'{body[:-1]}, "check": "{crc(body)}"}}'.encode()


def leave_line(departure: Departure, columns: Sequence[str]) -> str:
    facts = {"leave": departure.request, **_facts(departure, columns), "receipt": json.dumps(departure.receipt)}
    return json.dumps(facts)


def base_line(base: Base, columns: Sequence[str]) -> str:
    facts = {"base": base.gone, **_facts(base.departure, columns), "receipts": json.dumps(base.receipts)}
    return json.dumps(facts)


def _facts(departure: Departure, columns: Sequence[str]) -> dict[str, Any]:
    """Nested objects are texts, so that a damaged line can be cut where a record begins."""
    left = departure.keys.astype("<u8").tobytes() + departure.times.astype("<f8").tobytes()
    return {
        "columns": columns,
        "sent": departure.sent,
        "file": base64.b64encode(left).decode(),
        "before": departure.horizon,
        "removed": departure.removed,
        "kept": None if departure.kept is None else json.dumps(departure.kept),
    }


def departed(facts: dict[str, Any]) -> Departure | Base:
    left = base64.b64decode(facts["file"])
    keys, times = left[: len(left) // 2], left[len(left) // 2 :]
    departure = Departure(
        request=facts.get("leave", ""),
        sent=tuple((str(name), int(first), int(end)) for name, first, end in facts["sent"]),
        keys=np.frombuffer(keys, dtype="<u8").astype(np.uint64),
        times=np.frombuffer(times, dtype="<f8").astype(float),
        horizon=None if facts["before"] is None else float(facts["before"]),
        removed=int(facts["removed"]),
        kept=None if facts["kept"] is None else json.loads(facts["kept"]),
        receipt=json.loads(facts["receipt"]) if "leave" in facts else None,
    )
    if "leave" in facts:
        return departure
    return Base(departure, int(facts["base"]), tuple((name, one) for name, one in json.loads(facts["receipts"])))


def spans(numbers: Iterable[int]) -> list[list[int]]:
    """Numbers as half-open intervals.

    >>> spans([0, 1, 2, 5, 7, 8])
    [[0, 3], [5, 6], [7, 9]]
    """
    result: list[list[int]] = []
    for number in numbers:
        if result and result[-1][1] == number:
            result[-1][1] += 1
        else:
            result.append([number, number + 1])
    return result
