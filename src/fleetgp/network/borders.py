"""The edges of a round as a group of agents sees them: those inside it, and those that are cut.

Over an edge inside a group a value moves by an index. What goes over the cut edges to another group goes in one packet,
in the order in which the other group has these edges.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np

from fleetgp.arrays import IntArray
from fleetgp.network.edges import Cargo, Incoming


class Border:
    """incoming: the round's edges into the group, whose agents are `hosted`.  group_of: (M,) everybody's group.

    sources: (E,) the place of each edge's value on axis 0; 0 on cut edges.
    arriving: of each other group with which there are edges, the edges on which its values arrive.
    leaving: of the same groups, the places on axis 0 of what goes back along them, in the order in which that group has
        their reverses.
    """

    def __init__(self, incoming: Incoming, hosted: IntArray, group_of: IntArray, own: int) -> None:
        self._parcels: WeakKeyDictionary[Cargo, Parcels] = WeakKeyDictionary()
        groups, receivers = group_of[incoming.senders], hosted[incoming.receivers]
        position = np.zeros(len(group_of), dtype=np.int64)
        position[hosted] = np.arange(len(hosted))
        self.sources = np.where(groups == own, position[incoming.senders], 0)
        self.arriving = {int(k): np.flatnonzero(groups == k) for k in np.unique(groups[groups != own])}
        order = np.lexsort((receivers, incoming.senders))  # by the reverse's receiver, then its sender
        self.leaving = {k: incoming.receivers[order[groups[order] == k]] for k in self.arriving}
        # The reverse of an edge inside the group, among its edges.
        self._reverse = np.empty(len(groups), dtype=np.int64)
        self._reverse[order] = np.arange(len(groups))
        inside = groups[order] == own
        self._reverse[order[inside]] = np.flatnonzero(groups == own)

    def parcels(self, cargo: Cargo) -> Parcels:
        """Which rows of a cargo go where."""
        if cargo not in self._parcels:
            self._parcels[cargo] = Parcels(self, cargo, self._reverse)
        return self._parcels[cargo]


class Parcels:
    """The rows of a part with a cargo.

    sources: (L',) the row that arrives, where it comes from inside the group; 0 elsewhere.
    arriving, leaving: of each other group, which of the rows that arrive are its, and which rows go to it.
    """

    def __init__(self, border: Border, cargo: Cargo, reverse: IntArray) -> None:
        beyond = np.full(len(border.sources), -1, dtype=np.int64)
        for k, cut in border.arriving.items():
            beyond[cut] = k
        order = np.argsort(reverse[cargo.edges], kind="stable")
        to, of = beyond[cargo.edges[order]], beyond[cargo.arriving]
        self.sources = np.zeros(len(cargo.arriving), dtype=np.int64)
        self.sources[of < 0] = cargo.rows[order[to < 0]]
        self.arriving = {k: np.flatnonzero(of == k) for k in border.arriving}
        self.leaving = {k: cargo.rows[order[to == k]] for k in border.arriving}
