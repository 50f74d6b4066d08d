"""Who hears whom: the state of every link, and the parts of a fleet that is split. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

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
