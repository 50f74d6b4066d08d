"""What a round's messages cost: the scalars and bytes of every message, written into the ledger.

A message is one frame. Its price is the size of that frame on the wire, also where nothing is encoded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.network.edges import Cargo, Incoming
from fleetgp.network.ledger import FRAMING, Ledger
from fleetgp.network.wire import HEADER_BYTES, Part, part_bytes


def price_exchange(
    ledger: Ledger, phase: str, incoming: Incoming, parts: Mapping[str, Array], cargos: Mapping[str, Cargo]
) -> None:
    """One round: every part over every edge, or those rows of it that its cargo puts there."""
    used = np.zeros(len(incoming.senders), dtype=bool)
    for kind, x in parts.items():
        row = math.prod(x.shape[1:])
        if kind in cargos:
            edges = np.flatnonzero(cargos[kind].sent)
            scalars = cargos[kind].sent[edges] * row
            ledger.record(phase, kind, incoming.outgoing[edges], scalars, part_bytes(x.ndim, 0) + 8 * scalars)
            used[edges] = True
        else:
            ledger.record(phase, kind, incoming.outgoing, row, part_bytes(x.ndim - 1, row))
            used[:] = True
    price_headers(ledger, phase, incoming.outgoing[used])
    ledger.count_rounds(phase, 1)


def price_relays(ledger: Ledger, phase: str, edges: IntArray, messages: Iterable[Sequence[Part]]) -> None:
    """One round of a flood: the parts that are passed on over each edge."""
    for position, parts in zip(edges, messages, strict=True):
        edge = np.array([position])
        for kind in dict.fromkeys(part.kind for part in parts):
            scalars, size = price_values([part.value for part in parts if part.kind == kind])
            ledger.record(phase, kind, edge, scalars.sum(), size.sum())
        price_headers(ledger, phase, edge)


def price_headers(ledger: Ledger, phase: str, edges: slice | IntArray) -> None:
    """The header that every message has: one over each edge."""
    ledger.record(phase, FRAMING, edges, 0, HEADER_BYTES)


def price_values(values: Sequence[Array]) -> tuple[IntArray, IntArray]:
    """The scalars in each value, and its bytes as a part of a message."""
    scalars = np.array([value.size for value in values], dtype=np.int64)
    return scalars, np.array([part_bytes(value.ndim, value.size) for value in values], dtype=np.int64)
