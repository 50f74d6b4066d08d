"""The network: the only way in which agents touch each other.

Axis 0 of every array runs over the agents that this process hosts, in increasing id. The verbs are the
only non-local lines of any algorithm:

- `exchange`: one round; every agent sends its value to its neighbours, (A, ...) -> (E, ...) on the
  incoming edges, sorted by receiver, then sender;
- `neighbour_sum`, `neighbour_max`, `neighbour_min`: an exchange and a reduction over each agent's edges;
- `flood`: everyone's value at every agent, after `diameter` rounds of relaying;
- `gather` and `scatter`: to and from a central node; for the centralized baselines only, and refused by
  every peer-to-peer network.

A network keeps the count of rounds, which picks the graph of a time-varying topology, and the ledger.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.errors import NetworkError
from fleetgp.graph import Graph, Topology, require_connected
from fleetgp.network.ledger import FRAMING, SERVER, Ledger, check_kind
from fleetgp.network.wire import HEADER_BYTES, part_bytes


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


@dataclass(frozen=True)
class Cargo:
    """Which rows of a part go over each edge, (E, n), in `Incoming` order: to the sender, and from it."""

    outgoing: BoolArray
    incoming: BoolArray

    @classmethod
    def both_ways(cls, mask: BoolArray) -> Cargo:
        return cls(mask, mask)


class Network(abc.ABC):
    """Base of all networks: verbs and ledger once, transport in the subclass."""

    def __init__(self, topology: Topology, hosted: Sequence[int]) -> None:
        require_connected(topology.union)
        self.topology = topology
        self.hosted = tuple(sorted(hosted))
        self.round = 0
        self._phase = "setup"
        receivers, senders = topology.union.directed.T
        agents = np.arange(topology.agents)
        server = np.full(topology.agents, SERVER)
        # Row e of the directed list is the edge receiver <- sender; its reverse is where the receiver sends.
        self.ledger = Ledger(
            senders=np.concatenate([senders, agents, server]), receivers=np.concatenate([receivers, server, agents])
        )
        self._uplinks = len(senders) + np.asarray(self.hosted, dtype=np.int64)
        self._incoming: dict[Graph, Incoming] = {}

    # ---- facts known to every agent -------------------------------------------------------------------

    @property
    def agents(self) -> int:
        """M, the size of the fleet (the paper's Assumption 6: known to all)."""
        return self.topology.agents

    @property
    def diameter(self) -> int:
        return self.topology.diameter

    @property
    def incoming(self) -> Incoming:
        """The edges on which the next exchange will deliver."""
        return self.incoming_of(self.topology.at(self.round))

    @property
    def union_incoming(self) -> Incoming:
        """The edges into the hosted agents in the union of all rounds' graphs."""
        return self.incoming_of(self.topology.union)

    def incoming_of(self, graph: Graph) -> Incoming:
        if graph not in self._incoming:
            self._incoming[graph] = _incoming_edges(graph, self.topology.union, self.hosted)
        return self._incoming[graph]

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Book the rounds inside under a phase's name."""
        before, self._phase = self._phase, name
        try:
            yield
        finally:
            self._phase = before

    # ---- verbs ----------------------------------------------------------------------------------------

    def exchange(self, x: Array, kind: str) -> Array:
        """One round: send x to the neighbours, get theirs; (A, ...) -> (E, ...) in `incoming` order."""
        return self.exchange_parts({kind: x})[kind]

    def exchange_parts(
        self, parts: Mapping[str, Array], carries: Mapping[str, Cargo] | None = None
    ) -> dict[str, Array]:
        """One round whose messages carry several kinds of content.

        carries[kind], for a part of shape (A, n, ...): which of its rows go over each edge. Both ends must
        know it. The other rows arrive as zeros, a part without rows is left out, and a message without parts
        is not sent at all.
        """
        arrays = {check_kind(kind): self._as_hosted(x) for kind, x in parts.items()}
        masks = {} if carries is None else dict(carries)
        incoming = self.incoming
        sent = np.zeros(len(incoming.senders), dtype=bool)
        for kind, x in arrays.items():
            rows = np.full(len(sent), x.shape[1] if x.ndim > 1 else 1)
            if kind in masks:
                rows = masks[kind].outgoing.sum(axis=1)
            present = np.flatnonzero(rows > 0) if kind in masks else np.arange(len(sent))
            scalars = rows[present] * int(np.prod(x.shape[2:]))
            size = part_bytes(x.ndim - 1, 0) + 8 * scalars
            self.ledger.record(self._phase, kind, incoming.outgoing[present], scalars, size)
            sent[present] = True
        self.ledger.record(self._phase, FRAMING, incoming.outgoing[sent], 0, HEADER_BYTES)
        self.ledger.count_rounds(self._phase, 1)
        received = self._deliver(arrays, masks, incoming)
        self.round += 1
        return received

    def neighbour_sum(self, x: Array, kind: str) -> Array:
        incoming = self.incoming
        return incoming.reduce(np.add, self.exchange(x, kind), 0.0)

    def neighbour_max(self, x: Array, kind: str) -> Array:
        incoming = self.incoming
        return incoming.reduce(np.maximum, self.exchange(x, kind), -np.inf)

    def neighbour_min(self, x: Array, kind: str) -> Array:
        incoming = self.incoming
        return incoming.reduce(np.minimum, self.exchange(x, kind), np.inf)

    def flood(self, x: Array | Sequence[Array], kind: str) -> list[Array]:
        """Everyone's value, by agent id, the same at every agent; `diameter` rounds.

        In every round each agent passes on, over each of its links, all it knows that has not yet gone over
        that link either way. Values may differ in shape between agents.
        """
        return self.flood_parts({kind: x})[kind]

    def flood_parts(self, parts: Mapping[str, Array | Sequence[Array]]) -> dict[str, list[Array]]:
        """A flood whose items carry several kinds of content."""
        items = self._as_items(parts)
        rounds = self.diameter
        flooded = self._flood(items, rounds)
        self.ledger.count_rounds(self._phase, rounds)
        self.round += rounds
        return flooded

    def gather(self, parts: Mapping[str, Array | Sequence[Array]]) -> dict[str, list[Array]]:
        """One round to a central node: everyone's values there, by kind and agent id."""
        raise NetworkError("gather needs a central node, and this network has none: use a dec- method")

    def scatter(self, x: Array, kind: str) -> Array:
        """The central node's answer, in the round of the gather: the same value to all, (...) -> (A, ...)."""
        raise NetworkError("scatter needs a central node, and this network has none: use a dec- method")

    # ---- transport, by subclass -----------------------------------------------------------------------

    @abc.abstractmethod
    def _deliver(self, parts: dict[str, Array], masks: dict[str, Cargo], incoming: Incoming) -> dict[str, Array]:
        """Move one round's values, of masked parts the rows in their mask, to the incoming edges."""

    @abc.abstractmethod
    def _flood(self, items: dict[str, list[Array]], rounds: int) -> dict[str, list[Array]]:
        """Relay for some rounds, and write the traffic into the ledger."""

    def _as_items(self, parts: Mapping[str, Array | Sequence[Array]]) -> dict[str, list[Array]]:
        items = {check_kind(kind): [np.asarray(v, dtype=float) for v in x] for kind, x in parts.items()}
        for kind, values in items.items():
            if len(values) != len(self.hosted):
                raise NetworkError(
                    f"{kind}: one value per hosted agent ({len(self.hosted)}) expected, {len(values)} came"
                )
        return items

    def _as_hosted(self, x: Array) -> Array:
        array = np.asarray(x, dtype=float)
        if array.ndim == 0 or len(array) != len(self.hosted):
            raise NetworkError(
                f"axis 0 must run over the {len(self.hosted)} hosted agents, but the shape is {array.shape}"
            )
        return array


def _incoming_edges(graph: Graph, union: Graph, hosted: tuple[int, ...]) -> Incoming:
    receivers, senders = graph.directed.T
    position = np.full(graph.agents, -1, dtype=np.int64)
    position[list(hosted)] = np.arange(len(hosted))
    mine = position[receivers] >= 0
    receivers, senders = receivers[mine], senders[mine]
    slots = _edge_positions(union, receivers, senders)
    all_hosted = _edge_positions(union, *union.directed.T)[position[union.directed[:, 0]] >= 0]
    return Incoming(
        receivers=position[receivers],
        senders=senders,
        degrees=np.bincount(position[receivers], minlength=len(hosted)).astype(np.int64),
        sender_degrees=graph.degrees[senders],
        slots=np.searchsorted(all_hosted, slots),
        outgoing=_edge_positions(union, senders, receivers),
    )


def _edge_positions(union: Graph, receivers: IntArray, senders: IntArray) -> IntArray:
    """Positions of the edges receiver <- sender in the union's sorted list."""
    keys = union.directed[:, 0] * union.agents + union.directed[:, 1]
    return np.searchsorted(keys, receivers * union.agents + senders).astype(np.int64)
