"""Wire frames: versioned, self-describing, size-limited, and free of pickle.

A frame is a header and a list of parts. A part is one array with its kind of content and its origin, the
agent whose value it is (the sender itself, or another agent whose value is relayed in a flood).
All numbers are little-endian.

What a peer sent is checked where it comes in, so that nobody works with nonsense or relays it: bytes and values here,
by their kind of content; frames in `frames` and `zenoh/network`; records between agents in `agent/records`,
`agent/agenda` and `agent/presence`.

Rows of a reduction: where all agents are present in all rows, a message is the rows. Else it is the rows in which
somebody is, and who is in which: as bits, or as a list of small integers, whichever is shorter. A message without any
such row has no parts.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.errors import NetworkError, NonsenseError
from fleetgp.model.hyperparameters import LOG_RANGE
from fleetgp.network.ledger import KINDS

MAGIC = b"FGPF"
VERSION = 2
#: A frame larger than this is refused on both sides.
MAX_FRAME_BYTES = 256 * 2**20
MAX_NDIM = 4

#: magic, version, reserved, parts, run, epoch, phase, round, sender, receiver
_HEADER = struct.Struct("<4sBBHQIIIII")
#: kind, ndim, type, origin; then ndim sizes
_PART = struct.Struct("<BBHI")
HEADER_BYTES = _HEADER.size
#: The types of a part's numbers, by their codes: doubles, and the smaller integers of words about who takes part.
TYPES = tuple(np.dtype(code) for code in ("<f8", "<u1", "<u2", "<u4"))


@dataclass(frozen=True)
class Part:
    """value: doubles, or one of the small integer types of `TYPES`."""

    kind: str
    origin: int
    value: NDArray[Any]


@dataclass(frozen=True)
class Frame:
    sender: int
    receiver: int
    round: int
    parts: tuple[Part, ...]
    phase: int = 0
    run: int = 0
    epoch: int = 0


def phase_number(phase: str) -> int:
    """A phase's name as the 32-bit number that frames carry: two agents that are out of step notice it.

    So the names of phases are part of the protocol.
    """
    return zlib.crc32(phase.encode())


def part_bytes(ndim: int, scalars: int, itemsize: int = 8) -> int:
    """The size of one part on the wire."""
    return _PART.size + 4 * ndim + itemsize * scalars


def encode(frame: Frame) -> bytes:
    """A frame as bytes.

    >>> frame = Frame(0, 1, 7, (Part("hyperparameters", 0, np.array([1.0, 2.0])),))
    >>> decode(encode(frame)).parts[0].value.tolist()
    [1.0, 2.0]
    >>> len(encode(frame)) == HEADER_BYTES + part_bytes(ndim=1, scalars=2)
    True
    """
    numbers = frame.run, frame.epoch, frame.phase, frame.round, frame.sender, frame.receiver
    chunks = [_HEADER.pack(MAGIC, VERSION, 0, len(frame.parts), *numbers)]
    for part in frame.parts:
        value = np.ascontiguousarray(part.value)
        code = TYPES.index(value.dtype.newbyteorder("<"))
        chunks.append(_PART.pack(KINDS.index(part.kind), part.value.ndim, code, part.origin))
        chunks.append(struct.pack(f"<{part.value.ndim}I", *part.value.shape))
        chunks.append(value.astype(TYPES[code], copy=False).tobytes())
    data = b"".join(chunks)
    if len(data) > MAX_FRAME_BYTES:
        raise NetworkError(f"expected a frame of at most {MAX_FRAME_BYTES} bytes, got {len(data)}: send it in pieces")
    return data


def decode(data: bytes) -> Frame:
    """Bytes as a frame, or a NetworkError that names the fault; nothing else can come out."""
    if len(data) > MAX_FRAME_BYTES:
        raise NetworkError(f"expected a frame of at most {MAX_FRAME_BYTES} bytes, got {len(data)}")
    if len(data) < HEADER_BYTES:
        raise NetworkError(f"expected a frame of at least {HEADER_BYTES} bytes, got {len(data)}")
    magic, version, _, count, run, epoch, phase, round_, sender, receiver = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise NetworkError(f"expected a frame that starts with {MAGIC!r}, got {magic!r}")
    if version != VERSION:
        raise NetworkError(f"expected frame version {VERSION}, got {version}")
    parts, offset = [], HEADER_BYTES
    for _ in range(count):
        part, offset = _decode_part(data, offset)
        parts.append(part)
    if offset != len(data):
        raise NetworkError(f"a frame has {len(data) - offset} bytes after its last part")
    return Frame(sender, receiver, round_, tuple(parts), phase, run, epoch)


def _decode_part(data: bytes, offset: int) -> tuple[Part, int]:
    if offset + _PART.size > len(data):
        raise NetworkError("a frame ends inside a part header")
    kind, ndim, code, origin = _PART.unpack_from(data, offset)
    offset += _PART.size
    if kind >= len(KINDS):
        raise NetworkError(f"a frame part has the unknown kind number {kind}")
    if code >= len(TYPES):
        raise NetworkError(f"a frame part has numbers of the unknown type {code}")
    dtype = TYPES[code]
    if ndim > MAX_NDIM or offset + 4 * ndim > len(data):
        raise NetworkError(f"a frame part with {ndim} dimensions does not fit")
    shape = struct.unpack_from(f"<{ndim}I", data, offset)
    offset += 4 * ndim
    size = math.prod(shape)
    if offset + dtype.itemsize * size > len(data) or max(shape, default=0) > len(data):
        raise NetworkError(f"a frame part of shape {shape} is longer than its frame")
    value = np.frombuffer(data, dtype=dtype, count=size, offset=offset).reshape(shape).astype(dtype.newbyteorder("="))
    return Part(KINDS[kind], origin, value), offset + dtype.itemsize * size


#: Larger coordinates and observations are refused everywhere.
LARGEST = 1e100


def is_sound(kind: str, value: NDArray[Any]) -> bool:
    """Whether a value of some kind of content is finite and in range, as far as its kind determines.

    A prediction that diverges and a verdict about it may be infinite or NaN; a maximum over nothing is -inf.

    >>> is_sound("hyperparameters", np.array([0.3, -2.0])), is_sound("hyperparameters", np.array([0.3, 800.0]))
    (True, False)
    >>> is_sound("statistics", np.array([-np.inf])), is_sound("statistics", np.array([np.nan]))
    (True, False)
    """
    if kind == "participants":
        return value.dtype.kind == "u" and value.ndim == 1
    if kind == "agenda":
        return value.dtype == np.uint8 and value.ndim == 1
    if value.dtype != np.float64:
        return False
    if kind == "hyperparameters":
        return bool((np.abs(value) <= LOG_RANGE).all())
    if kind in ("inputs", "observations", "queries"):
        return bool((np.abs(value) <= LARGEST).all())
    if kind == "moments":
        return bool(np.isfinite(value).all())
    return kind != "statistics" or not np.isnan(value).any()


def content(parts: Sequence[Part], kind: str, sender: int, shape: tuple[int, ...]) -> Array:
    """What a message holds of a kind, or one error that names the fault and the sender."""
    arrived = next((part.value for part in parts if part.kind == kind), None)
    if arrived is None or arrived.shape != shape:
        got = "none" if arrived is None else f"an array of shape {arrived.shape}"
        raise NonsenseError(sender, f"expected {kind} of shape {shape}, got {got}")
    if not is_sound(kind, arrived):
        raise NonsenseError(sender, f"{kind} that are not finite, or out of range")
    return arrived


def check_rows(kind: str, senders: Sequence[int] | IntArray, rows: NDArray[Any], shape: tuple[int, ...]) -> None:
    """The same for the rows of several senders, (K, ..), that came together."""
    if rows.shape != shape:
        raise NonsenseError(int(senders[0]), f"expected {kind} of shape {shape}, got an array of shape {rows.shape}")
    if not is_sound(kind, rows):
        wrong = next(k for k, row in enumerate(rows) if not is_sound(kind, row))
        raise NonsenseError(int(senders[wrong]), f"{kind} that are not finite, or out of range")


def check_from_peers(values: Sequence[Array], sound: Callable[[int, Array], bool], expected: str) -> None:
    """A NonsenseError that names the first agent whose value is not as expected; values: of all agents, by id."""
    for agent, value in enumerate(values):
        if not sound(agent, value):
            raise NonsenseError(agent, f"expected {expected}, got an array of shape {value.shape}")


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
    """In which rows nobody was present, for those who get nothing else."""
    return (Part(WHO, origin, np.packbits(absent)),) if absent.any() else ()


def absent_from_parts(parts: Sequence[Part], sender: int, rows: int) -> BoolArray:
    if not parts:
        return np.zeros(rows, dtype=bool)
    words = parts[0].value
    if parts[0].kind != WHO or words.dtype != np.uint8 or words.shape != (-(-rows // 8),):
        raise NonsenseError(sender, f"expected a bit for each of {rows} rows, got an array of shape {words.shape}")
    return np.unpackbits(words, count=rows).astype(bool)
