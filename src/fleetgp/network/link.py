"""A link between two agents, as people describe it, and how long a task takes over such links."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from fleetgp.errors import InputError, shortened
from fleetgp.network.counting import Bill
from fleetgp.validation import check_whole

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
        found: dict[str, float] = {}
        if not isinstance(self.text, str):
            raise InputError(f"link: expected {EXPECTED}, got {shortened(self.text)}")
        for part in self.text.split(","):
            name, value = _read(part, self.text)
            if name in found:
                raise InputError(f"link: expected one {name.replace('_', ' ')}, got two in {shortened(self.text)}")
            found[name] = value
        if "rate" not in found:
            raise InputError(f"link: expected {EXPECTED}, got {shortened(self.text)} without a rate")
        for name, value in found.items():
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
    """What a part says: its name, and its value."""
    if part.strip().replace("-", " ") == HALF:
        return "half_duplex", 1.0
    found = _NUMBER.match(part)
    number, unit = (float(found[1]), found[2]) if found else (math.nan, "")
    if unit in _RATES and 0.0 < number < math.inf:
        return "rate", number * _RATES[unit]
    if unit in _TIMES:
        return "latency", number * _TIMES[unit]
    if unit == "%":
        if number >= 100.0:
            raise InputError(f"link: expected a loss below 100 %, got {part.strip()}")
        return "loss", number / 100.0
    raise InputError(f"link: expected {EXPECTED}, got {part.strip()!r} in {shortened(text)}")
