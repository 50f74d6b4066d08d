"""One agent's part in the fleet: whom it can work with, the view it works in, what its hellos say. No clock, no I/O.

Here is what an agent does when a link falls (`link_down`), when neighbours are lost in a round (`neighbours_lost`),
and when the membership changes during its work (`settle`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fleetgp.agent.description import Description
from fleetgp.agent.logs import Log
from fleetgp.agent.membership import Gossip, Hello, Introduction, Membership, Record, View
from fleetgp.errors import NetworkError
from fleetgp.model.hyperparameters import sound_log_theta
from fleetgp.network.zenoh.network import EpochOverError, Waiting, ZenohNetwork

#: Seconds between two hellos to a neighbour.
HEARTBEAT = 0.5
#: A neighbour that failed n times in a row is let in again after at most this many deadlines.
LONGEST_PENALTY = 16
#: A neighbour whose link fell more often than this within so many seconds is let in later and later.
STEADY_FALLS, STEADY_SECONDS = 3, 60.0


@dataclass
class Neighbour:
    """One neighbour, as far as this agent can tell.

    linked: it listens.  greeted: a hello has come since.  refused: the digest of another description, if it holds one.
    expired: whether its certificate has.  hello: its last one, which came at `hello_at`.
    failures: deadlines missed and nonsense sent, in a row.
    suspended: its record when it was left out, for some reason and until some time; None if it is not.
    """

    linked: bool = False
    greeted: bool = False
    refused: str = ""
    why_refused: str = "it holds another fleet description"
    expired: bool = False
    hello_at: float = 0.0
    since: float = 0.0
    hello: Hello = field(default_factory=Hello)
    failures: int = 0
    suspended: Record | None = None
    why: str = ""
    until: float = 0.0
    falls: deque[float] = field(default_factory=lambda: deque(maxlen=16))

    @property
    def standing(self) -> str:
        """ "up", or why not."""
        if self.expired:
            return "refused: its certificate has expired"
        if self.refused:
            return f"refused: {self.why_refused}"
        if not self.linked:
            return "down"
        if not self.greeted:
            return "silent"
        return "up" if self.suspended is None else f"suspended: {self.why}"

    @property
    def up(self) -> bool:
        return self.standing == "up"


class Neighbourhood(dict[int, Neighbour]):
    """All neighbours of an agent, by id. deadline: seconds of a round, the unit of every penalty."""

    def __init__(self, neighbours: Sequence[int], deadline: float) -> None:
        super().__init__((j, Neighbour()) for j in neighbours)
        self._deadline = deadline

    @property
    def linked(self) -> list[int]:
        return [j for j, neighbour in self.items() if neighbour.linked]

    @property
    def up(self) -> list[int]:
        return [j for j, neighbour in self.items() if neighbour.up]

    # ---- what happens ---------------------------------------------------------------------------------------

    def link(self, j: int, up: bool, now: float) -> None:
        """A link came up or went down. A neighbour that keeps falling is let in again only after a while."""
        neighbour = self[j]
        neighbour.linked, neighbour.greeted = up, False
        neighbour.since, neighbour.hello = now, Hello()
        if not up:
            neighbour.refused = ""  # not where it comes up: its first hello may have come before, and was logged
            neighbour.falls.append(now)
        falls = sum(now - fall < STEADY_SECONDS for fall in neighbour.falls)
        if up and falls >= STEADY_FALLS:
            self._leave_out(j, f"it fell {falls} times within a minute", now + min(2.0 ** (falls - 2), 30.0))

    def replayed(self, j: int, hello: Hello, now: float) -> bool:
        """Whether a hello is not newer than the last one, while these come as they should."""
        neighbour = self[j]
        return hello.age <= neighbour.hello.age and now - neighbour.hello_at < 4 * HEARTBEAT

    def suspend(self, j: int, record: Record | None, why: str, now: float, *, nonsense: bool = False) -> float:
        """Do without a neighbour until it says that it is ready for work; the seconds for which it must wait."""
        neighbour = self[j]
        neighbour.failures += 1
        weight = min(neighbour.failures if nonsense else neighbour.failures - 1, 10)  # far beyond the longest
        penalty = min(2.0**weight - 1.0, LONGEST_PENALTY) * self._deadline
        self._leave_out(j, why, now + penalty, record)
        return penalty

    def readmit(self, membership: Membership, now: float) -> list[int]:
        """Let in again those whose time has passed and who have said since that they are ready."""
        readmitted = []
        for j, neighbour in self.items():
            record, before = membership.of(j), neighbour.suspended
            if before is None or record is None or now < neighbour.until:
                continue
            if record.age > before.age and record.view:
                neighbour.suspended = None
                readmitted.append(j)
        return readmitted

    def well_done(self, members: Iterable[int]) -> None:
        """Some real work was finished: the members that took part are not slow."""
        for j in set(members) & self.keys():
            self[j].failures = 0

    def _leave_out(self, j: int, why: str, until: float, record: Record | None = None) -> None:
        neighbour = self[j]
        neighbour.suspended, neighbour.why, neighbour.until = record or Record(j, 0), why, until

    # ---- what is in their hellos ----------------------------------------------------------------------------

    def waiting_of(self, j: int, now: float) -> Waiting | None:
        """In which epoch and round a neighbour waits, and for whom, if it has just said so."""
        neighbour = self[j]
        hello = neighbour.hello
        if now - neighbour.hello_at >= 4 * HEARTBEAT or not hello.waiting:
            return None
        return hello.epoch, hello.round, hello.waiting

    def begun(self, epoch: int) -> bool:
        return any(neighbour.hello.epoch == epoch for neighbour in self.values())

    def disagreement(self, theta: Sequence[float]) -> float | None:
        """The largest difference to a neighbour's last log theta."""
        estimates = [n.hello.theta for n in self.values() if n.linked]
        estimates = [other for other in estimates if len(other) == len(theta)]
        if not theta or not estimates:
            return None
        return float(max(abs(a - b) for other in estimates for a, b in zip(theta, other, strict=True)))


#: Strangers that are remembered, so that each is logged once; more are not logged. Who is silent for so many seconds is
#: forgotten.
MOST_STRANGERS, STRANGER_SECONDS = 64, 3600.0


class Presence:
    """What one agent knows of the fleet, and what it works on; `PeerMonitor` and `Node` report what happens.

    Callers hold `changed`, on which other threads wait.

    running: the view the agent works in; None while it looks for one.
    networks: of the tasks under way; all but the last one are interrupted by the next.
    theta: the current estimate, in logarithms; empty if there is none.
    news: whether there may be something that neighbours do not know.
    awaited: at the start, the agents to wait for; None: all members.
    """

    def __init__(
        self,
        description: Description,
        agent: int,
        log: Log,
        incarnation: int,
        now: float,
        awaited: Iterable[int] | None = None,
    ) -> None:
        self.description, self.agent, self.log = description, agent, log
        self.changed = threading.Condition()
        self.membership = Membership(agent, description.graph, incarnation)
        self.neighbours = Neighbourhood(self.membership.neighbours, description.timeouts.round)
        self.gossip = Gossip(self.membership)
        self.running: View | None = None
        self.networks: list[ZenohNetwork] = []
        self.theta: list[float] = []
        self.news = False
        self._incarnation, self._hellos = incarnation, 0
        self._strangers: dict[Introduction, float] = {}  # when each was last there
        self._began, self._worked, self._withdrawn = now, False, False
        self._awaited = set(description.present if awaited is None else awaited)

    @property
    def network(self) -> ZenohNetwork | None:
        """Of the task under way; the innermost, if one interrupts another."""
        return next(iter(self.networks[-1:]), None)  # in one look: status is asked without the lock

    # ---- views ----------------------------------------------------------------------------------------------

    def declare(self) -> None:
        if self.membership.declare(self.membership.view.id):
            self._spread()

    def begin(self) -> View | None:
        """The view, if all its members are ready for it: the agent works in it from now on."""
        if self.membership.own.view != self.membership.view.id or not self.membership.agreed:
            return None
        self.running, self._worked = self.membership.view, True
        return self.running

    def holding(self, now: float) -> bool:
        """At the start: whether to wait for those who have not come yet, since nobody has begun."""
        view, fleet = self.membership.view, self.description
        if self._worked or self._awaited <= set(view.members) or now - self._began >= fleet.timeouts.connect:
            return False
        records = (self.membership.of(member) for member in view.members)
        return not any(record is not None and record.view for record in records)

    def settle(self, now: float) -> None:
        """What follows from all that has changed: whom to call up, and the end of work for a view that is over."""
        for j in self.neighbours.readmit(self.membership, now):
            self.log("readmitted", neighbour=self._name(j))
        if self.membership.call_up(() if self._withdrawn else self.neighbours.up):
            self._spread()
        if self.running is not None and self.membership.view.id != self.running.id:
            self._give_up("the membership changes")

    def abandon(self, why: str, now: float) -> None:
        """End what is under way; the same members begin again."""
        self._give_up(why)
        self.settle(now)

    def withdraw(self, withdrawn: bool, now: float) -> None:
        """Leave the fleet to the others, for as long as one cannot work; or come back to it."""
        self._withdrawn = withdrawn
        self.abandon("withdrawn", now)

    def company(self) -> dict[int, tuple[int, bool]]:
        """The other agents that have not withdrawn: the incarnation of each, and whether anybody can work with it.

        An agent that has withdrawn calls up nobody. One that is gone still seems to, but nobody calls it up.
        """
        others = [record for record in self.membership.records if record.agent != self.agent]
        reached = {*self.neighbours.linked, *(called for record in others for called in record.up)}
        return {record.agent: (record.incarnation, record.agent in reached) for record in others if record.up}

    def _give_up(self, why: str) -> None:
        if self.running is None:
            return
        self.running = None
        self.membership.give_up()
        for network in self.networks:
            self.log(
                "interrupted", why=why, round=network.round, waiting_for=self.description.names_of(network.waiting_for)
            )
            network.cancel(EpochOverError(why))
        self._spread()

    # ---- neighbours come and go -----------------------------------------------------------------------------

    def link_up(self, j: int, now: float) -> None:
        """A neighbour listens. It takes part once a hello has come."""
        self.neighbours.link(j, True, now)
        self.gossip.opened(j)
        if self.neighbours[j].suspended is not None:
            self.log.warn("left out for now", neighbour=self._name(j), why=self.neighbours[j].why)

    def link_down(self, j: int, now: float) -> None:
        """A neighbour does not listen any more: a view with it is over, and the others continue in another one."""
        self.neighbours.link(j, False, now)
        self.log("link down", neighbour=self._name(j))
        self.settle(now)

    def neighbours_lost(
        self, view: View, neighbours: Iterable[int], why: str, now: float, *, nonsense: bool = False
    ) -> None:
        """A view is over because neighbours missed a deadline, or somebody sent what nobody can work with.

        nonsense: those who are no neighbours of this agent are left out by those who are.
        """
        if self.running is not None and self.running.id == view.id:  # else it was over before: nobody is to blame
            self._suspend(neighbours, why, now, nonsense=nonsense)
            self.abandon(why, now)

    def leave_out_unready(self, now: float) -> None:
        """Go on without the neighbours that are not ready for the view."""
        self._suspend(self.membership.unready, "not ready in time", now)
        self.settle(now)

    def _suspend(self, agents: Iterable[int], why: str, now: float, *, nonsense: bool = False) -> None:
        for j in agents:
            if j in self.neighbours:
                penalty = self.neighbours.suspend(j, self.membership.of(j), why, now, nonsense=nonsense)
                self.log.warn("suspended", neighbour=self._name(j), why=why, penalty=penalty)

    # ---- what neighbours say --------------------------------------------------------------------------------

    def refuses(self, j: int, hello: Hello) -> bool:
        """Whether a neighbour holds another description of the fleet: nobody works with it."""
        neighbour, digest, own = self.neighbours[j], hello.digest, self.description.digest
        if digest != own and digest != neighbour.refused:
            neighbour.refused, neighbour.greeted = digest, False
            neighbour.why_refused = self.description.differences(digest)
            facts = {"neighbour": self._name(j), "why": neighbour.why_refused}
            if self.compare(digest):
                self.log("other roster", **facts)
            else:
                self.log.error("refused", **facts, its_digest=digest[:16], own_digest=own[:16])
        return digest != own

    def compare(self, digest: str) -> int:
        """1 where another agent's roster is newer than the own one, -1 where it is older, 0 where neither is."""
        its, own = self.description.rank_in(digest), self.description.roster.rank
        return 0 if its is None else (its > own) - (its < own)

    def note_expired(self, j: int, expired: bool) -> None:
        """The certificate of a neighbour has expired: nobody works with it until it has another one."""
        neighbour = self.neighbours[j]
        if expired and not neighbour.expired:
            why = "its certificate has expired"
            remedy = f"make another with `fleetgp certs`, and start {self._name(j)} again"
            self.log.error("refused", neighbour=self._name(j), why=why, remedy=remedy)
            neighbour.greeted = False
        neighbour.expired = expired

    def introduction(self) -> Introduction:
        description = self.description
        endpoint = description.agents[self.agent].endpoint
        return Introduction(description.names[self.agent], endpoint, description.digest)

    def introduced(self, stranger: Introduction, now: float) -> bool:
        """Log an agent that holds another description, once; whether it was logged.

        A neighbour by this description is refused by its hello, and logged there, if both call each other by the same
        ids. An introduction does not depend on ids.
        """
        description = self.description
        if stranger.digest == description.digest:
            return False
        newer = self.compare(stranger.digest)
        if newer > 0:  # the answer lets it send its roster
            return True
        strangers = {one: last for one, last in self._strangers.items() if now - last < STRANGER_SECONDS}
        known = stranger in strangers
        if known or len(strangers) < MOST_STRANGERS:
            strangers[stranger] = now
        self._strangers = strangers
        if known or stranger not in strangers:
            return False
        remedy = "give all agents the same fleet.toml, and start those again whose file has changed"
        facts = {"name": stranger.name, "endpoint": stranger.endpoint, "its_digest": stranger.digest[:16]}
        if stranger.name in description.left:
            why = f"it has left the fleet, by version {description.roster.version} of the roster"
            self.log.warn("refused", **facts, why=why, remedy="`fleetgp join` admits it again")
            return True
        if newer < 0:  # it gets the newer one
            self.log("other roster", **facts, why=description.differences(stranger.digest))
            return True
        if stranger.name in description.names:
            self.log.warn("another description", **facts, why=description.differences(stranger.digest), remedy=remedy)
        else:
            why = "it is not in this agent's fleet.toml"
            self.log.warn("unknown agent", **facts, why=why, remedy=f"if it is to take part, {remedy}")
        return True

    def take_hello(self, j: int, hello: Hello, now: float) -> str:
        """Take in a neighbour's hello; the reason if it is dropped instead, else ""."""
        neighbour = self.neighbours[j]
        if self.neighbours.replayed(j, hello, now):
            return "replayed"
        try:
            self._check(hello)
        except NetworkError as error:
            if neighbour.suspended is None:
                self._suspend([j], f"it sends nonsense: {error}", now, nonsense=True)
            return "nonsense"
        neighbour.refused, neighbour.hello_at, neighbour.hello = "", now, hello
        self.changed.notify_all()
        if not neighbour.greeted:
            neighbour.greeted = True
            self.log("neighbour up", neighbour=self._name(j))
        self.gossip.note_known(j, hello.records)
        if self.membership.merge(hello.records):
            self._spread()
        self.gossip.compared(j, hello.summary, now)
        self.news |= bool(self.gossip.news(j))
        return ""

    def _check(self, hello: Hello) -> None:
        """A NetworkError where a hello says what cannot be."""
        self.membership.check(hello.records)
        parameters, agents = len(self.description.parameters), self.description.graph.agents
        if len(hello.theta) not in (0, parameters):
            raise NetworkError(f"expected {parameters} hyperparameters, got {len(hello.theta)}")
        if any(agent >= agents for agent in hello.waiting):
            raise NetworkError(f"expected that it waits for agents 0 .. {agents - 1}, got {sorted(hello.waiting)}")

    def hello_to(self, j: int) -> Hello:
        """The next hello to a neighbour, with the records that it lacks."""
        self._hellos += 1
        network = self.network
        return Hello(
            digest=self.description.digest,
            started=self._incarnation,
            number=self._hellos,
            summary=self.membership.summary,
            records=self.gossip.news(j),
            epoch=0 if network is None else network.epoch,
            round=0 if network is None else network.exchanging,
            waiting=frozenset() if network is None else network.waiting_for,
            theta=tuple(self.theta) if sound_log_theta(self.theta, len(self.description.parameters)) else (),
        )

    def _spread(self) -> None:
        self.news = True
        self.changed.notify_all()

    def _name(self, agent: int) -> str:
        return self.description.names[agent]
