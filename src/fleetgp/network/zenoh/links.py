"""Links to neighbours over Eclipse Zenoh in peer mode: one session per process. Needs the extra "fleet".

Links exist along the graph's edges only: no scouting, no gossip, so that nobody is introduced to anybody. A neighbour
sends on two keys: fleetgp/RUN/RECEIVER/SENDER/frame carries the frames of algorithms (`wire`), .../hello what
neighbours tell each other about themselves.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from fleetgp.errors import InputError, NetworkError
from fleetgp.graph import Topology
from fleetgp.network.frames import Edge
from fleetgp.network.wire import Frame, decode
from fleetgp.network.zenoh.door import Door
from fleetgp.network.zenoh.session import Security, address_of, is_local, open_session, peer_settings, prefix_of

#: Bytes of one neighbour that may wait to be read: what comes beyond is dropped and counted.
WAITING = 512 * 2**20
#: Epochs that have not begun here, of which one neighbour may have sent frames already.
EARLY = 4
#: Finished epochs whose last frames are kept for a neighbour that lacks one.
KEPT_EPOCHS = 3


class EpochOverError(NetworkError):
    """The epoch ended for all its members, whatever its algorithm still waits for."""


class Mail:
    """One epoch's frames, in the order in which they came. Closing it wakes whoever waits."""

    def __init__(self, frames: Iterable[tuple[Edge, Frame, int]] = ()) -> None:
        self._queue: queue.SimpleQueue[tuple[Edge, Frame, int] | None] = queue.SimpleQueue()
        self._why = ""
        for item in frames:
            self._queue.put(item)

    def put(self, edge: Edge, frame: Frame, size: int) -> None:
        self._queue.put((edge, frame, size))

    def check(self) -> None:
        """Raise, if it is closed."""
        if self._why:
            raise EpochOverError(self._why)

    def get(self, seconds: float) -> tuple[Edge, Frame, int] | None:
        """The next frame with its edge (sender, receiver) and size, or None if none came in time."""
        self.check()
        try:
            item = self._queue.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return None
        if item is None:
            raise EpochOverError(self._why)
        return item

    def close(self, why: str) -> None:
        self._why = why
        self._queue.put(None)


class Links:
    """One end of a fleet: a Zenoh session, and links to the neighbours of the agents hosted here.

    edges: (own agent, neighbour) of every link.  hosted: the own agents, where one of them may have no link.
    listen: this end's endpoint, like "tcp/127.0.0.1:7447".
    endpoints: those of the neighbours, by agent id.  run: tells this fleet's messages from those of another.
    lease: seconds after which a silent link counts as dead.
    security: mutual TLS and access control, where the endpoints are tls/... or quic/...; anywhere but on loopback.
    longest_hello: in bytes; what is longer is dropped unread.
    changed(own, neighbour, up), hello(own, neighbour, data), early(epoch): called from Zenoh's threads; must be short.
    dropped: what was refused, by reason; it never stops anything.  sent: bytes, by neighbour; of these told: in hellos.
    resent: frames.
    """

    def __init__(
        self,
        edges: Sequence[Edge],
        *,
        hosted: Sequence[int] | None = None,
        listen: str,
        endpoints: Mapping[int, str],
        run: int = 0,
        lease: float = 5.0,
        security: Security | None = None,
        longest_hello: int = 2**16,
        changed: Callable[[int, int, bool], None] | None = None,
        hello: Callable[[int, int, bytes], None] | None = None,
        early: Callable[[int], None] | None = None,
    ) -> None:
        self.edges, self.run = tuple(edges), run
        self.hosted = tuple(sorted({own for own, _ in edges} if hosted is None else hosted))
        self.dropped: Counter[str] = Counter()
        self.sent: Counter[int] = Counter()
        self.resent = self.told = 0
        self._longest_hello = longest_hello
        self._hello, self._on_early = hello, early
        self._claimed: dict[int, Mail] = {}
        self._early: OrderedDict[tuple[int, int], list[tuple[Edge, Frame, int]]] = OrderedDict()
        self._over: deque[int] = deque(maxlen=1000)
        self._booked: Counter[tuple[int, int]] = Counter()
        self._kept: OrderedDict[int, dict[Edge, list[tuple[int, bytes]]]] = OrderedDict()
        self._changed = changed
        self._lock = threading.Lock()
        missing = sorted({neighbour for _, neighbour in edges} - set(endpoints))
        if missing:
            raise InputError(f"endpoints must name every neighbour, but those of {missing} are missing")
        connect = [endpoints[neighbour] for _, neighbour in edges]
        if security is None and not all(is_local(end) for end in (listen, *connect)):
            raise InputError("outside of this machine agents need certificates: give security, and tls/ endpoints")
        settings = peer_settings(listen, connect, lease)
        if security is not None:
            settings["transport"]["link"]["tls"] = security.tls
            settings["access_control"] = security.access(self.hosted, self.edges, run)
        self._door: Door | None = None
        if listen.startswith("tls/"):
            self._door = Door(*address_of(listen), self.dropped)
            settings["listen"]["endpoints"] = [f"tls/127.0.0.1:{self._door.inner}"]
        try:
            self.session = open_session(settings, f"no session on {listen}")
        except BaseException:
            if self._door is not None:
                self._door.close()
            raise
        try:
            self._subscribers: dict[Edge, Any] = {}
            self._frames: dict[Edge, Any] = {}
            self._hellos: dict[Edge, Any] = {}
            self._listeners: dict[Edge, Any] = {}
            for edge in self.edges:
                self._declare(*edge)
        except BaseException:
            self.close()
            raise

    @classmethod
    def along(cls, topology: Topology, hosted: Sequence[int], **options: Any) -> Links:
        """The links of the agents hosted here along a graph's edges."""
        edges = [(r, s) for r, s in topology.union.directed.tolist() if r in set(hosted) and s not in set(hosted)]
        return cls(edges, **options)

    # ---- sending --------------------------------------------------------------------------------------

    def send(self, own: int, neighbour: int, frame: bytes) -> None:
        self.sent[neighbour] += len(frame)
        self._frames[own, neighbour].put(frame)

    def greet(self, own: int, neighbour: int, data: bytes) -> None:
        """A hello: dropped rather than waited for where the link is busy; there will be another."""
        self.sent[neighbour] += len(data)
        self.told += len(data)
        self._hellos[own, neighbour].put(data)

    def up(self, own: int, neighbour: int) -> bool:
        """Whether the neighbour listens."""
        return bool(self._frames[own, neighbour].matching_status.matching)

    def wait(self, seconds: float) -> None:
        """Until all neighbours listen (what is sent before is lost), or one error that names those who do not."""
        deadline = time.monotonic() + seconds
        while silent := sorted({neighbour for own, neighbour in self.edges if not self.up(own, neighbour)}):
            if time.monotonic() > deadline:
                names = ", ".join(map(str, silent))
                raise NetworkError(f"agent {names} did not answer within {seconds:g} s: is it running, and reachable?")
            time.sleep(0.01)

    # ---- receiving ------------------------------------------------------------------------------------

    def claim(self, epoch: int) -> Mail:
        """The frames of an epoch: those that came early, and all that will come."""
        with self._lock:
            early = [key for key in self._early if key[0] == epoch]
            mail = Mail(item for key in early for item in self._early.pop(key))
            self._claimed[epoch] = mail
            return mail

    def retire(self, epoch: int, sent: dict[Edge, list[tuple[int, bytes]]]) -> None:
        """The epoch is over: its frames come late from now on. sent: the last frames, if a neighbour lacks one."""
        with self._lock:
            self._claimed.pop(epoch, None)
            self._over.append(epoch)
            for key in [key for key in self._booked if key[0] == epoch]:
                del self._booked[key]
            self._kept[epoch] = sent
            while len(self._kept) > KEPT_EPOCHS:
                self._kept.popitem(last=False)

    def send_again(self, own: int, neighbour: int, epoch: int, round: int) -> None:
        """A frame of an epoch that is over here, to a neighbour that still waits for it."""
        with self._lock:
            frames = self._kept.get(epoch, {}).get((own, neighbour), [])
        for number, data in frames:
            if number == round:
                self.resent += 1
                self.send(own, neighbour, data)

    def came_early(self, epoch: int) -> bool:
        """Whether frames of an epoch came that has not begun here."""
        return any(key[0] == epoch for key in list(self._early))

    def consumed(self, epoch: int, sender: int, size: int) -> None:
        with self._lock:
            if (epoch, sender) in self._booked:
                self._booked[epoch, sender] -= size

    def drop(self, reason: str) -> None:
        self.dropped[reason] += 1

    def _frame_came(self, key: str, data: bytes) -> None:
        receiver, sender = (int(part) for part in key.split("/")[2:4])
        try:
            frame = decode(data)
        except NetworkError:
            self.drop("malformed")
            return
        if frame.run != self.run:
            self.drop("foreign")
            return
        item = ((sender, receiver), frame, len(data))
        with self._lock:
            mail = self._claimed.get(frame.epoch)
            if mail is None and frame.epoch in self._over:
                self.drop("late")
                return
            if len(data) + sum(size for key, size in self._booked.items() if key[1] == sender) > WAITING:
                self.drop("flooded")
                return
            self._booked[frame.epoch, sender] += len(data)
            if mail is not None:
                mail.put(*item)
                return
            self._early.setdefault((frame.epoch, sender), []).append(item)
            kept = [early for early in self._early if early[1] == sender]
            if len(kept) > EARLY:
                self.dropped["late"] += len(self._early.pop(kept[0]))
                self._booked.pop(kept[0], None)
        if self._on_early is not None:
            self._on_early(frame.epoch)

    def _arrived(self, sample: Any) -> None:
        try:
            key = str(sample.key_expr)
            data = bytes(sample.payload)
            _, _, receiver, sender, what = key.split("/")
            if (int(receiver), int(sender)) not in self.edges:
                self.drop("impostor")
            elif what == "frame":
                self._frame_came(key, data)
            elif what == "hello" and len(data) <= self._longest_hello:
                if self._hello is not None:
                    self._hello(int(receiver), int(sender), data)
            else:
                self.drop("malformed")
        except ValueError:
            self.drop("malformed")

    # ---- the session ----------------------------------------------------------------------------------

    def _declare(self, own: int, neighbour: int) -> None:
        """Listen to a neighbour, and make ready to send to it."""
        import zenoh

        prefix, edge = prefix_of(self.run), (own, neighbour)
        self._subscribers[edge] = self.session.declare_subscriber(f"{prefix}/{own}/{neighbour}/*", self._arrived)
        key = f"{prefix}/{neighbour}/{own}"
        self._frames[edge] = self.session.declare_publisher(
            f"{key}/frame",
            reliability=zenoh.Reliability.RELIABLE,
            congestion_control=zenoh.CongestionControl.BLOCK,
            express=True,
        )
        # A queue of their own: what neighbours tell each other overtakes long frames.
        self._hellos[edge] = self.session.declare_publisher(
            f"{key}/hello",
            priority=zenoh.Priority.INTERACTIVE_HIGH,
            congestion_control=zenoh.CongestionControl.DROP,
            express=True,
        )
        changed = self._changed
        if changed is not None:
            self._listeners[edge] = self._frames[edge].declare_matching_listener(
                lambda status: changed(own, neighbour, bool(status.matching))
            )

    def renew(self, own: int, neighbour: int) -> None:
        """Tell a neighbour anew that one listens: after a reconnection it may not have heard."""
        edge = (own, neighbour)
        for table in (self._listeners, self._subscribers, self._frames, self._hellos):
            if edge in table:
                table[edge].undeclare()
        self._declare(own, neighbour)

    def close(self) -> None:
        """Leave the fleet; safe to call twice."""
        import zenoh

        if self._door is not None:
            self._door.close()
        if not self.session.is_closed():
            with suppress(zenoh.ZError):  # it did not end in time: then it ends with the process
                self.session.close()

    def __enter__(self) -> Links:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
