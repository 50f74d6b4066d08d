"""The edges of a round as a process sees them, and what goes over each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.graph import Graph

#: Sender and receiver.
Edge = tuple[int, int]


@dataclass(frozen=True)
class Incoming:
    """The edges into the hosted agents in one round, sorted by receiver, then sender.

    receivers: (E,) positions on axis 0.  senders: (E,) agent ids.  degrees: (A,) edges per hosted agent.
    sender_degrees: (E,) how many neighbours each sender has in this round.
    slots: (E,) the same edges' positions among the edges of the union graph, for values kept per edge.
    outgoing: (E,) positions in the ledger of the reverse edges, on which the hosted agents send.
    """

    receivers: IntArray
    senders: IntArray
    degrees: IntArray
    sender_degrees: IntArray
    slots: IntArray
    outgoing: IntArray

    @classmethod
    def of(cls, graph: Graph, union: Graph, hosted: tuple[int, ...]) -> Incoming:
        """The edges of a graph into the hosted agents; union: of all rounds' graphs."""
        receivers, senders = graph.directed.T
        position = np.full(graph.agents, -1, dtype=np.int64)
        position[list(hosted)] = np.arange(len(hosted))
        mine = position[receivers] >= 0
        receivers, senders = receivers[mine], senders[mine]
        slots = edge_positions(union, receivers, senders)
        all_hosted = np.flatnonzero(position[union.directed[:, 0]] >= 0)
        return cls(
            receivers=position[receivers],
            senders=senders,
            degrees=np.bincount(position[receivers], minlength=len(hosted)).astype(np.int64),
            sender_degrees=graph.degrees[senders],
            slots=np.searchsorted(all_hosted, slots),
            outgoing=edge_positions(union, senders, receivers),
        )

    @cached_property
    def every_value(self) -> Cargo:
        """One value of each agent over all its edges."""
        edges = np.arange(len(self.senders))
        return Cargo(self, edges, self.receivers, edges)

    def reduce(self, operation: np.ufunc, values: Array, empty: float) -> Array:
        """operation over each agent's edges, (E, ...) -> (A, ...); `empty` where there are none.

        `reduceat` goes through a receiver's edges in their order, whatever else is hosted: the same bits
        in every hosting.
        """
        reduced = np.full((len(self.degrees), *values.shape[1:]), empty)
        present = np.flatnonzero(self.degrees)
        if present.size:
            starts = np.cumsum(self.degrees)[present] - self.degrees[present]
            reduced[present] = operation.reduceat(values, starts, axis=0)
        return reduced


class Cargo:
    """Which rows of a part go over which edges of one round, and on which edges rows arrive.

    incoming: the round's edges.
    edges, rows: (L,) row rows[l] of the part is sent back along incoming edge edges[l]; sorted by edge.
    arriving: (L',) the incoming edge of every row that arrives; sorted. Within an edge both ends have the same order.
    sent, received: (E,) how many rows each edge carries.
    positions: in the ledger, of the edges on which rows are sent.  counts: how many on each of them.
    """

    def __init__(self, incoming: Incoming, edges: IntArray, rows: IntArray, arriving: IntArray) -> None:
        self.incoming, self.edges, self.rows, self.arriving = incoming, edges, rows, arriving
        count = len(incoming.senders)
        self.sent = np.bincount(edges, minlength=count)
        self.received = np.bincount(arriving, minlength=count)
        used = np.flatnonzero(self.sent)
        self.positions, self.counts = incoming.outgoing[used], self.sent[used]

    @classmethod
    def of_masks(cls, incoming: Incoming, outgoing: BoolArray, arriving: BoolArray) -> Cargo:
        """For a part that was (A, n, ...) before its first two axes were joined: masks (E, n), to and from a sender."""
        edges, columns = np.nonzero(outgoing)
        return cls(incoming, edges, incoming.receivers[edges] * outgoing.shape[1] + columns, np.nonzero(arriving)[0])


def edge_positions(union: Graph, receivers: IntArray, senders: IntArray) -> IntArray:
    """Positions of the edges receiver <- sender in the union's sorted list."""
    keys = union.directed[:, 0] * union.agents + union.directed[:, 1]
    return np.searchsorted(keys, receivers * union.agents + senders).astype(np.int64)
