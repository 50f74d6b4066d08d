"""States of agents in, one picture of the fleet out: plain values, for a browser. Pure, and bounded.

A picture is a dictionary without None, whose lists of what happened are dictionaries by running numbers: so that what
is new in it is a small patch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleetgp.operator.client import former_members
from fleetgp.page import words
from fleetgp.page.happenings import Happenings, Heard, LinkState, Presence, link_state, parts_of, presence_of

#: Estimates over time, events and questions that are kept.
ESTIMATES, EVENTS, QUESTIONS = 240, 60, 20


@dataclass(frozen=True)
class Facts:
    """What does not change of a fleet. edges: pairs of names.  lease: seconds after which a silent link is dead.

    methods: of prediction; method: the file's own.  length_unit: of length-scales, like " km".
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
        return words.kind_of(self.names)

    def neighbours(self, name: str) -> list[str]:
        return [b if a == name else a for a, b in self.edges if name in (a, b)]

    def told(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.kind,
            "inputs": list(self.inputs),
            "target": self.target,
            "methods": list(self.methods),
            "method": self.method,
            "simulated": self.simulated,
        }


class Numbered:
    """The last few of many things, by running numbers."""

    def __init__(self, most: int) -> None:
        self._kept: deque[tuple[int, dict[str, Any]]] = deque(maxlen=most)
        self._count = 0

    def add(self, thing: dict[str, Any]) -> None:
        self._count += 1
        self._kept.append((self._count, thing))

    def last(self) -> dict[str, Any] | None:
        return self._kept[-1][1] if self._kept else None

    def told(self) -> dict[str, dict[str, Any]]:
        return {str(number): thing for number, thing in self._kept}


class Counted:
    """Sums of counters that begin anew when their agent does."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}
        self.total = 0.0

    def take(self, name: str, value: float) -> None:
        before = self._last.get(name, 0.0)
        self.total += value - before if value >= before else value
        self._last[name] = value


class Collector:
    """Makes a picture after the other. frames: bytes that the fleet sent in rounds; all_bytes: and in hellos."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._estimates, self._events, self._questions = Numbered(ESTIMATES), Numbered(EVENTS), Numbered(QUESTIONS)
        self._happenings = Happenings(facts.kind)
        self._bytes, self._hellos = Counted(), Counted()
        self._model: tuple[Any, float] = (None, 0.0)
        self._shown: dict[str, Any] = {}

    @property
    def all_bytes(self) -> float:
        return self._bytes.total

    @property
    def frames(self) -> float:
        return self._bytes.total - self._hellos.total

    def take(self, heard: Mapping[str, Heard], now: float) -> dict[str, Any]:
        """The picture at a time. heard: what is known of each agent."""
        facts = self.facts
        states = {name: one.state for name, one in heard.items()}
        former = former_members(states, [name for name, one in heard.items() if not one.trouble])
        names = [name for name in facts.names if name not in former]
        presence = {name: presence_of(name, heard, facts.neighbours(name), now, facts.lease) for name in names}
        heard = {name: heard[name] for name in names}
        links = {(a, b): link_state(a, b, heard, presence) for a, b in facts.edges if a in heard and b in heard}
        there = [name for name in names if presence[name] in ("there", "unheard")]
        parts = parts_of(there, [edge for edge, state in links.items() if state == "up"])
        self._count(heard)
        picture = {
            "fleet": facts.told(),
            "now": round(now, 3),
            "agents": {name: self._agent(name, heard[name], presence[name], parts) for name in names},
            "links": {
                f"{a}|{b}": {"a": a, "b": b, "state": state, "bytes": _between(a, b, heard)}
                for (a, b), state in links.items()
            },
            "parts": parts,
            "kinds": _kinds(heard.values()),
            "totals": self._totals(heard, there),
            **self._model_of(heard, there, now),
        }
        picture |= self._standing(heard, presence, parts, now)
        for event in self._happenings.compare(picture, heard, now):
            (self._questions if "points" in event else self._events).add(event)
        for name, kept in (("series", self._estimates), ("events", self._events), ("questions", self._questions)):
            picture[name] = kept.told()
        return picture

    def _count(self, heard: Mapping[str, Heard]) -> None:
        for name, one in heard.items():
            if one.state:
                self._bytes.take(name, one.state.get("bytes", 0))
                self._hellos.take(name, one.state.get("overhead", 0))

    def _agent(self, name: str, heard: Heard, presence: Presence, parts: Sequence[Sequence[str]]) -> dict[str, Any]:
        state = heard.state
        told: dict[str, Any] = {"presence": presence, "heard": round(heard.at, 1), "since": round(heard.since, 1)}
        for number, part in enumerate(parts):
            if name in part:
                told["part"] = number
        if heard.why:
            told["why"] = heard.why
        if not state:
            return told
        other = bool(self.facts.digest and state.get("digest") != self.facts.digest)
        phase = state.get("phase", "starting")
        told |= {
            "phase": phase,
            "words": words.PHASES.get(phase, phase),
            "round": state.get("round", 0),
            "rows": state.get("rows", 0),
            "new_rows": state.get("new_rows", 0),
            "bytes": state.get("bytes", 0),
            "hears": [other for other, word in state.get("neighbours", {}).items() if word == "up"],
            "shows_rows": bool(state.get("shows_rows")),
            "problem": "It holds another fleet description than this page." if other else state.get("problem", ""),
        }
        if state.get("place"):
            told["place"] = state["place"]
        return told

    def _totals(self, heard: Mapping[str, Heard], there: Sequence[str]) -> dict[str, Any]:
        states = [heard[name].state for name in there]
        return {
            "bytes": int(self.all_bytes),
            "rows": sum(state.get("rows", 0) for state in states),
            "new_rows": sum(state.get("new_rows", 0) for state in states),
        }

    def _model_of(self, heard: Mapping[str, Heard], there: Sequence[str], now: float) -> dict[str, Any]:
        """What most agents have learned, and how it came about over time."""
        states = [heard[name].state for name in there if heard[name].state.get("theta")]
        if not states:  # what they had learned stays in sight
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
            "words": words.estimates(theta, self.facts.inputs, self.facts.target, self.facts.length_unit),
            "theta": theta,
            "by": trained.get("by", []),
            "method": trained.get("method", ""),
            "status": trained.get("status", ""),
            "learning": learning,
            "round": busy.get("round", 0) if learning else trained.get("rounds", 0),
            "differ": words.differ(spread),
            "same": ids.count(common) == len(ids),
        }
        told = {"theta": list(busy["theta"].values()), "spread": spread, "round": model["round"], "learning": learning}
        last = self._estimates.last()
        if last is None or {key: last[key] for key in told} != told:
            self._estimates.add({"t": round(now, 1), **told})
        self._shown = {**model, "learning": False}
        return {"model": model}

    def _standing(
        self,
        heard: Mapping[str, Heard],
        presence: Mapping[str, Presence],
        parts: Sequence[Sequence[str]],
        now: float,
    ) -> dict[str, Any]:
        away = {
            name: (presence[name], max(0.0, now - (one.at or one.since)))
            for name, one in heard.items()
            if presence[name] in ("silent", "gone")
        }
        waiting = [name for name in heard if presence[name] == "unknown"]
        if len(waiting) == len(heard):
            return {"sentence": f"Looking for the {self.facts.kind} ...", "tone": "busy"}
        states = [heard[name].state for name in heard if presence[name] == "there"]
        learning = [state.get("round", 0) for state in states if state.get("phase") == "training"]
        busy = f"They are learning, round {max(learning)}." if learning else ""
        if states and not learning and not any(state.get("trained") for state in states):
            busy = "They have no model yet."
        names = [name for name in heard if name not in waiting]
        failed = any(state.get("problem") or state.get("phase") == "failed" for state in states)
        tone = "bad" if away or len(parts) > 1 or failed else "busy" if busy else "good"
        return {"sentence": words.standing(self.facts.kind, names, away, parts, busy), "tone": tone}


def _between(a: str, b: str, heard: Mapping[str, Heard]) -> int:
    return sum(int(heard[one].state.get("sent", {}).get(other, 0)) for one, other in ((a, b), (b, a)))


def _kinds(heard: Any) -> dict[str, int]:
    """Bytes by kind of content, in words."""
    found: dict[str, int] = {}
    for one in heard:
        kinds = {**one.state.get("kinds", {}), "hellos": one.state.get("overhead", 0)}
        for kind, size in kinds.items():
            word = words.KINDS.get(kind, kind)
            found[word] = found.get(word, 0) + int(size)
    return {word: size for word, size in found.items() if size}


__all__ = ["Collector", "Counted", "Facts", "Heard", "LinkState", "Numbered"]
