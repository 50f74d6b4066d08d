"""Max- and min-consensus: exact after diam(G) rounds, the same bits at every agent."""

from __future__ import annotations

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus.iterate import NeighbourRule, iterate
from fleetgp.network import Incoming, Network


class MaximumRule(NeighbourRule[Array]):
    """m_i <- max(m_i, max_j m_j)."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def message(self, state: Array) -> Array:
        return state

    def update(self, state: Array, received: Array, incoming: Incoming) -> Array:
        return np.maximum(state, incoming.reduce(np.maximum, received, -np.inf))


def maximum(network: Network, x: Array, *, kind: str = "statistics") -> Array:
    """The elementwise maximum over the fleet, (A, ...), at every agent.

    >>> from fleetgp.graph import Graph
    >>> from fleetgp.network import InProcess
    >>> maximum(InProcess(Graph.path(3)), np.array([1.0, 5.0, 2.0])).tolist()
    [5.0, 5.0, 5.0]
    """
    return iterate(MaximumRule(kind), x, network, rounds=network.diameter).state


def minimum(network: Network, x: Array, *, kind: str = "statistics") -> Array:
    """The elementwise minimum over the fleet, (A, ...), at every agent."""
    return -maximum(network, -x, kind=kind)
