"""The verbs of a network on paper: what messages of known shapes cost on a graph, without sending anything.

Shapes go through the formulas by which networks write their ledgers (`network/pricing.py`), so that a bill has the
bytes of real frames.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fleetgp.advice.bill import NOTHING, Bill
from fleetgp.arrays import Array, BoolArray
from fleetgp.graph import Graph, Topology
from fleetgp.network import SUM, InProcess, Ledger
from fleetgp.network.pricing import price_collection, price_exchange, price_reduction, price_values
from fleetgp.network.reduction import Reducing, Schedule, Way, hearing

PHASE = "paper"
Shape = tuple[int, ...]


class Sketch:
    """A fleet's network on paper.

    On a graph that varies with time a reduction takes as many rounds as one that begins in round 0.

    >>> from fleetgp import Graph
    >>> bill = Sketch(Graph.path(3)).reduction(1, (4,), "statistics")
    >>> bill.rounds, bill.messages, bill.bytes, bill.waiting
    (2.0, 4, 336, 168.0)
    """

    def __init__(self, topology: Topology) -> None:
        self.topology, self.agents = topology, topology.agents
        self.network = InProcess(topology)
        self.tree = self.network.tree
        self._everyone = np.arange(self.agents)
        self._way = Way.of(topology.union, self.tree, self._everyone)

    def exchange(self, **widths: int) -> Bill:
        """One round in which every agent tells its neighbours so many numbers of each kind; of graphs that vary, the
        mean over all of them.
        """
        period = self.topology.period
        total = sum((self._exchange(self.topology.at(step), widths) for step in range(period)), NOTHING)
        return total if period == 1 else (1.0 / period) * total

    def _exchange(self, graph: Graph, widths: Mapping[str, int]) -> Bill:
        ledger, incoming = self._ledger(), self.network.incoming_of(graph)
        parts = {kind: _nothing(self.agents, width) for kind, width in widths.items()}
        price_exchange(ledger, PHASE, incoming, parts, {})
        edges = {edge: traffic.bytes for edge, traffic in ledger.by_edge().items()}
        both = [size + edges.get((receiver, sender), 0) for (sender, receiver), size in edges.items()]
        return Bill.of(ledger, {len(edges): 1}, max(edges.values(), default=0), max(both, default=0))

    def reduction(
        self,
        rows: int,
        row: Shape,
        kind: str,
        *,
        told: Shape | None = None,
        present: BoolArray | None = None,
        to: int | None = None,
    ) -> Bill:
        """A reduction of rows of a shape. told: the shape of a row that comes down.  to: the only agent that is told.

        present: (M, n) who speaks in which row; None: all in all.
        """
        if self.agents == 1:
            return NOTHING
        ledger, tree, way = self._ledger(), self.tree, self._way
        down = row if told is None else told
        task = Reducing(_nothing(self.agents, rows, *row), kind, SUM, present, None, down, to)
        hears = hearing(task, tree, len(task.pieces(down)))
        schedule = Schedule.of(self.topology, 0, len(task.pieces(row)), hears)
        counts = None
        if present is not None:
            below = tree.sums_below(present.astype(np.int64))
            counts = below[way.senders], below[tree.root]
        price_reduction(ledger, PHASE, task, way, way.told(tree, to), counts, self.agents)
        return Bill.of(ledger, self._hops(schedule.rounds), self._waiting(ledger))

    def collection(self, to: int | None = None, **shapes: Sequence[Shape]) -> Bill:
        """Everyone's values, of these shapes by kind and agent, along the tree. to: the only agent that is told."""
        if self.agents == 1:
            return NOTHING
        ledger, tree, way = self._ledger(), self.tree, self._way
        prices = {kind: price_values([_nothing(*shape) for shape in all_of]) for kind, all_of in shapes.items()}
        price_collection(ledger, PHASE, tree, way, self._everyone, way.told(tree, to), prices)
        hears = np.ones(self.agents, dtype=np.int64)
        hears[tree.root] = 0
        return Bill.of(ledger, self._hops(Schedule.of(self.topology, 0, 1, hears).rounds), self._waiting(ledger))

    def _ledger(self) -> Ledger:
        own = self.network.ledger
        return Ledger(own.senders, own.receivers)

    def _hops(self, rounds: int) -> dict[int, float]:
        """The levels of the tree, up and down; pieces that follow, and rounds of waiting, are like the widest."""
        widths = [len(below) for below, _ in self.tree.levels]
        found = {width: 2.0 * widths.count(width) for width in widths}
        found[max(widths)] += rounds - 2 * len(widths)
        return found

    def _waiting(self, ledger: Ledger) -> float:
        """The bytes of the slowest way up to the root and of the slowest one down from it.

        A message leaves when all from below have come. Pieces of a long value follow each other: of all but the last
        one only the time on one edge counts.
        """
        sizes, pieces = np.zeros((2, 2, self.agents))
        carried = ledger.by_edge()
        for agent, parent in enumerate(self.tree.parents.tolist()):
            for way, edge in enumerate(((agent, parent), (parent, agent))):
                if edge in carried:
                    sizes[way, agent], pieces[way, agent] = carried[edge].bytes, carried[edge].messages
        each = sizes / np.maximum(pieces, 1)
        up, down = np.zeros(self.agents), np.zeros(self.agents)
        for below, above in self.tree.levels:
            np.maximum.at(up, above, up[below] + each[0, below])
        for below, above in reversed(self.tree.levels):
            down[below] = down[above] + each[1, below]
        return float(up[self.tree.root] + down.max() + (sizes - each).max(axis=1).sum())


def _nothing(*shape: int) -> Array:
    """An array of a shape that takes no memory."""
    return np.broadcast_to(0.0, shape)
