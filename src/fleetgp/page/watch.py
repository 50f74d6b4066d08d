"""A running fleet, watched: its agents are asked again and again, each in turn, with a limit on every wait."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any

from fleetgp.agent.description import PREDICTORS, Description
from fleetgp.errors import FleetGPError, NetworkError
from fleetgp.operator.client import AgentClient, why_unreachable
from fleetgp.page.collector import Collector, Facts
from fleetgp.page.happenings import PAGE, PAGE_MAP, Heard
from fleetgp.page.mapper import Mapper
from fleetgp.page.maps import SHARE, told_point
from fleetgp.page.source import ANY, Source

#: Seconds between two looks at an agent, to reach one, and for its answer.
PAUSE, REACH, WITHIN = 1.0, 1.5, 2.0
#: Seconds between two pictures.
TICK = 0.25
#: Threads that look; where there are more agents each looks at several.
LOOKERS = 64
#: Seconds that an answer may take to arrive after the agent has had its time.
GRACE = 2.0


def facts_of(description: Description) -> Facts:
    names = description.names
    return Facts(
        name=description.name,
        names=names,
        edges=tuple((names[a], names[b]) for a, b in description.graph.edges.tolist()),
        inputs=description.inputs,
        target=description.target,
        methods=PREDICTORS,
        method=description.prediction.method,
        lease=description.timeouts.lease,
        length_unit=" km" if description.coordinates.name in ("kilometres", "sphere") else "",
        digest=description.digest,
    )


class Looker:
    """Looks at one agent over a session that stays open."""

    def __init__(self, description: Description, name: str) -> None:
        self._description, self._name = description, name
        self._client: AgentClient | None = None

    def look(self, before: Heard, after: int) -> Heard:
        """What is known of it now. A session that broke is opened anew at once: is anybody there at all?"""
        for fresh in (self._client is None, True):
            began = time.monotonic()
            try:
                if self._client is None:
                    self._client = AgentClient(self._description, self._name, reach=REACH)
                state = self._client.request("status", WITHIN, after=after)
            except Exception as error:  # whatever it says or its session does, others are looked at and so is it, later
                slow = time.monotonic() - began >= 0.8 * REACH
                trouble = "silent" if slow or self._client is not None else "gone"
                why = why_unreachable(error)
                self.close()
                if fresh or slow:
                    break
            else:
                return Heard(state, time.time(), "", before.since if not before.trouble else time.time())
        since = before.since if before.trouble == trouble else before.at or time.time()
        return Heard(before.state, before.at, "silent" if trouble == "silent" else "gone", since, why)

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


class Watch(Source):
    """A fleet of processes. share: the part of its time and bytes that maps may cost."""

    def __init__(self, description: Description, *, share: float = SHARE, pause: float = PAUSE) -> None:
        super().__init__(facts_of(description))
        self.description, self._pause = description, pause
        self.collector = Collector(self.facts)
        now = time.time()
        self._heard = {name: Heard(since=now) for name in self.facts.names}
        self._seen = dict.fromkeys(self.facts.names, (0.0, 0))
        self._lookers = {name: Looker(description, name) for name in self.facts.names}
        self.mapper = Mapper(self, share)
        self._ending = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        names = self.facts.names
        for first in range(min(LOOKERS, len(names))):
            self._begin(self._follow, names[first::LOOKERS])
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
        for thread in [looker.close() for looker in self._lookers.values()]:
            thread.join(max(0.1, deadline - time.monotonic()))

    # ---- looking --------------------------------------------------------------------------------------------

    def _follow(self, names: tuple[str, ...]) -> None:
        while True:
            for name in names:
                self._look(name)
                if self._ending.is_set():
                    return
            if self._ending.wait(self._pause):
                return

    def _look(self, name: str) -> None:
        """An agent that was started again counts its events from 1: it is asked for all of them then."""
        began, after = self._seen[name]
        heard = self._lookers[name].look(self._heard[name], after)
        if not heard.trouble:
            fresh = heard.state.get("began", 0.0)
            lines = [line["number"] for line in heard.state.get("events", ())]
            self._seen[name] = fresh, (max(lines, default=after if fresh == began else 0))
        self._heard[name] = heard

    def _tick(self) -> None:
        while not self._ending.wait(TICK):
            self.look()

    def look(self) -> None:
        """A picture of what is known now."""
        picture = self.collector.take(dict(self._heard), time.time())
        picture["maps"] = self.mapper.told()
        self.post(picture)

    def heard(self) -> dict[str, Heard]:
        return dict(self._heard)

    def rows(self) -> dict[str, Any]:
        found = {}
        for name, heard in self.heard().items():
            if not heard.trouble and heard.state.get("shows_rows"):
                with suppress(FleetGPError):  # gone since, or it does not show them any more
                    found[name] = self._lookers[name].rows()
        return found

    # ---- asking ---------------------------------------------------------------------------------------------

    def asked_agent(self) -> str:
        """Whom to ask: the chosen one, or the first that has a model and is in the largest part."""
        if self.chosen.agent != ANY:
            return self.chosen.agent
        heard = self.heard()
        there = [name for name, one in heard.items() if not one.trouble and one.state.get("trained")]
        if not there:
            raise NetworkError("nobody who is there has a model yet: wait until the fleet has learned one")
        return max(there, key=lambda name: len(heard[name].state.get("members", ())))

    def question(self, points: list[list[float]], asker: str = PAGE_MAP) -> dict[str, Any]:
        """What the fleet answers, and who was asked ("agent")."""
        agent, limit = self.asked_agent(), self.description.timeouts.ask
        with AgentClient(self.description, agent, reach=REACH) as client:
            how = {"method": self.chosen.method, "asker": asker, "seconds": limit}
            answer: dict[str, Any] = client.request("ask", limit + GRACE, queries=points, **how)
        return {**answer, "agent": agent}

    def _ask(self, point: tuple[float, ...]) -> dict[str, Any]:
        answer = self.question([list(point)], PAGE)
        return {**told_point(point, answer), "agent": answer["agent"]}

    def renew(self) -> None:
        self.mapper.wanted.set()

    def train(self) -> dict[str, Any]:
        agent = self.asked_agent()
        with AgentClient(self.description, agent, reach=REACH) as client:
            client.request("train", 10.0)
        return {"agent": agent}
