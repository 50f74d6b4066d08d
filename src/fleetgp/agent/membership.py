"""Who takes part: agents agree on it by sending their neighbours what they know. No clock, no leader, no I/O.

Every agent keeps one record of each agent it knows of, its own included, and passes on what is new. A link counts
where both its ends call it up. The agents that an agent can reach over such links are its view; a view has begun when
all its members have declared themselves ready for exactly this view. Whatever changes makes another view, so a part
that was cut off continues as a view of its own, and what heals makes one view of two.

A record goes to a neighbour if it is newer than what that neighbour is known to have: because it was sent to it, or
because the neighbour itself sent it. So one change crosses every link at most once in each direction, however many
agents there are. Messages may be lost. Neighbours then differ in their summaries; if that lasts, each forgets what it
believed the other to have and sends everything it knows. Hellos carry all this, twice a second and after each change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, NamedTuple

from pydantic import FailFast, Field

from fleetgp.agent.records import Codec, Ids, IdSet, LogTheta, Strict, T, Whole
from fleetgp.errors import NetworkError
from fleetgp.graph import Graph
from fleetgp.network.zenoh.links import LONGEST_INTRODUCTION

#: Incarnations are milliseconds since 1970. How far one may lie beyond what is known: some 70 years. Clocks may be that
#: wrong, but no agent can make another one's number so large that it has no next. Beyond the largest age is nonsense.
INCARNATION_LEAP = 2**41
LARGEST_AGE = 2**60

#: Incarnation and version of a record.
Age = tuple[int, int]


class Record(NamedTuple):
    """What an agent announces about itself: a tuple, since a hello may carry one of every agent.

    incarnation: larger after every start of its process.  version: larger after every change.
    up: the neighbours it can work with.  restarts: how often it gave up a view that had begun.
    view: the view it is ready for, or works in; 0 while it is busy with something that is over.
    """

    agent: Whole
    incarnation: Whole
    version: Whole = 0
    up: Ids = ()
    restarts: Whole = 0
    view: Whole = 0

    @property
    def age(self) -> Age:
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
        self._began = incarnation
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

    def check(self, records: Iterable[Record]) -> None:
        """Raise a NetworkError if records of any agent are impossible: nobody may pass them on."""
        for record in records:
            if record.agent not in self._linked:
                raise NetworkError(f"a record of agent {record.agent}, which this fleet does not have")
            if not self._linked[record.agent].issuperset(record.up):
                raise NetworkError(f"a record of agent {record.agent} with links that this fleet does not have")
            if max(record.age) >= LARGEST_AGE:
                raise NetworkError(f"a record of agent {record.agent} with the incarnation {record.incarnation}")

    def merge(self, records: Iterable[Record]) -> bool:
        """Take in what a neighbour knows; whether some of it was news."""
        news = False
        for record in records:
            if record.agent not in self._linked or record.incarnation > self._latest(record.agent):
                continue  # who relays it may know more of the time than we do, and is not to blame
            if record.agent == self.agent:
                if record.age > self.own.age:  # of an earlier process of this agent
                    self._records[self.agent] = self.own._replace(
                        incarnation=record.incarnation + 1, version=self.own.version + 1
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

    def _latest(self, agent: int) -> int:
        """The largest incarnation of an agent that is believed.

        Of this agent itself it is half as far away: it takes the next number then, which the others must believe.
        """
        if agent == self.agent:
            return self.own.incarnation + INCARNATION_LEAP // 2
        known = self._records.get(agent)
        return max(self._began, 0 if known is None else known.incarnation) + INCARNATION_LEAP

    # ---- what follows ---------------------------------------------------------------------------------------

    @property
    def agreed(self) -> bool:
        return all(self._records[member].view == self.view.id for member in self.view.members)

    @property
    def unready(self) -> tuple[int, ...]:
        """The members that have not declared themselves ready for this view."""
        return tuple(m for m in self.view.members if self._records[m].view != self.view.id)

    def _say(self, **changes: Any) -> bool:
        if all(getattr(self.own, name) == value for name, value in changes.items()):
            return False
        self._records[self.agent] = self.own._replace(version=self.own.version + 1, **changes)
        self._renewed()
        return True

    def _renewed(self) -> None:
        self.__dict__.pop("view", None)
        self.__dict__.pop("summary", None)

    @cached_property
    def summary(self) -> int:
        """A number that two agents have in common where they know the same."""
        return _hash(str([(r.agent, r.age) for r in self.records]), 6)

    @cached_property
    def view(self) -> View:
        """The agents that can be reached over links that are up at both ends."""
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
        return View(named, edges, _hash(f"{started} {edges}", 6))


def _hash(text: str, size: int) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:size]) or 1


#: Seconds for which two neighbours must differ before they send each other everything; twice as many every time, until
#: they know the same.
PATIENCE = 1.0


class Gossip:
    """What one agent has sent to its neighbours.

    >>> from fleetgp.graph import Graph
    >>> me = Membership(0, Graph.path(3), incarnation=1)
    >>> gossip = Gossip(me)
    >>> gossip.opened(1)
    >>> [record.agent for record in gossip.news(1)]
    [0]
    >>> gossip.note_known(1, gossip.news(1))
    >>> gossip.news(1)
    ()
    """

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._known: dict[int, dict[int, Age]] = {}
        self._differs: dict[int, tuple[float, float]] = {}  # since when, and for how long it may be

    def opened(self, neighbour: int) -> None:
        """The link is new: nothing is known of what the neighbour has."""
        self._known[neighbour] = {}

    def news(self, neighbour: int) -> tuple[Record, ...]:
        """The records that the neighbour lacks, as far as one can tell."""
        known = self._known.setdefault(neighbour, {})
        return tuple(r for r in self._membership.records if r.agent not in known or r.age > known[r.agent])

    def note_known(self, neighbour: int, records: Iterable[Record]) -> None:
        """The neighbour has these records now: they were sent to it, or it sent them."""
        known = self._known.setdefault(neighbour, {})
        for record in records:
            known[record.agent] = max(record.age, known.get(record.agent, record.age))

    def compared(self, neighbour: int, summary: int, now: float) -> None:
        """The neighbour's summary has come. If it differs from the own one for too long, send everything again."""
        if summary == self._membership.summary:
            self._differs.pop(neighbour, None)
            return
        since, patience = self._differs.setdefault(neighbour, (now, PATIENCE))
        if now - since >= patience:
            self.opened(neighbour)
            self._differs[neighbour] = (now, 2.0 * patience)


#: Bytes; more than `longest` of a thousand agents that are all linked. The links of a fleet let less through.
MOST_BYTES = 2**25


@dataclass(frozen=True)
class Hello(Strict):
    """digest: of the fleet's description.  started, number: of the sender's process, and of the hello in it.

    summary: of the membership as the sender knows it.  records: those of it that the receiver seems to lack.
    epoch, round, waiting: the task it works on, the round it is in, and whom it waits for there; 0 if none.
    theta: its current estimate, in logarithms; empty if it has none.
    """

    digest: str = ""
    started: Whole = 0
    number: Whole = 0
    summary: Whole = 0
    records: Annotated[tuple[Record, ...], FailFast()] = ()
    epoch: Whole = 0
    round: Whole = 0
    waiting: IdSet = frozenset()
    theta: LogTheta = ()

    @property
    def age(self) -> tuple[int, int]:
        return self.started, self.number

    def encode(self) -> bytes:
        return _CODEC.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Hello:
        """A hello, or a NetworkError; nothing else can come out.

        >>> hello = Hello("abc", 5, 6, 7, (Record(1, 2),), 3, 4, frozenset({1}), (0.5,))
        >>> Hello.decode(hello.encode()) == hello
        True
        """
        return _decoded(_CODEC, data, "a hello")


@dataclass(frozen=True)
class Introduction(Strict):
    """What an agent sends to agents that may not have it in their description: its name, endpoint and digest."""

    name: Annotated[str, Field(min_length=1, max_length=256)]
    endpoint: Annotated[str, Field(max_length=256)]
    digest: Annotated[str, Field(max_length=512)]

    def encode(self) -> bytes:
        return _INTRODUCTIONS.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Introduction:
        """An introduction, or a NetworkError; nothing else can come out."""
        return _decoded(_INTRODUCTIONS, data, "an introduction")


def _decoded(codec: Codec[T], data: bytes, what: str) -> T:
    try:
        return codec.decode(data)
    except ValueError as error:
        raise NetworkError(f"not {what}: {error}") from error


_CODEC = Codec(Hello, MOST_BYTES)
_INTRODUCTIONS = Codec(Introduction, LONGEST_INTRODUCTION)


def longest(agents: int, links: int, parameters: int) -> int:
    """Bytes of the longest hello that a fleet with so many agents, links and inputs can send; more is junk."""
    return 2**12 + 160 * agents + 48 * links + 25 * parameters
