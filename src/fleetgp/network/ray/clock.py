"""The clock of a host: whatever it says can be said again by a host that takes its place."""

from __future__ import annotations

import time
from dataclasses import dataclass

from fleetgp.network.clock import Clock


@dataclass(frozen=True)
class Readings:
    """count: how often a clock was read.  late: the first reading that said that the time is up; None for none."""

    count: int = 0
    late: int | None = None

    def joined(self, other: Readings) -> Readings:
        """What two others know of one clock."""
        late = self.late if other.late is None else other.late
        return Readings(max(self.count, other.count), late)


class HostClock(Clock):
    """Wall-clock time, from when the work was first begun anywhere.

    past: what others know of the clock of a lost host, in whose place this one is. It has said so in what it sent, and
    they have acted on it: what is computed again must come to the same.
    """

    def __init__(self) -> None:
        self.wall = time.time
        self._began = self.wall()
        self.past = Readings()
        self.readings = Readings()

    def set(self, began: float, past: Readings) -> None:
        self._began, self.past = began, past

    @property
    def began(self) -> float:
        return self._began

    def passed(self, at: float) -> bool:
        """
        >>> clock = HostClock()
        >>> clock.set(0.0, Readings(count=2))
        >>> [clock.passed(1.0) for _ in range(3)], clock.readings
        ([False, False, True], Readings(count=3, late=2))
        >>> again = HostClock()
        >>> again.set(0.0, clock.readings)
        >>> [again.passed(1.0) for _ in range(3)]
        [False, False, True]
        """
        number, past, late = self.readings.count, self.past, self.readings.late
        if past.late is not None:
            over = number >= past.late
        else:
            over = number >= past.count and self.wall() >= at
        self.readings = Readings(number + 1, number if over and late is None else late)
        return over
