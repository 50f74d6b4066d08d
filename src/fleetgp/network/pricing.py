"""What a round's messages cost: the scalars and bytes of every message, written into the ledger.

A message is one frame. Its price is the size of that frame on the wire, also where nothing is encoded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.graph import Topology
from fleetgp.network.edges import Cargo, Incoming, edge_positions
from fleetgp.network.ledger import FRAMING, Ledger
from fleetgp.network.reduction import ReductionTask, Way
from fleetgp.network.wire import HEADER_BYTES, MAX_NDIM, WHO, Part, bit_bytes, list_type, part_bytes

#: Of each kind of content, everyone's scalars and bytes, (M,) each.
Prices = dict[str, tuple[IntArray, IntArray]]


@dataclass(frozen=True)
class Pricing:
    """Writes what messages cost into a ledger, under the name of a phase."""

    ledger: Ledger
    phase: str

    def headers(self, edges: slice | IntArray) -> None:
        """The header that every message has: one over each edge."""
        self.ledger.record(self.phase, FRAMING, edges, 0, HEADER_BYTES)

    def values(self, kind: str, edges: IntArray, values: Sequence[Array]) -> None:
        """A value over each edge, or the same one over all."""
        self.ledger.record(self.phase, kind, edges, *prices_of(shapes_of(values)))

    def exchange(self, incoming: Incoming, parts: Mapping[str, Array], cargos: Mapping[str, Cargo]) -> None:
        """One round: of every part those rows that its cargo puts on an edge."""
        for kind, x in parts.items():
            cargo = cargos[kind]
            ndim = x.ndim - 1 if cargo is incoming.every_value else x.ndim
            scalars = cargo.counts * math.prod(x.shape[1:])
            self.ledger.record(self.phase, kind, cargo.positions, scalars, part_bytes(ndim, 0) + 8 * scalars)
        used = list({cargo: cargo.positions for cargo in cargos.values()}.values())
        if used:
            self.headers(used[0] if len(used) == 1 else np.unique(np.concatenate(used)))
        self.ledger.count_rounds(self.phase, 1)

    def relays(self, edges: IntArray, messages: Iterable[Sequence[Part]]) -> None:
        """One round of a flood: the parts that are passed on over each edge."""
        for position, parts in zip(edges, messages, strict=True):
            edge = np.array([position])
            for kind in dict.fromkeys(part.kind for part in parts):
                scalars, size = prices_of(shapes_of([part.value for part in parts if part.kind == kind]))
                self.ledger.record(self.phase, kind, edge, scalars.sum(), size.sum())
            self.headers(edge)

    def reduction(self, task: ReductionTask, way: Way, who: BoolArray | None) -> None:
        """What the hosted agents send in a reduction along the tree, all at once.

        who: (M, n) is present in which row; None where all are.
        """
        informed = way.informed(task.recipient)
        row, down, others = task.x.shape[2:], way.down[informed], way.down[~informed]
        if who is None:
            self._rows(task, way.up, row)
            self._rows(task, down, task.result_shape)
            self.headers(others)
            return
        agents, below = len(who), way.tree.sums_below(who.astype(np.int64))
        total = below[way.tree.root]
        self._present(task, agents, way.up, row, below[way.senders], way.below)
        present = np.broadcast_to(total, (len(down), len(total)))
        self._present(task, agents, down, task.result_shape, present, np.full(len(down), agents))
        if len(others):
            words = -(-task.rows // 8)
            if not total.all():
                self.ledger.record(self.phase, WHO, others, words, part_bytes(1, words, 1))
            self.headers(others)

    def _rows(self, task: ReductionTask, edges: IntArray, row: tuple[int, ...]) -> None:
        for piece in task.pieces(row):
            scalars = (piece.stop - piece.start) * math.prod(row)
            self.ledger.record(self.phase, task.kind, edges, scalars, part_bytes(len(row) + 1, scalars))
            self.headers(edges)

    def _present(
        self,
        task: ReductionTask,
        agents: int,
        edges: IntArray,
        row: tuple[int, ...],
        present: IntArray,
        possible: IntArray,
    ) -> None:
        """The same where present (E, n) says how many of the possible agents (E,) are in each row."""
        integer = list_type(agents).itemsize
        for piece in task.pieces(row):
            some = np.flatnonzero(present[:, piece].any(axis=1))
            here, rows = present[some, piece], piece.stop - piece.start
            used, named = np.count_nonzero(here, axis=1), rows + here.sum(axis=1)
            bits = bit_bytes(rows, used, possible[some])
            short = bits <= integer * named
            size = part_bytes(1, 0) + np.where(short, bits, integer * named)
            self.ledger.record(self.phase, WHO, edges[some], np.where(short, bits, named), size)
            scalars = used * math.prod(row)
            self.ledger.record(self.phase, task.kind, edges[some], scalars, part_bytes(len(row) + 1, 0) + 8 * scalars)
            self.headers(edges)

    def collection(self, way: Way, recipient: int | None, prices: Prices) -> None:
        """What the hosted agents send where everyone's values go along the tree.

        prices: everyone's. Nothing is sent of agents whose values are empty.
        """
        informed, speaking = way.informed(recipient), speaking_in(prices)
        columns = [column for price in prices.values() for column in price]
        amounts = np.stack([np.ones(len(speaking), dtype=np.int64), *columns], axis=1)
        below = way.tree.sums_below(np.where(speaking[:, None], amounts, 0))
        for edges, carried in (
            (way.up, below[way.senders]),
            (way.down[informed], (below[way.tree.root] - below)[way.children[informed]]),
        ):
            some = carried[:, 0] > 0
            for k, kind in enumerate(prices):
                self.ledger.record(self.phase, kind, edges[some], *carried[some, 2 * k + 1 : 2 * k + 3].T)
            self.headers(edges)
        self.headers(way.down[~informed])


#: Where values cross edges in a flood is kept for fleets with at most this many agents times edges.
MEMORABLE = 5_000_000
#: Edges in use, what they carry of each amount (E, K), and in how many messages.
Carried = Iterator[tuple[IntArray, IntArray, IntArray]]


class Relays:
    """What crosses which edge in a flood, computed and not sent: of the agents that are `sending` (M,)."""

    def __init__(self, topology: Topology, sending: BoolArray) -> None:
        self._topology, self._sending = topology, sending
        self._edges = np.flatnonzero(sending[topology.union.directed[:, 1]])
        self._crossings: dict[int, tuple[IntArray, IntArray]] = {}

    def of(self, sources: IntArray, amounts: IntArray, round: int, rounds: int) -> Carried:
        """From a round on. amounts: (S, K) of each source."""
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


def speaking_in(prices: Prices) -> BoolArray:
    """(M,) who sends anything."""
    return np.asarray(sum(scalars for scalars, _ in prices.values()) > 0)
