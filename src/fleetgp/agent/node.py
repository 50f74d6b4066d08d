"""One agent's place in the fleet: its links, what neighbours tell each other, and the views it works in.

A control thread owns membership: it hears of links and hellos, tells neighbours what is new, and interrupts the work of
a view that is over. The working thread asks it for the next view (`agree`) and for the network of a task (`epoch`).
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from fleetgp.agent.description import Description
from fleetgp.agent.hello import Hello
from fleetgp.agent.logs import Log
from fleetgp.agent.membership import Membership, Record, View
from fleetgp.errors import NetworkError
from fleetgp.network.links import EpochOverError, Links
from fleetgp.network.session import Security
from fleetgp.network.zenoh import ZenohNetwork

#: Seconds between two hellos to a neighbour.
HEARTBEAT = 0.5
#: Seconds for which a view must stand still before an agent declares itself ready for it.
SETTLE = 0.15
#: A neighbour that missed n deadlines in a row is let in again after at most this many deadlines.
LONGEST_PENALTY = 16


class StoppedError(EpochOverError):
    """The agent was told to stop."""


@dataclass
class _Neighbour:
    """What is known of a neighbour besides its record."""

    linked: bool = False
    greeted: bool = False
    refused: str = ""
    heard: float = 0.0
    since: float = 0.0
    hello: Hello = field(default_factory=Hello)
    misses: int = 0
    suspended: Record | None = None
    until: float = 0.0


class Node:
    """Links and membership of one agent. theta: what to tell neighbours of the current estimate, in logarithms.

    beat: called by the control thread twice a second.
    """

    def __init__(self, description: Description, agent: int, log: Log, beat: Callable[[], None]) -> None:
        self.description, self.agent, self.log = description, agent, log
        self._on_beat = beat
        self._withdrawn = False
        self.theta: list[float] = []
        self.incarnation = time.time_ns() // 1_000_000
        self._membership = Membership(agent, description.graph, self.incarnation)
        self._neighbours = {j: _Neighbour() for j in self._membership.neighbours}
        self._changed = threading.Condition()
        self._events: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._running: View | None = None
        self._network: ZenohNetwork | None = None
        self._began = time.monotonic()
        self._stopping = self._worked = False
        self._silence = max(2.0 * HEARTBEAT, description.timeouts.lease)
        own = description.credentials(description.names[agent])
        security = None
        if own is not None:
            security = Security(own.authority, own.certificate, own.key, description.names)
        self.links = Links(
            [(agent, j) for j in self._neighbours],
            hosted=[agent],
            listen=description.agents[agent].endpoint,
            endpoints={j: description.agents[j].endpoint for j in self._neighbours},
            run=description.run,
            lease=description.timeouts.lease,
            security=security,
            changed=lambda _, j, up: self._events.put(lambda: self._link(j, up)),
            hello=lambda _, j, data: self._events.put(lambda: self._heard(j, data)),
            early=lambda _: self._events.put(self._wake),
        )
        self._thread = threading.Thread(target=self._control, name="control", daemon=True)
        self._thread.start()

    # ---- for the working thread ---------------------------------------------------------------------------

    def agree(self) -> View:
        """Wait until all members of a view are ready for it. Those who do not come are left out in time."""
        seen, since = 0, time.monotonic()
        with self._changed:
            while True:
                self._check_stopping()
                view, now = self._membership.view, time.monotonic()
                if view.id != seen:
                    seen, since = view.id, now
                if now - since >= SETTLE and not self._holding(view, now) and self._membership.declare(view.id):
                    self._tell()
                if self._membership.own.view == view.id and self._membership.agreed:
                    self._running, self._worked = view, True
                    return view
                if now - since >= self.description.timeouts.round + SETTLE and not self._holding(view, now):
                    self._suspend(set(self._membership.unready) & set(self._neighbours), "not ready in time")
                    since = now
                self._changed.wait(0.05)

    @contextmanager
    def epoch(self, view: View, task: int) -> Iterator[ZenohNetwork]:
        """The network for one task of a view, among its members only."""
        with self._changed:
            self._check_running(view)
            network = ZenohNetwork(
                self.links,
                view.graph,
                [view.members.index(self.agent)],
                members=view.members,
                epoch=view.epoch(task),
                timeout=self.description.timeouts.round,
                word=self._word,
            )
            self._network = network
        try:
            yield network
        finally:
            with self._changed:
                self._network = None
                network.close()

    def well_done(self, view: View) -> None:
        """Some real work was finished: whoever took part in it is not slow."""
        with self._changed:
            for j in set(view.members) & set(self._neighbours):
                self._neighbours[j].misses = 0

    def idle(self, view: View, task: int, wanted: Callable[[], bool]) -> None:
        """Wait until there is something to do: of one's own, or because a neighbour has begun the next task."""
        epoch = view.epoch(task)
        with self._changed:
            while True:
                self._check_running(view)
                begun = any(n.hello.epoch == epoch for n in self._neighbours.values())
                if wanted() or begun or self.links.came_early(epoch):
                    return
                self._changed.wait(0.5)

    def lost(self, view: View, neighbours: tuple[int, ...], why: str) -> None:
        """A view is over because neighbours missed a deadline, or sent what nobody can work with."""
        with self._changed:
            if self._running is not None and self._running.id == view.id:  # else it was over before: nobody is to blame
                self._suspend(set(neighbours), why)
                self._give_up(why)
                self._settle()

    def abandon(self, why: str) -> None:
        """End what is under way; the same members begin anew."""
        with self._changed:
            self._give_up(why)
            self._settle()

    def withdraw(self, withdrawn: bool) -> None:
        """Leave the fleet to the others, for as long as one cannot work; or come back to it."""
        with self._changed:
            self._withdrawn = withdrawn
            self._give_up("withdrawn")
            self._settle()

    # ---- for anybody ----------------------------------------------------------------------------------------

    def call(self, action: Callable[[], None]) -> None:
        """Have the control thread do something short."""
        self._events.put(action)

    def wake(self) -> None:
        """There is something to do."""
        self._events.put(self._wake)

    def stop(self) -> None:
        """Interrupt all work; `agree` and `idle` raise StoppedError from now on."""
        self._stopping = True
        self._events.put(lambda: self._give_up("stopping"))
        self._events.put(self._wake)

    def close(self) -> None:
        """Leave: links that are dead do not keep anybody here."""
        self._events.put(None)
        self._thread.join(timeout=5.0)
        closing = threading.Thread(target=self.links.close, daemon=True)
        closing.start()
        closing.join(timeout=2.0)

    @property
    def view(self) -> View | None:
        """The view the agent works in, or None while it looks for one."""
        return self._running

    @property
    def round(self) -> int:
        network = self._network
        return 0 if network is None else network.round

    def neighbours(self) -> dict[str, str]:
        """Every neighbour: "up", or why not."""
        return {self.description.names[j]: self._standing(n) for j, n in self._neighbours.items()}

    def disagreement(self) -> float | None:
        """The largest difference to a neighbour's log theta, as last told."""
        others = [n.hello.theta for n in self._neighbours.values() if n.linked]
        told = [theta for theta in others if theta and len(theta) == len(self.theta)]
        if not self.theta or not told:
            return None
        return float(max(abs(a - b) for theta in told for a, b in zip(self.theta, theta, strict=True)))

    # ---- the control thread -----------------------------------------------------------------------------

    def _control(self) -> None:
        beat = time.monotonic()
        while True:
            try:
                action = self._events.get(timeout=max(0.0, beat - time.monotonic()))
            except queue.Empty:
                action = self._wake
            if action is None:
                return
            self._do(action)
            if time.monotonic() >= beat:
                self._do(self._beat)
                beat = time.monotonic() + HEARTBEAT

    def _do(self, action: Callable[[], None]) -> None:
        try:
            with self._changed:
                action()
        except Exception as error:  # whatever a neighbour sends, the agent goes on
            self.log.error("control", error=f"{type(error).__name__}: {error}")

    def _beat(self) -> None:
        now = time.monotonic()
        for j, neighbour in self._neighbours.items():
            up = self.links.up(self.agent, j)
            if up != neighbour.linked:
                self._link(j, up)
            elif up and not neighbour.greeted and not neighbour.refused and now - neighbour.since > self._silence:
                # It listens, but is not heard: after a reconnection Zenoh may leave one end without the other's word.
                self.log.warn("link renewed", neighbour=self.description.names[j])
                neighbour.since = now
                self.links.renew(self.agent, j)
        self._readmit()
        self._settle()
        for j, neighbour in self._neighbours.items():
            if neighbour.linked:
                self._greet(j, everything=False)
        self._on_beat()

    def _wake(self) -> None:
        self._changed.notify_all()

    def _link(self, j: int, up: bool) -> None:
        neighbour = self._neighbours[j]
        if up == neighbour.linked:
            return
        neighbour.linked, neighbour.greeted, neighbour.refused = up, False, ""
        neighbour.since = time.monotonic()
        if up:
            self._greet(j, everything=True)
        else:
            self.log("link down", neighbour=self.description.names[j])
        self._settle()

    def _heard(self, j: int, data: bytes) -> None:
        neighbour = self._neighbours[j]
        try:
            hello = Hello.decode(data)
        except NetworkError:
            self.links.drop("malformed")
            return
        if hello.digest != self.description.digest:
            if neighbour.refused != hello.digest:
                neighbour.refused, neighbour.greeted = hello.digest, False
                self.log.error(
                    "refused",
                    neighbour=self.description.names[j],
                    why="it holds another fleet description",
                    its_digest=hello.digest[:16],
                    own_digest=self.description.digest[:16],
                )
                self._settle()
            return
        if not self.links.up(self.agent, j):
            return  # a last word of a link that is down
        if not neighbour.linked:
            self._link(j, True)
        neighbour.refused, neighbour.heard, neighbour.hello = "", time.monotonic(), hello
        if self.agent in hello.waiting and (self._network is None or hello.epoch != self._network.epoch):
            self.links.send_again(self.agent, j, hello.epoch, hello.round)
        self._changed.notify_all()
        if not neighbour.greeted:
            neighbour.greeted = True
            self.log("neighbour up", neighbour=self.description.names[j])
        news = self._membership.merge(hello.records)
        self._readmit()
        self._settle(news)
        if hello.summary != self._membership.summary:
            self._greet(j, everything=True)

    def _settle(self, news: bool = False) -> None:
        """What follows from a change: tell it, and end the work of a view that is over."""
        up = [j for j, n in self._neighbours.items() if self._standing(n) == "up" and not self._withdrawn]
        news |= self._membership.call_up(up)
        if self._running is not None and self._membership.view.id != self._running.id:
            self._give_up("the membership changes")
            news = True
        if news:
            self._tell()
            self._changed.notify_all()

    def _give_up(self, why: str) -> None:
        if self._running is None:
            return
        self._running = None
        self._membership.give_up()
        if self._network is not None:
            names = [self.description.names[j] for j in self._network.waiting_for]
            self.log("interrupted", why=why, round=self._network.round, waiting_for=names)
            self._network.interrupt(why)
        self._tell()
        self._changed.notify_all()

    def _tell(self) -> None:
        for j, neighbour in self._neighbours.items():
            if neighbour.linked:
                self._greet(j, everything=True)

    def _greet(self, j: int, *, everything: bool) -> None:
        network = self._network
        hello = Hello(
            self.description.digest,
            self._membership.summary,
            self._membership.records if everything else (self._membership.own,),
            0 if network is None else network.epoch,
            0 if network is None else network.exchanging,
            frozenset() if network is None else network.waiting_for,
            tuple(self.theta),
        )
        self.links.greet(self.agent, j, hello.encode())

    # ---- who is believed to be there -------------------------------------------------------------------

    def _standing(self, neighbour: _Neighbour) -> str:
        if neighbour.refused:
            return "refused: it holds another fleet description"
        if not neighbour.linked:
            return "down"
        if not neighbour.greeted:
            return "silent"
        return "up" if neighbour.suspended is None else "suspended: it missed a deadline"

    def _suspend(self, neighbours: set[int], why: str) -> None:
        """Do without neighbours until they say that they are ready for work."""
        for j in sorted(neighbours):
            neighbour = self._neighbours[j]
            penalty = min(2**neighbour.misses - 1, LONGEST_PENALTY) * self.description.timeouts.round
            neighbour.misses += 1
            neighbour.until = time.monotonic() + penalty
            neighbour.suspended = self._membership.of(j) or Record(j, 0)
            self.log.warn("suspended", neighbour=self.description.names[j], why=why, penalty=penalty)
        if neighbours:
            self._settle()

    def _readmit(self) -> None:
        for j, neighbour in self._neighbours.items():
            record, before = self._membership.of(j), neighbour.suspended
            if before is None or record is None or time.monotonic() < neighbour.until:
                continue
            if record.age > before.age and record.view:
                neighbour.suspended = None
                self.log("readmitted", neighbour=self.description.names[j])

    def _word(self, j: int) -> tuple[int, frozenset[int]] | None:
        """In which round a neighbour waits, and for whom, if it has just said so and works in the same epoch."""
        neighbour, network = self._neighbours[j], self._network
        hello = neighbour.hello
        recent = time.monotonic() - neighbour.heard < 4 * HEARTBEAT
        if not recent or network is None or hello.epoch != network.epoch or not hello.waiting:
            return None
        return hello.round, hello.waiting

    def _holding(self, view: View, now: float) -> bool:
        """At the start: whether to wait for those who have not come yet, since nobody has begun."""
        if self._worked or len(view.members) == self.description.graph.agents:
            return False
        if now - self._began >= self.description.timeouts.connect:
            return False
        records = (self._membership.of(member) for member in view.members)
        return not any(record is not None and record.view for record in records)

    def _check_stopping(self) -> None:
        if self._stopping:
            raise StoppedError("the agent stops")

    def _check_running(self, view: View) -> None:
        self._check_stopping()
        if self._running is None or self._running.id != view.id:
            raise EpochOverError("the membership changed")
