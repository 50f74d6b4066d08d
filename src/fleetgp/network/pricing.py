"""What a round's messages cost: the scalars and bytes of every message, written into the ledger.

A message is one frame. Its price is the size of that frame on the wire, also where nothing is encoded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.graph import Topology, Tree
from fleetgp.network.edges import Cargo, Incoming, edge_positions
from fleetgp.network.ledger import FRAMING, Ledger
from fleetgp.network.reduction import Reducing, Way
from fleetgp.network.wire import HEADER_BYTES, MAX_NDIM, WHO, Part, bit_bytes, list_type, part_bytes

#: Words about a value: its bytes a number, how many dimensions it has, and how long they are.
WORDS = 2 + MAX_NDIM


def shapes_of(values: Sequence[Array]) -> IntArray:
    """(n, WORDS) about each value: doubles, or bytes."""
    filler = (1,) * MAX_NDIM
    words = [(v.itemsize, v.ndim, *v.shape, *filler[v.ndim :]) for v in values]
    return np.array(words, dtype=np.int64).reshape(len(values), WORDS)


def prices_of(shapes: IntArray) -> tuple[IntArray, IntArray]:
    """(n,) the scalars in each value, and its bytes as a part of a message."""
    scalars = shapes[:, 2:].prod(axis=1)
    return scalars, part_bytes(0, 0) + 4 * shapes[:, 1] + shapes[:, 0] * scalars


#: Of each kind of content, everyone's scalars and bytes, (M,) each.
Prices = dict[str, tuple[IntArray, IntArray]]


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


#: Where values cross edges in a flood is kept for fleets with at most this many agents times edges.
MEMORABLE = 5_000_000

#: Edges in use, what they carry of each amount (E, K), and in how many messages.
Carried = Iterator[tuple[IntArray, IntArray, IntArray]]


class Relays:
    """Of the edges over which some agents send. sending: (M,) which."""

    def __init__(self, topology: Topology, sending: BoolArray) -> None:
        self._topology, self._sending = topology, sending
        self._edges = np.flatnonzero(sending[topology.union.directed[:, 1]])
        self._crossings: dict[int, tuple[IntArray, IntArray]] = {}

    def of(self, sources: IntArray, amounts: IntArray, round: int, rounds: int) -> Carried:
        """From a round on. amounts: (S, K) what each source says."""
        if self._topology.period == 1:
            return self._at_once(sources, amounts, rounds)
        return self._round_by_round(sources, amounts, round, rounds)

    def _at_once(self, sources: IntArray, amounts: IntArray, rounds: int) -> Carried:
        """For all rounds at once, from distances.

        A value goes from u to v when u has it and v has not sent it to u: where u is not farther from its source.
        """
        union = self._topology.union
        receivers, senders = union.directed[self._edges].T
        carrying = np.zeros((len(senders), rounds), dtype=bool)
        carried = np.zeros((len(senders), amounts.shape[1]), dtype=np.int64)
        for source, amount in zip(sources.tolist(), amounts, strict=True):
            crossing = self._crossings.get(source)
            if crossing is None:
                distance = union.distances(source)
                crossed = np.flatnonzero((distance[senders] <= distance[receivers]) & (distance[senders] < rounds))
                crossing = crossed, distance[senders[crossed]]
                if union.agents * len(senders) <= MEMORABLE:
                    self._crossings[source] = crossing
            carrying[crossing] = True
            carried[crossing[0]] += amount
        yield self._edges, carried, carrying.sum(axis=1)

    def _round_by_round(self, sources: IntArray, amounts: IntArray, round: int, rounds: int) -> Carried:
        """On a topology that changes."""
        union = self._topology.union
        known = np.eye(union.agents, dtype=bool)[:, sources]
        passed = np.zeros((len(union.directed), len(sources)), dtype=bool)
        for step in range(rounds):
            receivers, senders = self._topology.at(round + step).directed.T
            there, back = edge_positions(union, receivers, senders), edge_positions(union, senders, receivers)
            relayed = known[senders] & ~passed[there] & ~passed[back]
            mine = self._sending[senders]
            yield there[mine], relayed[mine] @ amounts, np.asarray(relayed[mine].any(axis=1), dtype=np.int64)
            passed[there] |= relayed
            known = known.copy()
            np.logical_or.at(known, receivers, relayed)
