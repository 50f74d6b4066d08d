"""What the cells of a batch have around them in one round.

A cell is one hosted agent's part in one item; a link brings one cell's value from one neighbour.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.consensus.scope import Scope
from fleetgp.graph import metropolis_weights
from fleetgp.network import Cargo, Network


@dataclass(frozen=True)
class CellLinks:
    """degrees: (C,) links of each cell.  receivers: (L,) the cell of each link.  sender_degrees: (L,) the links that
    the sending cell has.
    """

    degrees: IntArray
    receivers: IntArray
    sender_degrees: IntArray
    cargo: Cargo
    _order: IntArray

    @classmethod
    def of(cls, network: Network, scope: Scope, alive: BoolArray) -> CellLinks:
        """Of the cells (A, T) that are alive, in the next round."""
        incoming, graph = network.incoming, network.topology.at(network.round)
        hosted, ours = list(network.hosted), np.isin(graph.directed[:, 0], network.hosted)
        number = np.cumsum(alive).reshape(alive.shape) - 1
        # Both ends of an edge have the same items alive: they heard the same verdicts.
        edges, items = np.nonzero(scope.edges(graph)[ours] & alive[incoming.receivers])
        receivers = number[incoming.receivers[edges], items]
        cargo = Cargo(incoming, edges, receivers, edges)
        order = np.argsort(receivers, kind="stable")  # a cell's links in the order of their senders
        degrees = scope.degrees(graph)
        return cls(degrees[hosted][alive], receivers, degrees[incoming.senders[edges], items], cargo, order)

    def reduce(self, operation: np.ufunc, values: Array, empty: float) -> Array:
        """operation over each cell's links, (L, ...) -> (C, ...); in the order of the senders, whoever is hosted."""
        reduced = np.full((len(self.degrees), *values.shape[1:]), empty)
        for rank, (cells, links) in enumerate(self._ranks):
            heard = values.take(links, axis=0)
            if not rank and len(cells) == len(reduced):
                reduced = heard
            elif len(cells) == len(reduced):
                operation(reduced, heard, out=reduced)
            else:
                reduced[cells] = operation(reduced.take(cells, axis=0), heard) if rank else heard
        return reduced

    def differences(self, state: Array, received: Array) -> Array:
        """What every link brings minus what its cell has, (L, ...)."""
        return received - state.take(self.receivers, axis=0)

    def metropolis_sum(self, values: Array) -> Array:
        """The sum over each cell's links, weighted by Metropolis, (L, K) -> (C, K); in the order of the senders."""
        return np.asarray(self._metropolis @ values)

    @cached_property
    def _metropolis(self) -> csr_array:
        weights = metropolis_weights(self.degrees[self.receivers], self.sender_degrees)
        starts = np.concatenate([[0], np.cumsum(self._count)])
        return csr_array((weights[self._order], self._order, starts), shape=(len(self.degrees), len(weights)))

    @cached_property
    def _count(self) -> IntArray:
        return np.bincount(self.receivers, minlength=len(self.degrees))

    @cached_property
    def _ranks(self) -> list[tuple[IntArray, IntArray]]:
        """For r = 0, 1, ..: the cells that have more than r links, and the r-th link of each.

        All first links at once, then all second ones: with few links a cell that is faster than cell by cell.
        """
        starts = np.cumsum(self._count) - self._count
        ranks = []
        for rank in range(int(self._count.max(initial=0))):
            cells = np.flatnonzero(self._count > rank)
            ranks.append((cells, self._order[starts[cells] + rank]))
        return ranks
