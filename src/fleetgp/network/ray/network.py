"""One group's end of a network over Ray: frames go to the hosts of the receivers, in one call a round and host."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from fleetgp.graph import Topology
from fleetgp.network.edges import Edge
from fleetgp.network.frames import FrameNetwork
from fleetgp.network.mailbox import Mailbox
from fleetgp.network.wire import Frame, encode

#: Bytes that a host keeps of what it has sent in a task; beyond, nothing is kept, and a lost host is not replaced.
KEPT_BYTES = 1 << 30

#: Gives frames to another host, without waiting for it.
Send = Callable[[list[bytes]], None]


class Post:
    """What a host sends to the others in one task, and keeps: for a host that takes the place of a lost one."""

    def __init__(self, sends: Mapping[int, Send]) -> None:
        self._sends = dict(sends)
        self._kept: dict[int, list[list[bytes]]] | None = defaultdict(list)
        self._bytes = 0
        self._lock = threading.Lock()

    def send(self, host: int, frames: list[bytes]) -> None:
        with self._lock:
            self._bytes += sum(map(len, frames))
            if self._bytes > KEPT_BYTES:
                self._kept = None
            if self._kept is not None:
                self._kept[host].append(frames)
            self._sends[host](frames)

    def replace(self, host: int, send: Send) -> bool:
        """Another one in the place of a host, which gets all that the lost one got; False if that was not kept."""
        with self._lock:
            if self._kept is None:
                return False
            self._sends[host] = send
            for frames in self._kept[host]:
                send(frames)
            return True


class RayNetwork(FrameNetwork):
    """Hosts a group of agents; the others are at other hosts.

    host_of: the number of every agent's host.  timeout: seconds after which a host that waits for a frame gives up.
    A host that is lost begins again from the first round, and sends again what it sent before: that is dropped.
    """

    def __init__(
        self, topology: Topology, hosted: Sequence[int], host_of: Mapping[int, int], post: Post, timeout: float
    ) -> None:
        super().__init__(topology, hosted)
        self._host_of, self._post, self._timeout = host_of, post, timeout
        self._mailbox = Mailbox()

    def receive(self, frames: Sequence[bytes]) -> None:
        """Frames from another host; from any thread."""
        for frame in frames:
            self._mailbox.put(frame)

    def _swap(self, frames: list[Frame], expected: list[Edge], round: int) -> dict[Edge, Frame]:
        leaving: dict[int, list[bytes]] = defaultdict(list)
        received = {(frame.sender, frame.receiver): frame for frame in frames if frame.receiver in self._position}
        for frame in frames:
            if frame.receiver not in self._position:
                leaving[self._host_of[frame.receiver]].append(encode(frame))
        for host, encoded in leaving.items():
            self._post.send(host, encoded)
        others = [edge for edge in expected if edge not in received]
        received |= self._mailbox.take(others, round, self._timeout, self._wait_for)
        return {edge: received[edge] for edge in expected}

    def _wait_for(self, senders: frozenset[int]) -> None:
        self.waiting_for = senders
        self._check_open()

    def _wake(self) -> None:
        self._mailbox.wake()
