"""Who takes part: agents agree on it by telling their neighbours what they know. No clock, no leader, no I/O.

Every agent keeps one record of each agent it has heard of, its own included, and passes on what is new. A link counts
where both its ends call it up. The agents that an agent can reach over such links are its view; a view has begun when
all its members have declared themselves ready for exactly this view. Whatever changes makes another view, so a part
that was cut off goes on as a view of its own, and what heals makes one view of two.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from fleetgp.errors import NetworkError
from fleetgp.graph import Graph


@dataclass(frozen=True)
class Record:
    """What an agent says of itself.

    incarnation: larger after every start of its process.  version: larger after every change.
    up: the neighbours it can work with.  restarts: how often it gave up a view that had begun.
    view: the view it is ready for, or works in; 0 while it is busy with something that is over.
    """

    agent: int
    incarnation: int
    version: int = 0
    up: tuple[int, ...] = ()
    restarts: int = 0
    view: int = 0

    @property
    def age(self) -> tuple[int, int]:
        return self.incarnation, self.version


@dataclass(frozen=True)
class View:
    """Members, and the links between them, both as the fleet's own ids."""

    members: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]
    id: int

    @cached_property
    def graph(self) -> Graph:
        """The links between the members 0, 1, ... in the order of their ids."""
        position = {member: number for number, member in enumerate(self.members)}
        return Graph(len(self.members), [(position[a], position[b]) for a, b in self.edges])

    def epoch(self, task: int) -> int:
        """The number that frames of the view's n-th task carry."""
        return _hash(f"{self.id} {task}", 4)


class Membership:
    """One agent's knowledge of who is there.

    graph: the fleet's, of all links there may be.

    >>> one, two = Membership(0, Graph.path(2), incarnation=1), Membership(1, Graph.path(2), incarnation=1)
    >>> one.call_up([1]), two.call_up([0])
    (True, True)
    >>> one.merge(two.records), two.merge(one.records)
    (True, True)
    >>> one.view == two.view, one.view.members, one.agreed
    (True, (0, 1), False)
    >>> one.declare(one.view.id), two.declare(two.view.id)
    (True, True)
    >>> one.merge(two.records), one.agreed
    (True, True)
    """

    def __init__(self, agent: int, graph: Graph, incarnation: int) -> None:
        self.agent, self.graph = agent, graph
        self.neighbours = tuple(graph.neighbours(agent))
        self._linked = {agent: set(graph.neighbours(agent)) for agent in range(graph.agents)}
        self._records = {agent: Record(agent, incarnation)}
        self._renewed()

    @property
    def own(self) -> Record:
        return self._records[self.agent]

    @property
    def records(self) -> tuple[Record, ...]:
        return tuple(self._records[agent] for agent in sorted(self._records))

    def of(self, agent: int) -> Record | None:
        return self._records.get(agent)

    # ---- what happens -------------------------------------------------------------------------------------

    def call_up(self, neighbours: Iterable[int]) -> bool:
        """The neighbours one can work with are these; whether that is news."""
        return self._say(up=tuple(sorted(set(neighbours) & set(self.neighbours))))

    def declare(self, view: int) -> bool:
        """Ready for a view; 0: busy with something that is over."""
        return self._say(view=view)

    def give_up(self) -> bool:
        """Leave a view that had begun: it can never begin again."""
        return self._say(view=0, restarts=self.own.restarts + 1)

    def merge(self, records: Iterable[Record]) -> bool:
        """Take in what a neighbour knows; whether some of it was news."""
        news = False
        for record in records:
            if not 0 <= record.agent < self.graph.agents:
                continue
            if record.agent == self.agent:
                if record.age > self.own.age:  # said by an earlier self
                    self._records[self.agent] = replace(
                        self.own, incarnation=record.incarnation + 1, version=self.own.version + 1
                    )
                    news = True
                continue
            known = self._records.get(record.agent)
            if known is None or record.age > known.age:
                self._records[record.agent] = record
                news = True
        if news:
            self._renewed()
        return news

    # ---- what follows ---------------------------------------------------------------------------------------

    @property
    def agreed(self) -> bool:
        """Whether all members of the view are ready for it."""
        return all(self._records[member].view == self.view.id for member in self.view.members)

    @property
    def unready(self) -> tuple[int, ...]:
        """The members that have not declared themselves ready for this view."""
        return tuple(m for m in self.view.members if self._records[m].view != self.view.id)

    @property
    def summary(self) -> int:
        """A number that two agents have in common where they know the same."""
        return self._summary

    def _say(self, **changes: Any) -> bool:
        if all(getattr(self.own, name) == value for name, value in changes.items()):
            return False
        self._records[self.agent] = replace(self.own, version=self.own.version + 1, **changes)
        self._renewed()
        return True

    def _renewed(self) -> None:
        linked: dict[int, list[int]] = {agent: [] for agent in self._records}  # up at both ends
        for agent, record in self._records.items():
            for other in record.up:
                if other in self._linked[agent] and other in self._records and agent in self._records[other].up:
                    linked[agent].append(other)
        members, front = {self.agent}, [self.agent]
        while front:
            front = [other for agent in front for other in linked[agent] if other not in members]
            members.update(front)
        edges = tuple(sorted((a, b) for a in members for b in set(linked[a]) if a < b))
        named = tuple(sorted(members))
        started = [(m, self._records[m].incarnation, self._records[m].restarts) for m in named]
        self.view = View(named, edges, _hash(f"{started} {edges}", 6))
        self._summary = _hash(str([(r.agent, r.age) for r in self.records]), 6)


# ---- as bytes -----------------------------------------------------------------------------------------------


def encode_records(records: Iterable[Record]) -> list[dict[str, Any]]:
    return [asdict(record) for record in records]


def decode_records(items: object) -> list[Record]:
    """Records as they were told, or a NetworkError."""
    if not isinstance(items, list) or len(items) > 100_000:
        raise NetworkError("a list of records was expected")
    return [_record(item) for item in items]


def _record(item: object) -> Record:
    if not isinstance(item, dict) or set(item) != set(Record.__dataclass_fields__):
        raise NetworkError("a record with all its fields was expected")
    up = item["up"]
    numbers: Sequence[object] = [value for name, value in item.items() if name != "up"]
    if not isinstance(up, list) or not all(_whole(value) for value in (*numbers, *up)):
        raise NetworkError("a record must hold whole numbers")
    return Record(**{**item, "up": tuple(sorted(set(up)))})


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _hash(text: str, size: int) -> int:
    """A number of this many bytes; never 0."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:size]) or 1
