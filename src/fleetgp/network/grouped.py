"""Networks whose agents are hosted in groups: inside a group by NumPy, between two groups in packets.

A packet is a frame between groups: what all agents of one tell those of the other in a round, or in a wave of a
reduction. Rounds, messages and bytes are counted as if every agent had sent its own.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.errors import InputError, NeighbourLostError, NonsenseError
from fleetgp.graph import Graph, Topology, Tree
from fleetgp.network.base import Network
from fleetgp.network.borders import Border
from fleetgp.network.edges import Cargo, Incoming
from fleetgp.network.everyone import Everyone, Prices
from fleetgp.network.group_reduction import GroupReduction
from fleetgp.network.group_tree import GroupTree
from fleetgp.network.ledger import check_kind
from fleetgp.network.mailbox import Mailbox
from fleetgp.network.peer_checks import check_rows
from fleetgp.network.pricing import price_collection, price_headers, price_reduction, price_values, speaking_in
from fleetgp.network.reduction import Reduced, Reducing, Schedule, Way
from fleetgp.network.relays import Relays
from fleetgp.network.wire import Frame, Part, phase_number


class GroupedNetwork(Network):
    """Hosts one of the groups. hosting: all of them.  own: the number of the one here.

    The central node is in the first agent's group: what that answers counts. All groups hear what is said to it, and do
    the same with it, since they run the same code.
    """

    def __init__(self, topology: Topology, hosting: Sequence[Sequence[int]], own: int) -> None:
        if sorted(agent for group in hosting for agent in group) != list(range(topology.agents)):
            raise InputError(f"expected each of the agents 0 .. {topology.agents - 1} once in hosting, got {hosting}")
        super().__init__(topology, hosting[own])
        self.hosting, self.own = tuple(tuple(sorted(group)) for group in hosting), own
        self._hosted = np.asarray(self.hosted, dtype=np.int64)
        self._group_of = np.zeros(topology.agents, dtype=np.int64)
        for number, group in enumerate(self.hosting):
            self._group_of[list(group)] = number
        self._others = [number for number in range(len(hosting)) if number != own]
        self._borders: dict[int, Border] = {}
        self._neighbours: dict[tuple[int, Graph], frozenset[int]] = {}
        self._number = 0  # of the next packet: the same in all groups, since all call the same verbs

    # ---- packets --------------------------------------------------------------------------------------

    @abc.abstractmethod
    def _send(self, group: int, frame: Frame) -> None:
        """Give a packet to another group, without waiting for it."""

    @abc.abstractmethod
    def _take(self, groups: Sequence[int], number: int) -> dict[int, Frame]:
        """The packets of this number from some groups. Whoever waits says so by `_wait_for`, again and again.

        A NeighbourLostError at the deadline.
        """

    def _wait_for(self, groups: Iterable[int]) -> None:
        self.waiting_for = self._near(groups)
        self._check_open()

    def _from_mailbox(self, mailbox: Mailbox, groups: Sequence[int], number: int, timeout: float) -> dict[int, Frame]:
        """For networks whose packets come into a mailbox."""
        try:
            found = mailbox.take([(group, self.own) for group in groups], number, timeout, self._wait_for)
        except NeighbourLostError as lost:
            raise NeighbourLostError(self.round, self._near(lost.neighbours), timeout) from None
        return {group: frame for (group, _), frame in found.items()}

    def _near(self, groups: Iterable[int]) -> frozenset[int]:
        """The neighbours in some groups, in this round, or in any; of a group without any, all its agents."""
        graph = self.topology.at(self.round)
        return frozenset().union(*(self._neighbours_in(group, graph) for group in groups))

    def _neighbours_in(self, group: int, graph: Graph) -> frozenset[int]:
        if (group, graph) not in self._neighbours:
            found = frozenset(self.hosting[group])
            for each in (self.topology.union, graph):
                receivers, senders = each.directed.T
                near = senders[(self._group_of[senders] == group) & (self._group_of[receivers] == self.own)]
                found = frozenset(near.tolist()) or found
            self._neighbours[group, graph] = found
        return self._neighbours[group, graph]

    def _tell(self, group: int, number: int, *parts: tuple[str, NDArray[Any]]) -> None:
        told = tuple(Part(kind, 0, value) for kind, value in parts)
        self._send(group, Frame(self.own, group, number, told, phase_number(self._phase)))

    def _hear(self, groups: Sequence[int], number: int) -> dict[int, tuple[NDArray[Any], ...]]:
        """What some groups tell in the packets of this number."""
        found = self._take(groups, number) if groups else {}
        for group, frame in found.items():
            if frame.phase != phase_number(self._phase):
                sender = min(self._near([group]))
                raise NonsenseError(sender, f"expected the phase {self._phase!r}, got another one")
        return {group: tuple(part.value for part in found[group].parts) for group in groups}

    def _numbers(self, count: int) -> int:
        """The first of so many numbers of packets."""
        first, self._number = self._number, self._number + count
        return first

    # ---- a round --------------------------------------------------------------------------------------

    def _deliver(self, parts: dict[str, Array], cargos: dict[str, Cargo], incoming: Incoming) -> dict[str, Array]:
        border, number = self._border(incoming), self._numbers(1)
        routes = {kind: border.parcels(cargos[kind]) if kind in cargos else border for kind in parts}
        for group in border.arriving:
            self._tell(group, number, *((k, _flat(x[routes[k].leaving[group]])) for k, x in parts.items()))
        result = {kind: _taken(x, routes[kind].sources) for kind, x in parts.items()}
        for group, told in self._hear(list(border.arriving), number).items():
            for (kind, x), rows in zip(parts.items(), told, strict=True):
                places = routes[kind].arriving[group]
                edges = cargos[kind].arriving[places] if kind in cargos else places
                check_rows(kind, incoming.senders[edges], rows, (len(places), *_flat(x).shape[1:]))
                result[kind][places] = rows.reshape(len(places), *x.shape[1:])
        return result

    def _border(self, incoming: Incoming) -> Border:
        """Of edges that this network keeps."""
        if id(incoming) not in self._borders:
            self._borders[id(incoming)] = Border(incoming, self._hosted, self._group_of, self.own)
        return self._borders[id(incoming)]

    # ---- along the tree -------------------------------------------------------------------------------

    @cached_property
    def _group_tree(self) -> GroupTree:
        return GroupTree(self.tree, self._hosted, self._group_of, self.own)

    @cached_property
    def _way(self) -> Way:
        return Way.of(self.topology.union, self.tree, self._hosted)

    def _reduce(self, task: Reducing, tree: Tree, schedule: Schedule) -> Reduced:
        steps = self._group_tree
        number = self._numbers(len(steps.waves) + 1)
        merging = GroupReduction(task, steps, self.hosting)
        for wave, step in enumerate(steps.waves):
            merging.take(wave, self._hear(list(step.hears), number + wave - 1))
            merging.merge(wave)
            for group in step.tells:
                self._tell(group, number + wave, *merging.told_up(wave, group))
        last = number + len(steps.waves) - 1
        if task.present is not None:  # who is present, straight to the root
            if self.own == steps.root:
                merging.gather_who(self._hear(self._others, last))
            else:
                self._tell(steps.root, last, *merging.own_who())
        if self.own == steps.root:
            merging.finish()
        else:
            merging.take_down(self._hear([steps.above[self.own]], last + 1)[steps.above[self.own]])
        for group in steps.below:
            self._tell(group, last + 1, *merging.told_down(group))
        price_reduction(
            self.ledger, self._phase, task, self._way, self._way.told(tree, task.to), merging.counts(self._way),
            self.agents,
        )  # fmt: skip
        return merging.reduced()

    # ---- everyone's values ----------------------------------------------------------------------------

    def _everyones(
        self, items: dict[str, list[Array]], to: int | None = None, *, check: bool = True
    ) -> tuple[dict[str, list[Array]], Prices]:
        """All agents' values, where some hosted agent is told them, and what they cost."""
        number, everyone = self._numbers(1), Everyone(items, self.hosting, self.own)
        for group in self._others:
            self._tell(group, number, *everyone.told(content=to is None or self._group_of[to] == group))
        for group, heard in self._hear(self._others, number).items():
            everyone.take(group, heard, content=to is None or to in self.hosted, check=check)
        return everyone.values, everyone.prices

    def _collect(
        self, items: dict[str, list[Array]], tree: Tree, schedule: Schedule, to: int | None
    ) -> dict[str, list[Array]]:
        values, prices = self._everyones(items, to)
        told = self._way.told(tree, to)
        price_collection(self.ledger, self._phase, tree, self._way, self._hosted, told, prices)
        return _spoken(values, speaking_in(prices))

    @cached_property
    def _relays(self) -> Relays:
        return Relays(self.topology, self._group_of == self.own)

    def _flood(self, items: dict[str, list[Array]], rounds: int) -> dict[str, list[Array]]:
        values, prices = self._everyones(items)
        speaking = speaking_in(prices)
        amounts = np.stack([column[speaking] for price in prices.values() for column in price], axis=1)
        for edges, carried, messages in self._relays.of(np.flatnonzero(speaking), amounts, self.round, rounds):
            for k, kind in enumerate(items):
                self.ledger.record(self._phase, kind, edges, carried[:, 2 * k], carried[:, 2 * k + 1], messages)
        for step in range(rounds):
            price_headers(self.ledger, self._phase, self.incoming_of(self.topology.at(self.round + step)).outgoing)
        return _spoken(values, speaking)

    # ---- the central node -----------------------------------------------------------------------------

    def gather(self, parts: Mapping[str, Array | Sequence[Array]]) -> dict[str, list[Array]]:
        items = self._as_items(parts)
        for kind, values in items.items():
            self.ledger.record(self._phase, kind, self._uplinks, *price_values(values))
        with self._in_use():
            found = self._everyones(items, check=False)[0] if self._others else items
        price_headers(self.ledger, self._phase, self._uplinks)
        self.ledger.count_rounds(self._phase, 1)
        return found

    def scatter(self, x: Array, kind: str) -> Array:
        array = self.at_centre(x)
        downlinks = self._uplinks + self.agents
        self.ledger.record(self._phase, check_kind(kind), downlinks, *price_values([array]))
        price_headers(self.ledger, self._phase, downlinks)
        return np.broadcast_to(array, (len(self.hosted), *array.shape))

    def at_centre(self, x: Array) -> Array:
        array, number, centre = np.asarray(x, dtype=float), self._numbers(1), int(self._group_of[0])
        with self._in_use():
            if self.own == centre:
                for group in self._others:
                    self._tell(group, number, ("stopping", array.ravel()))
                return array
            (told,) = self._hear([centre], number)[centre]
            check_rows("stopping", [0], told[None], (1, array.size))
            return told.reshape(array.shape)


def _taken(x: Array, places: IntArray) -> Array:
    """(take is several times faster than an index array in brackets)"""
    return x.take(places, axis=0) if len(x) else np.zeros((len(places), *x.shape[1:]))


def _flat(rows: Array) -> Array:
    """(K, ..) with one axis behind the first: what a part may hold, whatever its shape."""
    return rows.reshape(len(rows), int(np.prod(rows.shape[1:], dtype=np.int64)))


def _spoken(values: dict[str, list[Array]], speaking: BoolArray) -> dict[str, list[Array]]:
    """What everyone said; empty arrays for those who said nothing."""
    says = speaking.tolist()
    return {
        kind: [value if spoke else np.zeros(0) for value, spoke in zip(found, says, strict=True)]
        for kind, found in values.items()
    }
