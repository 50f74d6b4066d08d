"""One agent's part in the fleet: whom it can work with, the view it works in, and what it has to tell.

Here is what an agent does when a link falls (`link_down`), when neighbours are lost in a round (`neighbours_lost`),
and when the membership changes under its hands (`settle`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from fleetgp.agent.description import Description
from fleetgp.agent.logs import Log
from fleetgp.agent.membership.gossip import Gossip
from fleetgp.agent.membership.hello import Hello, Introduction
from fleetgp.agent.membership.membership import Membership, View
from fleetgp.agent.membership.neighbourhood import Neighbourhood
from fleetgp.errors import NetworkError
from fleetgp.gp.hyperparameters import sound_log_theta
from fleetgp.network.zenoh.network import EpochOverError, Waiting, ZenohNetwork

#: Strangers that are remembered, so that each is logged once; more are not logged.
MOST_STRANGERS = 64


class Presence:
    """What one agent knows of the fleet, and what it works on. No thread, no clock, no links: it is told what happens.

    Whoever calls it holds `changed`, on which others wait for something to change.

    running: the view the agent works in; None while it looks for one.
    networks: of the tasks under way; all but the last one are interrupted by the next.
    theta: the current estimate, in logarithms; empty if there is none.
    news: whether there may be something that neighbours have not been told.
    """

    def __init__(self, description: Description, agent: int, log: Log, incarnation: int, now: float) -> None:
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
        self._strangers: set[Introduction] = set()
        self._began, self._worked, self._withdrawn = now, False, False

    @property
    def network(self) -> ZenohNetwork | None:
        """Of the task under way; the innermost, if one interrupts another."""
        return next(iter(self.networks[-1:]), None)  # in one look: status is asked without the lock

    # ---- views ----------------------------------------------------------------------------------------------

    def declare(self) -> None:
        """Be ready for the view as it is."""
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
        if self._worked or len(view.members) == fleet.graph.agents or now - self._began >= fleet.timeouts.connect:
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
        """End what is under way; the same members begin anew."""
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
            names = [self._name(j) for j in network.waiting_for]
            self.log("interrupted", why=why, round=network.round, waiting_for=names)
            network.cancel(EpochOverError(why))
        self._spread()

    # ---- neighbours come and go -----------------------------------------------------------------------------

    def link_up(self, j: int, now: float) -> None:
        """A neighbour listens. It takes part once it was heard."""
        self.neighbours.link(j, True, now)
        self.gossip.opened(j)
        if self.neighbours[j].suspended is not None:
            self.log.warn("left out for now", neighbour=self._name(j), why=self.neighbours[j].why)

    def link_down(self, j: int, now: float) -> None:
        """A neighbour does not listen any more: a view with it is over, and the others go on in another one."""
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
            self.log.error(
                "refused",
                neighbour=self._name(j),
                why=neighbour.why_refused,
                its_digest=digest[:16],
                own_digest=own[:16],
            )
        return digest != own

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

    def introduced(self, stranger: Introduction) -> bool:
        """Log an agent that holds another description, once; whether it was logged.

        A neighbour by this description is refused by its hello, and logged there, if both call each other by the same
        ids. An introduction does not depend on ids.
        """
        description = self.description
        known = stranger.digest == description.digest or stranger in self._strangers
        if known or len(self._strangers) >= MOST_STRANGERS:
            return False
        self._strangers.add(stranger)
        remedy = "give all agents the same fleet.toml, and start those again whose file has changed"
        facts = {"name": stranger.name, "endpoint": stranger.endpoint, "its_digest": stranger.digest[:16]}
        if stranger.name in description.names:
            self.log.warn("another description", **facts, why=description.differences(stranger.digest), remedy=remedy)
        else:
            why = "it is not in this agent's fleet.toml"
            self.log.warn("unknown agent", **facts, why=why, remedy=f"if it is to take part, {remedy}")
        return True

    def heard(self, j: int, hello: Hello, now: float) -> str:
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
        neighbour.refused, neighbour.heard, neighbour.hello = "", now, hello
        self.changed.notify_all()
        if not neighbour.greeted:
            neighbour.greeted = True
            self.log("neighbour up", neighbour=self._name(j))
        self.gossip.told(j, hello.records)
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

    def heard_waiting(self, j: int, now: float) -> Waiting | None:
        """What a neighbour has lately said of its waiting, in whatever task."""
        return self.neighbours.word(j, now)

    # ---- what to tell them ----------------------------------------------------------------------------------

    def hello_to(self, j: int) -> Hello:
        """The next hello to a neighbour, with the records that it lacks."""
        self._hellos += 1
        network = self.network
        return Hello(
            self.description.digest,
            self._incarnation,
            self._hellos,
            self.membership.summary,
            self.gossip.news(j),
            0 if network is None else network.epoch,
            0 if network is None else network.exchanging,
            frozenset() if network is None else network.waiting_for,
            tuple(self.theta) if sound_log_theta(self.theta, len(self.description.parameters)) else (),
        )

    def _spread(self) -> None:
        self.news = True
        self.changed.notify_all()

    def _name(self, agent: int) -> str:
        return self.description.names[agent]
