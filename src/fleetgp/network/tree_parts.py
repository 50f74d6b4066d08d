"""Rows of a reduction as the parts of a message, and back.

Where all agents are present in all rows, a message is the rows. Else it is the rows in which somebody is, and who is in
which: small integers, how many in each row, then their ids, row by row. A message without any such row has no parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.errors import NonsenseError
from fleetgp.network.peer_checks import content
from fleetgp.network.wire import Part

WHO = "participants"


def participants_type(agents: int) -> np.dtype[Any]:
    """Of the integers that name so many agents, and count them."""
    return np.dtype("<u2" if agents < 2**16 else "<u4")


def to_parts(kind: str, origin: int, rows: Array, who: BoolArray | None) -> tuple[Part, ...]:
    """Rows (n, ..) as parts; who: (M, n) is present in which, if not all are."""
    if who is None:
        return (Part(kind, origin, rows),)
    counts = who.sum(axis=0)
    if not counts.any():
        return ()
    named = np.concatenate([counts, np.nonzero(who.T)[1]]).astype(participants_type(len(who)))
    return Part(kind, origin, rows[counts > 0]), Part(WHO, origin, named)


def from_parts(
    parts: Sequence[Part], kind: str, sender: int, shape: tuple[int, ...], possible: IntArray | None, agents: int
) -> tuple[Array, BoolArray | None]:
    """The rows of a message, of this shape, and who is present in which, or a NonsenseError that names the sender.

    possible: the agents that may be present, if not all are; absent rows are zero.
    """
    if possible is None:
        return content(parts, kind, sender, shape), None
    if not parts:
        return np.zeros(shape), np.zeros((agents, shape[0]), dtype=bool)
    named = next((part.value for part in parts if part.kind == WHO), None)
    who = _who(named, sender, shape[0], possible, agents)
    present = who.any(axis=0)
    rows = np.zeros(shape)
    rows[present] = content(parts, kind, sender, (int(present.sum()), *shape[1:]))
    return rows, who


def absent_to_parts(origin: int, absent: BoolArray) -> tuple[Part, ...]:
    """In which rows nobody was present, for those who hear nothing else."""
    return (Part(WHO, origin, np.packbits(absent)),) if absent.any() else ()


def absent_from_parts(parts: Sequence[Part], sender: int, rows: int) -> BoolArray:
    if not parts:
        return np.zeros(rows, dtype=bool)
    words = parts[0].value
    if parts[0].kind != WHO or words.dtype != np.uint8 or words.shape != (-(-rows // 8),):
        raise NonsenseError(sender, f"expected a bit for each of {rows} rows, got an array of shape {words.shape}")
    return np.unpackbits(words, count=rows).astype(bool)


def _who(named: NDArray[Any] | None, sender: int, rows: int, possible: IntArray, agents: int) -> BoolArray:
    sound = named is not None and named.ndim == 1 and named.dtype == participants_type(agents) and len(named) >= rows
    if named is None or not sound:
        raise NonsenseError(sender, f"expected who is present in each of {rows} rows, got no such list")
    counts, ids = named[:rows].astype(np.int64), named[rows:].astype(np.int64)
    who = np.zeros((agents, rows), dtype=bool)
    if counts.sum() != len(ids) or not np.isin(ids, possible).all():
        raise NonsenseError(sender, "it names agents that cannot be present, or another number of them than it says")
    who[ids, np.repeat(np.arange(rows), counts)] = True
    if who.sum() != len(ids):
        raise NonsenseError(sender, "it names an agent twice")
    return who
