"""Rows of a reduction as the parts of a message, and back.

Where all agents are present in all rows, a message is the rows. Else it is the rows in which somebody is, and who is in
which: as bits, or as a list of small integers, whichever is shorter. A message without any such row has no parts.
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


def list_type(agents: int) -> np.dtype[Any]:
    """Of the integers that name so many agents, and count them. Bits have a type of their own, of one byte."""
    return np.dtype("<u2" if agents < 2**16 else "<u4")


def bit_bytes(rows: int, used: int | IntArray, possible: int | IntArray) -> int | IntArray:
    """Bytes of the bits: one for each row, whether it is used; of those that are, one for each possible agent."""
    return (rows + used * possible + 7) // 8


def to_parts(kind: str, origin: int, rows: Array, who: BoolArray | None, possible: IntArray) -> tuple[Part, ...]:
    """Rows (n, ..) as parts; who: (M, n) is present in which, if not all are; possible: the agents that may be."""
    if who is None:
        return (Part(kind, origin, rows),)
    counts = who.sum(axis=0)
    used = counts > 0
    if not used.any():
        return ()
    named: NDArray[Any] = np.concatenate([counts, np.nonzero(who.T)[1]]).astype(list_type(len(who)))
    if bit_bytes(len(used), int(used.sum()), len(possible)) <= named.nbytes:
        named = np.packbits(np.concatenate([used, who[possible][:, used].T.ravel()]))
    return Part(kind, origin, rows[used]), Part(WHO, origin, named)


def from_parts(
    parts: Sequence[Part], kind: str, sender: int, shape: tuple[int, ...], possible: IntArray | None, agents: int
) -> tuple[Array, BoolArray | None]:
    """The rows of a message, of this shape, and who is present in which, or a NonsenseError that names the sender.

    possible: the agents that may be present, if not all are; absent rows are zero.
    """
    if possible is None:
        return content(parts, kind, sender, shape), None
    who = np.zeros((agents, shape[0]), dtype=bool)
    if not parts:
        return np.zeros(shape), who
    named = next((part.value for part in parts if part.kind == WHO), None)
    if named is None or named.ndim != 1 or named.dtype.kind != "u":
        raise NonsenseError(sender, f"expected who is present in each of {shape[0]} rows, got no such list")
    fill = _from_bits if named.dtype == np.uint8 else _from_list
    if not fill(named, who, possible):
        raise NonsenseError(sender, "it names agents that cannot be present, or others than it says")
    present = np.asarray(who.any(axis=0))
    rows = np.zeros(shape)
    rows[present] = content(parts, kind, sender, (int(present.sum()), *shape[1:]))
    return rows, who


def _from_bits(packed: NDArray[Any], who: BoolArray, possible: IntArray) -> bool:
    """Fill in who is present; whether it made sense: each row that is used has somebody."""
    rows, bits = who.shape[1], np.unpackbits(packed).astype(bool)
    used = np.flatnonzero(bits[:rows])
    needed = rows + len(used) * len(possible)
    if len(bits) < rows or len(packed) != (needed + 7) // 8:
        return False
    who[np.ix_(possible, used)] = bits[rows:needed].reshape(len(used), len(possible)).T
    return bool(who[:, used].any(axis=0).all())


def _from_list(named: NDArray[Any], who: BoolArray, possible: IntArray) -> bool:
    """The same from how many are in each row, then their numbers, row by row."""
    agents, rows = who.shape
    counts, ids = named[:rows].astype(np.int64), named[rows:].astype(np.int64)
    sound = named.dtype == list_type(agents) and len(counts) == rows and counts.sum() == len(ids)
    if not sound or not np.isin(ids, possible).all():
        return False
    who[ids, np.repeat(np.arange(rows), counts)] = True
    return bool(who.sum() == len(ids))


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
