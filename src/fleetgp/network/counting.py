"""A network that counts: what each verb sends, and which of its messages wait for each other.

All agents are hosted in one process, as in `InProcess`, whose ledger has the bytes of real frames. A `Bill` adds what a
ledger does not know: how many messages are under way at once, and how many bytes come one after the other, from which
`Link` computes seconds. Traffic is counted by phase and verb, so that a caller can separate what a round sends from
what is sent once.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial, reduce
from typing import Any

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.errors import InputError, shortened
from fleetgp.graph import Topology
from fleetgp.network.edges import Cargo, Edge
from fleetgp.network.grouped import InProcess
from fleetgp.network.ledger import FRAMING, Ledger
from fleetgp.network.reduction import Reduced, ReductionTask, Schedule
from fleetgp.validation import check_whole


@dataclass(frozen=True)
class Bill:
    """What a task costs on the network. Bills add up, and one times a number is so many of them.

    hops: rounds, which come one after the other, by how many messages are under way at once in them.
    messages: all of them.  kinds: bytes by kind of content, headers under "framing".
    edges: bytes by directed edge.
    waiting: bytes that come one after the other on the slowest way: each has to arrive before the next can leave. Where
        a link carries one direction at a time it is `waiting_half`.

    >>> one = Bill({2: 2}, 4, {"statistics": 80, "framing": 144}, {(0, 1): 112, (1, 0): 112}, 112, 224)
    >>> (3 * one + one).bytes, one.busiest
    (896, 112)
    """

    hops: Mapping[int, float] = field(default_factory=dict)
    messages: float = 0
    kinds: Mapping[str, float] = field(default_factory=dict)
    edges: Mapping[Edge, float] = field(default_factory=dict)
    waiting: float = 0
    waiting_half: float = 0

    @property
    def rounds(self) -> float:
        return sum(self.hops.values())

    @property
    def bytes(self) -> float:
        return sum(self.kinds.values())

    @property
    def busiest(self) -> float:
        """Bytes over the edge that carries most, in one direction."""
        return max(self.edges.values(), default=0)

    @property
    def sent(self) -> tuple[str, ...]:
        """The kinds of content that are sent."""
        return tuple(kind for kind in self.kinds if kind != FRAMING)

    def __add__(self, other: Bill) -> Bill:
        return _each(lambda one, two: one + two, self, other)

    def __sub__(self, other: Bill) -> Bill:
        """What is left without a part of it: only the hops, kinds and edges that occur."""
        left = _each(lambda one, two: one - two, self, other)
        tables = {name: getattr(left, name) for name in ("hops", "kinds", "edges")}
        occurring: dict[str, Any] = {
            name: {key: value for key, value in table.items() if value} for name, table in tables.items()
        }
        return replace(left, **occurring)

    def __rmul__(self, times: float) -> Bill:
        return _each(lambda value: times * value, self)

    def __truediv__(self, parts: int) -> Bill:
        """One of so many equal parts; whole numbers stay whole where they can."""
        return _each(lambda value: value // parts if value % parts == 0 else value / parts, self)


NOTHING = Bill()


def highest(*bills: Bill) -> Bill:
    """A bill that none of some exceeds, in any of its numbers.

    >>> highest(Bill(messages=1, kinds={"inputs": 8}), Bill(messages=2, kinds={"inputs": 4})).bytes
    8
    """
    return reduce(partial(_each, max), bills)


def lowest(*bills: Bill) -> Bill:
    """A bill that all of some reach, in all of its numbers."""
    return reduce(partial(_each, min), bills)


def _each(function: Callable[..., float], *bills: Bill) -> Bill:
    """function(number, ...) of every number in bills; 0 where one has none."""

    def of(values: Sequence[Any]) -> Any:
        if not isinstance(values[0], Mapping):
            return function(*values)
        keys = dict.fromkeys(key for table in values for key in table)
        return {key: function(*(table.get(key, 0) for table in values)) for key in keys}

    return Bill(*(of([getattr(bill, each.name) for bill in bills]) for each in fields(Bill)))


@dataclass
class _Count:
    """The traffic of one phase, verb and round of the period. edges: (E,) bytes."""

    edges: Array
    calls: int = 0
    messages: int = 0
    waiting: float = 0
    waiting_half: float = 0
    hops: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    kinds: dict[str, int] = field(default_factory=lambda: defaultdict(int))


class CountingNetwork(InProcess):
    """Count the traffic of real code by phase, verb and, on a graph that varies, the round of its period.

    unheard: phases whose results reach no agent here, as in a process that hosts none of the recipients. Their
        messages are counted, and the results are not computed.

    >>> from fleetgp.graph import Graph
    >>> network = CountingNetwork(Graph.path(3))
    >>> network.reduce(np.ones((3, 1, 4)), "statistics").tolist()
    [[3.0, 3.0, 3.0, 3.0]]
    >>> bill = network.bill()
    >>> bill.rounds, bill.messages, bill.bytes, bill.waiting
    (2.0, 4, 336, 168.0)
    """

    def __init__(self, topology: Topology, unheard: Collection[str] = ()) -> None:
        super().__init__(topology)
        self._unheard = unheard
        self._counts: dict[tuple[str, str, int], _Count] = {}

    # ---- what was counted -----------------------------------------------------------------------------

    def bill(self, *phases: str, verb: str | None = None, turn: int | None = None) -> Bill:
        """Of some phases, or of all. verb: "exchange", "reduce" or "collect".  turn: the round of the period."""
        total = NOTHING
        pairs = list(zip(self.ledger.senders.tolist(), self.ledger.receivers.tolist(), strict=True))
        for one in self._chosen(phases, verb, turn):
            edges = {pairs[e]: int(one.edges[e]) for e in np.flatnonzero(one.edges).tolist()}
            total += Bill(dict(one.hops), one.messages, dict(one.kinds), edges, one.waiting, one.waiting_half)
        return total

    def calls(self, *phases: str, verb: str | None = None, turn: int | None = None) -> int:
        """The number of calls of verbs."""
        return sum(one.calls for one in self._chosen(phases, verb, turn))

    def _chosen(self, phases: Collection[str], verb: str | None, turn: int | None) -> list[_Count]:
        return [
            count
            for (phase, own, time), count in self._counts.items()
            if (not phases or phase in phases) and verb in (None, own) and turn in (None, time)
        ]

    # ---- verbs ----------------------------------------------------------------------------------------

    def exchange_parts(
        self, parts: Mapping[str, Array], carries: Mapping[str, Cargo] | None = None
    ) -> dict[str, Array]:
        turn, received = self.round % self.topology.period, super().exchange_parts(parts, carries)
        count, ledger = self._counted("exchange", turn)
        size = ledger.bytes_by_edge
        sent = size > 0
        both = size + size[self._opposite]
        count.hops[int(sent.sum())] += 1
        count.waiting += float(size.max(initial=0))
        count.waiting_half += float(both.max(initial=0))
        return received

    def _reduced(self, task: ReductionTask) -> Reduced:
        reduced = super()._reduced(task)
        self._along_tree("reduce")
        return reduced

    def _reduce(self, task: ReductionTask, schedule: Schedule) -> Reduced:
        if self._phase not in self._unheard:
            return super()._reduce(task, schedule)
        self._pricing.reduction(task, self._way, task.present)
        present = np.ones((1, task.rows), dtype=bool) if task.present is None else task.present
        return Reduced(None, None, np.asarray(~present.any(axis=0)))

    def collect(
        self, parts: Mapping[str, Array | Sequence[Array]], *, recipient: int | None = None
    ) -> dict[str, list[Array]] | None:
        everyone = super().collect(parts, recipient=recipient)
        self._along_tree("collect")
        return None if self._phase in self._unheard else everyone

    # ---- counting -------------------------------------------------------------------------------------

    def _counted(self, verb: str, turn: int = 0) -> tuple[_Count, Ledger]:
        """The count of the verb that has just ended, and its ledger. The next verb has an empty one."""
        own = self.ledger
        self.ledger = Ledger(own.senders, own.receivers)
        key = self._phase, verb, turn
        count = self._counts.setdefault(key, _Count(np.zeros(len(own.senders))))
        count.calls += 1
        count.messages += own.messages
        count.edges += own.bytes_by_edge
        for kind, traffic in own.by_kind().items():
            if traffic.messages:
                count.kinds[kind] += traffic.bytes
        return count, own

    def _along_tree(self, verb: str) -> None:
        """Count a reduction or a collection.

        Hops are the levels of the tree, up and down; further pieces, and rounds of waiting, count as the widest level.

        A message leaves when all from below have come. Pieces of a long value follow each other: of all but the last
        one only the time on one edge counts.
        """
        count, ledger = self._counted(verb)
        if self.agents == 1:
            return
        widths = [len(below) for below, _ in self.tree.levels]
        for width in widths:
            count.hops[width] += 2.0
        count.hops[max(widths)] += ledger.rounds - 2 * len(widths)
        sizes, pieces = np.zeros((2, 2, self.agents))
        carried = ledger.by_edge()
        for agent, parent in enumerate(self.tree.parents.tolist()):
            for way, edge in enumerate(((agent, parent), (parent, agent))):
                if edge in carried:
                    sizes[way, agent], pieces[way, agent] = carried[edge].bytes, carried[edge].messages
        each = sizes / np.maximum(pieces, 1)
        up, down = np.zeros(self.agents), np.zeros(self.agents)
        for below, above in self.tree.levels:
            np.maximum.at(up, above, up[below] + each[0, below])
        for below, above in reversed(self.tree.levels):
            down[below] = down[above] + each[1, below]
        waiting = float(up[self.tree.root] + down.max() + (sizes - each).max(axis=1).sum())
        count.waiting += waiting
        count.waiting_half += waiting

    @cached_property
    def _opposite(self) -> IntArray:
        """The position of the edge that goes the other way."""
        pairs = list(zip(self.ledger.senders.tolist(), self.ledger.receivers.tolist(), strict=True))
        place = {edge: number for number, edge in enumerate(pairs)}
        return np.array([place[receiver, sender] for sender, receiver in pairs])


#: Bytes a second.
_RATES = {
    f"{prefix}{unit}": size * 1000.0**power
    for power, prefix in enumerate(("", "k", "M", "G"))
    for unit, size in (("bit/s", 0.125), ("B/s", 1.0))
}
_TIMES = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
_NUMBER = re.compile(r"\s*(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)\s*(\S+)\s*$")
HALF = "half duplex"
EXPECTED = 'a rate, and if you like a latency, a loss and "half duplex": "9600 bit/s, 2 s, 5 %, half duplex"'


@dataclass(frozen=True)
class Link:
    """What all links of a fleet are like.

    text: a rate (bit/s or B/s, with k, M or G before it), and behind commas a latency (s, ms, us or min), the share of
        messages that are lost (%), and "half duplex" where a link carries one direction at a time.
    rate: bytes a second.  latency: seconds.  loss: from 0 to below 1.

    >>> link = Link("9600 bit/s, 2 s")
    >>> link.rate, link.latency, link.loss, link.half_duplex
    (1200.0, 2.0, 0.0, False)
    """

    text: str
    rate: float = field(init=False)
    latency: float = field(init=False, default=0.0)
    loss: float = field(init=False, default=0.0)
    half_duplex: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        given: dict[str, float] = {}
        if not isinstance(self.text, str):
            raise InputError(f"link: expected {EXPECTED}, got {shortened(self.text)}")
        for part in self.text.split(","):
            name, value = _read(part, self.text)
            if name in given:
                raise InputError(f"link: expected one {name.replace('_', ' ')}, got two in {shortened(self.text)}")
            given[name] = value
        if "rate" not in given:
            raise InputError(f"link: expected {EXPECTED}, got {shortened(self.text)} without a rate")
        for name, value in given.items():
            object.__setattr__(self, name, bool(value) if name == "half_duplex" else value)

    def seconds(self, bill: Bill) -> float:
        """How long the messages of a task take, without any computing.

        Rounds come one after the other, and each takes a latency. Bytes that wait for each other (`Bill.waiting`) go at
        the rate of a link; links do not share it. What is lost is noticed after two latencies and sent again; a round
        waits for the unluckiest of its messages.

        >>> Link("1 kB/s, 1 s").seconds(Bill({1: 4}, 4, {"statistics": 3000}, {(0, 1): 3000}, 3000, 3000))
        7.0
        """
        if not isinstance(bill, Bill):
            raise InputError(f"bill: expected that of a candidate, advice.training.usual, got {shortened(bill)}")
        waits = sum(rounds * (1.0 + 2.0 * (self.tries(count) - 1.0)) for count, rounds in bill.hops.items())
        waiting = bill.waiting_half if self.half_duplex else bill.waiting
        return waits * self.latency + waiting / self.rate / (1.0 - self.loss)

    def tries(self, messages: int) -> float:
        """How often the unluckiest of so many messages is sent, on average.

        >>> Link("1 B/s, 1 s, 50 %").tries(1), Link("1 B/s").tries(10)
        (2.0, 1.0)
        """
        check_whole("messages", messages, least=0)
        if messages < 1 or self.loss == 0.0:
            return 1.0
        if messages == 1:
            return 1.0 / (1.0 - self.loss)
        # The sum over k of the probability that some message needs more than k tries.
        total, k = 0.0, 0
        while True:
            more = -math.expm1(messages * math.log1p(-(self.loss**k))) if k else 1.0
            total, k = total + more, k + 1
            if more < 1e-12:
                return total


def as_link(link: str | Link | None) -> Link | None:
    """A link as a caller gives it."""
    return link if link is None or isinstance(link, Link) else Link(link)


def _read(part: str, text: str) -> tuple[str, float]:
    """The name and the value of a part of the text."""
    if part.strip().replace("-", " ") == HALF:
        return "half_duplex", 1.0
    match = _NUMBER.match(part)
    number, unit = (float(match[1]), match[2]) if match else (math.nan, "")
    if unit in _RATES and 0.0 < number < math.inf:
        return "rate", number * _RATES[unit]
    if unit in _TIMES:
        return "latency", number * _TIMES[unit]
    if unit == "%":
        if number >= 100.0:
            raise InputError(f"link: expected a loss below 100 %, got {part.strip()}")
        return "loss", number / 100.0
    raise InputError(f"link: expected {EXPECTED}, got {part.strip()!r} in {shortened(text)}")
