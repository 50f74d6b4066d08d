"""A running fleet on the page: every agent is asked for its status again and again, with a limit on every wait."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any

from fleetgp.agent.description import PREDICTORS, Description
from fleetgp.errors import FleetGPError, NetworkError
from fleetgp.operator.client import AgentClient, why_unreachable
from fleetgp.operator.members import newest_of
from fleetgp.page.collector import Collector, FleetFacts
from fleetgp.page.events import PAGE, PAGE_MAP, Contact
from fleetgp.page.maps import SHARE, Mapper, point_facts
from fleetgp.page.source import ANY, PageSource

#: Seconds between two requests to an agent, to reach one, and for its answer.
PAUSE, REACH, WITHIN = 1.0, 1.5, 2.0
#: Seconds between two pictures.
TICK = 0.25
#: Threads that ask for status; where there are more agents each asks several.
THREADS = 64
#: Seconds that an answer may take to arrive after the agent has had its time.
GRACE = 2.0


def facts_of(description: Description) -> FleetFacts:
    names = description.names
    return FleetFacts(
        name=description.name,
        names=tuple(description.members),
        edges=tuple((names[a], names[b]) for a, b in description.graph.edges.tolist()),
        inputs=description.inputs,
        target=description.target,
        methods=tuple(PREDICTORS),
        method=description.prediction.method,
        lease=description.timeouts.lease,
        length_unit=" km" if description.coordinates.name in ("kilometres", "sphere") else "",
        digest=description.digest,
    )


class AgentProbe:
    """Asks one agent for its status over a session that stays open."""

    def __init__(self, description: Description, name: str) -> None:
        self._description, self._name = description, name
        self._client: AgentClient | None = None

    def probe(self, before: Contact, after: int) -> Contact:
        """What is known of the agent now. A broken session is reopened at once, to learn whether anybody is there."""
        for fresh in (self._client is None, True):
            began = time.monotonic()
            try:
                if self._client is None:
                    self._client = AgentClient(self._description, self._name, reach=REACH)
                state = self._client.request("status", WITHIN, after=after)
            except Exception as error:  # whatever goes wrong, the others are asked, and later this one again
                slow = time.monotonic() - began >= 0.8 * REACH
                trouble = "silent" if slow or self._client is not None else "gone"
                why = why_unreachable(error)
                self.close()
                if fresh or slow:
                    break
            else:
                return Contact(state, time.time(), "", before.since if not before.trouble else time.time())
        since = before.since if before.trouble == trouble else before.at or time.time()
        return Contact(before.state, before.at, "silent" if trouble == "silent" else "gone", since, why)

    def rows(self) -> Any:
        with AgentClient(self._description, self._name, reach=REACH) as client:
            return client.request("rows", WITHIN)

    def close(self) -> threading.Thread:
        """In a thread of its own: a dead link may hold up the end of its session, and nobody waits for that."""
        client, self._client = self._client, None
        thread = threading.Thread(target=_close, args=(client,), daemon=True, name="page closing")
        thread.start()
        return thread


def _close(client: AgentClient | None) -> None:
    with suppress(Exception):
        if client is not None:
            client.close()


class Watch(PageSource):
    """A fleet of processes. share: the part of its time and bytes that maps may cost."""

    def __init__(self, description: Description, *, share: float = SHARE, pause: float = PAUSE) -> None:
        super().__init__(facts_of(description))
        self.description, self._pause = description, pause
        self.collector = Collector(self.facts)
        now = time.time()
        self._contacts = {name: Contact(since=now) for name in self.facts.names}
        self._seen = dict.fromkeys(self.facts.names, (0.0, 0))
        self._probes = {name: AgentProbe(description, name) for name in self.facts.names}
        self.mapper = Mapper(self, share)
        self._ending, self._renewing = threading.Event(), threading.Lock()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        names = self.facts.names
        for first in range(min(THREADS, len(names))):
            self._begin(self._follow, names[first::THREADS])
        self._begin(self._tick)
        self._begin(self.mapper.run, self._ending)

    def _begin(self, work: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True, name=f"page {work.__name__}")
        self._threads.append(thread)
        thread.start()

    def close(self) -> None:
        self._ending.set()
        deadline = time.monotonic() + REACH + WITHIN
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        for thread in [looker.close() for looker in self._probes.values()]:
            thread.join(max(0.1, deadline - time.monotonic()))

    # ---- status ---------------------------------------------------------------------------------------------

    def _follow(self, names: tuple[str, ...]) -> None:
        while True:
            for name in names:
                if name in self.facts.names:
                    self._probe(name)
                if self._ending.is_set():
                    return
            if self._ending.wait(self._pause):
                return

    def _probe(self, name: str) -> None:
        """Ask one agent. One that was started again counts its events from 1, so all of them are asked for then."""
        began, after = self._seen[name]
        contact = self._probes[name].probe(self._contacts[name], after)
        if not contact.trouble:
            fresh = contact.state.get("began", 0.0)
            lines = [line["number"] for line in contact.state.get("events", ())]
            self._seen[name] = fresh, (max(lines, default=after if fresh == began else 0))
        self._contacts[name] = contact
        if not contact.trouble and contact.state.get("roster", 0) > self.description.roster.version:
            with self._renewing, suppress(FleetGPError):  # then again with the next status
                self._take_over(newest_of(self.description, [name]))

    def _take_over(self, description: Description) -> None:
        """Show the members of a newer roster from now on."""
        facts, now = facts_of(description), time.time()
        new = tuple(name for name in facts.names if name not in self._contacts)
        for name in new:
            self._contacts[name], self._seen[name] = Contact(since=now), (0.0, 0)
        for name in facts.names:
            if name in new or description.agents[description.id_of(name)] != self._table(name):
                self._probes[name] = AgentProbe(description, name)
        self.description, self.facts, self.collector.facts = description, facts, facts
        if new:
            self._begin(self._follow, new)

    def _table(self, name: str) -> Any:
        return self.description.agents[self.description.id_of(name)] if name in self.description.names else None

    def _tick(self) -> None:
        while not self._ending.wait(TICK):
            self.update()

    def update(self) -> None:
        """Post a picture of what is known now."""
        picture = self.collector.take(self.contacts(), time.time())
        picture["maps"] = self.mapper.facts()
        self.post(picture)

    def contacts(self) -> dict[str, Contact]:
        return dict(self._contacts)

    def rows(self) -> dict[str, Any]:
        rows = {}
        for name, contact in self.contacts().items():
            if not contact.trouble and contact.state.get("shows_rows"):
                with suppress(FleetGPError):  # gone since, or it does not show them any more
                    rows[name] = self._probes[name].rows()
        return rows

    # ---- asking ---------------------------------------------------------------------------------------------

    def asked_agent(self) -> str:
        """The agent to ask: the chosen one, or the first with a model in the largest part."""
        if self.chosen.agent != ANY:
            return self.chosen.agent
        contacts = self.contacts()
        there = [name for name, one in contacts.items() if not one.trouble and one.state.get("trained")]
        if not there:
            raise NetworkError("nobody who is there has a model yet: wait until the fleet has learned one")
        return max(there, key=lambda name: len(contacts[name].state.get("members", ())))

    def question(self, points: list[list[float]], asker: str = PAGE_MAP) -> dict[str, Any]:
        """The fleet's answer, and who was asked ("agent")."""
        agent, limit = self.asked_agent(), self.description.timeouts.ask
        with AgentClient(self.description, agent, reach=REACH) as client:
            how = {"method": self.chosen.method, "asker": asker, "seconds": limit}
            answer: dict[str, Any] = client.request("ask", limit + GRACE, queries=points, **how)
        return {**answer, "agent": agent}

    def _ask(self, point: tuple[float, ...]) -> dict[str, Any]:
        answer = self.question([list(point)], PAGE)
        return {**point_facts(point, answer), "agent": answer["agent"]}

    def renew(self) -> None:
        self.mapper.wanted.set()

    def train(self) -> dict[str, Any]:
        agent = self.asked_agent()
        with AgentClient(self.description, agent, reach=REACH) as client:
            client.request("train", 10.0)
        return {"agent": agent}
