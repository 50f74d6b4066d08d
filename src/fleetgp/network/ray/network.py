"""One group's end of a network over Ray: a packet is one call of another group's host.

The clock of a host: whatever it says can be said again by a host that takes its place.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fleetgp.graph import Topology
from fleetgp.network.base import Clock
from fleetgp.network.grouped import GroupedNetwork, Mailbox
from fleetgp.network.wire import Frame, encode


@dataclass(frozen=True)
class Readings:
    """count: how often a clock was read.  late: the first reading that said that the time is up; None for none."""

    count: int = 0
    late: int | None = None

    def joined(self, other: Readings) -> Readings:
        """What two others know of one clock."""
        late = self.late if other.late is None else other.late
        return Readings(max(self.count, other.count), late)


class HostClock(Clock):
    """Wall-clock time, from when the work was first begun anywhere.

    past: what others know of the clock of a lost host, in whose place this one is. It has said so in what it sent, and
    they have acted on it: what is computed again must come to the same.
    """

    def __init__(self) -> None:
        self.wall = time.time
        self._began = self.wall()
        self.past = Readings()
        self.readings = Readings()

    def set(self, began: float, past: Readings) -> None:
        self._began, self.past = began, past

    @property
    def began(self) -> float:
        return self._began

    def passed(self, at: float) -> bool:
        """
        >>> clock = HostClock()
        >>> clock.set(0.0, Readings(count=2))
        >>> [clock.passed(1.0) for _ in range(3)], clock.readings
        ([False, False, True], Readings(count=3, late=2))
        >>> again = HostClock()
        >>> again.set(0.0, clock.readings)
        >>> [again.passed(1.0) for _ in range(3)]
        [False, False, True]
        """
        number, past, late = self.readings.count, self.past, self.readings.late
        if past.late is not None:
            over = number >= past.late
        else:
            over = number >= past.count and self.wall() >= at
        self.readings = Readings(number + 1, number if over and late is None else late)
        return over


#: Bytes that a host keeps of what it has sent in a task; beyond, nothing is kept, and a lost host is not replaced.
KEPT_BYTES = 1 << 30

#: Gives a packet to another host, with how its sender's clock was read so far, without waiting for it.
Send = Callable[[bytes, Readings], None]


class Post:
    """What a host sends to the others in one task, and keeps: for a host that takes the place of a lost one."""

    def __init__(self, sends: Mapping[int, Send]) -> None:
        self._sends = dict(sends)
        self._kept: dict[int, list[tuple[bytes, Readings]]] | None = defaultdict(list)
        self._bytes = 0
        self._lock = threading.Lock()

    def send(self, host: int, packet: bytes, readings: Readings) -> None:
        with self._lock:
            self._bytes += len(packet)
            if self._bytes > KEPT_BYTES:
                self._kept = None
            if self._kept is not None:
                self._kept[host].append((packet, readings))
            self._sends[host](packet, readings)

    def replace(self, host: int, send: Send) -> bool:
        """Another one in the place of a host, which gets all that the lost one got; False if that was not kept."""
        with self._lock:
            if self._kept is None:
                return False
            self._sends[host] = send
            for packet, readings in self._kept[host]:
                send(packet, readings)
            return True


class RayNetwork(GroupedNetwork):
    """Hosts a group of agents; the others are at other hosts.

    timeout: seconds after which a host that waits for a packet gives up.
    A host that is lost begins again from the first round, and sends again what it sent before: that is dropped.
    """

    def __init__(
        self, topology: Topology, hosting: Sequence[Sequence[int]], own: int, post: Post, timeout: float
    ) -> None:
        super().__init__(topology, hosting, own)
        self._post, self._timeout = post, timeout
        self._mailbox = Mailbox()
        self.clock: HostClock = HostClock()

    def receive(self, packet: bytes) -> None:
        """From another host; from any thread."""
        self._mailbox.put(packet)

    def _send(self, group: int, frame: Frame) -> None:
        self._post.send(group, encode(frame), self.clock.readings)

    def _take(self, groups: Sequence[int], number: int) -> dict[int, Frame]:
        return self._from_mailbox(self._mailbox, groups, number, self._timeout)

    def _wake(self) -> None:
        self._mailbox.wake()
