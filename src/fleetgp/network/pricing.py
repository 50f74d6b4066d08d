"""What a round's messages cost: the scalars and bytes of every message, written into the ledger.

A message is one frame. Its price is the size of that frame on the wire, also where nothing is encoded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.graph import Tree
from fleetgp.network.collection import Prices, prices_of, shapes_of
from fleetgp.network.edges import Cargo, Incoming
from fleetgp.network.ledger import FRAMING, Ledger
from fleetgp.network.reduction import Reducing, Way
from fleetgp.network.tree_frames import WHO, bit_bytes, list_type
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


def price_reduction(
    ledger: Ledger,
    phase: str,
    task: Reducing,
    way: Way,
    informed: BoolArray,
    counts: tuple[IntArray, IntArray] | None,
    agents: int,
) -> None:
    """What the hosted agents send in a reduction along the tree, all at once. informed: which of their children are.

    counts: (K, n) how many are present below each sender, and (n,) in the fleet; None where all are.
    agents: the size of the fleet.
    """
    row, down, others = task.x.shape[2:], way.down[informed], way.down[~informed]
    if counts is None:
        price_rows(ledger, phase, task.kind, way.up, task.pieces(row), row)
        price_rows(ledger, phase, task.kind, down, task.pieces(task.result_shape), task.result_shape)
        price_headers(ledger, phase, others)
        return
    below, total = counts
    price_present(ledger, phase, task, agents, (way.up, row), below, way.below)
    everyone = np.full(len(down), agents)
    price_present(
        ledger,
        phase,
        task,
        agents,
        (down, task.result_shape),
        np.broadcast_to(total, (len(down), len(total))),
        everyone,
    )
    if len(others):
        words = -(-task.rows // 8)
        if not total.all():
            ledger.record(phase, WHO, others, words, part_bytes(1, words, 1))
        price_headers(ledger, phase, others)


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
    agents: int,
    sent: tuple[IntArray, tuple[int, ...]],
    present: IntArray,
    possible: IntArray,
) -> None:
    """Edges and the shape of rows over them, of which present (E, n) says how many of the possible are in each."""
    edges, row = sent
    integer = list_type(agents).itemsize
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


def price_collection(
    ledger: Ledger,
    phase: str,
    tree: Tree,
    way: Way,
    hosted: IntArray,
    informed: BoolArray,
    prices: Prices,
) -> None:
    """What the hosted agents send where everyone's values go along the tree. informed: which of their children are.

    prices: everyone's. Of agents who have nothing to say nothing is sent.
    """
    columns, speaking = [column for price in prices.values() for column in price], speaking_in(prices)
    amounts = np.stack([np.ones(len(speaking), dtype=np.int64), *columns], axis=1)
    below = tree.sums_below(np.where(speaking[:, None], amounts, 0))
    for edges, carried in (
        (way.up, below[hosted[way.senders]]),
        (way.down[informed], (below[tree.root] - below)[way.children[informed]]),
    ):
        some = carried[:, 0] > 0
        for k, kind in enumerate(prices):
            ledger.record(phase, kind, edges[some], *carried[some, 2 * k + 1 : 2 * k + 3].T)
        price_headers(ledger, phase, edges)
    price_headers(ledger, phase, way.down[~informed])


def speaking_in(prices: Prices) -> BoolArray:
    """(M,) who has something to say."""
    return np.asarray(sum(scalars for scalars, _ in prices.values()) > 0)


def price_headers(ledger: Ledger, phase: str, edges: slice | IntArray) -> None:
    """The header that every message has: one over each edge."""
    ledger.record(phase, FRAMING, edges, 0, HEADER_BYTES)


def price_values(values: Sequence[Array]) -> tuple[IntArray, IntArray]:
    """The scalars in each value, and its bytes as a part of a message."""
    return prices_of(shapes_of(values))
