"""Which agents an item of a batch concerns: all of them, or some."""

from __future__ import annotations

import abc
from collections.abc import Mapping

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.graph import Graph
from fleetgp.network import Incoming, Network


class Scope(abc.ABC):
    """Which agents an item concerns; the same knowledge at every agent.

    active: (M, T).  window: rounds within which a word crosses any item's agents, and the fleet.

    An agent outside an item does not hear its verdicts. So whether anybody is still busy, (A, 1), rides along as a
    maximum over all edges, and all agents end together after the first window that began with no agent busy.
    """

    active: BoolArray
    window: int

    @abc.abstractmethod
    def edges(self, graph: Graph) -> BoolArray:
        """(2E, T), in the order of graph.directed: both ends are active."""

    @abc.abstractmethod
    def degrees(self, graph: Graph) -> IntArray:
        """(M, T): active neighbours of the active agents."""

    def busy_parts(self, busy: Array) -> dict[str, Array]:
        """What is sent about it."""
        return {"statistics": busy}

    def busy_heard(self, busy: Array, received: Mapping[str, Array], incoming: Incoming) -> Array:
        """One round later."""
        return np.maximum(busy, incoming.reduce(np.maximum, received["statistics"], 0.0))

    def ends(self, heard: Array, busy: Array) -> bool:
        """Whether all agents end now: from what was heard in a window, and who is busy after its verdict."""
        return not heard.any()


class WholeFleet(Scope):
    """Every agent takes part in every item and hears its verdict: nothing has to be said about who is busy."""

    def __init__(self, network: Network, items: int) -> None:
        self.active = np.broadcast_to(True, (network.agents, items))
        self.window = network.diameter

    def edges(self, graph: Graph) -> BoolArray:
        return np.broadcast_to(True, (len(graph.directed), self.active.shape[1]))

    def degrees(self, graph: Graph) -> IntArray:
        return np.broadcast_to(graph.degrees[:, None], self.active.shape)

    def busy_parts(self, busy: Array) -> dict[str, Array]:
        return {}

    def busy_heard(self, busy: Array, received: Mapping[str, Array], incoming: Incoming) -> Array:
        return busy

    def ends(self, heard: Array, busy: Array) -> bool:
        return not busy.any()
