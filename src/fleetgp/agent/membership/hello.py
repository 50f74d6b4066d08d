"""What neighbours tell each other of themselves, twice a second and whenever something changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import FailFast, Field

from fleetgp.agent.membership.membership import Record
from fleetgp.agent.records import Codec, IdSet, LogTheta, Strict, Whole
from fleetgp.errors import NetworkError
from fleetgp.network.zenoh.links import LONGEST_INTRODUCTION

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
        try:
            return _CODEC.decode(data)
        except ValueError as error:
            raise NetworkError(f"not a hello: {error}") from error


@dataclass(frozen=True)
class Introduction(Strict):
    """What an agent says to agents that may not have it in their description: its name, endpoint and digest."""

    name: Annotated[str, Field(min_length=1, max_length=256)]
    endpoint: Annotated[str, Field(max_length=256)]
    digest: Annotated[str, Field(max_length=512)]

    def encode(self) -> bytes:
        return _INTRODUCTIONS.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Introduction:
        """An introduction, or a NetworkError; nothing else can come out."""
        try:
            return _INTRODUCTIONS.decode(data)
        except ValueError as error:
            raise NetworkError(f"not an introduction: {error}") from error


_CODEC = Codec(Hello, MOST_BYTES)
_INTRODUCTIONS = Codec(Introduction, LONGEST_INTRODUCTION)


def longest(agents: int, links: int, parameters: int) -> int:
    """Bytes of the longest hello that a fleet with so many agents, links and inputs can send; more is junk."""
    return 2**12 + 160 * agents + 48 * links + 25 * parameters
