"""All agents in one process: NumPy indexing is the transport. The default, and the simulator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from scipy.sparse.csgraph import dijkstra

from fleetgp.arrays import Array, IntArray
from fleetgp.graph import Topology, Tree
from fleetgp.network.base import Network
from fleetgp.network.edges import Cargo, Incoming
from fleetgp.network.ledger import check_kind
from fleetgp.network.pricing import price_headers, price_reduction, price_values
from fleetgp.network.reduction import Reduced, Reducing, Schedule, Way

#: Where values cross edges in a flood is kept for fleets with at most this many agents times edges.
MEMORABLE = 5_000_000

#: Edges in use, what they carry of each amount (E, K), and in how many messages.
Relays = Iterator[tuple[slice | IntArray, IntArray, IntArray]]


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
        self._crossings: dict[int, tuple[IntArray, IntArray]] = {}

    def _deliver(self, parts: dict[str, Array], cargos: dict[str, Cargo], incoming: Incoming) -> dict[str, Array]:
        return {
            # (take is several times faster than an index array in brackets)
            kind: x.take(cargos[kind].by_arrival if kind in cargos else incoming.senders, axis=0)
            for kind, x in parts.items()
        }

    def _flood(self, items: dict[str, list[Array]], rounds: int) -> dict[str, list[Array]]:
        """Everything is here already; only the price of the relaying is computed."""
        prices = [price_values(values) for values in items.values()]
        speaking = np.flatnonzero(sum(scalars for scalars, _ in prices))
        relays = self._static_relays if self.topology.period == 1 else self._relays
        amounts = np.stack([column[speaking] for price in prices for column in price], axis=1)
        for edges, carried, messages in relays(speaking, amounts, rounds):
            for k, kind in enumerate(items):
                self.ledger.record(self._phase, kind, edges, carried[:, 2 * k], carried[:, 2 * k + 1], messages)
        for step in range(rounds):
            price_headers(self.ledger, self._phase, self.incoming_of(self.topology.at(self.round + step)).slots)
        return _spoken(items, set(speaking.tolist()))

    def _static_relays(self, sources: IntArray, amounts: IntArray, rounds: int) -> Relays:
        """For all rounds at once, from distances.

        A value goes from u to v when u has it and v has not sent it to u: where u is not farther from its source.
        """
        receivers, senders = self.topology.union.directed.T
        adjacency = self.topology.union.sparse_adjacency
        carrying = np.zeros((len(senders), rounds), dtype=bool)
        carried = np.zeros((len(senders), amounts.shape[1]), dtype=np.int64)
        for source, amount in zip(sources.tolist(), amounts, strict=True):
            if source not in self._crossings:
                distance = dijkstra(adjacency, unweighted=True, indices=source).astype(np.int64)
                crossed = np.flatnonzero((distance[senders] <= distance[receivers]) & (distance[senders] < rounds))
                crossing = crossed, distance[senders[crossed]]
                if self.agents * len(senders) <= MEMORABLE:
                    self._crossings[source] = crossing
            else:
                crossing = self._crossings[source]
            carrying[crossing] = True
            carried[crossing[0]] += amount
        yield slice(0, len(senders)), carried, carrying.sum(axis=1)

    def _relays(self, sources: IntArray, amounts: IntArray, rounds: int) -> Relays:
        """Round by round, on a topology that changes."""
        known = np.eye(self.agents, dtype=bool)[:, sources]
        passed = np.zeros((len(self.topology.union.directed), len(sources)), dtype=bool)
        for step in range(rounds):
            incoming = self.incoming_of(self.topology.at(self.round + step))
            relayed = known[incoming.senders] & ~passed[incoming.slots] & ~passed[incoming.outgoing]
            yield incoming.slots, relayed @ amounts, np.asarray(relayed.any(axis=1), dtype=np.int64)
            passed[incoming.slots] |= relayed
            known = known.copy()
            np.logical_or.at(known, incoming.receivers, relayed)

    def _reduce(self, task: Reducing, tree: Tree, schedule: Schedule) -> Reduced:
        """Level by level, all agents of a level at once; only the price of the messages is computed."""
        totals, counts = task.x.copy(), None
        for below, above in tree.turns:
            totals[above] = task.merge.function(totals[above], totals[below])
        absent = np.zeros(task.rows, dtype=bool)
        if task.present is not None:
            counts = tree.sums_below(task.present.astype(np.int64))
            absent = counts[tree.root] == 0
        price_reduction(self.ledger, self._phase, task, Way.of(self.topology.union, tree, task.to), counts)
        return Reduced(task.finished(totals[tree.root], task.present), task.present, absent)

    def _collect(
        self, items: dict[str, list[Array]], tree: Tree, schedule: Schedule, to: int | None
    ) -> dict[str, list[Array]]:
        """Everything is here already; only the price of the messages is computed."""
        prices = [price_values(values) for values in items.values()]
        speaking = np.asarray(sum(scalars for scalars, _ in prices)) > 0
        amounts = np.stack([np.ones(self.agents, dtype=np.int64), *(c for price in prices for c in price)], axis=1)
        below = tree.sums_below(np.where(speaking[:, None], amounts, 0))
        way = Way.of(self.topology.union, tree, to)
        for edges, carried in (
            (way.upward[way.agents], below[way.agents]),
            (way.downward[way.told], (below[tree.root] - below)[way.told]),
        ):
            some = carried[:, 0] > 0
            for k, kind in enumerate(items):
                self.ledger.record(self._phase, kind, edges[some], *carried[some, 2 * k + 1 : 2 * k + 3].T)
            price_headers(self.ledger, self._phase, edges)
        price_headers(self.ledger, self._phase, way.downward[way.others])
        return _spoken(items, set(np.flatnonzero(speaking).tolist()))

    def _wake(self) -> None:
        """Nobody ever waits here."""

    # ---- the central node -----------------------------------------------------------------------------

    def gather(self, parts: Mapping[str, Array | Sequence[Array]]) -> dict[str, list[Array]]:
        self._check_open()
        items = self._as_items(parts)
        for kind, values in items.items():
            self.ledger.record(self._phase, kind, self._uplinks, *price_values(values))
        price_headers(self.ledger, self._phase, self._uplinks)
        self.ledger.count_rounds(self._phase, 1)
        return items

    def scatter(self, x: Array, kind: str) -> Array:
        self._check_open()
        array = np.asarray(x, dtype=float)
        downlinks = self._uplinks + self.agents
        self.ledger.record(self._phase, check_kind(kind), downlinks, *price_values([array]))
        price_headers(self.ledger, self._phase, downlinks)
        return np.broadcast_to(array, (self.agents, *array.shape))


def _spoken(items: dict[str, list[Array]], speaking: set[int]) -> dict[str, list[Array]]:
    """What everyone said; empty arrays for those who said nothing."""
    return {
        kind: [value if agent in speaking else np.zeros(0) for agent, value in enumerate(values)]
        for kind, values in items.items()
    }
