"""Networks that move real frames between processes or threads: verbs built from bytes."""

from __future__ import annotations

import abc
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from fleetgp.arrays import Array
from fleetgp.errors import NonsenseError
from fleetgp.graph import Topology, Tree
from fleetgp.network.base import Network
from fleetgp.network.edges import Cargo, Edge, Incoming, edge_positions
from fleetgp.network.pricing import price_relays
from fleetgp.network.reduction import Reduced, Reducing, Schedule, recipients_of
from fleetgp.network.tree_frames import CollectionWalk, ReductionWalk
from fleetgp.network.wire import Frame, Part, content, is_sound, phase_number


class FrameNetwork(Network):
    """Every message is a frame. A subclass sends a round's frames and waits for those it expects."""

    def __init__(self, topology: Topology, hosted: Sequence[int]) -> None:
        super().__init__(topology, hosted)
        self._position = {agent: i for i, agent in enumerate(self.hosted)}

    @abc.abstractmethod
    def _swap(self, frames: list[Frame], expected: list[Edge], round: int) -> dict[Edge, Frame]:
        """Send the frames; return this round's frame of each expected (sender, receiver).

        Whoever waits says for whom in `waiting_for`, and raises a NeighbourLostError at the deadline.
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
            price_relays(self.ledger, self._phase, incoming.outgoing, outgoing.values())
            for edge, parts in outgoing.items():
                passed[edge].update(part.origin for part in parts)
            for (s, receiver), frame in received.items():
                heard: dict[int, list[Part]] = defaultdict(list)
                for part in frame.parts:
                    self._check_relayed(part, s)
                    heard[part.origin].append(part)
                passed[s, receiver].update(heard)
                own = known[self._position[receiver]]
                for origin, parts_heard in heard.items():
                    if origin == s or origin not in own:  # what an agent says of itself counts before what others relay
                        own[origin] = tuple(parts_heard)
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
        fullest = max(walk.known.values(), key=len)  # of the hosted agents that are informed, all have heard everything
        return {kind: self._everyones(fullest, kind) for kind in items}

    def _step(
        self, outgoing: dict[Edge, tuple[Part, ...]], expected: list[Edge], step: int
    ) -> dict[Edge, tuple[Part, ...]]:
        """One step along the tree."""
        received = self._round(outgoing, expected, self.round + step)
        if outgoing:
            senders, receivers = np.array(list(outgoing)).T
            edges = edge_positions(self.topology.union, receivers, senders)
            price_relays(self.ledger, self._phase, edges, outgoing.values())
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
        received = self._swap(frames, expected, round)
        for frame in received.values():
            if frame.phase != phase:
                raise NonsenseError(frame.sender, f"round {round}: expected the phase {self._phase!r}, got another one")
        return received

    def _pairs(self, incoming: Incoming) -> list[Edge]:
        return list(zip(incoming.receivers.tolist(), incoming.senders.tolist(), strict=True))


def _starts(cargo: Cargo) -> tuple[list[int], list[int]]:
    """Where each edge's rows begin among those that are sent, and among those that arrive; and where the last end."""
    return [0, *np.cumsum(cargo.sent).tolist()], [0, *np.cumsum(cargo.received).tolist()]
