"""Any split of the agents over threads: with real frames between all agents, or packets between groups. For tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from fleetgp.errors import Cancelled, InputError, shortened
from fleetgp.graph import Topology, check_topology
from fleetgp.network.base import Network
from fleetgp.network.edges import Edge
from fleetgp.network.frames import FrameNetwork
from fleetgp.network.grouped import GroupedNetwork, Mailbox
from fleetgp.network.ledger import Ledger
from fleetgp.network.wire import Frame, encode
from fleetgp.validation import check_number

Result = TypeVar("Result")


class Loopback:
    """A fleet whose agents are hosted in groups, one thread per group.

    grouped: whether a group sends packets, as on a cluster; else every agent sends its own frames, as robots do.
    timeout: seconds after which a group that waits for a frame gives up. It is there for deadlocks alone, and long:
    on a busy machine a single round may take minutes.

    >>> from fleetgp.graph import Graph
    >>> import numpy as np
    >>> fleet = Loopback(Graph.path(3), hosting=[[0], [1, 2]])
    >>> fleet.run(lambda network: network.neighbour_sum(np.ones(len(network.hosted)), "statistics").tolist())
    [[1.0], [2.0, 1.0]]
    """

    def __init__(
        self, topology: Topology, hosting: Sequence[Sequence[int]], *, grouped: bool = False, timeout: float = 300.0
    ) -> None:
        check_topology(topology)
        try:
            once = sorted(agent for group in hosting for agent in group) == list(range(topology.agents))
        except (TypeError, ValueError):
            once = False
        if not once:
            raise InputError(
                f"expected each of the agents 0 .. {topology.agents - 1} once in hosting, a list of lists, "
                f"got {shortened(hosting)}"
            )
        check_number("timeout", timeout, above=0.0)
        self.networks: Sequence[Network]
        if grouped:
            self.networks = groups = [LoopbackGroup(topology, hosting, k, timeout) for k in range(len(hosting))]
            for group in groups:
                group.mailboxes = {k: other.mailbox for k, other in enumerate(groups)}
        else:
            self.networks = hosts = [LoopbackNetwork(topology, group, timeout) for group in hosting]
            for host in hosts:
                host.mailboxes = {agent: other.mailbox for other in hosts for agent in other.hosted}

    def run(self, function: Callable[[Network], Result]) -> list[Result]:
        """function(network) in every group's thread; the results in the hosting's order.

        If one group fails, the others are cancelled; the first failure is raised.
        """
        failures: list[BaseException] = []
        lock = threading.Lock()

        def guarded(network: Network) -> Result:
            try:
                return function(network)
            except BaseException as error:
                with lock:
                    failures.append(error)
                for other in self.networks:
                    other.cancel(Cancelled("another group of the fleet failed"))
                raise

        with ThreadPoolExecutor(len(self.networks)) as pool:
            futures = [pool.submit(guarded, network) for network in self.networks]
        if failures:
            raise failures[0]
        return [future.result() for future in futures]

    @property
    def ledger(self) -> Ledger:
        """The whole fleet's ledger."""
        return Ledger.merged(network.ledger for network in self.networks)


class LoopbackNetwork(FrameNetwork):
    """One group's end: frames are encoded, put into the receiving agent's mailbox, and decoded there."""

    mailboxes: Mapping[int, Mailbox]

    def __init__(self, topology: Topology, hosted: Sequence[int], timeout: float) -> None:
        super().__init__(topology, hosted)
        self.mailbox, self._timeout = Mailbox(), timeout

    def swap(self, frames: list[Frame], expected: list[Edge], round: int) -> dict[Edge, Frame]:
        for frame in frames:
            self.mailboxes[frame.receiver].put(encode(frame))
        return self.mailbox.take(expected, round, self._timeout, self.wait_for)

    def wake(self) -> None:
        self.mailbox.wake()


class LoopbackGroup(GroupedNetwork):
    """One group's end: packets are encoded, put into the other group's mailbox, and decoded there."""

    mailboxes: Mapping[int, Mailbox]

    def send(self, group: int, frame: Frame) -> None:
        self.mailboxes[group].put(encode(frame))
