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
from fleetgp.network.reduction import Reducing, Way
from fleetgp.network.tree_parts import participants_type
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


def price_reduction(ledger: Ledger, phase: str, task: Reducing, way: Way, counts: IntArray | None) -> None:
    """A reduction along the tree, all its messages at once. counts: (M, n) how many are present below each agent."""
    small = part_bytes(1, 0), participants_type(len(way.upward)).itemsize

    def price(edges: IntArray, pieces: Sequence[slice], row: tuple[int, ...], present: IntArray | None) -> None:
        """Rows of a shape in pieces over edges; present: (E, n) how many agents each row is of, if not all."""
        empty, size = part_bytes(len(row) + 1, 0), math.prod(row)
        for piece in pieces:
            rows = piece.stop - piece.start
            if present is None:
                ledger.record(phase, task.kind, edges, rows * size, empty + 8 * rows * size)
            else:
                used = np.flatnonzero(present[:, piece].any(axis=1))
                here = present[used, piece]
                scalars, named = np.count_nonzero(here, axis=1) * size, rows + here.sum(axis=1)
                ledger.record(phase, task.kind, edges[used], scalars, empty + 8 * scalars)
                ledger.record(phase, "participants", edges[used], named, small[0] + small[1] * named)
            price_headers(ledger, phase, edges)

    below = way.agents
    price(way.upward[below], task.pieces(task.x.shape[2:]), task.x.shape[2:], None if counts is None else counts[below])
    told = way.told
    total = None if counts is None else np.repeat(counts[way.root][None], len(told), axis=0)
    price(way.downward[told], task.pieces(task.told), task.told, total)
    if counts is not None and len(way.others):
        edges, words = way.downward[way.others], -(-task.rows // 8)
        if not counts[way.root].all():
            ledger.record(phase, "participants", edges, words, part_bytes(1, words, 1))
        price_headers(ledger, phase, edges)


def price_headers(ledger: Ledger, phase: str, edges: slice | IntArray) -> None:
    """The header that every message has: one over each edge."""
    ledger.record(phase, FRAMING, edges, 0, HEADER_BYTES)


def price_values(values: Sequence[Array]) -> tuple[IntArray, IntArray]:
    """The scalars in each value, and its bytes as a part of a message."""
    scalars = np.array([value.size for value in values], dtype=np.int64)
    sizes = [part_bytes(value.ndim, value.size, value.itemsize) for value in values]
    return scalars, np.array(sizes, dtype=np.int64)
