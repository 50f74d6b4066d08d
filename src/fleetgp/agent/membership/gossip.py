"""Who is told what: each record once over each link, and everything again where something was lost. No clock, no I/O.

A record goes to a neighbour if it is newer than what that neighbour is known to have: because it was sent to it, or
because the neighbour itself told it. So one change crosses every link at most once in each direction, however many
agents there are. Messages may be lost. Neighbours then differ in their summaries; if that lasts, each forgets what it
believed the other to have and tells everything it knows.
"""

from __future__ import annotations

from collections.abc import Iterable

from fleetgp.agent.membership.membership import Age, Membership, Record

#: Seconds for which two neighbours must differ before they tell each other everything; twice as many every time, until
#: they know the same.
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
        self._differs: dict[int, tuple[float, float]] = {}  # since when, and for how long it may be

    def opened(self, neighbour: int) -> None:
        """The link is new: nothing is known of what the neighbour has."""
        self._known[neighbour] = {}

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
        if summary == self._membership.summary:
            self._differs.pop(neighbour, None)
            return
        since, patience = self._differs.setdefault(neighbour, (now, PATIENCE))
        if now - since >= patience:
            self.opened(neighbour)
            self._differs[neighbour] = (now, 2.0 * patience)
