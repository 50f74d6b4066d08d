"""Networks whose agents are hosted in groups: inside a group by NumPy, between two groups in packets.

A packet is a frame between groups: what all agents of one send to those of the other in a round, or in a wave of a
reduction, in the order in which the other group has the edges that are cut. Rounds, messages and bytes are counted as
if every agent had sent its own. `InProcess` is the fleet of one group: the default, and the simulator.
"""

from __future__ import annotations

import abc
import queue
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.errors import InputError, NeighbourLostError, NonsenseError
from fleetgp.graph import Graph, Topology, Tree, check_topology
from fleetgp.network.base import Network
from fleetgp.network.edges import Cargo, Edge, Incoming
from fleetgp.network.group_reduction import GroupReduction, GroupTree
from fleetgp.network.ledger import check_kind
from fleetgp.network.pricing import (
    WORDS,
    Prices,
    Relays,
    prices_of,
    shapes_of,
    speaking_in,
)
from fleetgp.network.reduction import Reduced, Reducing, Schedule, Way
from fleetgp.network.wire import Frame, Part, check_rows, decode, is_sound, phase_number


class Border:
    """The edges of a round as a group sees them: inside it a value moves by an index, others are cut.

    incoming: the round's edges into the group, whose agents are `hosted`.  group_of: (M,) everybody's group.
    sources: (E,) the place of each edge's value on axis 0; 0 on cut edges.
    arriving: of each other group with which there are edges, the edges on which its values arrive.
    leaving: of the same groups, the places on axis 0 of what goes back along them, in the order in which that group has
        their reverses.
    """

    def __init__(self, incoming: Incoming, hosted: IntArray, group_of: IntArray, own: int) -> None:
        self._parcels: WeakKeyDictionary[Cargo, Parcels] = WeakKeyDictionary()
        groups, receivers = group_of[incoming.senders], hosted[incoming.receivers]
        position = np.zeros(len(group_of), dtype=np.int64)
        position[hosted] = np.arange(len(hosted))
        self.sources = np.where(groups == own, position[incoming.senders], 0)
        self.arriving = {int(k): np.flatnonzero(groups == k) for k in np.unique(groups[groups != own])}
        order = np.lexsort((receivers, incoming.senders))  # by the reverse's receiver, then its sender
        self.leaving = {k: incoming.receivers[order[groups[order] == k]] for k in self.arriving}
        # The reverse of an edge inside the group, among its edges.
        self._reverse = np.empty(len(groups), dtype=np.int64)
        self._reverse[order] = np.arange(len(groups))
        inside = groups[order] == own
        self._reverse[order[inside]] = np.flatnonzero(groups == own)

    def parcels(self, cargo: Cargo) -> Parcels:
        """Which rows of a cargo go where."""
        if cargo not in self._parcels:
            self._parcels[cargo] = Parcels(self, cargo, self._reverse)
        return self._parcels[cargo]


class Parcels:
    """The rows of a part with a cargo.

    sources: (L',) the row that arrives, where it comes from inside the group; 0 elsewhere.
    arriving, leaving: of each other group, which of the rows that arrive are its, and which rows go to it.
    """

    def __init__(self, border: Border, cargo: Cargo, reverse: IntArray) -> None:
        beyond = np.full(len(border.sources), -1, dtype=np.int64)
        for k, cut in border.arriving.items():
            beyond[cut] = k
        order = np.argsort(reverse[cargo.edges], kind="stable")
        to, of = beyond[cargo.edges[order]], beyond[cargo.arriving]
        self.sources = np.zeros(len(cargo.arriving), dtype=np.int64)
        self.sources[of < 0] = cargo.rows[order[to < 0]]
        self.arriving = {k: np.flatnonzero(of == k) for k in border.arriving}
        self.leaving = {k: cargo.rows[order[to == k]] for k in border.arriving}


class Mailbox:
    """Where frames wait for their round: any thread puts them in, one takes them out, round after round.

    A frame that comes twice counts once, and one of a round that is over not at all.
    """

    def __init__(self) -> None:
        self._arrived: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._early: dict[tuple[int, Edge], Frame] = {}

    def put(self, data: bytes) -> None:
        self._arrived.put(data)

    def wake(self) -> None:
        self._arrived.put(None)

    def take(
        self, expected: list[Edge], round: int, timeout: float, waiting: Callable[[frozenset[int]], None]
    ) -> dict[Edge, Frame]:
        """A round's frame of each (sender, receiver); a NeighbourLostError if nothing comes for so many seconds.

        waiting(senders): called before each wait; it raises if there is to be none.
        """
        missing = {edge for edge in expected if (round, edge) not in self._early}
        while missing:
            senders = frozenset(sender for sender, _ in missing)
            waiting(senders)
            try:
                data = self._arrived.get(timeout=timeout)
            except queue.Empty:
                raise NeighbourLostError(round, senders, timeout) from None
            if data is None:
                continue
            frame = decode(data)
            if frame.round >= round:
                self._early[frame.round, (frame.sender, frame.receiver)] = frame
            if frame.round == round:
                missing.discard((frame.sender, frame.receiver))
        frames = {edge: self._early[round, edge] for edge in expected}
        for over in [key for key in self._early if key[0] <= round]:
            del self._early[over]
        return frames


def flattened(values: Sequence[Array]) -> tuple[Array, NDArray[np.uint8]]:
    """All doubles, and all bytes, one value after the other."""
    doubles = [v.ravel() for v in values if v.itemsize > 1]
    octets = [v.ravel() for v in values if v.itemsize == 1]
    return np.concatenate([np.zeros(0), *doubles]), np.concatenate([np.zeros(0, dtype=np.uint8), *octets])


def unflattened(shapes: IntArray, doubles: Array, octets: NDArray[np.uint8]) -> list[Any]:
    """The values again.

    >>> given = [np.ones((2, 1)), np.zeros(0), np.array([7], dtype=np.uint8)]
    >>> [value.tolist() for value in unflattened(shapes_of(given), *flattened(given))]
    [[[1.0], [1.0]], [], [7]]
    """
    scalars, _ = prices_of(shapes)
    wide = shapes[:, 0] > 1
    ends = np.where(wide, np.cumsum(scalars * wide), np.cumsum(scalars * ~wide))
    values = []
    for (_, ndim, *shape), start, end, is_wide in zip(
        shapes.tolist(), (ends - scalars).tolist(), ends.tolist(), wide.tolist(), strict=True
    ):
        values.append((doubles if is_wide else octets)[start:end].reshape(shape[:ndim]))
    return values


class Everyone:
    """Everyone's values, by kind, of shapes that may differ. items: those of the group here.  values: all, by agent.

    Shapes go to all groups, since all of them count messages; content to those that need it.
    """

    def __init__(self, items: dict[str, list[Array]], hosting: Sequence[Sequence[int]], own: int) -> None:
        self._items, self._hosting = items, hosting
        agents = sum(map(len, hosting))
        self._own_shapes = {kind: shapes_of(values) for kind, values in items.items()}
        self._shapes = {kind: np.zeros((agents, WORDS), dtype=np.int64) for kind in items}
        self.values: dict[str, list[Array]] = {kind: [np.zeros(0)] * agents for kind in items}
        for kind, values in items.items():
            self._put(own, kind, self._own_shapes[kind], values)

    @property
    def prices(self) -> Prices:
        return {kind: prices_of(shapes) for kind, shapes in self._shapes.items()}

    def content_for(self, *, content: bool) -> list[tuple[str, NDArray[Any]]]:
        words: list[tuple[str, NDArray[Any]]] = []
        for kind, values in self._items.items():
            words.append(("participants", self._own_shapes[kind].ravel().astype(np.uint32)))
            if content:
                doubles, octets = flattened(values)
                words += [(kind, doubles), ("agenda", octets)]
        return words

    def take(self, group: int, arrays: Sequence[NDArray[Any]], *, content: bool, check: bool) -> None:
        """From another group. check: whether values that make no sense for their kind are refused."""
        ids = self._hosting[group]
        stride = 3 if content else 1
        if len(arrays) != stride * len(self._items):
            raise NonsenseError(ids[0], f"expected values of {len(self._items)} kinds, got {len(arrays)} arrays")
        for k, kind in enumerate(self._items):
            words, *flat = arrays[stride * k : stride * (k + 1)]
            if words.dtype != np.uint32 or words.shape != (len(ids) * WORDS,):
                raise NonsenseError(ids[0], f"expected the shapes of {len(ids)} values, got {words.size} words")
            shapes = words.astype(np.int64).reshape(len(ids), WORDS)
            if content and sum(map(len, flat)) != prices_of(shapes)[0].sum():
                raise NonsenseError(ids[0], f"expected {kind} of the shapes that it says, got others")
            values = unflattened(shapes, flat[0], flat[1]) if content else None
            if check and values is not None and not all(is_sound(kind, part) for part in flat if len(part)):
                wrong = next(k for k, value in enumerate(values) if not is_sound(kind, value.ravel()))
                raise NonsenseError(ids[wrong], f"{kind} that are not finite, or out of range")
            self._put(group, kind, shapes, values)

    def _put(self, group: int, kind: str, shapes: IntArray, values: Sequence[Array] | None) -> None:
        ids = self._hosting[group]
        self._shapes[kind][list(ids)] = shapes
        if values is not None:
            for agent, value in zip(ids, values, strict=True):
                self.values[kind][agent] = value


class GroupedNetwork(Network):
    """Hosts one of the groups. hosting: all of them.  own: the number of the one here.

    The central node is in the first agent's group: what that answers counts. All groups get what is sent to it, and do
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
    def send(self, group: int, frame: Frame) -> None:
        """Give a packet to another group, without waiting for it."""

    @abc.abstractmethod
    def take(self, groups: Sequence[int], number: int) -> dict[int, Frame]:
        """The packets of this number from some groups. Whoever waits calls `wait_for` before each wait.

        A NeighbourLostError at the deadline.
        """

    def _from_mailbox(self, mailbox: Mailbox, groups: Sequence[int], number: int, timeout: float) -> dict[int, Frame]:

        def waiting(groups: frozenset[int]) -> None:
            self.wait_for(self._near(groups))

        try:
            frames = mailbox.take([(group, self.own) for group in groups], number, timeout, waiting)
        except NeighbourLostError as lost:
            raise NeighbourLostError(self.round, self._near(lost.neighbours), timeout) from None
        return {group: frame for (group, _), frame in frames.items()}

    def _near(self, groups: Iterable[int]) -> frozenset[int]:
        """The neighbours in some groups, in this round, or in any; of a group without any, all its agents."""
        graph = self.topology.at(self.round)
        return frozenset().union(*(self._neighbours_in(group, graph) for group in groups))

    def _neighbours_in(self, group: int, graph: Graph) -> frozenset[int]:
        if (group, graph) not in self._neighbours:
            neighbours = frozenset(self.hosting[group])
            for each in (self.topology.union, graph):
                receivers, senders = each.directed.T
                near = senders[(self._group_of[senders] == group) & (self._group_of[receivers] == self.own)]
                neighbours = frozenset(near.tolist()) or neighbours
            self._neighbours[group, graph] = neighbours
        return self._neighbours[group, graph]

    def _send_content(self, group: int, number: int, *parts: tuple[str, NDArray[Any]]) -> None:
        content = tuple(Part(kind, 0, value) for kind, value in parts)
        self.send(group, Frame(self.own, group, number, content, phase_number(self._phase)))

    def _receive(self, groups: Sequence[int], number: int) -> dict[int, tuple[NDArray[Any], ...]]:
        """The arrays in the packets of this number from some groups."""
        frames = self.take(groups, number) if groups else {}
        for group, frame in frames.items():
            if frame.phase != phase_number(self._phase):
                sender = min(self._near([group]))
                raise NonsenseError(sender, f"expected the phase {self._phase!r}, got another one")
        return {group: tuple(part.value for part in frames[group].parts) for group in groups}

    def _numbers(self, count: int) -> int:
        """The first of so many numbers of packets."""
        first, self._number = self._number, self._number + count
        return first

    # ---- a round --------------------------------------------------------------------------------------

    def _deliver(self, parts: dict[str, Array], cargos: dict[str, Cargo], incoming: Incoming) -> dict[str, Array]:
        border, number = self._border(incoming), self._numbers(1)
        routes = {kind: border.parcels(cargos[kind]) if kind in cargos else border for kind in parts}
        for group in border.arriving:
            self._send_content(group, number, *((k, _flat(x[routes[k].leaving[group]])) for k, x in parts.items()))
        result = {kind: _taken(x, routes[kind].sources) for kind, x in parts.items()}
        for group, arrays in self._receive(list(border.arriving), number).items():
            for (kind, x), rows in zip(parts.items(), arrays, strict=True):
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
            merging.take(wave, self._receive(list(step.arriving), number + wave - 1))
            merging.merge(wave)
            for group in step.leaving:
                self._send_content(group, number + wave, *merging.content_up(wave, group))
        last = number + len(steps.waves) - 1
        if task.present is not None:  # who is present, straight to the root
            if self.own == steps.root:
                merging.gather_who(self._receive(self._others, last))
            else:
                self._send_content(steps.root, last, *merging.own_who())
        if self.own == steps.root:
            merging.finish()
        else:
            merging.take_down(self._receive([steps.above[self.own]], last + 1)[steps.above[self.own]])
        for group in steps.below:
            self._send_content(group, last + 1, *merging.content_down(group))
        self._pricing.reduction(task, self._way, tree, merging.counts(self._way))
        return merging.reduced()

    # ---- everyone's values ----------------------------------------------------------------------------

    def _everyones(
        self, items: dict[str, list[Array]], recipient: int | None = None, *, check: bool = True
    ) -> tuple[dict[str, list[Array]], Prices]:
        """All agents' values, where some hosted agent gets them, and what they cost."""
        number, everyone = self._numbers(1), Everyone(items, self.hosting, self.own)
        for group in self._others:
            self._send_content(
                group, number, *everyone.content_for(content=recipient is None or self._group_of[recipient] == group)
            )
        for group, arrays in self._receive(self._others, number).items():
            everyone.take(group, arrays, content=recipient is None or recipient in self.hosted, check=check)
        return everyone.values, everyone.prices

    def _collect(
        self, items: dict[str, list[Array]], tree: Tree, schedule: Schedule, recipient: int | None
    ) -> dict[str, list[Array]]:
        values, prices = self._everyones(items, recipient)
        self._pricing.collection(tree, self._way, self._hosted, recipient, prices)
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
            self._pricing.headers(self.incoming_of(self.topology.at(self.round + step)).outgoing)
        return _spoken(values, speaking)

    # ---- the central node -----------------------------------------------------------------------------

    def gather(self, parts: Mapping[str, Array | Sequence[Array]]) -> dict[str, list[Array]]:
        items = self._as_items(parts)
        for kind, values in items.items():
            self._pricing.values(kind, self._uplinks, values)
        with self._in_use():
            everyone = self._everyones(items, check=False)[0] if self._others else items
        self._pricing.headers(self._uplinks)
        self.ledger.count_rounds(self._phase, 1)
        return everyone

    def scatter(self, x: Array, kind: str) -> Array:
        array = self.at_centre(x)
        downlinks = self._uplinks + self.agents
        self._pricing.values(check_kind(kind), downlinks, [array])
        self._pricing.headers(downlinks)
        return np.broadcast_to(array, (len(self.hosted), *array.shape))

    def at_centre(self, x: Array) -> Array:
        array, number, centre = np.asarray(x, dtype=float), self._numbers(1), int(self._group_of[0])
        with self._in_use():
            if self.own == centre:
                for group in self._others:
                    self._send_content(group, number, ("stopping", array.ravel()))
                return array
            (answer,) = self._receive([centre], number)[centre]
            check_rows("stopping", [0], answer[None], (1, array.size))
            return answer.reshape(array.shape)


def _taken(x: Array, places: IntArray) -> Array:
    """(take is several times faster than an index array in brackets)"""
    return x.take(places, axis=0) if len(x) else np.zeros((len(places), *x.shape[1:]))


def _flat(rows: Array) -> Array:
    """(K, ..) with one axis behind the first: what a part may hold, whatever its shape."""
    return rows.reshape(len(rows), int(np.prod(rows.shape[1:], dtype=np.int64)))


def _spoken(values: dict[str, list[Array]], speaking: BoolArray) -> dict[str, list[Array]]:
    """Everyone's values; empty arrays of those who have none."""
    says = speaking.tolist()
    return {
        kind: [value if spoke else np.zeros(0) for value, spoke in zip(column, says, strict=True)]
        for kind, column in values.items()
    }


class InProcess(GroupedNetwork):
    """Hosts every agent of the fleet: one group, and nobody to send packets to.

    >>> from fleetgp.graph import Graph
    >>> import numpy as np
    >>> network = InProcess(Graph.path(3))
    >>> network.neighbour_sum(np.array([1.0, 10.0, 100.0]), "statistics").tolist()
    [10.0, 101.0, 10.0]
    >>> network.ledger.messages
    4

    The other verbs; `kind` is what the ledger books them under.

    >>> x = np.array([1.0, 10.0, 100.0])
    >>> network.exchange(x, "statistics").tolist()  # on the edges into 0, 1, 1 and 2
    [10.0, 1.0, 100.0, 10.0]
    >>> [network.neighbour_max(x, "statistics").tolist(), network.neighbour_min(x, "statistics").tolist()]
    [[10.0, 100.0, 10.0], [10.0, 1.0, 10.0]]
    >>> with network.phase("sums"):
    ...     network.reduce(x[:, None], "statistics").tolist()
    [111.0]
    >>> network.reduce_present(x[:, None], np.array([[True], [False], [True]]), "statistics").value.tolist()
    [101.0]
    >>> [value.tolist() for value in network.collect({"statistics": x[:, None]})["statistics"]]
    [[1.0], [10.0], [100.0]]
    >>> [value.tolist() for value in network.flood(x[:, None], "statistics")]
    [[1.0], [10.0], [100.0]]
    >>> total = sum(network.gather({"statistics": x})["statistics"])
    >>> network.scatter(np.array(total), "statistics").tolist()
    [111.0, 111.0, 111.0]
    >>> network.ledger.rounds_by_phase["sums"]
    2
    >>> network.close()
    """

    def __init__(self, topology: Topology) -> None:
        check_topology(topology)
        super().__init__(topology, [range(topology.agents)], 0)

    def send(self, group: int, frame: Frame) -> None:
        raise AssertionError("there is no other group")

    def take(self, groups: Sequence[int], number: int) -> dict[int, Frame]:
        raise AssertionError("there is no other group")

    def wake(self) -> None:
        """Nobody ever waits here."""
