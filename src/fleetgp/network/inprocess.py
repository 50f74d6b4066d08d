"""All agents in one process: NumPy indexing is the transport. The default, and the simulator."""

from __future__ import annotations

from collections.abc import Sequence

from fleetgp.graph import Topology
from fleetgp.network.grouped import GroupedNetwork
from fleetgp.network.wire import Frame


class InProcess(GroupedNetwork):
    """Hosts every agent of the fleet: one group, and nobody to send packets to.

    >>> from fleetgp.graph import Graph
    >>> import numpy as np
    >>> network = InProcess(Graph.path(3))
    >>> network.neighbour_sum(np.array([1.0, 10.0, 100.0]), "statistics").tolist()
    [10.0, 101.0, 10.0]
    >>> network.ledger.messages
    4
    """

    def __init__(self, topology: Topology) -> None:
        super().__init__(topology, [range(topology.agents)], 0)

    def _send(self, group: int, frame: Frame) -> None:
        raise AssertionError("there is no other group")

    def _take(self, groups: Sequence[int], number: int) -> dict[int, Frame]:
        raise AssertionError("there is no other group")

    def _wake(self) -> None:
        """Nobody ever waits here."""
