"""Networks that move real frames between processes or threads: verbs built from bytes."""

from __future__ import annotations

import abc
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.errors import NonsenseError
from fleetgp.graph import Topology, Tree
from fleetgp.network.base import Network
from fleetgp.network.edges import Cargo, Edge, Incoming, edge_positions
from fleetgp.network.reduction import Reduced, ReductionTask, Schedule, recipients_of
from fleetgp.network.wire import (
    Frame,
    Part,
    absent_from_parts,
    absent_to_parts,
    content,
    from_parts,
    is_sound,
    phase_number,
    to_parts,
)

#: What an agent knows of others, by their ids.
Known = dict[int, tuple[Part, ...]]


class Move(NamedTuple):
    """A piece crosses an edge of the tree, up to a parent or down to a child."""

    piece: int
    sender: int
    receiver: int
    up: bool

    @property
    def child(self) -> int:
        return self.sender if self.up else self.receiver


class FrameNetwork(Network):
    """Every message is a frame. A subclass sends a round's frames and waits for those it expects."""

    def __init__(self, topology: Topology, hosted: Sequence[int]) -> None:
        super().__init__(topology, hosted)
        self._position = {agent: i for i, agent in enumerate(self.hosted)}

    @abc.abstractmethod
    def swap(self, frames: list[Frame], expected: list[Edge], round: int) -> dict[Edge, Frame]:
        """Send the frames; return this round's frame of each expected (sender, receiver).

        Call `wait_for` before each wait, and raise a NeighbourLostError at the deadline. Frames of later rounds may
        come early.
        """

    def _deliver(self, parts: dict[str, Array], cargos: dict[str, Cargo], incoming: Incoming) -> dict[str, Array]:
        outgoing: dict[Edge, tuple[Part, ...]] = {}
        expected: dict[Edge, dict[str, tuple[slice, tuple[int, ...]]]] = {}
        result = {kind: np.zeros((len(cargos[kind].arriving), *x.shape[1:])) for kind, x in parts.items()}
        places = {kind: (_slices(cargo.sent), _slices(cargo.received)) for kind, cargo in cargos.items()}
        for edge, (own, neighbour) in enumerate(self._pairs(incoming)):
            sent: list[Part] = []
            wanted: dict[str, tuple[slice, tuple[int, ...]]] = {}
            for kind, x in parts.items():
                alone = cargos[kind] is incoming.every_value  # a value travels without an axis of rows
                leaving, arriving = (of_edge[edge] for of_edge in places[kind])
                if leaving.stop > leaving.start:
                    rows = x[cargos[kind].rows[leaving]]
                    sent.append(Part(kind, own, np.asarray(rows[0]) if alone else rows))
                if arriving.stop > arriving.start:
                    wanted[kind] = arriving, x.shape[1:] if alone else (arriving.stop - arriving.start, *x.shape[1:])
            if sent:
                outgoing[own, neighbour] = tuple(sent)
            if wanted:
                expected[neighbour, own] = wanted
        received = self._round(outgoing, list(expected), self.round)
        for edge_ends, wanted in expected.items():
            for kind, (place, shape) in wanted.items():
                result[kind][place] = content(received[edge_ends].parts, kind, edge_ends[0], shape)
        return result

    def _flood(self, items: dict[str, list[Array]], rounds: int) -> dict[str, list[Array]]:
        known = self._own_parts(items)
        passed: dict[Edge, set[int]] = defaultdict(set)
        for step in range(rounds):
            incoming = self.incoming_of(self.topology.at(self.round + step))
            outgoing = {
                (own, neighbour): _all_but(known[self._position[own]], passed[own, neighbour] | passed[neighbour, own])
                for own, neighbour in self._pairs(incoming)
            }
            received = self._round(outgoing, [(s, r) for r, s in outgoing], self.round + step)
            self._pricing.relays(incoming.outgoing, outgoing.values())
            for edge, parts in outgoing.items():
                passed[edge].update(part.origin for part in parts)
            for (sender, receiver), frame in received.items():
                by_origin = self._by_origin(frame.parts, sender)
                passed[sender, receiver].update(by_origin)
                here = known[self._position[receiver]]
                for origin, relayed in by_origin.items():
                    # What an agent itself sends counts before what is relayed.
                    if origin == sender or origin not in here:
                        here[origin] = relayed
        return self._everyones(known[0], items)

    def _reduce(self, task: ReductionTask, schedule: Schedule) -> Reduced:
        reduction = TreeReduction(task, self.tree, self.hosted)
        self._walk(schedule, reduction.send, reduction.take)
        return reduction.reduced()

    def _collect(
        self, items: dict[str, list[Array]], schedule: Schedule, recipient: int | None
    ) -> dict[str, list[Array]]:
        tree, known = self.tree, dict(zip(self.hosted, self._own_parts(items), strict=True))
        informed = set(recipients_of(tree, recipient))

        def send(move: Move) -> tuple[Part, ...]:
            if move.up:
                return _all_but(known[move.sender], set())
            if move.receiver not in informed:
                return ()
            return _all_but(known[move.sender], set(tree.below(move.receiver).tolist()))

        def take(move: Move, parts: tuple[Part, ...]) -> None:
            by_origin, below = self._by_origin(parts, move.sender), set(tree.below(move.child).tolist())
            for part in parts:
                if (part.origin in below) != move.up or part.kind not in items:
                    raise NonsenseError(
                        move.sender, f"it cannot know of agent {part.origin}, or not of its {part.kind}"
                    )
            known[move.receiver].update(by_origin)

        self._walk(schedule, send, take)
        return self._everyones(max(known.values(), key=len), items)  # all that are informed know everything

    def _walk(
        self,
        schedule: Schedule,
        send: Callable[[Move], tuple[Part, ...]],
        take: Callable[[Move, tuple[Part, ...]], None],
    ) -> None:
        """All steps along the tree: in each, send what is due, and take what comes."""
        hosted, parents = set(self.hosted), self.tree.parents.tolist()
        due: dict[int, list[Move]] = defaultdict(list)
        for times, up in ((schedule.ups, True), (schedule.downs, False)):
            for piece, agent in zip(*(places.tolist() for places in np.nonzero(times >= 0)), strict=True):
                ends = (agent, parents[agent]) if up else (parents[agent], agent)
                if not hosted.isdisjoint(ends):
                    due[int(times[piece, agent])].append(Move(piece, *ends, up))
        for step in range(schedule.rounds):
            outgoing = {(move.sender, move.receiver): send(move) for move in due[step] if move.sender in hosted}
            expected = {(move.sender, move.receiver): move for move in due[step] if move.receiver in hosted}
            for edge, frame in self._step(outgoing, list(expected), step).items():
                take(expected[edge], frame.parts)

    def _step(self, outgoing: dict[Edge, tuple[Part, ...]], expected: list[Edge], step: int) -> dict[Edge, Frame]:
        received = self._round(outgoing, expected, self.round + step)
        if outgoing:
            senders, receivers = np.array(list(outgoing)).T
            edges = edge_positions(self.topology.union, receivers, senders)
            self._pricing.relays(edges, outgoing.values())
        return received

    def _own_parts(self, items: dict[str, list[Array]]) -> list[Known]:
        """The parts of each hosted agent that sends any."""
        speaking = [any(values[i].size for values in items.values()) for i in range(len(self.hosted))]
        return [
            {agent: tuple(Part(kind, agent, values[i]) for kind, values in items.items())} if speaking[i] else {}
            for i, agent in enumerate(self.hosted)
        ]

    def _by_origin(self, parts: tuple[Part, ...], sender: int) -> Known:
        """Every agent checks before relaying: the sender of nonsense has made it, even if it names another origin."""
        by_origin: Known = defaultdict(tuple)
        for part in parts:
            if part.origin >= self.agents:
                raise NonsenseError(sender, f"it relays agent {part.origin}, of {self.agents}")
            if not is_sound(part.kind, part.value):
                raise NonsenseError(sender, f"{part.kind} that are not finite, or out of range")
            by_origin[part.origin] += (part,)
        return by_origin

    def _everyones(self, known: Known, kinds: Iterable[str]) -> dict[str, list[Array]]:
        values = {(part.kind, part.origin): part.value for parts in known.values() for part in reversed(parts)}
        return {kind: [values.get((kind, agent), np.zeros(0)) for agent in range(self.agents)] for kind in kinds}

    def _round(self, outgoing: dict[Edge, tuple[Part, ...]], expected: list[Edge], round: int) -> dict[Edge, Frame]:
        phase = phase_number(self._phase)
        frames = [Frame(s, r, round, parts, phase) for (s, r), parts in outgoing.items()]
        received = self.swap(frames, expected, round)
        for frame in received.values():
            if frame.phase != phase:
                raise NonsenseError(frame.sender, f"round {round}: expected the phase {self._phase!r}, got another one")
        return received

    def _pairs(self, incoming: Incoming) -> list[Edge]:
        """The hosted agent and its neighbour on every edge."""
        own = np.asarray(self.hosted)[incoming.receivers]
        return list(zip(own.tolist(), incoming.senders.tolist(), strict=True))


class TreeReduction:
    """What the hosted agents send and receive in a reduction."""

    def __init__(self, task: ReductionTask, tree: Tree, hosted: Sequence[int]) -> None:
        self.task, self.tree, self.hosted = task, tree, hosted
        self._agents = len(tree.parents)
        self._recipients = set(recipients_of(tree, task.recipient))
        self._ups, self._downs = task.pieces(task.x.shape[2:]), task.pieces(task.result_shape)
        self._rows = {agent: Rows(task.x[i].copy(), self._presence(i, agent)) for i, agent in enumerate(hosted)}
        self._results: dict[int, Reduced] = {}

    def _presence(self, i: int, agent: int) -> BoolArray | None:
        if self.task.present is None:
            return None
        who = np.zeros((self._agents, self.task.rows), dtype=bool)
        who[agent] = self.task.present[i]
        return who

    def send(self, move: Move) -> tuple[Part, ...]:
        sender = move.sender
        if move.up:
            self._merge(move.piece, sender)
            value, who, where = self._rows[sender].total, self._rows[sender].who, self._ups[move.piece]
        else:
            result = self._result(sender)
            if move.receiver not in self._recipients:
                return absent_to_parts(sender, result.absent)
            assert result.value is not None
            value, who, where = result.value, result.who, self._downs[move.piece]
        present = None if who is None else who[:, where]
        return to_parts(self.task.kind, sender, value[where], present, self._possible(move))

    def take(self, move: Move, parts: tuple[Part, ...]) -> None:
        if move.up:
            where, shape = self._ups[move.piece], self.task.x.shape[2:]
        elif move.receiver in self._recipients:
            where, shape = self._downs[move.piece], self.task.result_shape
        else:
            self._result(move.receiver).absent[:] = absent_from_parts(parts, move.sender, self.task.rows)
            return
        possible = None if self.task.present is None else self._possible(move)
        shape = (where.stop - where.start, *shape)
        rows, who = from_parts(parts, self.task.kind, move.sender, shape, possible, self._agents)
        present = None if who is None else np.asarray(who.any(axis=0))
        if move.up:
            self.task.merge.check([move.sender], rows[None], None if present is None else present[None])
            if present is not None:
                rows[~present] = self.task.merge.identity
            self._rows[move.receiver].received[move.piece, move.sender] = rows, who
            return
        result = self._result(move.receiver)
        assert result.value is not None
        result.value[where] = rows
        if result.who is not None and present is not None:
            result.who[:, where] = who
            result.absent[where] = ~present

    def _possible(self, move: Move) -> IntArray:
        """The agents that a message may name."""
        return self.tree.below(move.sender) if move.up else np.arange(self._agents)

    def _merge(self, piece: int, agent: int) -> None:
        """An agent's own rows with those of its children, in the order of their ids, whenever they came."""
        own, where = self._rows[agent], self._ups[piece]
        for child in self.tree.children[agent]:
            rows, who = own.received.pop((piece, child))
            own.total[where] = self.task.merge.function(own.total[where], rows)
            if own.who is not None and who is not None:
                own.who[:, where] |= who

    def _result(self, agent: int) -> Reduced:
        """What came down to an agent so far; at the root, what it makes of everything that came up."""
        if agent not in self._results:
            if agent == self.tree.root:
                for piece in range(len(self._ups)):
                    self._merge(piece, agent)
                rows = self._rows[agent]
                absent = np.zeros(self.task.rows, dtype=bool) if rows.who is None else np.asarray(~rows.who.any(axis=0))
                self._results[agent] = Reduced(self.task.finished(rows.total, rows.who), rows.who, absent)
            else:
                value = np.zeros((self.task.rows, *self.task.result_shape))
                who = None if self.task.present is None else np.zeros((self._agents, self.task.rows), dtype=bool)
                self._results[agent] = Reduced(value, who, np.zeros(self.task.rows, dtype=bool))
        return self._results[agent]

    def reduced(self) -> Reduced:
        """For this process: from a hosted recipient, if there is one."""
        informed = [agent for agent in self.hosted if self.task.recipient in (None, agent)]
        if informed:
            return self._result(informed[0])
        return Reduced(None, None, self._result(self.hosted[0]).absent)


@dataclass
class Rows:
    """What an agent holds of a reduction: the total so far, and who (M, n) is present in it where not all are.

    received: the rows of its children, by piece and child.
    """

    total: Array
    who: BoolArray | None
    received: dict[tuple[int, int], tuple[Array, BoolArray | None]] = field(default_factory=dict)


def _all_but(known: Known, origins: set[int]) -> tuple[Part, ...]:
    return tuple(part for origin in sorted(set(known) - origins) for part in known[origin])


def _slices(counts: IntArray) -> list[slice]:
    """Where each edge's rows are among all."""
    ends = np.cumsum(counts).tolist()
    return [slice(end - count, end) for count, end in zip(counts.tolist(), ends, strict=True)]
