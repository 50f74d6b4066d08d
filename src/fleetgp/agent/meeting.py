"""The members of a view bring the moments of the whole fleet up to date: what each has to add is reduced.

All members must do the same: what they decide by is in the agenda, or the same to the bit at all of them.
"""

from __future__ import annotations

import numpy as np

from fleetgp.agent.agenda import Agenda, Trained
from fleetgp.agent.memory import Memory
from fleetgp.agent.totals import CONTENTS, Contents, Totals, parts_of_members
from fleetgp.arrays import Array
from fleetgp.consensus.fleet_moments import agree_on_moments
from fleetgp.data.partition import Shard
from fleetgp.errors import NonsenseError
from fleetgp.network import Network


class Meeting:
    """Of one agent; what it brings and takes home is in its memory. fleet, dimension: of the description."""

    def __init__(self, id: int, memory: Memory, fleet: int, dimension: int) -> None:
        self._id, self._memory = id, memory
        self._fleet, self._dimension = fleet, dimension
        self._met: Agenda | None = None

    def due(self, agenda: Agenda) -> bool:
        """Whether the members have not met since they agreed on this agenda."""
        return self._met is not agenda

    def hold(self, network: Network, agenda: Agenda, model: Trained, shard: Shard, theta: Array) -> Totals:
        """Totals of the rows that the members had at this agenda, and of what is known of others.

        shard: the rows of this agent.  theta: of the scaled observations; a grid that is too coarse for it is renewed.
        """
        found = self._brought(network, agenda, model, shard) if self.due(agenda) else self._memory.totals
        if found is not None:
            self._memory.hold(found)
        if found is None or not found.covers(theta):
            moments = agree_on_moments(network, model.scaling.apply([shard]), theta)
            found = Totals.of(moments, parts_of_members(agenda), model.scaling)
            self._memory.hold(found)
        self._met = agenda
        return found

    def _brought(self, network: Network, agenda: Agenda, model: Trained, shard: Shard) -> Totals | None:
        """The best totals that members hold, with what all members have to add; None if they must begin anew."""
        if len({item.totals for item in agenda.items}) > 1:
            return self._added_to_best(network, agenda, model, shard)
        own, parts = self._memory.totals, parts_of_members(agenda)
        if own is None or own.contents.scaling != model.scaling:
            return None
        contents = own.contents
        if all(contents.part(part.agent) == part for part in parts):
            return own
        difference = reduced(network, contents, contents.beyond(self._id, shard))
        return None if difference is None else Totals.unpacked(contents.grown(parts), own.moments.packed + difference)

    def _added_to_best(self, network: Network, agenda: Agenda, model: Trained, shard: Shard) -> Totals | None:
        """Members hold different totals, or none: the best go to all, with what they lack.

        The best have the most rows of agents that are not there; those of members are complete in the end anyway.
        """
        offered = {
            position: contents
            for position, contents in self._offers(network, agenda).items()
            if contents.scaling == model.scaling
        }
        if not offered:
            return None

        def worth(position: int) -> tuple[int, int, int]:
            contents = offered[position]
            return contents.rows_without(agenda.members), contents.count, agenda.items[position].totals

        best = max(offered, key=worth)
        contents = offered[best]
        row = contents.beyond(self._id, shard)
        if agenda.members[best] == self._id and row is not None:
            assert self._memory.totals is not None, "it has said so"
            row = row + self._memory.totals.moments.packed
        total = reduced(network, contents, row)
        return None if total is None else Totals.unpacked(contents.grown(parts_of_members(agenda)), total)

    def _offers(self, network: Network, agenda: Agenda) -> dict[int, Contents]:
        """What is in the different totals, each told by the first member that holds them."""
        (own,) = network.hosted
        numbers, totals = [item.totals for item in agenda.items], self._memory.totals
        offers = totals is not None and numbers.index(totals.number) == own
        record = CONTENTS.encode(totals.contents) if totals is not None and offers else b""
        with network.phase("moments"):
            told = network.collect({"agenda": [np.frombuffer(record, dtype=np.uint8)]})
        assert told is not None, "all agents are told"
        found = {}
        for position, number in enumerate(numbers):
            if number and numbers.index(number) == position:
                try:
                    found[position] = CONTENTS.decode(told["agenda"][position].tobytes())
                    found[position].check(self._fleet, self._dimension)
                except ValueError as error:
                    raise NonsenseError(position, f"not the contents of totals: {error}") from error
        return found


def reduced(network: Network, contents: Contents, row: Array | None) -> Array | None:
    """The sum of the members' moments, packed, in one reduction; None if one of them has none to add (row is None)."""
    own = np.zeros(1 + contents.length)
    if row is None:
        own[0] = 1.0
    else:
        own[1:] = row
    with network.phase("moments"):
        total = network.reduce(own[None], "moments")
    assert total is not None, "all agents are told"
    return None if total[0] > 0.0 else total[1:]
