"""Which agents an item of a batch concerns: all of them, or some."""

from __future__ import annotations

import abc
from functools import cached_property

import numpy as np

from fleetgp.arrays import BoolArray, IntArray
from fleetgp.graph import Graph
from fleetgp.network import Network


class Scope(abc.ABC):
    """Which agents an item concerns; the same knowledge at every agent.

    active: (M, T).  window: rounds within which a word crosses any item's agents.
    """

    active: BoolArray
    window: int

    @cached_property
    def all_hear(self) -> bool:
        """Whether every agent takes part in every item and so hears its verdict; items of a single agent have but one
        verdict, the first, which is known to end them.
        """
        return bool(self.active[:, self.active.sum(axis=0) > 1].all())

    @abc.abstractmethod
    def edges(self, graph: Graph) -> BoolArray:
        """(2E, T), in the order of graph.directed: both ends are active."""

    @abc.abstractmethod
    def degrees(self, graph: Graph) -> IntArray:
        """(M, T): active neighbours of the active agents."""


class WholeFleet(Scope):
    """Every agent takes part in every item."""

    def __init__(self, network: Network, items: int) -> None:
        self.active = np.broadcast_to(True, (network.agents, items))
        self.window = network.diameter

    def edges(self, graph: Graph) -> BoolArray:
        return np.broadcast_to(True, (len(graph.directed), self.active.shape[1]))

    def degrees(self, graph: Graph) -> IntArray:
        return np.broadcast_to(graph.degrees[:, None], self.active.shape)
