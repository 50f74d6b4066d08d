"""What the cells of a batch have around them in one round.

A cell is one hosted agent's part in one item; a link brings one cell's value from one neighbour.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.consensus.scope import Scope
from fleetgp.network import Cargo, Network


@dataclass(frozen=True)
class Near:
    """degrees: (C,) links of each cell.  receivers: (L,) the cell of each link.  sender_degrees: (L,) the links that
    the sending cell has.
    """

    degrees: IntArray
    receivers: IntArray
    sender_degrees: IntArray
    cargo: Cargo
    _order: IntArray

    @classmethod
    def of(cls, network: Network, scope: Scope, alive: BoolArray) -> Near:
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
        count = np.bincount(self.receivers, minlength=len(self.degrees))
        present = np.flatnonzero(count)
        if present.size:
            starts = np.cumsum(count)[present] - count[present]
            reduced[present] = operation.reduceat(values[self._order], starts, axis=0)
        return reduced
