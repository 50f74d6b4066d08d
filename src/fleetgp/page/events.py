"""What happens in a fleet, and how the page says it: who is there, which links work, events, sentences. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

# ---- who is there, and who hears whom -------------------------------------------------------------------------

#: there: it answers.  silent: a process is there and says nothing.  gone: nobody listens at its address.
#: unheard: not by us, but its neighbours hear it.  unknown: it has not been asked yet.
Presence = Literal["there", "silent", "gone", "unheard", "unknown"]
#: up: both ends can work with each other.  frozen: the link stands, and one end says nothing or missed deadlines.
#: down: the ends do not hear each other.  missing: one end is gone.  refused: they hold different descriptions.
LinkState = Literal["up", "frozen", "down", "missing", "refused", "unknown"]


@dataclass(frozen=True)
class Contact:
    """What is known of an agent.

    state: its last status, or {}.  at: the wall-clock time of that status, or 0.  trouble: "" if it answers.
    since: when this began.  why: the reason why it cannot be reached, if known.
    """

    state: Mapping[str, Any] = field(default_factory=dict)
    at: float = 0.0
    trouble: Literal["", "silent", "gone", "unknown"] = "unknown"
    since: float = 0.0
    why: str = ""


def presence_of(
    name: str, contacts: Mapping[str, Contact], neighbours: Iterable[str], now: float, lease: float
) -> Presence:
    """Whether an agent is there. Its neighbours' reports count once they would have noticed that it is not."""
    own = contacts[name]
    if not own.trouble:
        return "there"
    if own.trouble != "unknown" and now - own.since > 2.0 * lease:
        reports = [contacts[other].state.get("neighbours", {}) for other in neighbours if not contacts[other].trouble]
        if any(links.get(name) == "up" for links in reports):
            return "unheard"
    return own.trouble


def link_state(a: str, b: str, contacts: Mapping[str, Contact], presence: Mapping[str, Presence]) -> LinkState:
    """The state of the link between two agents, from the reports of both ends."""
    ends = (presence[a], presence[b])
    if "gone" in ends:
        return "missing"
    if "silent" in ends:
        return "frozen"
    reports = {contacts[one].state.get("neighbours", {}).get(other) for one, other in ((a, b), (b, a))
               if presence[one] == "there"} - {None}  # fmt: skip
    if not reports:
        return "unknown"
    if reports == {"up"}:
        return "up"
    if any(report.startswith("refused") for report in reports):
        return "refused"
    return "down" if "down" in reports else "frozen"


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


# ---- sentences: short, and in the words of people on a boat ---------------------------------------------------

#: What an agent does, after its name.
PHASES = {
    "starting": "is starting",
    "agreeing": "looks for the others",
    "training": "is learning",
    "calibrating": "checks its intervals",
    "predicting": "is answering",
    "serving": "is ready",
    "failed": "cannot work",
    "stopped": "has stopped",
}
#: What is sent, by kind of content.
KINDS = {
    "hyperparameters": "estimates",
    "predictions": "answers",
    "inputs": "places of measurements",
    "observations": "measurements",
    "statistics": "sums",
    "stopping": "when to stop",
    "queries": "questions",
    "agenda": "what to do next",
    "moments": "sums of all data",
    "participants": "who has a say",
    "framing": "envelopes",
    "hellos": "hellos",
}


def kind_of(names: Sequence[str]) -> str:
    """What the agents are, if their names say so.

    >>> kind_of(["boat1", "boat2"]), kind_of(["Anna", "Berta"]), kind_of(["auv-1", "auv-2"])
    ('boats', 'agents', 'auvs')
    """
    stems = {re.sub(r"[\W\d_]+$", "", name) for name in names}
    stem = next(iter(stems))
    return f"{stem}s" if len(stems) == 1 and len(names) > 1 and len(stem) > 1 and not stem.endswith("s") else "agents"


def counted(kind: str, count: int) -> str:
    """
    >>> counted("boats", 1), counted("boats", 3)
    ('1 boat', '3 boats')
    """
    return f"{count} {kind[:-1] if count == 1 else kind}"


def name_list(names: Sequence[str], most: int = 6) -> str:
    """
    >>> name_list(["a", "b", "c"]), name_list(["a"]), name_list(list("abcdefgh"), 3)
    ('a, b and c', 'a', 'a, b, c and 5 more')
    """
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]])) if names else "nobody"


def ago(seconds: float) -> str:
    """
    >>> ago(0.2), ago(12.3), ago(200), ago(9_000), ago(400_000)
    ('1 s', '12 s', '3 min', '2 h', '4 days')
    """
    for most, unit, size in ((120.0, "s", 1.0), (7_200.0, "min", 60.0), (172_800.0, "h", 3_600.0)):
        if seconds < most:
            return f"{max(1, int(seconds // size))} {unit}"
    return f"{int(seconds // 86_400.0)} days"


def short_number(value: float) -> str:
    """Three digits, as people write them.

    >>> short_number(1.2345), short_number(-0.00012), short_number(12345.6)
    ('1.23', '-0.00012', '12300')
    """
    text = f"{value:.3g}"
    return f"{float(text):.0f}" if "e+" in text and abs(value) < 1e7 else text.replace("e-0", "e-").replace("e+0", "e+")


def theta_sentences(
    theta: Mapping[str, float], inputs: Sequence[str], target: str, length_unit: str = ""
) -> dict[str, str]:
    """What each hyperparameter means for the field, by its name.

    >>> theta_sentences({"l_x": 1.2, "sigma_f": 0.9, "sigma_eps": 0.1, "period": 3.0}, ["x"], "salinity")["l_x"]
    'The field changes over 1.2 along x.'
    """
    sentences = {}
    for name, value in theta.items():
        shown = short_number(value)
        base, _, rest = name.partition("_")
        if base == "l" and rest in inputs:
            sentences[name] = f"The field changes over {shown}{length_unit} along {rest}."
        elif name == "l":
            sentences[name] = f"The field changes over {shown}{length_unit}."
        elif name == "sigma_f":
            sentences[name] = f"Values of {target} vary by about {shown}."
        elif name == "sigma_eps":
            sentences[name] = f"Measurements scatter by about {shown}."
        elif name.startswith("sigma_eps_"):
            sentences[name] = f"Measurements of {name.removeprefix('sigma_eps_')} scatter by about {shown}."
        else:
            sentences[name] = f"{name} is {shown}."
    return sentences


def disagreement_text(disagreement: float) -> str:
    """How far neighbours are apart in log theta, in words.

    >>> disagreement_text(0.0), disagreement_text(0.02), disagreement_text(3.0)
    ('all the same', 'up to 2.02 % apart', 'far apart')
    """
    if disagreement < 1e-6:
        return "all the same"
    if disagreement > 2.0:
        return "far apart"
    return f"up to {short_number(100.0 * (2.718281828459045**disagreement - 1.0))} % apart"


def new_rows_sentence(name: str, count: int) -> str:
    return f"{name} has {count:,} new measurement{'' if count == 1 else 's'}."


def new_model_sentence(by: Sequence[str], status: str) -> tuple[str, str]:
    """The sentence about a training that has ended, and its tone.

    >>> new_model_sentence(["a", "b"], "converged")
    ('There is a new model, learned by a and b.', 'info')
    """
    learned = f", learned by {name_list(by)}" if by else ""
    ended = "" if status == "converged" else f" It ended by {status}, not by agreement."
    return f"There is a new model{learned}.{ended}", "bad" if ended else "info"


def absence_sentence(presence: str, names: Sequence[str], seconds: float) -> str:
    """Who is absent, with the word that the table of agents uses. seconds: for how long, if it is one agent.

    >>> absence_sentence("gone", ["boat2"], 12.0), absence_sentence("silent", ["boat2", "boat3"], 12.0)
    ('boat2 has been gone for 12 s.', 'boat2 and boat3 are silent.')
    """
    if len(names) == 1:
        return f"{names[0]} has been {presence} for {ago(seconds)}."
    return f"{name_list(names, 4)} are {presence}."


def headline(
    kind: str, names: Sequence[str], missing: Mapping[str, tuple[str, float]], parts: Sequence[Sequence[str]], busy: str
) -> str:
    """The sentence at the top. missing: who is "gone" or "silent", and for how many seconds.  busy: a sentence more.

    >>> headline("boats", ["boat1", "boat2", "boat3"], {"boat2": ("gone", 12.0)}, [["boat1", "boat3"]], "")
    '2 of 3 boats are there. boat2 has been gone for 12 s.'
    >>> headline("boats", ["boat1", "boat2"], {}, [["boat1"], ["boat2"]], "")
    'All 2 boats are there. They are in 2 parts that do not hear each other: boat1; boat2.'
    """
    there = len(names) - len(missing)
    if not there:
        return f"None of the {counted(kind, len(names))} answers."
    verb = "is" if there == 1 else "are"
    whole = f"All {counted(kind, there)} {verb} there."
    sentences = [f"{there} of {len(names)} {kind} {verb} there." if missing else whole]
    for presence in ("gone", "silent"):
        absent = [name for name in names if missing.get(name, ("",))[0] == presence]
        if absent:
            sentences.append(absence_sentence(presence, absent, missing[absent[0]][1]))
    if len(parts) > 1:
        groups = "; ".join(name_list(list(part), 4) for part in parts)
        sentences.append(f"They are in {len(parts)} parts that do not hear each other: {groups}.")
    return " ".join([*sentences, *([busy] if busy else [])])


# ---- events -----------------------------------------------------------------------------------------------------

#: How a changed link is described.
LINK_CHANGES = {
    "up": "hear each other",
    "down": "do not hear each other any more",
    "frozen": "are linked, but one of them says nothing",
    "refused": "hold different fleet descriptions",
}
LEARNING = "The fleet has begun to learn."
#: Lines of an agent's log that are shown as events.
LOGGED = (
    "failed",
    "trouble",
    "nonsense",
    "training failed",
    "not calibrated",
    "certificate expired",
    "a question cannot be answered",
)
#: How many events of one agent are shown from before the page was opened; equal ones within SAME seconds are one.
PAST, SAME = 8, 30.0
#: The name under which the page asks: its own maps are not listed as questions.
PAGE, PAGE_MAP = "page", "page map"


class EventLog:
    """Finds the events between each picture and the one before it."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._before: dict[str, Any] = {}
        self._lines: dict[str, tuple[float, int]] = {}
        self._opened: float | None = None
        self._past: dict[str, float] = {}

    def compare(self, picture: dict[str, Any], contacts: Mapping[str, Contact], now: float) -> Iterator[dict[str, Any]]:
        """Events, and questions that were answered (with "points")."""
        before, self._before = self._before, {key: picture[key] for key in ("agents", "links", "parts", "model")}
        if before:
            for text, tone in (*self._agents(before, picture), *self._links(before, picture)):
                yield {"t": round(now, 1), "words": text, "tone": tone}
            for text, tone in (*self._parts(before, picture), *self._model(before, picture)):
                yield {"t": round(now, 1), "words": text, "tone": tone}
        self._opened = now if self._opened is None else self._opened
        for name, one in contacts.items():
            if one.state and name not in self._lines:
                yield from self._before_opening(name, one.state.get("events", ()), self._opened)
            if one.state:
                yield from self._logged_by(name, one.state)

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
                yield new_rows_sentence(name, more), "info"
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
                continue  # an agent that is gone or back is one event, not one for each of its links
            yield f"{link['a']} and {link['b']} {LINK_CHANGES[now]}.", "good" if now == "up" else "bad"

    def _parts(self, before: dict[str, Any], after: dict[str, Any]) -> Iterator[tuple[str, str]]:
        was, now = len(before["parts"]), len(after["parts"])
        if now > 1 and now != was:
            yield f"The fleet is in {now} parts: {'; '.join(name_list(part, 4) for part in after['parts'])}.", "bad"
        elif was > 1 and now == 1:
            yield "The fleet is whole again.", "good"

    def _model(self, before: dict[str, Any], after: dict[str, Any]) -> Iterator[tuple[str, str]]:
        was, now = before["model"], after["model"]
        if now.get("learning") and not was.get("learning"):
            yield LEARNING, "info"
        if now.get("id", "0") != was.get("id", "0") and now.get("by"):
            yield new_model_sentence(now["by"], now["status"])

    def _before_opening(self, name: str, lines: Iterable[Mapping[str, Any]], opened: float) -> Iterator[dict[str, Any]]:
        """Events from before the page was opened. What several agents have logged is shown once."""
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
            yield new_rows_sentence(name, line.get("rows", 0)), "info"
        elif event == "view" and line.get("missing"):
            members = line.get("members", [name])
            works = "works" if len(members) == 1 else "work"
            yield f"{name_list(members)} {works} without {name_list(line['missing'])}.", "bad"
        elif event == "view":
            yield f"All {self._kind} are there.", "good"
        elif event == "training":
            yield LEARNING, "info"
        elif event == "trained":
            yield new_model_sentence(learners, line.get("status", ""))

    def _logged_by(self, name: str, state: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """New lines of an agent's own log; an agent that was started again counts from 1."""
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
            elif line["event"] in LOGGED:
                why = line.get("error") or line.get("why") or ""
                yield {"t": round(line["time"], 1), "words": f"{name}: {line['event']}. {why}".strip(), "tone": "bad"}
        self._lines[name] = began, last
