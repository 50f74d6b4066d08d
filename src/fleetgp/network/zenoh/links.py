"""Links to neighbours over Eclipse Zenoh in peer mode: one session per process. Needs the extra "fleet".

Links exist along the graph's edges only: no scouting, no gossip, so that nobody is introduced to anybody. A neighbour
sends on two keys: fleetgp/RUN/RECEIVER/SENDER/frame carries the frames of algorithms (`wire`), .../hello what
neighbours announce about themselves. On fleetgp/RUN/introduction an agent that misses a neighbour introduces
itself to all that it is connected with: one that has another description, without this agent, listens on no other key.
On fleetgp/RUN/roster an agent sends the fleet's roster to those that hold an older one.

An epoch is one task of the agents, with rounds of its own; its number is in its frames. Neighbours begin and end an
epoch at slightly different times, so frames may come before it has begun here, or after its end.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple

from fleetgp.errors import InputError, NetworkError
from fleetgp.graph import Topology
from fleetgp.network.edges import Edge
from fleetgp.network.wire import Frame, decode
from fleetgp.network.zenoh.door import Door
from fleetgp.network.zenoh.session import (
    Security,
    address_of,
    client_settings,
    introduction_key,
    is_local,
    open_session,
    peer_settings,
    prefix_of,
    roster_key,
)

#: Bytes of one neighbour that may wait to be read: what comes beyond is dropped and counted.
WAITING = 512 * 2**20
#: Epochs that have not begun here, of which one neighbour may have sent frames already.
EARLY = 4
#: Epochs whose end is remembered: frames of older ones count as early, and are dropped as such.
REMEMBERED = 1000
#: Frames that are kept for each neighbour, in case it lacks one; and of those beyond the last two, how many bytes.
KEPT_FRAMES, KEPT_BYTES = 8, 2**22
#: Finished epochs whose last frames are kept as well.
KEPT_EPOCHS = 3


class Arrived(NamedTuple):
    """A frame, the link (sender, receiver) it came over, and its bytes."""

    link: Edge
    frame: Frame
    size: int


#: One epoch's frames, in the order in which they came; None wakes the thread that waits for one.
Mail = queue.SimpleQueue[Arrived | None]


class Arrivals:
    """Frames that arrive, by epoch. What comes late, or too much of it, is counted in `dropped` and forgotten."""

    def __init__(self, dropped: Counter[str]) -> None:
        self._dropped = dropped
        self._claimed: dict[int, Mail] = {}
        self._early: OrderedDict[tuple[int, int], list[Arrived]] = OrderedDict()  # by epoch and sender
        self._over: deque[int] = deque(maxlen=REMEMBERED)
        self._waiting: Counter[tuple[int, int]] = Counter()  # bytes, by epoch and sender
        self._lock = threading.Lock()

    def claim(self, epoch: int) -> Mail:
        """An epoch begins here: its frames, those that came early and all that will come."""
        with self._lock:
            mail: Mail = queue.SimpleQueue()
            self._claimed[epoch] = mail
            for key in [key for key in self._early if key[0] == epoch]:
                for arrived in self._early.pop(key):
                    mail.put(arrived)
            return mail

    def retire(self, epoch: int) -> None:
        """An epoch is over: its frames come late from now on."""
        with self._lock:
            self._claimed.pop(epoch, None)
            self._over.append(epoch)
            for key in [key for key in self._waiting if key[0] == epoch]:
                del self._waiting[key]

    def came_early(self, epoch: int) -> bool:
        """Whether frames of an epoch came that has not begun here."""
        with self._lock:
            return any(key[0] == epoch for key in self._early)

    def take(self, arrived: Arrived) -> bool:
        """Sort a frame in; whether it is of an epoch that has not begun here."""
        (sender, _), frame, size = arrived
        with self._lock:
            mail = self._claimed.get(frame.epoch)
            if mail is None and frame.epoch in self._over:
                self._dropped["late"] += 1
                return False
            if size + sum(waiting for key, waiting in self._waiting.items() if key[1] == sender) > WAITING:
                self._dropped["flooded"] += 1
                return False
            self._waiting[frame.epoch, sender] += size
            if mail is not None:
                mail.put(arrived)
                return False
            self._early.setdefault((frame.epoch, sender), []).append(arrived)
            self._forget_oldest(sender)
            return True

    def _forget_oldest(self, sender: int) -> None:
        early = [key for key in self._early if key[1] == sender]
        if len(early) > EARLY:
            self._dropped["late"] += len(self._early.pop(early[0]))
            self._waiting.pop(early[0], None)

    def consumed(self, arrived: Arrived) -> None:
        """A frame was read: it waits no more."""
        key = (arrived.frame.epoch, arrived.link[0])
        with self._lock:
            if key in self._waiting:
                self._waiting[key] -= arrived.size


class Departures:
    """The last frames that were sent over every link, epoch by epoch, in case a neighbour lacks one.

    >>> departures = Departures()
    >>> departures.begin(7)
    >>> departures.keep(7, (0, 1), 3, b"a frame")
    >>> departures.find(7, (0, 1), 3), departures.find(7, (0, 1), 4)
    (b'a frame', None)
    """

    def __init__(self) -> None:
        self._kept: dict[int, dict[Edge, list[tuple[int, bytes]]]] = {}
        self._over: list[int] = []
        self._lock = threading.Lock()

    def begin(self, epoch: int) -> None:
        with self._lock:
            self._kept[epoch] = {}
            self._over = [other for other in self._over if other != epoch]

    def keep(self, epoch: int, link: Edge, round: int, data: bytes) -> None:
        """A frame goes out over a link (own agent, neighbour)."""
        with self._lock:
            kept = self._kept.setdefault(epoch, {}).setdefault(link, [])
            kept.append((round, data))
            while len(kept) > KEPT_FRAMES or (len(kept) > 2 and sum(len(old) for _, old in kept[:-2]) > KEPT_BYTES):
                kept.pop(0)

    def find(self, epoch: int, link: Edge, round: int) -> bytes | None:
        with self._lock:
            kept = self._kept.get(epoch, {}).get(link, ())
            return next((data for number, data in kept if number == round), None)

    def retire(self, epoch: int) -> None:
        """An epoch is over; the frames of the last few are kept on."""
        with self._lock:
            self._over.append(epoch)
            while len(self._over) > KEPT_EPOCHS:
                self._kept.pop(self._over.pop(0), None)


class LinkEnd(NamedTuple):
    """What is declared in the session for a link."""

    listener: Any | None
    subscriber: Any
    frames: Any
    hellos: Any


#: Bytes of an introduction and of a roster; what is longer is dropped unread.
LONGEST_INTRODUCTION, LONGEST_ROSTER = 2**11, 2**19
#: Seconds for which the answer to an introduction may take.
VISIT = 2.0


def dialled(edges: Sequence[Edge], endpoints: Mapping[int, str]) -> set[str]:
    """Return the endpoints that this end connects to: of two neighbours, the one with the larger id dials.

    If both did, a connection could join a session at one end that the other end has already replaced. Zenoh would then
    never declare again who listens to what, and the link would stay dead in one direction (eclipse-zenoh/zenoh#2806).
    Between two ends with several links the link of the lowest ids decides.

    >>> sorted(dialled([(2, 1), (2, 3)], {1: "tcp/10.0.0.1:7447", 3: "tcp/10.0.0.3:7447"}))
    ['tcp/10.0.0.1:7447']
    """
    deciding: dict[str, Edge] = {}
    for own, neighbour in sorted(edges, key=sorted):
        deciding.setdefault(endpoints[neighbour], (own, neighbour))
    return {endpoint for endpoint, (own, neighbour) in deciding.items() if own > neighbour}


class Links:
    """One end of a fleet: a Zenoh session, and links to the neighbours of the agents hosted here.

    edges: (own agent, neighbour) of every link.  hosted: the own agents, where one of them may have no link.
    listen: this end's endpoint, like "tcp/127.0.0.1:7447".
    endpoints: those of the neighbours, by agent id.  run: distinguishes this fleet's messages from those of another.
    lease: seconds after which a silent link counts as dead.
    security: mutual TLS and access control, where the endpoints are tls/... or quic/...; anywhere but on loopback.
    longest_hello: in bytes; what is longer is dropped unread.
    changed(own, neighbour, up), hello(own, neighbour, data), early(epoch), introduced(data), roster(data): called from
    Zenoh's threads; must be short.
    arrivals, departures: the frames that came, and the last ones that were sent.
    dropped: what was refused, by reason; it never stops anything.  sent: bytes, by neighbour.
    overhead: bytes that no ledger counts (hellos, introductions, frames sent again).  resent: frames sent again.
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
        introduced: Callable[[bytes], None] | None = None,
        roster: Callable[[bytes], None] | None = None,
    ) -> None:
        import zenoh

        self.edges, self.run = tuple(edges), run
        self.hosted = tuple(sorted({own for own, _ in edges} if hosted is None else hosted))
        self.dropped: Counter[str] = Counter()
        self.sent: Counter[int] = Counter()
        self.resent = self.overhead = 0
        self._counting = threading.Lock()  # rounds and hellos are sent by threads of their own
        self.arrivals, self.departures = Arrivals(self.dropped), Departures()
        self._longest_hello = longest_hello
        self._changed, self._hello, self._early = changed, hello, early
        self._introduced, self._roster = introduced, roster
        self._ends: dict[Edge, LinkEnd] = {}
        self._endpoints, self._security = endpoints, security
        settings = self._settings(listen, endpoints, lease, security)
        self._door: Door | None = None
        with ExitStack() as undo:  # what was opened is closed again where the rest fails
            if listen.startswith("tls/"):
                self._door = Door(*address_of(listen), self.dropped)
                undo.callback(self._door.close)
                settings["listen"]["endpoints"] = [f"tls/127.0.0.1:{self._door.inner}"]
            self.session = open_session(settings, f"no session on {listen}")
            undo.callback(self.close)
            for edge in self.edges:
                self._declare(*edge)
            if introduced is not None:
                self._introductions = self.session.declare_subscriber(introduction_key(run), self._introduction_arrived)
            if roster is not None:
                self._rosters = self.session.declare_subscriber(
                    roster_key(run), self._roster_arrived, allowed_origin=zenoh.Locality.REMOTE
                )
            undo.pop_all()

    def _settings(
        self, listen: str, endpoints: Mapping[int, str], lease: float, security: Security | None
    ) -> dict[str, Any]:
        missing = sorted({neighbour for _, neighbour in self.edges} - set(endpoints))
        if missing:
            raise InputError(f"expected the endpoint of every neighbour, got none for {missing}")
        self._dialled = dialled(self.edges, endpoints)
        neighbours = [endpoints[neighbour] for _, neighbour in self.edges]
        if security is None and not all(is_local(end) for end in (listen, *neighbours)):
            raise InputError("outside of this machine agents need certificates: give security, and tls/ endpoints")
        settings = peer_settings(listen, sorted(self._dialled), lease)
        if security is not None:
            settings["transport"]["link"]["tls"] = security.tls
            settings["access_control"] = security.access(self.hosted, self.edges, self.run)
        return settings

    @classmethod
    def along(cls, topology: Topology, hosted: Sequence[int], **options: Any) -> Links:
        """The links of the agents hosted here along a graph's edges."""
        edges = [(r, s) for r, s in topology.union.directed.tolist() if r in set(hosted) and s not in set(hosted)]
        return cls(edges, **options)

    # ---- sending --------------------------------------------------------------------------------------

    def send(self, own: int, neighbour: int, frame: bytes) -> None:
        self._count(neighbour, frame)
        self._ends[own, neighbour].frames.put(frame)

    def greet(self, own: int, neighbour: int, data: bytes) -> None:
        """A hello: dropped rather than waited for where the link is busy; there will be another."""
        self._count(neighbour, data, overhead=True)
        self._ends[own, neighbour].hellos.put(data)

    def introduce(self, data: bytes) -> None:
        """An introduction, to all that this end is connected with; dropped where the link is busy."""
        self._put(introduction_key(self.run), data)

    def spread(self, roster: bytes) -> None:
        """A roster, to all that this end is connected with; dropped where the link is busy."""
        self._put(roster_key(self.run), roster)

    def _put(self, key: str, data: bytes) -> None:
        import zenoh

        for own, neighbour in self._ends:
            if self.up(own, neighbour):
                self._count(neighbour, data, overhead=True)
        self.session.put(key, data, congestion_control=zenoh.CongestionControl.DROP)

    def visit(self, neighbour: int, data: bytes, roster: bytes = b"") -> None:
        """Introduce this end to a neighbour that has not connected to it, and wait a moment for an answer.

        roster: the one that this end holds; the neighbour may hold an older one, without this agent.
        """
        import zenoh

        endpoint, answered = self._endpoints[neighbour], threading.Event()
        if endpoint in self._dialled:
            return

        def take(sample: Any) -> None:
            self._introduction_arrived(sample)
            answered.set()

        # As a peer: if this were a client, the neighbour would pass introductions on to its own neighbours.
        settings = {**client_settings(endpoint, self._security), "mode": "peer", "listen": {"endpoints": []}}
        with suppress(NetworkError, zenoh.ZError), open_session(settings, "no introduction") as session:
            session.declare_subscriber(introduction_key(self.run), take, allowed_origin=zenoh.Locality.REMOTE)
            if self._roster is not None:
                session.declare_subscriber(
                    roster_key(self.run), self._roster_arrived, allowed_origin=zenoh.Locality.REMOTE
                )
            session.put(introduction_key(self.run), data)
            if roster:
                session.put(roster_key(self.run), roster)
            self._count(neighbour, data + roster, overhead=True)
            answered.wait(VISIT)

    def up(self, own: int, neighbour: int) -> bool:
        """Whether the neighbour listens."""
        return bool(self._ends[own, neighbour].frames.matching_status.matching)

    def wait(self, seconds: float) -> None:
        """Until all neighbours listen (what is sent before is lost), or one error that names those who do not."""
        deadline = time.monotonic() + seconds
        while silent := sorted({neighbour for own, neighbour in self.edges if not self.up(own, neighbour)}):
            if time.monotonic() > deadline:
                names = ", ".join(map(str, silent))
                raise NetworkError(f"agent {names} did not answer within {seconds:g} s: is it running, and reachable?")
            time.sleep(0.01)

    def send_again(self, own: int, neighbour: int, epoch: int, round: int) -> None:
        """A frame of an epoch, to a neighbour that lacks it; nothing, if it was never sent or is not kept any more."""
        frame = self.departures.find(epoch, (own, neighbour), round)
        if frame is not None:
            self.resent += 1
            self._count(neighbour, frame, overhead=True)  # no round's ledger has it a second time
            self._ends[own, neighbour].frames.put(frame)

    def _count(self, neighbour: int, data: bytes, overhead: bool = False) -> None:
        with self._counting:
            self.sent[neighbour] += len(data)
            self.overhead += len(data) if overhead else 0

    # ---- receiving ------------------------------------------------------------------------------------

    def drop(self, reason: str) -> None:
        self.dropped[reason] += 1

    def _arrived(self, sample: Any) -> None:
        try:
            data = bytes(sample.payload)
            _, _, own, neighbour, what = str(sample.key_expr).split("/")
            edge = (int(own), int(neighbour))
        except ValueError:
            self.drop("malformed")
            return
        if edge not in self.edges:
            self.drop("impostor")
        elif what == "frame":
            self._frame_arrived(*edge, data)
        elif what == "hello" and len(data) <= self._longest_hello:
            if self._hello is not None:
                self._hello(*edge, data)
        else:
            self.drop("malformed")

    def _introduction_arrived(self, sample: Any) -> None:
        data = bytes(sample.payload)
        if len(data) > LONGEST_INTRODUCTION:
            self.drop("malformed")
        elif self._introduced is not None:
            self._introduced(data)

    def _roster_arrived(self, sample: Any) -> None:
        data = bytes(sample.payload)
        if len(data) > LONGEST_ROSTER:
            self.drop("malformed")
        elif self._roster is not None:
            self._roster(data)

    def _frame_arrived(self, own: int, neighbour: int, data: bytes) -> None:
        try:
            frame = decode(data)
        except NetworkError:
            self.drop("malformed")
            return
        if frame.run != self.run:
            self.drop("foreign")
        elif self.arrivals.take(Arrived((neighbour, own), frame, len(data))) and self._early is not None:
            self._early(frame.epoch)

    # ---- the session ----------------------------------------------------------------------------------

    def _declare(self, own: int, neighbour: int) -> None:
        """Listen to a neighbour, and make ready to send to it."""
        import zenoh

        prefix = prefix_of(self.run)
        key = f"{prefix}/{neighbour}/{own}"
        subscriber = self.session.declare_subscriber(f"{prefix}/{own}/{neighbour}/*", self._arrived)
        frames = self.session.declare_publisher(
            f"{key}/frame",
            reliability=zenoh.Reliability.RELIABLE,
            congestion_control=zenoh.CongestionControl.BLOCK,
            express=True,
        )
        # A queue of their own: hellos overtake long frames.
        hellos = self.session.declare_publisher(
            f"{key}/hello",
            priority=zenoh.Priority.INTERACTIVE_HIGH,
            congestion_control=zenoh.CongestionControl.DROP,
            express=True,
        )
        changed, listener = self._changed, None
        if changed is not None:
            listener = frames.declare_matching_listener(lambda status: changed(own, neighbour, bool(status.matching)))
        self._ends[own, neighbour] = LinkEnd(listener, subscriber, frames, hellos)

    def renew(self, own: int, neighbour: int) -> None:
        """Declare again that one listens to a neighbour: after a reconnection it may not know."""
        for declared in self._ends[own, neighbour]:
            if declared is not None:
                declared.undeclare()
        self._declare(own, neighbour)

    def close(self) -> None:
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
