"""All agents in one process: NumPy indexing is the transport. The default, and the simulator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.graph import Topology
from fleetgp.network.base import Cargo, Incoming, Network
from fleetgp.network.ledger import FRAMING, check_kind
from fleetgp.network.wire import HEADER_BYTES, part_bytes


class InProcess(Network):
    """Hosts every agent of the fleet.

    >>> from fleetgp.graph import Graph
    >>> network = InProcess(Graph.path(3))
    >>> network.neighbour_sum(np.array([1.0, 10.0, 100.0]), "statistics").tolist()
    [10.0, 101.0, 10.0]
    >>> network.ledger.messages
    4
    """

    def __init__(self, topology: Topology) -> None:
        super().__init__(topology, range(topology.agents))
        self._schedules: dict[int, list[tuple[IntArray, BoolArray]]] = {}

    def _deliver(self, parts: dict[str, Array], masks: dict[str, Cargo], incoming: Incoming) -> dict[str, Array]:
        received = {kind: x[incoming.senders] for kind, x in parts.items()}
        for kind, mask in masks.items():
            received[kind][~mask.incoming] = 0.0
        return received

    def _flood(self, items: dict[str, list[Array]], rounds: int) -> dict[str, list[Array]]:
        """Everything is here already; only the price of the relaying is computed."""
        scalars = {kind: np.array([v.size for v in values], dtype=np.int64) for kind, values in items.items()}
        sizes = {
            kind: np.array([part_bytes(v.ndim, v.size) for v in values], dtype=np.int64)
            for kind, values in items.items()
        }
        for edges, relayed in self._relays(rounds):
            carries: IntArray = np.asarray(relayed.any(axis=1), dtype=np.int64)
            for kind in items:
                self.ledger.record(self._phase, kind, edges, relayed @ scalars[kind], relayed @ sizes[kind], carries)
            self.ledger.record(self._phase, FRAMING, edges, 0, HEADER_BYTES)
        return items

    def _relays(self, rounds: int) -> Iterable[tuple[IntArray, BoolArray]]:
        """Per round: the edges in use, (E,), and whose values each carries, (E, M); kept where small."""
        start = self.round % self.topology.period
        if start in self._schedules:
            return self._schedules[start]
        schedule = self._relay_steps(start, rounds)
        if rounds * len(self.topology.union.directed) * self.agents > 50_000_000:
            return schedule
        self._schedules[start] = list(schedule)
        return self._schedules[start]

    def _relay_steps(self, start: int, rounds: int) -> Iterator[tuple[IntArray, BoolArray]]:
        known = np.eye(self.agents, dtype=bool)
        passed = np.zeros((len(self.topology.union.directed), self.agents), dtype=bool)
        for step in range(rounds):
            incoming = self.incoming_of(self.topology.at(start + step))
            relayed = known[incoming.senders] & ~passed[incoming.slots] & ~passed[incoming.outgoing]
            yield incoming.slots, relayed
            passed[incoming.slots] |= relayed
            known = known.copy()
            np.logical_or.at(known, incoming.receivers, relayed)

    # ---- the central node -----------------------------------------------------------------------------

    def gather(self, parts: Mapping[str, Array | Sequence[Array]]) -> dict[str, list[Array]]:
        items = self._as_items(parts)
        for kind, values in items.items():
            scalars = np.array([v.size for v in values], dtype=np.int64)
            sizes = np.array([part_bytes(v.ndim, v.size) for v in values], dtype=np.int64)
            self.ledger.record(self._phase, kind, self._uplinks, scalars, sizes)
        self.ledger.record(self._phase, FRAMING, self._uplinks, 0, HEADER_BYTES)
        self.ledger.count_rounds(self._phase, 1)
        return items

    def scatter(self, x: Array, kind: str) -> Array:
        array = np.asarray(x, dtype=float)
        downlinks = self._uplinks + self.agents
        self.ledger.record(self._phase, check_kind(kind), downlinks, array.size, part_bytes(array.ndim, array.size))
        self.ledger.record(self._phase, FRAMING, downlinks, 0, HEADER_BYTES)
        return np.broadcast_to(array, (self.agents, *array.shape))
