"""A worker process: it hosts a group of agents, one task after the other, and reports how far it has come.

`RayNetwork` is its end of the network, where a packet is one call of another group's host. Whatever a host sends can be
sent again by a host that takes its place, the readings of its clock included.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from threadpoolctl import threadpool_limits

from fleetgp.errors import Cancelled, NetworkError
from fleetgp.graph import Topology
from fleetgp.network.base import Clock
from fleetgp.network.grouped import GroupedNetwork
from fleetgp.network.wire import Frame, encode


@dataclass(frozen=True)
class Readings:
    """count: how often a clock was read.  late: the first reading at which the time was up; None for none."""

    count: int = 0
    late: int | None = None

    def joined(self, other: Readings) -> Readings:
        """What two others know of one clock."""
        late = self.late if other.late is None else other.late
        return Readings(max(self.count, other.count), late)


class HostClock(Clock):
    """Wall-clock time, from when the work was first begun anywhere.

    past: what others know of the clock of a lost host, in whose place this one is. They got it with what it sent, and
    have acted on it: what is computed again must come to the same.
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
        super().__init__(topology, hosting, own, timeout)
        self._post = post
        self.clock: HostClock = HostClock()

    def send(self, group: int, frame: Frame) -> None:
        self._post.send(group, encode(frame), self.clock.readings)


#: How many reports a task may make before anybody takes them, and for how many seconds it then waits.
AHEAD, UNHEARD = 200, 3600.0
#: Seconds for which a question about a task that has nothing new to report stays open.
OPEN = 0.5


@dataclass
class Memory:
    """What a host keeps between tasks.

    shared: what all agents hold alike; a host in the place of a lost one gets it from another host. own: the rest.
    """

    shared: dict[Any, Any] = field(default_factory=dict)
    own: dict[Any, Any] = field(default_factory=dict)


#: What hosts do: function(network, memory, report, *arguments). Who follows the task gets the reports in order.
Function = Callable[..., Any]


@dataclass(frozen=True)
class Place:
    """A host's place in a task. hosting: the groups of agents.  number: this host's.  peers: all hosts' handles.

    lives: of each number, how many hosts were lost in its place.
    """

    epoch: int
    topology: Topology
    hosting: Sequence[Sequence[int]]
    number: int
    peers: Sequence[Any]
    timeout: float
    lives: Sequence[int]
    taken: int = 0  # reports of a lost host that were taken: they are not made again


@dataclass(frozen=True)
class Ended:
    """How a task ended at a host: with a result, or with an error."""

    result: Any = None
    error: BaseException | None = None


class Reports:
    """What a task reports, in order, until it is taken."""

    def __init__(self, taken: int) -> None:
        self._taken, self._count = taken, 0
        self._waiting: list[Any] = []
        self._ended: Ended | None = None
        self._over = False
        self._changed = threading.Condition()

    def add(self, item: Any) -> None:
        with self._changed:
            if self._count >= self._taken:
                self._waiting.append(item)
            self._count += 1
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: len(self._waiting) <= AHEAD or self._over, UNHEARD):
                raise NetworkError(f"nobody has asked for {AHEAD} results within {UNHEARD:g} s")

    def end(self, ended: Ended) -> None:
        with self._changed:
            self._ended = ended
            self._changed.notify_all()

    def stop(self) -> None:
        """Wake a task that waits for its reports to be taken: nobody takes the rest."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def after(self, taken: int) -> tuple[list[Any], Ended | None]:
        """The reports beyond the first so many, and how the task ended; waits for a moment if there is neither."""
        with self._changed:
            del self._waiting[: taken - self._taken]
            self._taken = max(taken, self._taken)
            self._changed.notify_all()
            self._changed.wait_for(lambda: bool(self._waiting) or self._ended is not None, OPEN)
            return list(self._waiting), self._ended


@dataclass(frozen=True)
class Current:
    """The task that a host has its place in. shared: what all agents held alike when it began.

    lives: of each number, how many hosts were lost in its place: packets of those are dropped.
    clocks: of each other host, how its clock was read, as far as it has sent that.
    """

    epoch: int
    network: RayNetwork
    post: Post
    reports: Reports
    shared: dict[Any, Any]
    lives: list[int]
    clocks: dict[int, Readings] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Host:
    """The process. Mail, questions, changes and the work itself have a thread each, so that none waits for another."""

    def __init__(self) -> None:
        threadpool_limits(1)  # a worker is one core's
        self._memory = Memory()
        self._current: Current | None = None
        self._name = 0, 0

    @ray.method(concurrency_group="changes")
    def begin(self, place: Place, shared: dict[Any, Any] | None = None) -> None:
        """Take a place in a task. shared: what the other hosts hold already; None if this one holds it too."""
        if shared is not None:
            self._memory.shared = shared
        self._name = place.number, place.lives[place.number]
        post = Post({number: self._sending(peer, place.epoch) for number, peer in enumerate(place.peers)})
        network = RayNetwork(place.topology, place.hosting, place.number, post, place.timeout)
        held = {key: dict(value) for key, value in self._memory.shared.items()}
        self._current = Current(place.epoch, network, post, Reports(place.taken), held, list(place.lives))

    def _at(self, epoch: int) -> Current | None:
        current = self._current
        return current if current is not None and current.epoch == epoch else None

    @ray.method(concurrency_group="work")
    def work(self, epoch: int, began: float, past: Readings, function: Function, *arguments: Any) -> None:
        """The task itself. How it ends is in its reports. began, past: see `HostClock`."""
        current = self._at(epoch)
        if current is None:  # it was ended before its turn came
            return
        current.network.clock.set(began, past)
        try:
            with current.network as network:
                ended = Ended(function(network, self._memory, current.reports.add, *arguments))
        except BaseException as error:
            ended = Ended(error=_portable(error))
        current.reports.end(ended)

    @ray.method(concurrency_group="mail")
    def deliver(self, epoch: int, sender: tuple[int, int], packet: bytes, readings: Readings) -> None:
        """From another host: its number, and how many were lost in its place before."""
        if current := self._at(epoch):
            number, life = sender
            with current.lock:
                if life == current.lives[number]:
                    current.clocks[number] = current.clocks.get(number, Readings()).joined(readings)
                    current.network.mailbox.put(packet)

    @ray.method(concurrency_group="questions")
    def reports(self, epoch: int, taken: int) -> tuple[list[Any], Ended | None]:
        """What the task has reported beyond what was taken; any answer shows that the host lives."""
        if current := self._at(epoch):
            return current.reports.after(taken)
        raise NetworkError(f"expected a question about the task that this worker has, got one about task {epoch}")

    @ray.method(concurrency_group="changes")
    def replace(self, epoch: int, number: int, life: int, peer: Any) -> Readings | None:
        """Another host took the place of one that was lost: it gets the packets of this task from the beginning.

        Return the readings of the lost one's clock; None if the packets were not kept.
        """
        current = self._at(epoch)
        if current is None:
            return None
        with current.lock:
            current.lives[number] = life
            readings = current.clocks.get(number, Readings())
        return readings if current.post.replace(number, self._sending(peer, epoch)) else None

    def _sending(self, peer: Any, epoch: int) -> Send:
        name = self._name
        return lambda packet, readings: peer.deliver.remote(epoch, name, packet, readings)

    @ray.method(concurrency_group="changes")
    def shared(self, epoch: int) -> dict[Any, Any]:
        """What all agents held alike when the task began."""
        current = self._at(epoch)
        return self._memory.shared if current is None else current.shared

    @ray.method(concurrency_group="changes")
    def cancel(self, epoch: int) -> None:
        """End the task at its next verb."""
        if current := self._at(epoch):
            current.network.cancel(Cancelled("the task was ended from outside"))
            current.reports.stop()

    @ray.method(concurrency_group="work")
    def forget(self, key: Any) -> None:
        """What was kept under a name is needed no more."""
        self._memory.shared.pop(key, None)
        self._memory.own.pop(key, None)


def _portable(error: BaseException) -> BaseException:
    """An error that can travel to another process, with its notes."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return NetworkError(f"{type(error).__name__}: {error}")
    return error


#: The actor: one core, a thread for each kind of call.
GROUPS = {"work": 1, "mail": 1, "questions": 1, "changes": 1}


def started() -> Any:
    """A new host; its handle. Where there is no room for it yet, it waits for some."""
    return ray.remote(num_cpus=1, max_restarts=0, concurrency_groups=GROUPS)(Host).remote()
