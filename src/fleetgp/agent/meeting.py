"""The members of a view bring the moments of the whole fleet up to date: what each has to add is reduced.

All members must do the same: what they decide by is in the agenda, or the same to the bit at all of them.
"""

from __future__ import annotations

import hashlib
import json

import numpy as np

from fleetgp.agent.agenda import WHOLE, Agenda, Trained
from fleetgp.agent.memory import Memory
from fleetgp.agent.totals import CONTENTS, SHORT, Contents, Totals, parts_of_members
from fleetgp.arrays import Array
from fleetgp.consensus.agreements import SPARE, agree_on_moments
from fleetgp.data.dataset import InMemory
from fleetgp.errors import NonsenseError
from fleetgp.model.observations import Observations
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

    def hold(
        self, network: Network, agenda: Agenda, model: Trained, shard: Observations, theta: Array, here: dict[str, int]
    ) -> Totals:
        """Totals of the rows that the members had at this agenda, and of what is known of others.

        shard: the rows of this agent.  theta: of the scaled observations; a grid that is too coarse for it is renewed.
        here: numbers of what was agreed on in this view.
        """
        found = self._brought(network, agenda, model, shard, here) if self.due(agenda) else self._memory.totals
        if found is not None:
            self._memory.hold(found)
        if found is None or not found.covers(theta):
            moments = agree_on_moments(network, InMemory([model.view.of(shard)]), theta, spare=SPARE)
            found = Totals.of(moments, parts_of_members(agenda), model)
            self._memory.hold(found)
        here[WHOLE] = _state(found, agenda)
        self._met = agenda
        return found

    def _brought(
        self, network: Network, agenda: Agenda, model: Trained, shard: Observations, here: dict[str, int]
    ) -> Totals | None:
        """The best totals that members hold, with what all members have to add; None if they must begin anew."""
        if len({item.totals for item in agenda.items}) > 1:
            return self._added_to_best(network, agenda, model, shard)
        own = self._memory.totals
        if own is None or own.contents.view != model.view:
            return None
        if not own.contents.left_out(parts_of_members(agenda)) or here.get(WHOLE) == _state(own, agenda):
            return own  # nobody has more, or nothing that could be added when they last met
        row = own.contents.beyond(self._id, shard)
        return self._summed(network, agenda, own.contents, row, own.moments.packed)

    def _added_to_best(self, network: Network, agenda: Agenda, model: Trained, shard: Observations) -> Totals | None:
        """Members hold different totals, or none: the best go to all, with what they lack.

        The best have the most rows of agents that are not there; those of members are complete in the end anyway.
        """
        offered = {
            position: contents
            for position, contents in self._offers(network, agenda).items()
            if contents.view == model.view
        }
        if not offered:
            return None

        def worth(position: int) -> tuple[int, int, int]:
            contents = offered[position]
            return contents.rows_without(agenda.members), contents.count, agenda.items[position].totals

        best = max(offered, key=worth)
        contents, held = offered[best], self._memory.totals
        told = None
        if agenda.members[best] == self._id:
            assert held is not None, "it has said so"
            told = held.moments.packed
        return self._summed(network, agenda, contents, contents.beyond(self._id, shard), told=told)

    def _summed(
        self,
        network: Network,
        agenda: Agenda,
        contents: Contents,
        row: Array | None,
        known: Array | float = 0.0,
        told: Array | None = None,
    ) -> Totals | None:
        """Totals with what the members add to them, in one reduction.

        row: of this agent; None if it cannot add its rows.
        known: the totals, where every member holds them; told: by the one member that does so for all.
        If somebody cannot, they begin anew, unless that loses rows of an agent that is not there: then its rows wait.
        """
        (own,) = network.hosted
        failed = np.zeros(network.agents)
        failed[own] = row is None
        adds = np.zeros(contents.length) if row is None else row
        with network.phase("moments"):
            total = network.reduce(np.concatenate([failed, adds if told is None else adds + told])[None], "moments")
        assert total is not None, "all agents are told"
        failed, moments = np.split(total, [network.agents])
        if failed.any() and not contents.rows_without(agenda.members):
            return None
        able = [part for part, fails in zip(parts_of_members(agenda), failed, strict=True) if not fails]
        return Totals.unpacked(contents.grown(able), moments + known)

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


def _state(totals: Totals, agenda: Agenda) -> int:
    """Another number where the members could have something to add."""
    facts = [totals.number, [(item.rows, item.data) for item in agenda.items]]
    return int.from_bytes(hashlib.blake2b(json.dumps(facts).encode(), digest_size=SHORT).digest(), "big")
