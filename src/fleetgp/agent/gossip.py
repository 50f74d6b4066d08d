"""Who is told what: each record once over each link, and everything again where something was lost. No clock, no I/O.

A record goes to a neighbour if it is newer than what that neighbour is known to have: because it was sent to it, or
because the neighbour itself told it. So one change crosses every link at most once in each direction, however many
agents there are. Messages may be lost. Neighbours then differ in their summaries although neither has anything to tell
the other; if that lasts, each forgets what it believed the other to have and tells everything it knows.
"""

from __future__ import annotations

from collections.abc import Iterable

from fleetgp.agent.membership import Age, Membership, Record

#: Seconds for which two neighbours must differ, with nothing to tell, before they tell each other everything.
PATIENCE = 1.0


class Gossip:
    """What one agent has told its neighbours.

    >>> from fleetgp.graph import Graph
    >>> me = Membership(0, Graph.path(3), incarnation=1)
    >>> gossip = Gossip(me)
    >>> gossip.opened(1)
    >>> [record.agent for record in gossip.news(1)]
    [0]
    >>> gossip.told(1, gossip.news(1))
    >>> gossip.news(1)
    ()
    """

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._known: dict[int, dict[int, Age]] = {}
        self._differs: dict[int, tuple[int, int, float]] = {}

    def opened(self, neighbour: int) -> None:
        """The link is new: nothing is known of what the neighbour has."""
        self._known[neighbour] = {}
        self._differs.pop(neighbour, None)

    def news(self, neighbour: int) -> tuple[Record, ...]:
        """The records that the neighbour lacks, as far as one can tell."""
        known = self._known.setdefault(neighbour, {})
        return tuple(r for r in self._membership.records if r.agent not in known or r.age > known[r.agent])

    def told(self, neighbour: int, records: Iterable[Record]) -> None:
        """The neighbour has these records now: they were sent to it, or it sent them."""
        known = self._known.setdefault(neighbour, {})
        for record in records:
            known[record.agent] = max(record.age, known.get(record.agent, record.age))

    def compared(self, neighbour: int, summary: int, now: float) -> None:
        """The neighbour's summary has come. If it differs from the own one for too long, all is to be told anew."""
        pair = (summary, self._membership.summary)
        if summary == self._membership.summary or self.news(neighbour):
            self._differs.pop(neighbour, None)
        elif self._differs.get(neighbour, (0, 0, 0.0))[:2] != pair:
            self._differs[neighbour] = (*pair, now)
        elif now - self._differs[neighbour][2] >= PATIENCE:
            self.opened(neighbour)
