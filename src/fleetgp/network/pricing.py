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
from fleetgp.network.tree_parts import WHO, bit_bytes, list_type
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
    agents, told, row = way.agents, way.told, task.x.shape[2:]
    if counts is None:
        price_rows(ledger, phase, task.kind, way.upward[agents], task.pieces(row), row)
        price_rows(ledger, phase, task.kind, way.downward[told], task.pieces(task.told), task.told)
        price_headers(ledger, phase, way.downward[way.others])
        return
    price_present(ledger, phase, task, way, (way.upward[agents], row), counts[agents], way.below[agents])
    total, everyone = np.repeat(counts[way.root][None], len(told), axis=0), np.full(len(told), len(counts))
    price_present(ledger, phase, task, way, (way.downward[told], task.told), total, everyone)
    if len(way.others):
        edges, words = way.downward[way.others], -(-task.rows // 8)
        if not counts[way.root].all():
            ledger.record(phase, WHO, edges, words, part_bytes(1, words, 1))
        price_headers(ledger, phase, edges)


def price_rows(
    ledger: Ledger, phase: str, kind: str, edges: IntArray, pieces: Sequence[slice], row: tuple[int, ...]
) -> None:
    """Rows of a shape, in pieces, over each edge."""
    for piece in pieces:
        scalars = (piece.stop - piece.start) * math.prod(row)
        ledger.record(phase, kind, edges, scalars, part_bytes(len(row) + 1, scalars))
        price_headers(ledger, phase, edges)


def price_present(
    ledger: Ledger,
    phase: str,
    task: Reducing,
    way: Way,
    sent: tuple[IntArray, tuple[int, ...]],
    present: IntArray,
    possible: IntArray,
) -> None:
    """Edges and the shape of rows over them, of which present (E, n) says how many agents are in each, of how many."""
    edges, row = sent
    integer = list_type(len(way.upward)).itemsize
    for piece in task.pieces(row):
        some = np.flatnonzero(present[:, piece].any(axis=1))
        here, rows = present[some, piece], piece.stop - piece.start
        used, named = np.count_nonzero(here, axis=1), rows + here.sum(axis=1)
        bits = bit_bytes(rows, used, possible[some])
        short = bits <= integer * named
        size = np.where(short, bits, integer * named)
        ledger.record(phase, WHO, edges[some], np.where(short, bits, named), part_bytes(1, 0) + size)
        scalars = used * math.prod(row)
        ledger.record(phase, task.kind, edges[some], scalars, part_bytes(len(row) + 1, 0) + 8 * scalars)
        price_headers(ledger, phase, edges)


def price_headers(ledger: Ledger, phase: str, edges: slice | IntArray) -> None:
    """The header that every message has: one over each edge."""
    ledger.record(phase, FRAMING, edges, 0, HEADER_BYTES)


def price_values(values: Sequence[Array]) -> tuple[IntArray, IntArray]:
    """The scalars in each value, and its bytes as a part of a message."""
    scalars = np.array([value.size for value in values], dtype=np.int64)
    sizes = [part_bytes(value.ndim, value.size, value.itemsize) for value in values]
    return scalars, np.array(sizes, dtype=np.int64)
