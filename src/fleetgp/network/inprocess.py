"""All agents in one process: NumPy indexing is the transport. The default, and the simulator."""

from __future__ import annotations

from collections.abc import Sequence

from fleetgp.graph import Topology, check_topology
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

    The other verbs; `kind` is what the ledger books them under.

    >>> x = np.array([1.0, 10.0, 100.0])
    >>> network.exchange(x, "statistics").tolist()  # on the edges into 0, 1, 1 and 2
    [10.0, 1.0, 100.0, 10.0]
    >>> [network.neighbour_max(x, "statistics").tolist(), network.neighbour_min(x, "statistics").tolist()]
    [[10.0, 100.0, 10.0], [10.0, 1.0, 10.0]]
    >>> with network.phase("sums"):
    ...     network.reduce(x[:, None], "statistics").tolist()
    [111.0]
    >>> network.reduce_present(x[:, None], np.array([[True], [False], [True]]), "statistics").value.tolist()
    [101.0]
    >>> [value.tolist() for value in network.collect({"statistics": x[:, None]})["statistics"]]
    [[1.0], [10.0], [100.0]]
    >>> [value.tolist() for value in network.flood(x[:, None], "statistics")]
    [[1.0], [10.0], [100.0]]
    >>> total = sum(network.gather({"statistics": x})["statistics"])
    >>> network.scatter(np.array(total), "statistics").tolist()
    [111.0, 111.0, 111.0]
    >>> network.ledger.rounds_by_phase["sums"]
    2
    >>> network.close()
    """

    def __init__(self, topology: Topology) -> None:
        check_topology(topology)
        super().__init__(topology, [range(topology.agents)], 0)

    def _send(self, group: int, frame: Frame) -> None:
        raise AssertionError("there is no other group")

    def _take(self, groups: Sequence[int], number: int) -> dict[int, Frame]:
        raise AssertionError("there is no other group")

    def _wake(self) -> None:
        """Nobody ever waits here."""
