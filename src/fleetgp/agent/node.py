"""One agent's place in the fleet: its links, what neighbours tell each other, and the views it works in.

A control thread owns membership: it hears of links and hellos, tells neighbours what is new, and interrupts the work of
a view that is over. The working thread asks it for the next view (`agree`) and for the network of a task (`epoch`).
What is decided is decided by pure parts: `Membership` (who takes part), `Neighbourhood` (who is fit for work) and
`Gossip` (who is told what).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from fleetgp.agent.description import Description
from fleetgp.agent.inbox import Action, Inbox
from fleetgp.agent.logs import Log
from fleetgp.agent.membership.gossip import Gossip
from fleetgp.agent.membership.hello import Hello, longest
from fleetgp.agent.membership.membership import Membership, View
from fleetgp.agent.membership.neighbourhood import HEARTBEAT, Neighbourhood
from fleetgp.errors import NetworkError
from fleetgp.gp.hyperparameters import sound_log_theta
from fleetgp.network.zenoh.epoch import ZenohNetwork
from fleetgp.network.zenoh.links import EpochOverError, Links
from fleetgp.network.zenoh.session import Security

#: Seconds for which a view must stand still before an agent declares itself ready for it.
SETTLE = 0.15
#: Seconds for which news are gathered before they are told: many changes at once make one message.
GATHER = 0.03
#: Hellos of one neighbour, and events of one link, that may wait; the rest is refused.
HELLOS, EVENTS = 16, 8


class StoppedError(EpochOverError):
    """The agent was told to stop."""


class Node:
    """Links and membership of one agent. theta: what to tell neighbours of the current estimate, in logarithms.

    left: whether `close` has ended the session.  beat: called by the control thread twice a second.
    """

    def __init__(self, description: Description, agent: int, log: Log, beat: Callable[[], None]) -> None:
        self.description, self.agent, self.log = description, agent, log
        self._on_beat = beat
        self.theta: list[float] = []
        self._started = time.time_ns() // 1_000_000
        self._number = 0
        self._membership = Membership(agent, description.graph, self._started)
        self._gossip = Gossip(self._membership)
        self._neighbours = Neighbourhood(self._membership.neighbours, description.timeouts.round)
        self._changed = threading.Condition()
        self._inbox = Inbox()
        self._running: View | None = None
        self._networks: list[ZenohNetwork] = []  # of the task under way, and of those that it interrupts
        self._began = time.monotonic()
        self._stopping = self._worked = self._withdrawn = self._closed = self._news = False
        self._silence = max(2.0 * HEARTBEAT, description.timeouts.lease)
        self.links, self.left = self._linked(), False
        self._thread = threading.Thread(target=self._control, name="control", daemon=True)
        self._thread.start()

    def _linked(self) -> Links:
        description, agent, neighbours = self.description, self.agent, self._membership.neighbours
        own = description.credentials(description.names[agent])
        security = None
        if own is not None:
            security = Security(own.authority, own.certificate, own.key, description.names)
        return Links(
            [(agent, j) for j in neighbours],
            hosted=[agent],
            listen=description.agents[agent].endpoint,
            endpoints={j: description.agents[j].endpoint for j in neighbours},
            run=description.run,
            lease=description.timeouts.lease,
            security=security,
            longest_hello=longest(description.graph.agents, len(description.graph.edges), description.dimension),
            changed=lambda _, j, up: self._link_changed(j, up),
            hello=lambda _, j, data: self._hello_came(j, data),
            early=lambda _: self.wake(),
        )

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
                    self._spread()
                if self._membership.own.view == view.id and self._membership.agreed:
                    self._running, self._worked = view, True
                    return view
                if now - since >= self.description.timeouts.round + SETTLE and not self._holding(view, now):
                    late = [j for j in self._membership.unready if j in self._neighbours]
                    self._suspend(late, "not ready in time")
                    since = now
                self._changed.wait(0.05)

    @contextmanager
    def epoch(self, view: View, task: int) -> Iterator[ZenohNetwork]:
        """The network for one task of a view, among its members only. Tasks may be nested."""
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
            self._networks.append(network)
        try:
            yield network
        finally:
            with self._changed:
                self._networks.remove(network)
                network.close()

    def well_done(self, view: View) -> None:
        """Some real work was finished: whoever took part in it is not slow."""
        with self._changed:
            self._neighbours.well_done(view.members)

    def idle(self, view: View, task: int, wanted: Callable[[], bool]) -> None:
        """Wait until there is something to do: of one's own, or because a neighbour has begun the next task."""
        epoch = view.epoch(task)
        with self._changed:
            while True:
                self._check_running(view)
                if wanted() or self._neighbours.begun(epoch) or self.links.came_early(epoch):
                    return
                self._changed.wait(0.5)

    def lost(self, view: View, neighbours: Iterable[int], why: str, *, nonsense: bool = False) -> None:
        """A view is over because neighbours missed a deadline, or somebody sent what nobody can work with.

        nonsense: those who are no neighbours of this agent are left out by those who are.
        """
        with self._changed:
            if self._running is not None and self._running.id == view.id:  # else it was over before: nobody is to blame
                self._suspend([j for j in neighbours if j in self._neighbours], why, nonsense=nonsense)
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

    def wake(self) -> None:
        """There is something to do."""
        self._inbox.put(self._wake, source="wake", most=1)

    def stop(self) -> None:
        """Interrupt all work; `agree` and `idle` raise StoppedError from now on."""
        self._stopping = True
        self._inbox.put(lambda: self._give_up("stopping"))
        self._inbox.put(self._wake)

    def close(self) -> None:
        """Leave: links that are dead do not keep anybody here."""
        self._closed = True
        self._inbox.put(self._wake)
        self._thread.join(timeout=5.0)
        closing = threading.Thread(target=self.links.close, daemon=True)
        closing.start()
        closing.join(timeout=2.0)
        self.left = self.links.session.is_closed()

    @property
    def view(self) -> View | None:
        """The view the agent works in, or None while it looks for one."""
        return self._running

    @property
    def _network(self) -> ZenohNetwork | None:
        """Of the task under way; the innermost, if one interrupts another."""
        return self._networks[-1] if self._networks else None

    @property
    def round(self) -> int:
        network = self._network
        return 0 if network is None else network.round

    def neighbours(self) -> dict[str, str]:
        """Every neighbour: "up", or why not."""
        return {self.description.names[j]: neighbour.standing for j, neighbour in self._neighbours.items()}

    def disagreement(self) -> float | None:
        """The largest difference to a neighbour's log theta, as last told."""
        return self._neighbours.disagreement(self.theta)

    # ---- in Zenoh's threads ---------------------------------------------------------------------------------

    def _link_changed(self, j: int, up: bool) -> None:
        self._inbox.put(lambda: self._link(j, up), source=("link", j), most=EVENTS)

    def _hello_came(self, j: int, data: bytes) -> None:
        try:
            hello = Hello.decode(data)
        except NetworkError:
            self.links.drop("malformed")
            return
        if not self._inbox.put(lambda: self._heard(j, hello), source=("hello", j), most=HELLOS):
            self.links.drop("flooded")

    # ---- the control thread -----------------------------------------------------------------------------

    def _control(self) -> None:
        beat = spread = time.monotonic()
        while not self._closed:
            due = min(beat, spread) if self._news else beat
            action = self._inbox.get(due - time.monotonic())
            while action is not None:
                self._do(action)
                action = self._inbox.get(0.0) if time.monotonic() < beat else None
            self._do(self._settle)
            if time.monotonic() >= beat:
                self._do(self._beat)
                beat = time.monotonic() + HEARTBEAT
            if self._news and time.monotonic() >= spread:
                self._do(self._tell)
                spread = time.monotonic() + GATHER

    def _do(self, action: Action) -> None:
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
        self._settle()
        for j in self._neighbours.linked:
            self._greet(j)
        self._on_beat()

    def _wake(self) -> None:
        self._changed.notify_all()

    def _link(self, j: int, up: bool) -> None:
        if up == self._neighbours[j].linked:
            return
        self._neighbours.link(j, up, time.monotonic())
        if up:
            self._gossip.opened(j)
            self._greet(j)
            if self._neighbours[j].suspended is not None:
                self.log.warn("left out for now", neighbour=self.description.names[j], why=self._neighbours[j].why)
        else:
            self.log("link down", neighbour=self.description.names[j])

    def _heard(self, j: int, hello: Hello) -> None:
        neighbour, now = self._neighbours[j], time.monotonic()
        if hello.digest != self.description.digest:
            self._refuse(j, hello.digest)
            return
        if not self.links.up(self.agent, j):
            return  # a last word of a link that is down
        if not neighbour.linked:
            self._link(j, True)
        if self._neighbours.replayed(j, hello, now):
            self.links.drop("replayed")
            return
        try:
            self._check(hello)
        except NetworkError as error:
            self.links.drop("nonsense")
            if neighbour.suspended is None:
                self._suspend([j], f"it sends nonsense: {error}", nonsense=True)
            return
        neighbour.refused, neighbour.heard, neighbour.hello = "", now, hello
        if self.agent in hello.waiting:
            self._send_again(j, hello)
        self._changed.notify_all()
        if not neighbour.greeted:
            neighbour.greeted = True
            self.log("neighbour up", neighbour=self.description.names[j])
        self._gossip.told(j, hello.records)
        if self._membership.merge(hello.records):
            self._spread()
        self._gossip.compared(j, hello.summary, now)
        self._news |= bool(self._gossip.news(j))

    def _send_again(self, j: int, hello: Hello) -> None:
        """To a neighbour that waits for us in a task that is over here, or interrupted: what we sent did not arrive."""
        if self._network is not None and hello.epoch == self._network.epoch:
            return  # the task under way looks after that itself
        for network in self._networks:
            if network.epoch == hello.epoch:
                network.send_again(self.agent, j, hello.round)
                return
        self.links.send_again(self.agent, j, hello.epoch, hello.round)

    def _check(self, hello: Hello) -> None:
        """A NetworkError where a hello says what cannot be."""
        self._membership.check(hello.records)
        if len(hello.theta) not in (0, self.description.dimension + 2):
            raise NetworkError(f"{len(hello.theta)} hyperparameters")
        if any(agent >= self.description.graph.agents for agent in hello.waiting):
            raise NetworkError("it waits for agents that this fleet does not have")

    def _refuse(self, j: int, digest: str) -> None:
        neighbour = self._neighbours[j]
        if neighbour.refused != digest:
            neighbour.refused, neighbour.greeted = digest, False
            self.log.error(
                "refused",
                neighbour=self.description.names[j],
                why="it holds another fleet description",
                its_digest=digest[:16],
                own_digest=self.description.digest[:16],
            )

    # ---- under the lock, in either thread -------------------------------------------------------------------

    def _settle(self) -> None:
        """What follows from all that has changed: whom to call up, and the end of work for a view that is over."""
        for j in self._neighbours.readmit(self._membership, time.monotonic()):
            self.log("readmitted", neighbour=self.description.names[j])
        if self._membership.call_up(() if self._withdrawn else self._neighbours.up):
            self._spread()
        if self._running is not None and self._membership.view.id != self._running.id:
            self._give_up("the membership changes")

    def _give_up(self, why: str) -> None:
        if self._running is None:
            return
        self._running = None
        self._membership.give_up()
        for network in self._networks:
            names = [self.description.names[j] for j in network.waiting_for]
            self.log("interrupted", why=why, round=network.round, waiting_for=names)
            network.interrupt(why)
        self._spread()

    def _spread(self) -> None:
        """There is news: the working thread looks at it, and the control thread tells it."""
        self._news = True
        self._changed.notify_all()
        self.wake()

    def _tell(self) -> None:
        self._news = False
        for j in self._neighbours.linked:
            if self._gossip.news(j):
                self._greet(j)

    def _greet(self, j: int) -> None:
        network, records = self._network, self._gossip.news(j)
        self._number += 1
        hello = Hello(
            self.description.digest,
            self._started,
            self._number,
            self._membership.summary,
            records,
            0 if network is None else network.epoch,
            0 if network is None else network.exchanging,
            frozenset() if network is None else network.waiting_for,
            tuple(self.theta) if sound_log_theta(self.theta, self.description.dimension) else (),
        )
        self.links.greet(self.agent, j, hello.encode())
        self._gossip.told(j, records)

    def _suspend(self, neighbours: Iterable[int], why: str, *, nonsense: bool = False) -> None:
        for j in neighbours:
            record = self._membership.of(j)
            penalty = self._neighbours.suspend(j, record, why, time.monotonic(), nonsense=nonsense)
            self.log.warn("suspended", neighbour=self.description.names[j], why=why, penalty=penalty)
        self.wake()

    def _word(self, j: int) -> tuple[int, frozenset[int]] | None:
        network = self._network
        return None if network is None else self._neighbours.word(j, network.epoch, time.monotonic())

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
