"""What happened between two pictures of a fleet, in words. Pure.

Who hears whom: the state of every link, and the parts of a fleet that is split. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fleetgp.page import words

#: there: it answers.  silent: a process is there and says nothing.  gone: nobody listens at its address.
#: unheard: not by us, but its neighbours hear it.  unknown: it has not been asked yet.
Presence = Literal["there", "silent", "gone", "unheard", "unknown"]
#: up: both ends can work with each other.  frozen: the link stands, and one end says nothing or missed deadlines.
#: down: the ends do not hear each other.  missing: one end is gone.  refused: they hold different descriptions.
LinkState = Literal["up", "frozen", "down", "missing", "refused", "unknown"]


@dataclass(frozen=True)
class Heard:
    """What is known of an agent. state: its last status, {} if there never was one.  at: when it was heard, on the wall
    clock; 0 for never.  trouble: why not since, "" if it answers.  since: from when on it is as it is.
    why: what is known of why it cannot be reached.
    """

    state: Mapping[str, Any] = field(default_factory=dict)
    at: float = 0.0
    trouble: Literal["", "silent", "gone", "unknown"] = "unknown"
    since: float = 0.0
    why: str = ""


def presence_of(name: str, heard: Mapping[str, Heard], neighbours: Iterable[str], now: float, lease: float) -> Presence:
    """Whether an agent is there. Its neighbours' word counts once they would have noticed that it is not."""
    own = heard[name]
    if not own.trouble:
        return "there"
    if own.trouble != "unknown" and now - own.since > 2.0 * lease:
        told = (heard[other] for other in neighbours)
        if any(not one.trouble and one.state.get("neighbours", {}).get(name) == "up" for one in told):
            return "unheard"
    return own.trouble


def link_state(a: str, b: str, heard: Mapping[str, Heard], presence: Mapping[str, Presence]) -> LinkState:
    """Of the link between two agents, from what both ends say."""
    ends = (presence[a], presence[b])
    if "gone" in ends:
        return "missing"
    if "silent" in ends:
        return "frozen"
    pairs = ((a, b), (b, a))
    told = [heard[one].state.get("neighbours", {}).get(other) for one, other in pairs if presence[one] == "there"]
    said = [word for word in told if word is not None]
    if not said:
        return "unknown"
    if all(word == "up" for word in said):
        return "up"
    if any(word.startswith("refused") for word in said):
        return "refused"
    return "down" if "down" in said else "frozen"


def parts_of(names: Sequence[str], up: Iterable[tuple[str, str]]) -> list[list[str]]:
    """The agents that can reach each other, in the order of their names; the largest part first.

    >>> parts_of(["a", "b", "c", "d"], [("b", "c"), ("c", "d")])
    [['b', 'c', 'd'], ['a']]
    """
    part = {name: name for name in names}

    def first(name: str) -> str:
        while part[name] != name:
            name = part[name]
        return name

    for a, b in up:
        if a in part and b in part:
            part[first(b)] = first(a)
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(first(name), []).append(name)
    return sorted(groups.values(), key=lambda group: (-len(group), names.index(group[0])))


#: What is said of a link that has changed.
LINKS = {
    "up": "hear each other",
    "down": "do not hear each other any more",
    "frozen": "are linked, but one of them says nothing",
    "refused": "hold different fleet descriptions",
}
LEARNING = "The fleet has begun to learn."
#: Lines of an agent's log that are events of the page.
TOLD = (
    "failed",
    "trouble",
    "nonsense",
    "training failed",
    "not calibrated",
    "certificate expired",
    "a question cannot be answered",
)
#: Events of one agent that are shown from before the page was opened, and seconds within which equal ones are the same.
PAST, SAME = 8, 30.0
#: What the page calls itself when it asks: its own maps are not what somebody asked.
PAGE, PAGE_MAP = "page", "page map"


class Happenings:
    """Compares each picture with the one before it."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._before: dict[str, Any] = {}
        self._lines: dict[str, tuple[float, int]] = {}
        self._opened: float | None = None
        self._past: dict[str, float] = {}

    def compare(self, picture: dict[str, Any], heard: Mapping[str, Heard], now: float) -> Iterator[dict[str, Any]]:
        """Events, and questions that were answered (with "points")."""
        before, self._before = self._before, {key: picture[key] for key in ("agents", "links", "parts", "model")}
        if before:
            for text, tone in (*self._agents(before, picture), *self._links(before, picture)):
                yield {"t": round(now, 1), "words": text, "tone": tone}
            for text, tone in (*self._parts(before, picture), *self._model(before, picture)):
                yield {"t": round(now, 1), "words": text, "tone": tone}
        self._opened = now if self._opened is None else self._opened
        for name, one in heard.items():
            if one.state and name not in self._lines:
                yield from self._before_opening(name, one.state.get("events", ()), self._opened)
            if one.state:
                yield from self._told_by(name, one.state)

    def _agents(self, before: dict[str, Any], after: dict[str, Any]) -> Iterator[tuple[str, str]]:
        for name, agent in after["agents"].items():
            old = before["agents"].get(name, {"presence": "unknown"})
            was, now = old["presence"], agent["presence"]
            if was != now and now == "there":
                yield (f"{name} is back." if was in ("gone", "silent", "unheard") else f"{name} is there."), "good"
            elif was != now and now in ("gone", "silent"):
                yield f"{name} {'is gone' if now == 'gone' else 'has fallen silent'}.", "bad"
            more = agent.get("rows", 0) - old.get("rows", agent.get("rows", 0))
            if more > 0:
                yield words.new_rows(name, more), "info"
            why = agent.get("why", "")
            if why and why != old.get("why", ""):
                yield f"{name} cannot be reached: {why}.", "bad"
            problem = agent.get("problem", "")
            if problem and problem != old.get("problem", ""):
                yield f"{name}: {problem}", "bad"

    def _links(self, before: dict[str, Any], after: dict[str, Any]) -> Iterator[tuple[str, str]]:
        for key, link in after["links"].items():
            was, now = before["links"].get(key, {"state": "unknown"})["state"], link["state"]
            if "unknown" in (was, now):
                continue
            ends = {one["agents"][name]["presence"] for one in (before, after) for name in (link["a"], link["b"])}
            if was == now or ends != {"there"}:
                continue  # that an agent is gone or back is said of it, not of each of its links
            yield f"{link['a']} and {link['b']} {LINKS[now]}.", "good" if now == "up" else "bad"

    def _parts(self, before: dict[str, Any], after: dict[str, Any]) -> Iterator[tuple[str, str]]:
        was, now = len(before["parts"]), len(after["parts"])
        if now > 1 and now != was:
            yield f"The fleet is in {now} parts: {'; '.join(words.listed(part, 4) for part in after['parts'])}.", "bad"
        elif was > 1 and now == 1:
            yield "The fleet is whole again.", "good"

    def _model(self, before: dict[str, Any], after: dict[str, Any]) -> Iterator[tuple[str, str]]:
        was, now = before["model"], after["model"]
        if now.get("learning") and not was.get("learning"):
            yield LEARNING, "info"
        if now.get("id", "0") != was.get("id", "0") and now.get("by"):
            yield words.new_model(now["by"], now["status"])

    def _before_opening(self, name: str, lines: Iterable[Mapping[str, Any]], opened: float) -> Iterator[dict[str, Any]]:
        """What an agent's log has from before the page was opened. What several agents have logged is shown once."""
        learners: list[str] = []
        past = []
        for line in lines:
            if line["time"] >= opened:
                break
            learners = line.get("members", []) if line["event"] == "training" else learners
            past += [(line["time"], *event) for event in self._past_event(name, line, learners)]
        for time, text, tone in past[-PAST:]:
            if abs(time - self._past.get(text, -SAME)) >= SAME:
                self._past[text] = time
                yield {"t": round(time, 1), "words": text, "tone": tone}

    def _past_event(self, name: str, line: Mapping[str, Any], learners: list[str]) -> Iterator[tuple[str, str]]:
        event = line["event"]
        if event == "started":
            yield f"{name} was started.", "good"
        elif event == "observed":
            yield words.new_rows(name, line.get("rows", 0)), "info"
        elif event == "view" and line.get("missing"):
            members = line.get("members", [name])
            works = "works" if len(members) == 1 else "work"
            yield f"{words.listed(members)} {works} without {words.listed(line['missing'])}.", "bad"
        elif event == "view":
            yield f"All {self._kind} are there.", "good"
        elif event == "training":
            yield LEARNING, "info"
        elif event == "trained":
            yield words.new_model(learners, line.get("status", ""))

    def _told_by(self, name: str, state: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """What an agent's own log says that is new; an agent that was started again counts from 1."""
        began, last = self._lines.get(name, (0.0, 0))
        if state.get("began", 0.0) != began:
            began, last = state.get("began", 0.0), 0
        for line in state.get("events", ()):
            if line["number"] <= last:
                continue
            last = line["number"]
            if line["event"] == "answered" and line.get("asker") != PAGE_MAP:
                yield {
                    "t": round(line["time"], 1),
                    "agent": name,
                    "points": line.get("queries", 0),
                    "method": line.get("method", ""),
                    "took_part": line.get("took_part", []),
                    "missing": line.get("missing", []),
                    "rounds": line.get("rounds", 0),
                    "by_page": line.get("asker") == PAGE,
                }
            elif line["event"] in TOLD:
                why = line.get("error") or line.get("why") or ""
                yield {"t": round(line["time"], 1), "words": f"{name}: {line['event']}. {why}".strip(), "tone": "bad"}
        self._lines[name] = began, last
