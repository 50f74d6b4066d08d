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
from functools import cached_property

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


class Cargo:
    """Which rows of a part go over which edges of one round, and on which edges rows arrive.

    edges, rows: (L,) row rows[l] of the part is sent back along incoming edge edges[l]; sorted by edge.
    arriving: (L',) the incoming edge of every row that arrives; sorted. Within an edge both ends have the same order.
    """

    def __init__(self, incoming: Incoming, edges: IntArray, rows: IntArray, arriving: IntArray) -> None:
        self.edges, self.rows, self.arriving = edges, rows, arriving
        count = len(incoming.senders)
        self.sent = np.bincount(edges, minlength=count)
        self.received = np.bincount(arriving, minlength=count)

    @classmethod
    def of_masks(cls, incoming: Incoming, outgoing: BoolArray, arriving: BoolArray) -> Cargo:
        """For a part that was (A, n, ...) before its first two axes were joined: masks (E, n), to and from a sender."""
        edges, columns = np.nonzero(outgoing)
        return cls(incoming, edges, incoming.receivers[edges] * outgoing.shape[1] + columns, np.nonzero(arriving)[0])

    @cached_property
    def by_arrival(self) -> IntArray:
        """(L',) where every agent is hosted: the row that arrives, in the order of `arriving`."""
        assert self._reverse is not None
        return self.rows[np.argsort(self._reverse[self.edges], kind="stable")]

    _reverse: IntArray | None = None

    def within(self, incoming: Incoming) -> Cargo:
        """Make `by_arrival` known: incoming holds all edges of the fleet."""
        if self._reverse is None:
            self._reverse = np.searchsorted(incoming.slots, incoming.outgoing)
        return self


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

        carries[kind]: which rows of a part (n, ...) go over which edge; both ends must know it. Such a part returns
        the rows that arrive, (L', ...), in the cargo's order. A part without rows is left out, and a message
        without parts is not sent at all.
        """
        masks = {} if carries is None else dict(carries)
        arrays = {
            check_kind(kind): np.asarray(x, dtype=float) if kind in masks else self._as_hosted(x)
            for kind, x in parts.items()
        }
        incoming = self.incoming
        sent = np.zeros(len(incoming.senders), dtype=bool)
        for kind, x in arrays.items():
            if kind in masks:
                present = np.flatnonzero(masks[kind].sent)
                scalars = masks[kind].sent[present] * int(np.prod(x.shape[1:]))
                size = part_bytes(x.ndim, 0) + 8 * scalars
            else:
                present = np.arange(len(sent))
                scalars = np.full(len(sent), int(np.prod(x.shape[1:])))
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
        that link either way. Values may differ in shape between agents; an agent whose values are all empty has
        nothing to say, and empty arrays (0,) stand for what was not heard.
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
        """Move one round's values, of parts with a cargo its rows, to the incoming edges."""

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


def silenced(values: Sequence[Array], speaking: IntArray) -> list[Array]:
    """The values of a flood, with (0,) for whoever had nothing to say."""
    heard = set(speaking.tolist())
    return [value if agent in heard else np.zeros(0) for agent, value in enumerate(values)]


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
