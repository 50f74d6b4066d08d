"""Turns the states of all agents into one picture of the fleet: plain values for a browser. Pure, and bounded.

A picture is a dictionary without None. Its histories are dictionaries by running numbers, so that new entries are a
small patch.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleetgp.operator.client import former_members
from fleetgp.page.events import (
    KINDS,
    PHASES,
    Contact,
    EventLog,
    Presence,
    disagreement_text,
    headline,
    kind_of,
    link_state,
    parts_of,
    presence_of,
    theta_sentences,
)

#: How many estimates over time, events and questions are kept.
ESTIMATES, EVENTS, QUESTIONS = 240, 60, 20


@dataclass(frozen=True)
class FleetFacts:
    """What does not change in a fleet. edges: pairs of names.  lease: seconds after which a silent link is dead.

    methods: of prediction.  method: the one of fleet.toml.  length_unit: of length-scales, like " km".
    """

    name: str
    names: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]
    inputs: tuple[str, ...]
    target: str
    methods: tuple[str, ...]
    method: str
    lease: float = 5.0
    length_unit: str = ""
    digest: str = ""
    simulated: bool = False

    @property
    def kind(self) -> str:
        return kind_of(self.names)

    def neighbours(self, name: str) -> list[str]:
        return [b if a == name else a for a, b in self.edges if name in (a, b)]

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.kind,
            "inputs": list(self.inputs),
            "target": self.target,
            "methods": list(self.methods),
            "method": self.method,
            "simulated": self.simulated,
        }


class History:
    """The last entries of a history, by running numbers."""

    def __init__(self, most: int) -> None:
        self._entries: deque[tuple[int, dict[str, Any]]] = deque(maxlen=most)
        self._count = 0

    def add(self, entry: dict[str, Any]) -> None:
        self._count += 1
        self._entries.append((self._count, entry))

    def last(self) -> dict[str, Any] | None:
        return self._entries[-1][1] if self._entries else None

    def as_dict(self) -> dict[str, dict[str, Any]]:
        return {str(number): entry for number, entry in self._entries}


class CounterSum:
    """The sum of counters that restart when their agent does."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}
        self.total = 0.0

    def take(self, name: str, value: float) -> None:
        before = self._last.get(name, 0.0)
        self.total += value - before if value >= before else value
        self._last[name] = value


class Collector:
    """Makes one picture after the other."""

    def __init__(self, facts: FleetFacts) -> None:
        self.facts = facts
        self._estimates, self._events, self._questions = History(ESTIMATES), History(EVENTS), History(QUESTIONS)
        self._log = EventLog(facts.kind)
        self._bytes, self._hellos = CounterSum(), CounterSum()
        self._model: tuple[Any, float] = (None, 0.0)
        self._shown: dict[str, Any] = {}

    @property
    def all_bytes(self) -> float:
        """Bytes that the fleet has sent, hellos included."""
        return self._bytes.total

    @property
    def frames(self) -> float:
        """Bytes that the fleet has sent in rounds."""
        return self._bytes.total - self._hellos.total

    def take(self, contacts: Mapping[str, Contact], now: float) -> dict[str, Any]:
        """The picture at a time."""
        facts = self.facts
        states = {name: one.state for name, one in contacts.items()}
        former = former_members(states, [name for name, one in contacts.items() if not one.trouble])
        names = [name for name in facts.names if name in contacts and name not in former]
        presence = {name: presence_of(name, contacts, facts.neighbours(name), now, facts.lease) for name in names}
        contacts = {name: contacts[name] for name in names}
        links = {
            (a, b): link_state(a, b, contacts, presence) for a, b in facts.edges if a in contacts and b in contacts
        }
        there = [name for name in names if presence[name] in ("there", "unheard")]
        parts = parts_of(there, [edge for edge, state in links.items() if state == "up"])
        for name, one in contacts.items():
            if one.state:
                self._bytes.take(name, one.state.get("bytes", 0))
                self._hellos.take(name, one.state.get("overhead", 0))
        picture = {
            "fleet": facts.as_dict(),
            "now": round(now, 3),
            "agents": {name: self._agent(name, contacts[name], presence[name], parts) for name in names},
            "links": {
                f"{a}|{b}": {"a": a, "b": b, "state": state, "bytes": _between(a, b, contacts)}
                for (a, b), state in links.items()
            },
            "parts": parts,
            "time": next((_time(one.state) for one in contacts.values() if one.state.get("time")), {}),
            "kinds": _kinds(contacts.values()),
            "totals": {
                "bytes": int(self.all_bytes),
                "rows": sum(contacts[name].state.get("rows", 0) for name in there),
                "new_rows": sum(contacts[name].state.get("new_rows", 0) for name in there),
            },
            **self._model_of(contacts, there, now),
        }
        picture |= self._headline(contacts, presence, parts, now)
        for event in self._log.compare(picture, contacts, now):
            (self._questions if "points" in event else self._events).add(event)
        histories = {"series": self._estimates, "events": self._events, "questions": self._questions}
        return picture | {name: history.as_dict() for name, history in histories.items()}

    def _agent(self, name: str, contact: Contact, presence: Presence, parts: Sequence[Sequence[str]]) -> dict[str, Any]:
        state = contact.state
        facts: dict[str, Any] = {"presence": presence, "heard": round(contact.at, 1), "since": round(contact.since, 1)}
        for number, part in enumerate(parts):
            if name in part:
                facts["part"] = number
        if contact.why:
            facts["why"] = contact.why
        if not state:
            return facts
        other = bool(self.facts.digest and state.get("digest") != self.facts.digest)
        phase = state.get("phase", "starting")
        facts |= {
            "phase": phase,
            "words": PHASES.get(phase, phase),
            "round": state.get("round", 0),
            "rows": state.get("rows", 0),
            "new_rows": state.get("new_rows", 0),
            "bytes": state.get("bytes", 0),
            "hears": [other for other, word in state.get("neighbours", {}).items() if word == "up"],
            "shows_rows": bool(state.get("shows_rows")),
            "problem": "It holds another fleet description than this page." if other else state.get("problem", ""),
        }
        if state.get("place"):
            facts["place"] = state["place"]
        return facts

    def _model_of(self, contacts: Mapping[str, Contact], there: Sequence[str], now: float) -> dict[str, Any]:
        """What most agents have learned, and how it came about over time."""
        states = [contacts[name].state for name in there if contacts[name].state.get("theta")]
        if not states:  # the last model stays in sight
            return {"model": self._shown}
        ids = [(state.get("trained") or {}).get("id", 0) for state in states]
        common = max(dict.fromkeys(ids), key=ids.count)
        state = states[ids.index(common)]
        theta, trained = state["theta"], state.get("trained") or {}
        if common != self._model[0]:
            self._model = common, now
        busy = max(states, key=lambda one: (one.get("phase") == "training", one.get("round", 0)))
        learning = busy.get("phase") == "training"
        spread = max((one["disagreement"] for one in states if one.get("disagreement") is not None), default=0.0)
        model: dict[str, Any] = {
            "id": str(common),
            "since": round(self._model[1], 1),
            "words": theta_sentences(theta, self.facts.inputs, self.facts.target, self.facts.length_unit),
            "theta": theta,
            "by": trained.get("by", []),
            "method": trained.get("method", ""),
            "status": trained.get("status", ""),
            "learning": learning,
            "round": busy.get("round", 0) if learning else trained.get("rounds", 0),
            "differ": disagreement_text(spread),
            "same": ids.count(common) == len(ids),
        }
        entry = {"theta": list(busy["theta"].values()), "spread": spread, "round": model["round"], "learning": learning}
        last = self._estimates.last()
        if last is None or {key: last[key] for key in entry} != entry:
            self._estimates.add({"t": round(now, 1), **entry})
        self._shown = {**model, "learning": False}
        return {"model": model}

    def _headline(
        self, contacts: Mapping[str, Contact], presence: Mapping[str, Presence], parts: list[list[str]], now: float
    ) -> dict[str, Any]:
        away = {
            name: (presence[name], max(0.0, now - (one.at or one.since)))
            for name, one in contacts.items()
            if presence[name] in ("silent", "gone")
        }
        waiting = [name for name in contacts if presence[name] == "unknown"]
        if len(waiting) == len(contacts):
            return {"sentence": f"Looking for the {self.facts.kind} ...", "tone": "busy"}
        states = [contacts[name].state for name in contacts if presence[name] == "there"]
        learning = [state.get("round", 0) for state in states if state.get("phase") == "training"]
        busy = f"They are learning, round {max(learning)}." if learning else ""
        if states and not learning and not any(state.get("trained") for state in states):
            busy = "They have no model yet."
        names = [name for name in contacts if name not in waiting]
        failed = any(state.get("problem") or state.get("phase") == "failed" for state in states)
        tone = "bad" if away or len(parts) > 1 or failed else "busy" if busy else "good"
        return {"sentence": headline(self.facts.kind, names, away, parts, busy), "tone": tone}


def _between(a: str, b: str, contacts: Mapping[str, Contact]) -> int:
    return sum(int(contacts[one].state.get("sent", {}).get(other, 0)) for one, other in ((a, b), (b, a)))


def _time(state: Mapping[str, Any]) -> dict[str, str]:
    """The input that is the time, and its units."""
    return {name: state["time"][name] for name in ("input", "units")}


def _kinds(contacts: Any) -> dict[str, int]:
    """Bytes by kind of content, in words."""
    sizes: Counter[str] = Counter()
    for one in contacts:
        kinds = {**one.state.get("kinds", {}), "hellos": one.state.get("overhead", 0)}
        for kind, size in kinds.items():
            sizes[KINDS.get(kind, kind)] += int(size)
    return {word: size for word, size in sizes.items() if size}
