"""One agent's place in the fleet, as its working thread sees it: the next view, and the network of a task.

Three parts, told apart by thread. `Presence` is the knowledge: pure rules behind one lock. `Heart` runs beside the work
and feeds it with what neighbours say. `Node` is what the working thread calls: it waits for what the heart changes,
and is interrupted, by a `Cancelled` in the network it uses, when its view is over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from fleetgp.agent.description import Description
from fleetgp.agent.heart import Heart
from fleetgp.agent.logs import Log
from fleetgp.agent.membership import View
from fleetgp.agent.presence import Presence
from fleetgp.agent.threads import Threads
from fleetgp.errors import Cancelled
from fleetgp.network.zenoh.links import Links
from fleetgp.network.zenoh.network import EpochOverError, ZenohNetwork

#: Seconds for which a view must stand still before an agent declares itself ready for it.
SETTLE = 0.15


class StoppedError(Cancelled):
    """The agent was told to stop."""


class Node:
    """Links and membership of one agent.

    links: to its neighbours.  left: whether `close` has ended their session.
    """

    def __init__(self, description: Description, agent: int, log: Log, threads: Threads) -> None:
        self.description, self.agent, self.log = description, agent, log
        incarnation = time.time_ns() // 1_000_000
        self._presence = Presence(description, agent, log, incarnation, time.monotonic())
        self._heart, self._threads = Heart(self._presence), threads
        self._stopping = self.left = False
        self._beating = threads.start("heart", self._heart.run, wake=self._heart.close)
        threads.start("expiries", self._heart.expiries.run, wake=self._heart.expiries.close)

    @property
    def links(self) -> Links:
        return self._heart.links

    # ---- for the working thread -----------------------------------------------------------------------------

    def agree(self) -> View:
        """Wait until all members of a view are ready for it. Those who do not come are left out in time."""
        seen, since = 0, time.monotonic()
        with self._acting() as presence:
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
        with self._acting() as presence:
            self._check_running(view)
            network = ZenohNetwork(
                self.links,
                view.graph,
                [view.members.index(self.agent)],
                members=view.members,
                epoch=view.epoch(task),
                timeout=self.description.timeouts.round,
                heard_waiting=lambda j: presence.heard_waiting(j, time.monotonic()),
            )
            presence.networks.append(network)
        if waking:
            self._heart.wake_others()
        try:
            yield network
        finally:
            with self._acting():
                presence.networks.remove(network)
                network.close()

    def idle(self, view: View, task: int, wanted: Callable[[], bool]) -> None:
        """Wait until there is something to do: of one's own, or because a neighbour has begun the next task."""
        epoch = view.epoch(task)
        with self._acting() as presence:
            while True:
                self._check_running(view)
                if wanted() or presence.neighbours.begun(epoch) or self.links.arrivals.came_early(epoch):
                    return
                self._wait(0.5)

    def well_done(self, view: View) -> None:
        """Some real work was finished: whoever took part in it is not slow."""
        with self._acting() as presence:
            presence.neighbours.well_done(view.members)

    def neighbours_lost(self, view: View, neighbours: Iterable[int], why: str, *, nonsense: bool = False) -> None:
        """A view is over because neighbours missed a deadline, or somebody sent what nobody can work with."""
        with self._acting() as presence:
            presence.neighbours_lost(view, neighbours, why, time.monotonic(), nonsense=nonsense)

    def withdraw(self, withdrawn: bool) -> None:
        """Leave the fleet to the others, for as long as one cannot work; or come back to it."""
        with self._acting() as presence:
            presence.withdraw(withdrawn, time.monotonic())

    def company(self) -> dict[int, tuple[int, bool]]:
        """The other agents that have not withdrawn: the incarnation of each, and whether anybody can work with it."""
        with self._acting() as presence:
            return presence.company()

    # ---- for any thread -------------------------------------------------------------------------------------

    def abandon(self, why: str) -> None:
        """End what is under way; the same members begin anew."""
        with self._acting() as presence:
            presence.abandon(why, time.monotonic())

    def wake(self) -> None:
        """There is something to do."""
        self._heart.wake()

    def stop(self) -> None:
        """Interrupt all work; `agree` and `idle` raise StoppedError from now on."""
        self._stopping = True
        with self._acting() as presence:  # not by the heart, whose failure may be why
            presence.abandon("stopping", time.monotonic())
            presence.changed.notify_all()

    def close(self) -> None:
        """Leave: links that are dead do not keep anybody here. Safe to call twice."""
        self._heart.close()
        self._beating.join(timeout=5.0)
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
        """What neighbours are told of the current estimate, in logarithms; empty if there is none."""
        return self._presence.theta

    @theta.setter
    def theta(self, log_theta: list[float]) -> None:
        self._presence.theta = log_theta

    def neighbours(self) -> dict[str, str]:
        """Every neighbour: "up", or why not."""
        return {self.description.names[j]: neighbour.standing for j, neighbour in self._presence.neighbours.items()}

    def disagreement(self) -> float | None:
        """The largest difference to a neighbour's log theta, as last told."""
        return self._presence.neighbours.disagreement(self.theta)

    # ---- the lock -------------------------------------------------------------------------------------------

    @contextmanager
    def _acting(self) -> Iterator[Presence]:
        """The presence, locked. What is new in it afterwards is told by the heart."""
        with self._presence.changed:
            try:
                yield self._presence
            finally:
                self._tell_news()

    def _wait(self, seconds: float) -> None:
        self._tell_news()
        self._presence.changed.wait(seconds)

    def _tell_news(self) -> None:
        if self._presence.news:
            self._heart.wake()

    def _check_stopping(self) -> None:
        if self._stopping:
            raise StoppedError("the agent stops")

    def _check_running(self, view: View) -> None:
        self._check_stopping()
        if self.view is None or self.view.id != view.id:
            raise EpochOverError("the membership changed")
