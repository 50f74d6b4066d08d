"""Agents in processes of their own: rounds over `Links`.

Zenoh's "reliable" ends with a link, so the authority on whether a neighbour takes part is the round's own deadline. On
links that lose one packet in five single frames vanish although the link stays up: where two neighbours wait for each
other, they send again.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from fleetgp.errors import Cancelled, NeighbourLostError
from fleetgp.graph import Topology
from fleetgp.network.edges import Edge
from fleetgp.network.frames import FrameNetwork
from fleetgp.network.wire import Frame, encode
from fleetgp.network.zenoh.links import Arrived, Links

#: Neighbours that wait themselves are given this many deadlines, then they count as lost all the same.
PATIENCE = 4
#: Frames of later rounds that may wait, for each neighbour.
AHEAD = 64
#: Seconds after which an agent that waits looks which neighbours wait, too, and sends again to those who wait for it.
AGAIN = 1.0

#: What a neighbour that waits announces: the epoch and the round it is in, and the neighbours it waits for.
Waiting = tuple[int, int, frozenset[int]]


class EpochOverError(Cancelled):
    """The epoch ended for all its members, whatever its algorithm still waits for."""


class ZenohNetwork(FrameNetwork):
    """The rounds of one epoch, for the agents hosted here.

    members: the ids by which the links know the topology's agents 0, 1, ...; without it these are the ids.
    epoch: the number in these rounds' frames, unlike that of other work over the same links; the same at all agents.
    timeout: seconds that a neighbour may take from when it has all it needs.
    waiting_of(neighbour): whom the neighbour has lately announced to wait for, also in an epoch that is over here;
        None if it does not wait. Its time begins when it waits no more: it cannot compute before. If it
        waits for us, the frame that it lacks is sent to it again.
    waiting_for, exchanging: the neighbours that the hosted agents wait for, by the links' ids, and in which round.
    """

    def __init__(
        self,
        links: Links,
        topology: Topology,
        hosted: Sequence[int],
        *,
        members: Sequence[int] | None = None,
        epoch: int = 0,
        timeout: float = 10.0,
        waiting_of: Callable[[int], Waiting | None] = lambda _: None,
    ) -> None:
        super().__init__(topology, hosted)
        self.epoch, self.timeout = epoch, timeout
        self.exchanging = 0
        self._links = links
        self._members = tuple(range(topology.agents)) if members is None else tuple(members)
        self._waiting_of = waiting_of
        self._known = {
            (sender, receiver)
            for receiver, sender in topology.union.directed.tolist()
            if receiver in self._position and sender not in self._position
        }
        self._early: dict[tuple[int, Edge], Frame] = {}
        links.departures.begin(epoch)
        self._mail = links.arrivals.claim(epoch)
        self._retired = False

    def swap(self, frames: list[Frame], expected: list[Edge], round: int) -> dict[Edge, Frame]:
        self.exchanging = round
        for frame in frames:
            if frame.receiver in self._position:
                self._early[round, (frame.sender, frame.receiver)] = frame
            else:
                self._send(replace(frame, run=self._links.run, epoch=self.epoch))
        missing = {edge for edge in expected if (round, edge) not in self._early}
        if missing:
            self._receive(missing, round)
        received = {edge: self._early[round, edge] for edge in expected}
        for over in [key for key in self._early if key[0] <= round]:
            del self._early[over]
        return received

    def _send(self, frame: Frame) -> None:
        link = (self._members[frame.sender], self._members[frame.receiver])
        data = encode(frame)
        self._links.departures.keep(self.epoch, link, frame.round, data)
        self._links.send(*link, data)

    def _receive(self, missing: set[Edge], round: int) -> None:
        began = time.monotonic()
        last, again = began + PATIENCE * self.timeout, began + min(AGAIN, self.timeout)
        deadlines = dict.fromkeys((self._members[sender] for sender, _ in missing), began + self.timeout)
        while missing:
            self.waiting_for = frozenset(self._members[sender] for sender, _ in missing)
            arrived = None
            with suppress(queue.Empty):
                arrived = self._mail.get(timeout=max(0.0, again - time.monotonic()))
            self._check_open()
            now = time.monotonic()
            if now >= again:
                self._send_again()
                waiting = {neighbour for neighbour in self.waiting_for if self._waiting_of(neighbour) is not None}
                deadlines.update(dict.fromkeys(waiting, now + self.timeout))
                late = {neighbour for neighbour in self.waiting_for if now >= deadlines[neighbour]}
                if late or now >= last:
                    raise NeighbourLostError(round, late or self.waiting_for, now - began)
                again = min(now + AGAIN, last, *(deadlines[neighbour] for neighbour in self.waiting_for))
            if arrived is None:
                continue
            self._links.arrivals.consumed(arrived)
            if self._accepted(arrived, round):
                frame = arrived.frame
                self._early[frame.round, (frame.sender, frame.receiver)] = frame
                if frame.round == round:
                    missing.discard((frame.sender, frame.receiver))

    def _send_again(self) -> None:
        """To neighbours who wait for us, whomever we wait for: what we sent to them did not arrive."""
        for sender, receiver in self._known:
            neighbour, own = self._members[sender], self._members[receiver]
            epoch, round, waiting_for = self._waiting_of(neighbour) or (-1, -1, frozenset())
            if own in waiting_for and epoch == self.epoch:
                self._links.send_again(own, neighbour, epoch, round)

    def _accepted(self, arrived: Arrived, round: int) -> bool:
        """Whether a frame is one that may come now, over the link it came over; else it is counted."""
        frame = arrived.frame
        edge = (frame.sender, frame.receiver)
        if edge not in self._known or arrived.link != (self._members[frame.sender], self._members[frame.receiver]):
            self._links.drop("impostor")
        elif frame.round < round:
            self._links.drop("late")
        elif (frame.round, edge) in self._early:
            self._links.drop("replayed")
        elif frame.round > round and sum(early == edge for _, early in self._early) >= AHEAD:
            self._links.drop("flooded")
        else:
            return True
        return False

    def wake(self) -> None:
        self._mail.put(None)

    def close(self) -> None:
        """Leave the epoch: its frames come late from now on, and the last ones sent are kept in case one was lost."""
        super().close()
        if not self._retired:
            self._retired = True
            self._links.arrivals.retire(self.epoch)
            self._links.departures.retire(self.epoch)
