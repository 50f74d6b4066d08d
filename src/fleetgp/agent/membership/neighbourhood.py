"""What an agent knows of its neighbours: whether they are linked, heard and fit for work. No clock, no I/O.

What it does when one of them dies is in `presence.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fleetgp.agent.membership.hello import Hello
from fleetgp.agent.membership.membership import Membership, Record

#: Seconds between two hellos to a neighbour.
HEARTBEAT = 0.5
#: A neighbour that failed n times in a row is let in again after at most this many deadlines.
LONGEST_PENALTY = 16
#: A neighbour whose link fell more often than this within so many seconds is let in later and later.
STEADY_FALLS, STEADY_SECONDS = 3, 60.0


@dataclass
class Neighbour:
    """One neighbour, as far as this agent can tell.

    linked: it listens.  greeted: it was heard since.  refused: the digest of another description, if it holds one.
    expired: whether its certificate has.
    failures: deadlines missed and nonsense sent, in a row.
    suspended: its record when it was left out, for some reason and until some time; None if it is not.
    """

    linked: bool = False
    greeted: bool = False
    refused: str = ""
    why_refused: str = "it holds another fleet description"
    expired: bool = False
    heard: float = 0.0
    since: float = 0.0
    hello: Hello = field(default_factory=Hello)
    failures: int = 0
    suspended: Record | None = None
    why: str = ""
    until: float = 0.0
    falls: deque[float] = field(default_factory=lambda: deque(maxlen=16))

    @property
    def standing(self) -> str:
        """ "up", or why not."""
        if self.expired:
            return "refused: its certificate has expired"
        if self.refused:
            return f"refused: {self.why_refused}"
        if not self.linked:
            return "down"
        if not self.greeted:
            return "silent"
        return "up" if self.suspended is None else f"suspended: {self.why}"

    @property
    def up(self) -> bool:
        return self.standing == "up"


class Neighbourhood:
    """All neighbours of an agent. deadline: seconds of a round, the unit of every penalty."""

    def __init__(self, neighbours: Sequence[int], deadline: float) -> None:
        self._neighbours = {j: Neighbour() for j in neighbours}
        self._deadline = deadline

    def __getitem__(self, j: int) -> Neighbour:
        return self._neighbours[j]

    def __contains__(self, j: int) -> bool:
        return j in self._neighbours

    def items(self) -> Iterable[tuple[int, Neighbour]]:
        return self._neighbours.items()

    @property
    def linked(self) -> list[int]:
        return [j for j, neighbour in self._neighbours.items() if neighbour.linked]

    @property
    def up(self) -> list[int]:
        """Those one can work with."""
        return [j for j, neighbour in self._neighbours.items() if neighbour.up]

    # ---- what happens ---------------------------------------------------------------------------------------

    def link(self, j: int, up: bool, now: float) -> None:
        """A link came up or went down. A neighbour that keeps falling is let in again only after a while."""
        neighbour = self._neighbours[j]
        neighbour.linked, neighbour.greeted = up, False
        neighbour.since, neighbour.hello = now, Hello()
        if not up:
            neighbour.refused = ""  # not where it comes up: its first hello may have come before, and was refused aloud
            neighbour.falls.append(now)
        falls = sum(now - fall < STEADY_SECONDS for fall in neighbour.falls)
        if up and falls >= STEADY_FALLS:
            self._leave_out(j, f"it fell {falls} times within a minute", now + min(2.0 ** (falls - 2), 30.0))

    def replayed(self, j: int, hello: Hello, now: float) -> bool:
        """Whether a hello is not newer than the last one, while these come as they should."""
        neighbour = self._neighbours[j]
        return hello.age <= neighbour.hello.age and now - neighbour.heard < 4 * HEARTBEAT

    def suspend(self, j: int, record: Record | None, why: str, now: float, *, nonsense: bool = False) -> float:
        """Do without a neighbour until it says that it is ready for work; the seconds for which it must wait."""
        neighbour = self._neighbours[j]
        neighbour.failures += 1
        weight = min(neighbour.failures if nonsense else neighbour.failures - 1, 10)  # far beyond the longest
        penalty = min(2.0**weight - 1.0, LONGEST_PENALTY) * self._deadline
        self._leave_out(j, why, now + penalty, record)
        return penalty

    def readmit(self, membership: Membership, now: float) -> list[int]:
        """Let in again those whose time has passed and who have said since that they are ready."""
        found = []
        for j, neighbour in self._neighbours.items():
            record, before = membership.of(j), neighbour.suspended
            if before is None or record is None or now < neighbour.until:
                continue
            if record.age > before.age and record.view:
                neighbour.suspended = None
                found.append(j)
        return found

    def well_done(self, members: Iterable[int]) -> None:
        """Some real work was finished: whoever took part in it is not slow."""
        for j in set(members) & set(self._neighbours):
            self._neighbours[j].failures = 0

    def _leave_out(self, j: int, why: str, until: float, record: Record | None = None) -> None:
        neighbour = self._neighbours[j]
        neighbour.suspended, neighbour.why, neighbour.until = record or Record(j, 0), why, until

    # ---- what neighbours said -------------------------------------------------------------------------------

    def word(self, j: int, now: float) -> tuple[int, int, frozenset[int]] | None:
        """In which epoch and round a neighbour waits, and for whom, if it has just said so."""
        neighbour = self._neighbours[j]
        hello = neighbour.hello
        if now - neighbour.heard >= 4 * HEARTBEAT or not hello.waiting:
            return None
        return hello.epoch, hello.round, hello.waiting

    def begun(self, epoch: int) -> bool:
        """Whether a neighbour works in an epoch."""
        return any(neighbour.hello.epoch == epoch for neighbour in self._neighbours.values())

    def disagreement(self, theta: Sequence[float]) -> float | None:
        """The largest difference to a neighbour's log theta, as last told."""
        told = [n.hello.theta for n in self._neighbours.values() if n.linked]
        told = [other for other in told if len(other) == len(theta)]
        if not theta or not told:
            return None
        return float(max(abs(a - b) for other in told for a, b in zip(theta, other, strict=True)))
