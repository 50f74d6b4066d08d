"""Networks whose agents are hosted in groups: inside a group by NumPy, between two groups in packets.

A packet is a frame between groups: what all agents of one send to those of the other in a round, or in a wave of a
reduction, in the order in which the other group has the edges that are cut. Rounds, messages and bytes are counted as
if every agent had sent its own. `InProcess` is the fleet of one group: the default, and the simulator.
"""

from __future__ import annotations

import abc
import math
import queue
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.errors import InputError, NeighbourLostError, NonsenseError
from fleetgp.graph import Graph, Topology, check_topology
from fleetgp.network.base import Network
from fleetgp.network.edges import Cargo, Edge, Incoming
from fleetgp.network.ledger import check_kind
from fleetgp.network.pricing import WORDS, Prices, Relays, prices_of, shapes_of, speaking_in
from fleetgp.network.reduction import Reduced, ReductionTask, Schedule, Wave, Way, groups_above
from fleetgp.network.wire import WHO, Frame, Part, check_rows, decode, is_sound, phase_number


class GroupedNetwork(Network):
    """Hosts one of the groups. hosting: all of them.  own: the number of the one here.

    mailbox: where a subclass puts the packets that arrive.  timeout: seconds for which a verb waits for one.

    The central node is in the first agent's group: what that answers counts. All groups get what is sent to it, and do
    the same with it, since they run the same code.
    """

    def __init__(
        self, topology: Topology, hosting: Sequence[Sequence[int]], own: int, timeout: float = math.inf
    ) -> None:
        if sorted(agent for group in hosting for agent in group) != list(range(topology.agents)):
            raise InputError(f"expected each of the agents 0 .. {topology.agents - 1} once in hosting, got {hosting}")
        super().__init__(topology, hosting[own])
        self.hosting, self.own = tuple(tuple(sorted(group)) for group in hosting), own
        self.mailbox, self._timeout = Mailbox(), timeout
        self._hosted = np.asarray(self.hosted, dtype=np.int64)
        self._group_of = np.zeros(topology.agents, dtype=np.int64)
        for number, group in enumerate(self.hosting):
            self._group_of[list(group)] = number
        self._others = [number for number in range(len(hosting)) if number != own]
        self._routes: WeakKeyDictionary[Cargo, Routes] = WeakKeyDictionary()
        self._neighbours: dict[tuple[int, Graph], frozenset[int]] = {}
        self._number = 0  # of the next packet: the same in all groups, since all call the same verbs

    # ---- packets --------------------------------------------------------------------------------------

    @abc.abstractmethod
    def send(self, group: int, frame: Frame) -> None:
        """Give a packet to another group, without waiting for it."""

    def wake(self) -> None:
        self.mailbox.wake()

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

    def take(self, groups: Sequence[int], number: int) -> dict[int, Frame]:
        """The packets of this number from some groups; a NeighbourLostError at the deadline."""

        def waiting(groups: frozenset[int]) -> None:
            self.wait_for(self._near(groups))

        try:
            frames = self.mailbox.take([(group, self.own) for group in groups], number, self._timeout, waiting)
        except NeighbourLostError as lost:
            raise NeighbourLostError(self.round, self._near(lost.neighbours), self._timeout) from None
        return {group: frame for (group, _), frame in frames.items()}

    def _receive(self, groups: Sequence[int], number: int, count: int) -> dict[int, tuple[NDArray[Any], ...]]:
        """The arrays, so many, in the packets of this number from some groups."""
        frames = self.take(groups, number) if groups else {}
        for group, frame in frames.items():
            if frame.phase != phase_number(self._phase):
                raise NonsenseError(min(self._near([group])), f"expected the phase {self._phase!r}, got another one")
            if len(frame.parts) != count:
                raise NonsenseError(min(self._near([group])), f"expected {count} arrays, got {len(frame.parts)}")
        return {group: tuple(part.value for part in frame.parts) for group, frame in frames.items()}

    def _numbers(self, count: int) -> int:
        """The first of so many numbers of packets."""
        first, self._number = self._number, self._number + count
        return first

    # ---- a round --------------------------------------------------------------------------------------

    def _deliver(self, parts: dict[str, Array], cargos: dict[str, Cargo], incoming: Incoming) -> dict[str, Array]:
        number, routes = self._numbers(1), {kind: self._routes_of(cargo) for kind, cargo in cargos.items()}
        groups = list(next(iter(routes.values())).arriving) if routes else []  # the same for every cargo
        for group in groups:
            self._send_content(group, number, *((k, _flat(x[routes[k].leaving[group]])) for k, x in parts.items()))
        result = {kind: _taken(x, routes[kind].sources) for kind, x in parts.items()}
        for group, arrays in self._receive(groups, number, len(parts)).items():
            for (kind, x), rows in zip(parts.items(), arrays, strict=True):
                places = routes[kind].arriving[group]
                senders = incoming.senders[cargos[kind].arriving[places]]
                check_rows(kind, senders, rows, (len(places), *_flat(x).shape[1:]))
                result[kind][places] = rows.reshape(len(places), *x.shape[1:])
        return result

    def _routes_of(self, cargo: Cargo) -> Routes:
        routes = self._routes.get(cargo)
        if routes is None:
            routes = self._routes[cargo] = Routes(cargo, self._group_of, self.own)
        return routes

    # ---- along the tree -------------------------------------------------------------------------------

    @cached_property
    def _waves(self) -> list[Wave]:
        return Wave.all_of(self.tree, self._group_of, self.own)

    @cached_property
    def _above(self) -> dict[int, int]:
        return groups_above(self.tree, self._group_of)

    @cached_property
    def _way(self) -> Way:
        return Way.of(self.topology.union, self._hosted)

    def _reduce(self, task: ReductionTask, schedule: Schedule) -> Reduced:
        number = self._numbers(len(self._waves) + 1)
        last = number + len(self._waves) - 1  # in the last wave no rows leave
        rows = self._merge_waves(task, number)
        who = None if task.present is None else self._presence_at_root(task.present, last)
        value, who = self._pass_down(task, rows[self.tree.root].copy(), who, last + 1)
        self._pricing.reduction(task, self._way, who)
        absent = np.zeros(task.rows, dtype=bool) if who is None else np.asarray(~who.any(axis=0))
        informed = task.recipient is None or task.recipient in self.hosted
        return Reduced(value if informed else None, who if informed else None, absent)

    def _merge_waves(self, task: ReductionTask, number: int) -> Array:
        """(M, n, ..) the rows of the agents here with all below them, merged as every agent would, child by child."""
        row, width = task.x.shape[1:], task.x[0].size
        rows = np.empty((self.agents, *row))
        rows[self._hosted] = task.x
        for wave, step in enumerate(self._waves):
            for group, (arrived,) in self._receive(list(step.arriving), number + wave - 1, 1).items():
                children = step.arriving[group]
                check_rows(task.kind, children, arrived, (len(children), width))
                rows[children] = arrived.reshape(len(children), *row)
                task.merge.check(children, rows[children], None)
            for below, above in step.turns:
                rows[above] = task.merge.function(rows[above], rows[below])
            for group, children in step.leaving.items():
                self._send_content(group, number + wave, (task.kind, rows[children].reshape(len(children), width)))
        return rows

    def _presence_at_root(self, present: BoolArray, number: int) -> BoolArray:
        """(M, n) who is present in which row; the root's group gets it from all others."""
        who = np.zeros((self.agents, present.shape[1]), dtype=bool)
        who[self._hosted] = present
        if self.own in self._above:
            self._send_content(self._root_group, number, (WHO, np.packbits(present)))
            return who
        for group, (words,) in self._receive(self._others, number, 1).items():
            ids = list(self.hosting[group])
            who[ids] = _as_presence(words, (len(ids), present.shape[1]), ids[0])
        return who

    def _pass_down(
        self, task: ReductionTask, total: Array, who: BoolArray | None, number: int
    ) -> tuple[Array | None, BoolArray | None]:
        """What the root makes of the total, for the groups that are informed, and who is present, for all groups."""
        informed, value = self._informed_groups(task.recipient), None
        if self.own not in self._above:
            value = task.finished(total, who)
        else:
            above = self._above[self.own]
            arrays = list(self._receive([above], number, (self.own in informed) + (who is not None))[above])
            sender = self.hosting[above][0]
            if who is not None:
                who = _as_presence(arrays.pop(), who.shape, sender)
            for numbers in arrays:
                shape = (task.rows, *task.result_shape)
                check_rows(task.kind, [sender], numbers[None], (1, math.prod(shape)))
                value = numbers.reshape(shape)
        for group in (group for group, above in self._above.items() if above == self.own):
            content: list[tuple[str, NDArray[Any]]] = []
            if value is not None and group in informed:
                content.append((task.kind, value.ravel()))
            if who is not None:
                content.append((WHO, np.packbits(who)))
            self._send_content(group, number, *content)
        return value, who

    def _informed_groups(self, recipient: int | None) -> set[int]:
        """The groups that get a result: all, or those on the way to its recipient."""
        if recipient is None:
            return set(range(len(self.hosting)))
        way = {self._root_group}
        group = int(self._group_of[recipient])
        while group not in way:
            way.add(group)
            group = self._above[group]
        return way

    @property
    def _root_group(self) -> int:
        return int(self._group_of[self.tree.root])

    # ---- everyone's values ----------------------------------------------------------------------------

    def _everyones(
        self, items: dict[str, list[Array]], recipient: int | None = None, *, check: bool = True
    ) -> tuple[dict[str, list[Array]], Prices]:
        """All agents' values, where some hosted agent gets them, and what they cost.

        Shapes go to all groups, since all of them count messages; content to those that need it.
        check: whether values that make no sense for their kind are refused.
        """
        number = self._numbers(1)
        informed = [recipient is None or self._group_of[recipient] == group for group in range(len(self.hosting))]
        own_shapes = {kind: shapes_of(values) for kind, values in items.items()}
        for group in self._others:
            content: list[tuple[str, NDArray[Any]]] = []
            for kind, values in items.items():
                content.append((WHO, own_shapes[kind].ravel().astype(np.uint32)))
                if informed[group]:
                    content.append((kind, np.concatenate([v.ravel() for v in values if v.size] or [np.zeros(0)])))
            self._send_content(group, number, *content)
        everyone = {kind: [np.zeros(0)] * self.agents for kind in items}
        shapes = {kind: np.zeros((self.agents, WORDS), dtype=np.int64) for kind in items}

        def put(group: int, kind: str, known: IntArray, values: Sequence[Array]) -> None:
            shapes[kind][list(self.hosting[group])] = known
            for agent, value in zip(self.hosting[group], values, strict=False):
                everyone[kind][agent] = value

        for kind, values in items.items():
            put(self.own, kind, own_shapes[kind], values)
        arrays_of_kind = 2 if informed[self.own] else 1
        for group, arrays in self._receive(self._others, number, arrays_of_kind * len(items)).items():
            for k, kind in enumerate(items):
                words, *numbers = arrays[arrays_of_kind * k : arrays_of_kind * (k + 1)]
                agents = self.hosting[group]
                known = _as_shapes(words, agents)
                put(group, kind, known, _separated(kind, numbers[0], known, agents, check) if numbers else [])
        return everyone, {kind: prices_of(of_kind) for kind, of_kind in shapes.items()}

    def _collect(
        self, items: dict[str, list[Array]], schedule: Schedule, recipient: int | None
    ) -> dict[str, list[Array]]:
        values, prices = self._everyones(items, recipient)
        self._pricing.collection(self._way, recipient, prices)
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
            (answer,) = self._receive([centre], number, 1)[centre]
            check_rows("stopping", [0], answer[None], (1, array.size))
            return answer.reshape(array.shape)


class InProcess(GroupedNetwork):
    """Hosts every agent of the fleet: one group, and no other to send packets to.

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


class Routes:
    """How the rows of a cargo reach a group: inside it by an index, from and to other groups in packets.

    sources: (L',) which row of the part arrives, where it comes from inside the group; 0 elsewhere.
    arriving: of each other group with which there are edges, which of the rows that arrive are its.
    leaving: of the same groups, the rows that go to it, in the order in which it has the edges.
    """

    def __init__(self, cargo: Cargo, group_of: IntArray, own: int) -> None:
        incoming = cargo.incoming
        groups = group_of[incoming.senders]
        # The other end's order: by its id, then by ours.
        key = incoming.senders * len(incoming.degrees) + incoming.receivers
        order = np.argsort(key[cargo.edges], kind="stable")
        to, of = groups[cargo.edges[order]], groups[cargo.arriving]
        others = np.unique(groups[groups != own]).tolist()
        self.sources = np.zeros(len(cargo.arriving), dtype=np.int64)
        self.sources[of == own] = cargo.rows[order[to == own]]
        self.arriving = {group: np.flatnonzero(of == group) for group in others}
        self.leaving = {group: cargo.rows[order[to == group]] for group in others}


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


def _as_presence(words: NDArray[Any], shape: tuple[int, ...], sender: int) -> BoolArray:
    size = math.prod(shape)
    if words.dtype != np.uint8 or words.shape != (-(-size // 8),):
        raise NonsenseError(sender, f"expected who is present in {shape[1]} rows, got no such list")
    return np.unpackbits(words, count=size).reshape(shape).astype(bool)


def _as_shapes(words: NDArray[Any], agents: Sequence[int]) -> IntArray:
    if words.dtype != np.uint32 or words.shape != (len(agents) * WORDS,):
        raise NonsenseError(agents[0], f"expected the shapes of {len(agents)} values, got {words.size} words")
    return words.astype(np.int64).reshape(len(agents), WORDS)


def _separated(kind: str, numbers: NDArray[Any], shapes: IntArray, agents: Sequence[int], check: bool) -> list[Array]:
    """The values of some agents, which came one after the other."""
    ends = np.cumsum(prices_of(shapes)[0])
    if len(numbers) != ends[-1]:
        raise NonsenseError(agents[0], f"expected {kind} of the shapes that were announced, got others")
    rows = np.split(numbers, ends[:-1])
    if check and numbers.size and not is_sound(kind, numbers):
        wrong = next(agent for agent, row in zip(agents, rows, strict=True) if not is_sound(kind, row))
        raise NonsenseError(wrong, f"{kind} that are not finite, or out of range")
    return [row.reshape(shape[:ndim]) for row, (_, ndim, *shape) in zip(rows, shapes.tolist(), strict=True)]


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
