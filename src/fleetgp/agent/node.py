"""One agent's place in the fleet, as its working thread sees it: the next view, and the network of a task."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from fleetgp.agent.description import Description
from fleetgp.agent.logs import Log
from fleetgp.agent.membership import Hello, Introduction, View, longest
from fleetgp.agent.presence import HEARTBEAT, Presence
from fleetgp.agent.threads import Action, Inbox, Threads
from fleetgp.errors import Cancelled, NetworkError
from fleetgp.network.zenoh.links import Links
from fleetgp.network.zenoh.network import EpochOverError, ZenohNetwork
from fleetgp.network.zenoh.session import Expiries, Security

#: Seconds for which news are gathered before they are sent: many changes at once make one message.
GATHER = 0.03
#: Hellos of one neighbour, and events of one link, that may wait; the rest is refused.
HELLOS, EVENTS = 16, 8
#: Introductions that may wait, of all senders together: they are not bound to one.
INTRODUCTIONS = 4
#: Seconds between two messages with the roster.
OFFER = 1.0
#: Seconds between two introductions of an agent that misses a neighbour: at first, and at most.
INTRODUCE, RARELY = 2.0, 60.0


T = TypeVar("T", Hello, Introduction)


class PeerMonitor:
    """Links to the neighbours, and the loop beside the work: it serves links and hellos, however long the work takes.

    Neighbours that get no hellos would count this agent as lost. Public methods may be called from any thread and do
    not wait; all others run in the thread that calls `run`, and hold the presence's lock.
    """

    def __init__(self, presence: Presence, rosters: Callable[[bytes], None]) -> None:
        self._presence, self._agent, self._rosters = presence, presence.agent, rosters
        self._inbox = Inbox()
        self._closed, self._visiting = False, threading.Thread()
        self._silence = max(2.0 * HEARTBEAT, presence.description.timeouts.lease)
        self._introduce_at, self._pause = time.monotonic() + INTRODUCE, INTRODUCE
        signed, self._offered_at = presence.description.signed, -OFFER
        self._roster = b"" if signed is None else signed.encode()
        self.links = self._open_links(presence.description)

    def _open_links(self, description: Description) -> Links:
        agent, neighbours = self._agent, self._presence.membership.neighbours
        own = description.credentials(description.names[agent])
        security = None if own is None else Security(own.authority, own.certificate, own.key, description.names)
        endpoints = {j: description.agents[j].endpoint for j in neighbours}
        self.expiries = Expiries(endpoints, security)
        return Links(
            [(agent, j) for j in neighbours],
            hosted=[agent],
            listen=description.agents[agent].endpoint,
            endpoints=endpoints,
            run=description.run,
            lease=description.timeouts.lease,
            security=security,
            longest_hello=longest(description.graph.agents, len(description.graph.edges), len(description.parameters)),
            changed=lambda _, j, up: self.link_changed(j, up),
            hello=lambda _, j, data: self.hello_arrived(j, data),
            early=lambda _: self.wake(),
            introduced=self.introduction_arrived,
            roster=self._rosters,
        )

    def wake(self) -> None:
        """Something may have changed: threads that wait look again, and news are sent."""
        self._inbox.put(self._presence.changed.notify_all, source="wake", most=1)

    def wake_others(self) -> None:
        """Tell neighbours that have not begun it what this agent works on."""
        self._inbox.put(self._greet_idle, source="greet", most=1)

    def close(self) -> None:
        self._closed = True
        self.wake()

    def link_changed(self, j: int, up: bool) -> None:
        self._inbox.put(lambda: self._note_link(j, up), source=("link", j), most=EVENTS)

    def hello_arrived(self, j: int, data: bytes) -> None:
        self._arrived(Hello, data, lambda hello: self._take_hello(j, hello), ("hello", j), HELLOS)

    def introduction_arrived(self, data: bytes) -> None:
        self._arrived(Introduction, data, self._take_introduction, "introduction", INTRODUCTIONS)

    def _arrived(self, kind: type[T], data: bytes, take: Callable[[T], None], source: object, most: int) -> None:
        """Have a message decoded and taken in, unless it is none, or its source has too many of them waiting."""
        try:
            message = kind.decode(data)
        except NetworkError:
            self.links.drop("malformed")
            return
        if not self._inbox.put(lambda: take(message), source=source, most=most):
            self.links.drop("flooded")

    def run(self) -> None:
        beat = spread = time.monotonic()
        while not self._closed:
            due = min(beat, spread) if self._presence.news else beat
            action = self._inbox.get(due - time.monotonic())
            while action is not None:
                self._do(action)
                action = self._inbox.get(0.0) if time.monotonic() < beat else None
            self._do(self._settle)
            if time.monotonic() >= beat:
                self._do(self._beat)
                beat = time.monotonic() + HEARTBEAT
            if self._presence.news and time.monotonic() >= spread:
                self._do(self._send_news)
                spread = time.monotonic() + GATHER

    def _do(self, action: Action) -> None:
        try:
            with self._presence.changed:
                action()
        except Exception as error:  # whatever a neighbour sends, the agent continues
            self._presence.log.error("control", error=f"{type(error).__name__}: {error}")

    def _settle(self) -> None:
        self._presence.settle(time.monotonic())

    def _beat(self) -> None:
        for j, neighbour in self._presence.neighbours.items():
            self._presence.note_expired(j, self.expiries.expired(j))
            up, now = self.links.up(self._agent, j), time.monotonic()
            known = neighbour.greeted or neighbour.refused or neighbour.expired
            silent = not known and now - neighbour.since > self._silence
            if up != neighbour.linked:
                self._note_link(j, up)
            elif up and silent:
                # It listens, but sends nothing: after a reconnection Zenoh may leave one end without the other's word.
                self._presence.log.warn("link renewed", neighbour=self._presence.description.names[j])
                neighbour.since = now
                self.links.renew(self._agent, j)
        self._settle()
        for j in self._presence.neighbours.linked:
            self._greet(j)
        self._introduce_if_alone()

    def _introduce_if_alone(self) -> None:
        """A neighbour that does not listen may be gone, or have a description without this agent: introduce it then."""
        missing = [j for j, neighbour in self._presence.neighbours.items() if not neighbour.linked]
        now = time.monotonic()
        if not missing:
            self._introduce_at, self._pause = now + INTRODUCE, INTRODUCE
        elif now >= self._introduce_at:
            self._pause = min(2.0 * self._pause, RARELY)
            self._introduce_at = now + self._pause
            data = self._presence.introduction().encode()
            self.links.introduce(data)
            if not self._visiting.is_alive():
                self._visiting = threading.Thread(target=self._visit, args=(missing, data), name="visits", daemon=True)
                self._visiting.start()

    def _visit(self, missing: list[int], data: bytes) -> None:
        """One neighbour after the other: a fleet may have a thousand."""
        for j in missing:
            if not self._closed:
                self.links.visit(j, data, self._roster)

    def _take_introduction(self, stranger: Introduction) -> None:
        """Answer it, once: the other end has to log it too, and cannot know who listens here."""
        if self._presence.introduced(stranger, time.monotonic()):
            self.links.introduce(self._presence.introduction().encode())
        self._offer(stranger.digest)

    def _offer(self, digest: str) -> None:
        """Send the roster to an agent that holds an older one, and to all others that are connected; not too often."""
        if self._presence.compare(digest) < 0 and time.monotonic() - self._offered_at >= OFFER:
            self._offered_at = time.monotonic()
            self.links.spread(self._roster)

    def _note_link(self, j: int, up: bool) -> None:
        if up == self._presence.neighbours[j].linked:
            return
        if up:
            self.expiries.look(j)
            self._presence.note_expired(j, self.expiries.expired(j))
            self._presence.link_up(j, time.monotonic())
            self._greet(j)
        else:
            self._presence.link_down(j, time.monotonic())

    def _take_hello(self, j: int, hello: Hello) -> None:
        self._presence.note_expired(j, self.expiries.expired(j))
        if self._presence.neighbours[j].expired:
            self.links.drop("expired")
        elif self._presence.refuses(j, hello):
            self._offer(hello.digest)
        elif self.links.up(self._agent, j):  # else a last word of a dead link
            self._note_link(j, True)
            reason = self._presence.take_hello(j, hello, time.monotonic())
            if reason:
                self.links.drop(reason)
            elif self._agent in hello.waiting:
                self._send_again(j, hello)

    def _send_again(self, j: int, hello: Hello) -> None:
        """To a neighbour that waits for us in a task that is over here, or interrupted: what we sent did not arrive."""
        network = self._presence.network
        if network is None or hello.epoch != network.epoch:  # else the task under way looks after that itself
            self.links.send_again(self._agent, j, hello.epoch, hello.round)

    def _send_news(self) -> None:
        self._presence.news = False
        for j in self._presence.neighbours.linked:
            if self._presence.gossip.news(j):
                self._greet(j)

    def _greet_idle(self) -> None:
        network, neighbours = self._presence.network, self._presence.neighbours
        for j in neighbours.linked:
            if network is not None and neighbours[j].hello.epoch != network.epoch:
                self._greet(j)

    def _greet(self, j: int) -> None:
        if self._presence.neighbours[j].expired:
            return
        hello = self._presence.hello_to(j)
        self.links.greet(self._agent, j, hello.encode())
        self._presence.gossip.note_known(j, hello.records)


#: Seconds for which a view must stand still before an agent declares itself ready for it.
SETTLE = 0.15


class StoppedError(Cancelled):
    """The agent stops."""


class Node:
    """Links and membership of one agent, as its working thread sees them.

    `Presence` is the knowledge: pure rules behind one lock. `PeerMonitor` runs beside the work and feeds it with what
    neighbours send. The working thread waits here for what changes, and is interrupted, by a `Cancelled` in the network
    that it uses, when its view is over.

    rosters: gets the rosters that other agents send, in a thread of the links; must be short.
    awaited: the agents to wait for at the start; None: all members.
    left: whether `close` has ended the links' session.
    """

    def __init__(
        self,
        description: Description,
        agent: int,
        log: Log,
        threads: Threads,
        *,
        rosters: Callable[[bytes], None] = lambda _: None,
        awaited: Iterable[int] | None = None,
    ) -> None:
        self.description, self.agent, self.log = description, agent, log
        incarnation = time.time_ns() // 1_000_000
        self._presence = Presence(description, agent, log, incarnation, time.monotonic(), awaited)
        self.monitor, self._threads = PeerMonitor(self._presence, rosters), threads
        self._stopping = self.left = False
        self._monitoring = threads.start("peer monitor", self.monitor.run, wake=self.monitor.close)
        expiries = self.monitor.expiries
        threads.start("expiries", expiries.run, wake=expiries.close)

    @property
    def links(self) -> Links:
        return self.monitor.links

    # ---- for the working thread -----------------------------------------------------------------------------

    def agree(self) -> View:
        """Wait until all members of a view are ready for it. Those who do not come are left out in time."""
        seen, since = 0, time.monotonic()
        with self._locked() as presence:
            while True:
                self._check_stopping()
                view, now = presence.membership.view.id, time.monotonic()
                if view != seen:
                    seen, since = view, now
                if now - since >= SETTLE and not presence.holding(now):
                    presence.declare()
                begun = presence.begin()
                if begun is not None:
                    return begun
                if now - since >= self.description.timeouts.round + SETTLE and not presence.holding(now):
                    presence.leave_out_unready(now)
                    since = now
                self._wait(0.05)

    @contextmanager
    def epoch(self, view: View, task: int, *, waking: bool = False) -> Iterator[ZenohNetwork]:
        """The network for one task of a view, among its members only. Tasks may be nested.

        waking: neighbours that idle hear of it at once, and need not wait for the next hello.
        """
        with self._locked() as presence:
            self._check_running(view)
            network = ZenohNetwork(
                self.links,
                view.graph,
                [view.members.index(self.agent)],
                members=view.members,
                epoch=view.epoch(task),
                timeout=self.description.timeouts.round,
                waiting_of=lambda j: presence.neighbours.waiting_of(j, time.monotonic()),
            )
            presence.networks.append(network)
        if waking:
            self.monitor.wake_others()
        try:
            yield network
        finally:
            with self._locked():
                presence.networks.remove(network)
                network.close()

    def idle(self, view: View, task: int, wanted: Callable[[], bool]) -> bool:
        """Wait until there is something to do: because a neighbour has begun the next task (true), or of one's own."""
        epoch = view.epoch(task)
        with self._locked() as presence:
            while True:
                self._check_running(view)
                if presence.neighbours.begun(epoch) or self.links.arrivals.came_early(epoch):
                    return True
                if wanted():
                    return False
                self._wait(0.5)

    def well_done(self, view: View) -> None:
        with self._locked() as presence:
            presence.neighbours.well_done(view.members)

    def neighbours_lost(self, view: View, neighbours: Iterable[int], why: str, *, nonsense: bool = False) -> None:
        with self._locked() as presence:
            presence.neighbours_lost(view, neighbours, why, time.monotonic(), nonsense=nonsense)

    def withdraw(self, withdrawn: bool) -> None:
        with self._locked() as presence:
            presence.withdraw(withdrawn, time.monotonic())

    def company(self) -> dict[int, tuple[int, bool]]:
        with self._locked() as presence:
            return presence.company()

    # ---- for any thread -------------------------------------------------------------------------------------

    def abandon(self, why: str) -> None:
        with self._locked() as presence:
            presence.abandon(why, time.monotonic())

    def wake(self) -> None:
        self.monitor.wake()

    def stop(self) -> None:
        """Interrupt all work; `agree` and `idle` raise StoppedError from now on."""
        self._stopping = True
        with self._locked() as presence:  # not by the monitor, whose failure may be why
            presence.abandon("stopping", time.monotonic())
            presence.changed.notify_all()

    def close(self) -> None:
        """Leave: links that are dead do not keep anybody here. Safe to call twice."""
        self.monitor.close()
        self._monitoring.join(timeout=5.0)
        self._threads.start("leaving", self.links.close).join(timeout=2.0)
        self.left = self.links.session.is_closed()

    @property
    def view(self) -> View | None:
        """The view the agent works in, or None while it looks for one."""
        return self._presence.running

    @property
    def round(self) -> int:
        network = self._presence.network
        return 0 if network is None else network.round

    @property
    def theta(self) -> list[float]:
        """The current estimate that neighbours get, in logarithms; empty if there is none."""
        return self._presence.theta

    @theta.setter
    def theta(self, log_theta: list[float]) -> None:
        self._presence.theta = log_theta

    def neighbours(self) -> dict[str, str]:
        """Every neighbour: "up", or why not."""
        return {self.description.names[j]: neighbour.standing for j, neighbour in self._presence.neighbours.items()}

    def disagreement(self) -> float | None:
        """The largest difference to a neighbour's last log theta."""
        return self._presence.neighbours.disagreement(self.theta)

    # ---- the lock -------------------------------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Iterator[Presence]:
        """The presence, locked. The monitor sends what is new in it afterwards."""
        with self._presence.changed:
            try:
                yield self._presence
            finally:
                self._announce()

    def _wait(self, seconds: float) -> None:
        self._announce()
        self._presence.changed.wait(seconds)

    def _announce(self) -> None:
        if self._presence.news:
            self.monitor.wake()

    def _check_stopping(self) -> None:
        if self._stopping:
            raise StoppedError("the agent stops")

    def _check_running(self, view: View) -> None:
        self._check_stopping()
        if self.view is None or self.view.id != view.id:
            raise EpochOverError("the membership changed")
