"""Networks that move real frames between processes or threads: verbs built from bytes."""

from __future__ import annotations

import abc
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.errors import NonsenseError
from fleetgp.graph import Topology, Tree
from fleetgp.network.base import Network
from fleetgp.network.edges import Cargo, Edge, Incoming, edge_positions
from fleetgp.network.reduction import Reduced, Reducing, Schedule, recipients_of
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

#: swap(outgoing by edge, expected edges, step) -> the parts that came over each expected edge.
Swap = Callable[[dict[Edge, tuple[Part, ...]], list[Edge], int], dict[Edge, tuple[Part, ...]]]


class Walk(abc.ABC):
    """What the hosted agents send up and down the tree, piece by piece."""

    def __init__(self, tree: Tree, hosted: Sequence[int]) -> None:
        self.tree, self.hosted = tree, hosted

    def run(self, schedule: Schedule, swap: Swap) -> None:
        """All steps: in each, send what is due, and take in what comes."""
        mine, parents = set(self.hosted), self.tree.parents.tolist()
        due: dict[int, list[tuple[int, int, bool]]] = defaultdict(list)
        for times, up in ((schedule.ups, True), (schedule.downs, False)):
            for piece, agent in zip(*(places.tolist() for places in np.nonzero(times >= 0)), strict=True):
                if agent in mine or parents[agent] in mine:
                    due[int(times[piece, agent])].append((piece, agent, up))
        for step in range(schedule.rounds):
            outgoing: dict[Edge, tuple[Part, ...]] = {}
            expected: dict[Edge, tuple[int, int, bool]] = {}
            for piece, agent, up in due[step]:
                sender, receiver = (agent, parents[agent]) if up else (parents[agent], agent)
                if sender in mine:
                    outgoing[sender, receiver] = self.up(piece, agent) if up else self.down(piece, agent)
                if receiver in mine:
                    expected[sender, receiver] = piece, agent, up
            for edge, parts in swap(outgoing, list(expected), step).items():
                piece, agent, up = expected[edge]
                if up:
                    self.take_from_child(piece, agent, parts)
                else:
                    self.take_from_parent(piece, agent, parts)

    @abc.abstractmethod
    def up(self, piece: int, agent: int) -> tuple[Part, ...]:
        """What a hosted agent sends to its parent."""

    @abc.abstractmethod
    def down(self, piece: int, agent: int) -> tuple[Part, ...]:
        """What an agent's parent, which is hosted, sends to it."""

    @abc.abstractmethod
    def take_from_child(self, piece: int, agent: int, parts: tuple[Part, ...]) -> None:
        """Take in, at an agent's parent, which is hosted, what the agent has sent."""

    @abc.abstractmethod
    def take_from_parent(self, piece: int, agent: int, parts: tuple[Part, ...]) -> None:
        """Take in what the parent of a hosted agent has sent to it."""


@dataclass
class Rows:
    """What an agent holds of a reduction: its total so far, who is present in it, and what came from its children."""

    total: Array
    who: BoolArray | None
    received: dict[tuple[int, int], tuple[Array, BoolArray | None]] = field(default_factory=dict)


@dataclass
class Result:
    """What came down to an agent."""

    value: Array
    who: BoolArray | None
    absent: BoolArray


class ReductionWalk(Walk):
    def __init__(self, task: Reducing, tree: Tree, hosted: Sequence[int]) -> None:
        super().__init__(tree, hosted)
        self.task, self.recipients = task, set(recipients_of(tree, task.recipient))
        self.agents = len(tree.parents)
        self._everyone = np.arange(self.agents)
        self._ups, self._downs = task.pieces(task.x.shape[2:]), task.pieces(task.result_shape)
        self._rows = {agent: self._own(i, agent) for i, agent in enumerate(hosted)}
        self._results: dict[int, Result] = {}

    def _own(self, i: int, agent: int) -> Rows:
        if self.task.present is None:
            return Rows(self.task.x[i].copy(), None)
        who = np.zeros((self.agents, self.task.rows), dtype=bool)
        who[agent] = self.task.present[i]
        return Rows(self.task.x[i].copy(), who)

    # ---- up -------------------------------------------------------------------------------------------

    def up(self, piece: int, agent: int) -> tuple[Part, ...]:
        self._merge(piece, agent)
        rows, where = self._rows[agent], self._ups[piece]
        who = None if rows.who is None else rows.who[:, where]
        return to_parts(self.task.kind, agent, rows.total[where], who, self.tree.below(agent))

    def take_from_child(self, piece: int, agent: int, parts: tuple[Part, ...]) -> None:
        where = self._ups[piece]
        shape = (where.stop - where.start, *self.task.x.shape[2:])
        possible = None if self.task.present is None else self.tree.below(agent)
        rows, who = from_parts(parts, self.task.kind, agent, shape, possible, self.agents)
        self.task.merge.check([agent], rows[None], None if who is None else np.asarray(who.any(axis=0))[None])
        if who is not None:
            rows[~who.any(axis=0)] = self.task.merge.identity
        self._rows[int(self.tree.parents[agent])].received[piece, agent] = rows, who

    def _merge(self, piece: int, agent: int) -> None:
        """An agent's own rows with those of its children, in the order of their ids, whenever they came."""
        own, where = self._rows[agent], self._ups[piece]
        for child in self.tree.children[agent]:
            rows, who = own.received.pop((piece, child))
            own.total[where] = self.task.merge.function(own.total[where], rows)
            if own.who is not None and who is not None:
                own.who[:, where] |= who

    # ---- down -----------------------------------------------------------------------------------------

    def result(self, agent: int) -> Result:
        """What came down to an agent; at the root, what it makes of everything that came up."""
        if agent == self.tree.root and agent not in self._results:
            for piece in range(len(self._ups)):
                self._merge(piece, agent)
            rows = self._rows[agent]
            present = np.ones(self.task.rows, dtype=bool) if rows.who is None else np.asarray(rows.who.any(axis=0))
            self._results[agent] = Result(self.task.finished(rows.total, rows.who), rows.who, ~present)
        if agent not in self._results:
            rows = self._rows[agent]
            who = None if rows.who is None else np.zeros_like(rows.who)
            value = np.zeros((self.task.rows, *self.task.result_shape))
            self._results[agent] = Result(value, who, np.zeros(self.task.rows, dtype=bool))
        return self._results[agent]

    def down(self, piece: int, agent: int) -> tuple[Part, ...]:
        parent = int(self.tree.parents[agent])
        result, where = self.result(parent), self._downs[piece]
        if agent not in self.recipients:
            return absent_to_parts(parent, result.absent)
        who = None if result.who is None else result.who[:, where]
        return to_parts(self.task.kind, parent, result.value[where], who, self._everyone)

    def take_from_parent(self, piece: int, agent: int, parts: tuple[Part, ...]) -> None:
        parent, result, where = int(self.tree.parents[agent]), self.result(agent), self._downs[piece]
        if agent not in self.recipients:
            result.absent[:] = absent_from_parts(parts, parent, self.task.rows)
            return
        shape = (where.stop - where.start, *self.task.result_shape)
        possible = None if self.task.present is None else self._everyone
        result.value[where], who = from_parts(parts, self.task.kind, parent, shape, possible, self.agents)
        if result.who is not None and who is not None:
            result.who[:, where] = who
            result.absent[where] = ~who.any(axis=0)

    def reduced(self) -> Reduced:
        """For this process: from a hosted recipient, if there is one."""
        informed = [agent for agent in self.hosted if self.task.recipient in (None, agent)]
        result = self.result(informed[0] if informed else self.hosted[0])
        return Reduced(result.value if informed else None, result.who if informed else None, result.absent)


class CollectionWalk(Walk):
    """recipients: to whom everything comes down; the others hear that it is over.

    check(part, sender): raises where a part makes no sense.
    """

    def __init__(
        self,
        items: dict[str, list[Array]],
        tree: Tree,
        recipients: Sequence[int],
        hosted: Sequence[int],
        check: Callable[[Part, int], None],
    ) -> None:
        super().__init__(tree, hosted)
        self.kinds, self.recipients, self._check = tuple(items), set(recipients), check
        self.known: dict[int, dict[int, tuple[Part, ...]]] = {
            agent: {agent: tuple(Part(kind, agent, values[i]) for kind, values in items.items())}
            if any(values[i].size for values in items.values())
            else {}
            for i, agent in enumerate(hosted)
        }

    def up(self, piece: int, agent: int) -> tuple[Part, ...]:
        return self._parts(agent, set())

    def down(self, piece: int, agent: int) -> tuple[Part, ...]:
        if agent not in self.recipients:
            return ()
        return self._parts(int(self.tree.parents[agent]), set(self.tree.below(agent).tolist()))

    def take_from_child(self, piece: int, agent: int, parts: tuple[Part, ...]) -> None:
        self._take(int(self.tree.parents[agent]), agent, parts, set(self.tree.below(agent).tolist()))

    def take_from_parent(self, piece: int, agent: int, parts: tuple[Part, ...]) -> None:
        others = set(range(len(self.tree.parents))) - set(self.tree.below(agent).tolist())
        self._take(agent, int(self.tree.parents[agent]), parts, others)

    def _parts(self, agent: int, known_there: set[int]) -> tuple[Part, ...]:
        known = self.known[agent]
        return tuple(part for origin in sorted(set(known) - known_there) for part in known[origin])

    def _take(self, agent: int, sender: int, parts: tuple[Part, ...], possible: set[int]) -> None:
        by_origin: dict[int, list[Part]] = defaultdict(list)
        for part in parts:
            self._check(part, sender)
            if part.origin not in possible or part.kind not in self.kinds:
                raise NonsenseError(sender, f"it cannot know of agent {part.origin}, or not of its {part.kind}")
            by_origin[part.origin].append(part)
        self.known[agent].update({origin: tuple(own) for origin, own in by_origin.items()})


class FrameNetwork(Network):
    """Every message is a frame. A subclass sends a round's frames and waits for those it expects."""

    def __init__(self, topology: Topology, hosted: Sequence[int]) -> None:
        super().__init__(topology, hosted)
        self._position = {agent: i for i, agent in enumerate(self.hosted)}

    @abc.abstractmethod
    def swap(self, frames: list[Frame], expected: list[Edge], round: int) -> dict[Edge, Frame]:
        """Send the frames; return this round's frame of each expected (sender, receiver).

        Whoever waits calls `wait_for` before each wait, and raises a NeighbourLostError at the deadline. Frames of
        later rounds may come early.
        """

    def _deliver(self, parts: dict[str, Array], cargos: dict[str, Cargo], incoming: Incoming) -> dict[str, Array]:
        outgoing: dict[Edge, tuple[Part, ...]] = {}
        expected: dict[Edge, dict[str, tuple[slice, tuple[int, ...]]]] = {}
        result: dict[str, Array] = {}
        starts = {kind: _starts(cargo) for kind, cargo in cargos.items()}
        for kind, x in parts.items():
            result[kind] = np.zeros((len(cargos[kind].arriving if kind in cargos else incoming.senders), *x.shape[1:]))
        for edge, (r, s) in enumerate(self._pairs(incoming)):
            own, sent = self.hosted[r], []
            wanted: dict[str, tuple[slice, tuple[int, ...]]] = {}
            for kind, x in parts.items():
                if kind not in cargos:
                    sent.append(Part(kind, own, np.asarray(x[r])))
                    wanted[kind] = slice(edge, edge + 1), x.shape[1:]
                    continue
                leaving, arriving = (slice(first[edge], first[edge + 1]) for first in starts[kind])
                if leaving.stop > leaving.start:
                    sent.append(Part(kind, own, x[cargos[kind].rows[leaving]]))
                if arriving.stop > arriving.start:
                    wanted[kind] = arriving, (arriving.stop - arriving.start, *x.shape[1:])
            if sent:
                outgoing[own, s] = tuple(sent)
            if wanted:
                expected[s, own] = wanted
        received = self._round(outgoing, list(expected), self.round)
        for edge_ends, wanted in expected.items():
            for kind, (place, shape) in wanted.items():
                result[kind][place] = content(received[edge_ends].parts, kind, edge_ends[0], shape)
        return result

    def _flood(self, items: dict[str, list[Array]], rounds: int) -> dict[str, list[Array]]:
        known: list[dict[int, tuple[Part, ...]]] = [
            {agent: tuple(Part(kind, agent, values[i]) for kind, values in items.items())}
            if any(values[i].size for values in items.values())
            else {}
            for i, agent in enumerate(self.hosted)
        ]
        passed: dict[Edge, set[int]] = defaultdict(set)
        for step in range(rounds):
            incoming = self.incoming_of(self.topology.at(self.round + step))
            outgoing: dict[Edge, tuple[Part, ...]] = {}
            for r, s in self._pairs(incoming):
                edge = (self.hosted[r], s)
                origins = sorted(set(known[r]) - passed[edge] - passed[edge[::-1]])
                outgoing[edge] = tuple(part for origin in origins for part in known[r][origin])
            received = self._round(outgoing, [(s, r) for r, s in outgoing], self.round + step)
            self._pricing.relays(incoming.outgoing, outgoing.values())
            for edge, parts in outgoing.items():
                passed[edge].update(part.origin for part in parts)
            for (s, receiver), frame in received.items():
                by_origin: dict[int, list[Part]] = defaultdict(list)
                for part in frame.parts:
                    self._check_relayed(part, s)
                    by_origin[part.origin].append(part)
                passed[s, receiver].update(by_origin)
                own = known[self._position[receiver]]
                for origin, relayed in by_origin.items():
                    if origin == s or origin not in own:  # what an agent itself sends counts before what others relay
                        own[origin] = tuple(relayed)
        return {kind: self._everyones(known[0], kind) for kind in items}

    def _reduce(self, task: Reducing, tree: Tree, schedule: Schedule) -> Reduced:
        walk = ReductionWalk(task, tree, self.hosted)
        walk.run(schedule, self._step)
        return walk.reduced()

    def _collect(
        self, items: dict[str, list[Array]], tree: Tree, schedule: Schedule, recipient: int | None
    ) -> dict[str, list[Array]]:
        walk = CollectionWalk(items, tree, recipients_of(tree, recipient), self.hosted, self._check_relayed)
        walk.run(schedule, self._step)
        fullest = max(walk.known.values(), key=len)  # of the hosted agents that are informed, all know everything
        return {kind: self._everyones(fullest, kind) for kind in items}

    def _step(
        self, outgoing: dict[Edge, tuple[Part, ...]], expected: list[Edge], step: int
    ) -> dict[Edge, tuple[Part, ...]]:
        """One step along the tree."""
        received = self._round(outgoing, expected, self.round + step)
        if outgoing:
            senders, receivers = np.array(list(outgoing)).T
            edges = edge_positions(self.topology.union, receivers, senders)
            self._pricing.relays(edges, outgoing.values())
        return {edge: frame.parts for edge, frame in received.items()}

    def _check_relayed(self, part: Part, sender: int) -> None:
        """Everybody checks before relaying, so the sender of nonsense has made it, even if it names another origin."""
        if part.origin >= self.agents:
            raise NonsenseError(sender, f"it relays agent {part.origin}, of {self.agents}")
        if not is_sound(part.kind, part.value):
            raise NonsenseError(sender, f"{part.kind} that are not finite, or out of range")

    def _everyones(self, known: dict[int, tuple[Part, ...]], kind: str) -> list[Array]:
        return [
            next((p.value for p in known.get(agent, ()) if p.kind == kind), np.zeros(0)) for agent in range(self.agents)
        ]

    def _round(self, outgoing: dict[Edge, tuple[Part, ...]], expected: list[Edge], round: int) -> dict[Edge, Frame]:
        phase = phase_number(self._phase)
        frames = [Frame(s, r, round, parts, phase) for (s, r), parts in outgoing.items()]
        received = self.swap(frames, expected, round)
        for frame in received.values():
            if frame.phase != phase:
                raise NonsenseError(frame.sender, f"round {round}: expected the phase {self._phase!r}, got another one")
        return received

    def _pairs(self, incoming: Incoming) -> list[Edge]:
        return list(zip(incoming.receivers.tolist(), incoming.senders.tolist(), strict=True))


def _starts(cargo: Cargo) -> tuple[list[int], list[int]]:
    """Where each edge's rows begin among those that are sent, and among those that arrive; and where the last end."""
    return [0, *np.cumsum(cargo.sent).tolist()], [0, *np.cumsum(cargo.received).tolist()]
