"""What a task costs on the network: rounds, messages, bytes by kind and by edge, and the bytes that wait for others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from fleetgp.network import Ledger
from fleetgp.network.ledger import FRAMING

#: Sender and receiver.
Edge = tuple[int, int]
Key = TypeVar("Key")


@dataclass(frozen=True)
class Bill:
    """Bills add up, and one times a number is so many of them.

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

    @classmethod
    def of(cls, ledger: Ledger, hops: Mapping[int, float], waiting: float, waiting_half: float | None = None) -> Bill:
        """What a ledger has, and what it does not know: who waits for whom."""
        kinds = {kind: traffic.bytes for kind, traffic in ledger.by_kind().items() if traffic.messages}
        edges = {edge: traffic.bytes for edge, traffic in ledger.by_edge().items()}
        half = waiting if waiting_half is None else waiting_half
        return cls(hops, ledger.messages, kinds, edges, waiting, half)

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
    def told(self) -> tuple[str, ...]:
        """The kinds of content that are sent."""
        return tuple(kind for kind in self.kinds if kind != FRAMING)

    def __add__(self, other: Bill) -> Bill:
        return Bill(
            _sum(self.hops, other.hops),
            self.messages + other.messages,
            _sum(self.kinds, other.kinds),
            _sum(self.edges, other.edges),
            self.waiting + other.waiting,
            self.waiting_half + other.waiting_half,
        )

    def __rmul__(self, times: float) -> Bill:
        return Bill(
            {count: times * rounds for count, rounds in self.hops.items()},
            times * self.messages,
            {kind: times * size for kind, size in self.kinds.items()},
            {edge: times * size for edge, size in self.edges.items()},
            times * self.waiting,
            times * self.waiting_half,
        )


NOTHING = Bill()


def highest(one: Bill, other: Bill) -> Bill:
    """A bill that neither of two exceeds, in any of its numbers.

    >>> highest(Bill(messages=1, kinds={"inputs": 8}), Bill(messages=2, kinds={"inputs": 4})).bytes
    8
    """
    return _each(one, other, max)


def lowest(one: Bill, other: Bill) -> Bill:
    """A bill that both of two reach, in all of its numbers."""
    return _each(one, other, min)


def _each(one: Bill, other: Bill, choose: Callable[[float, float], float]) -> Bill:
    def merged(own: Mapping[Key, float], others: Mapping[Key, float]) -> dict[Key, float]:
        return {key: choose(own.get(key, 0), others.get(key, 0)) for key in _sum(own, others)}

    return Bill(
        merged(one.hops, other.hops),
        choose(one.messages, other.messages),
        merged(one.kinds, other.kinds),
        merged(one.edges, other.edges),
        choose(one.waiting, other.waiting),
        choose(one.waiting_half, other.waiting_half),
    )


def _sum(one: Mapping[Key, float], other: Mapping[Key, float]) -> dict[Key, float]:
    return {key: one.get(key, 0) + other.get(key, 0) for key in (*one, *(key for key in other if key not in one))}
