"""Networks that move real frames between processes or threads: verbs built from bytes."""

from __future__ import annotations

import abc
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.errors import NetworkError
from fleetgp.graph import Topology
from fleetgp.network.base import Cargo, Incoming, Network
from fleetgp.network.ledger import FRAMING
from fleetgp.network.wire import HEADER_BYTES, Frame, Part, part_bytes, phase_number

Edge = tuple[int, int]


class FrameNetwork(Network):
    """Every message is a frame. A subclass sends a round's frames and waits for those it expects."""

    def __init__(self, topology: Topology, hosted: Sequence[int]) -> None:
        super().__init__(topology, hosted)
        self._position = {agent: i for i, agent in enumerate(self.hosted)}

    @abc.abstractmethod
    def _swap(self, frames: list[Frame], expected: list[Edge], round: int) -> dict[Edge, Frame]:
        """Send the frames; return this round's frame of each expected (sender, receiver), or raise NetworkError."""

    def _deliver(self, parts: dict[str, Array], masks: dict[str, Cargo], incoming: Incoming) -> dict[str, Array]:
        outgoing: dict[Edge, tuple[Part, ...]] = {}
        expected: dict[Edge, dict[str, BoolArray | None]] = {}
        for edge, (r, s) in enumerate(self._pairs(incoming)):
            own, sent = self.hosted[r], []
            wanted: dict[str, BoolArray | None] = {}
            for kind, x in parts.items():
                mask = masks.get(kind)
                if mask is None:
                    sent.append(Part(kind, own, np.asarray(x[r])))
                    wanted[kind] = None
                    continue
                if mask.outgoing[edge].any():
                    sent.append(Part(kind, own, x[r][mask.outgoing[edge]]))
                if mask.incoming[edge].any():
                    wanted[kind] = mask.incoming[edge]
            if sent:
                outgoing[own, s] = tuple(sent)
            if wanted:
                expected[s, own] = wanted
        received = self._round(outgoing, list(expected), self.round)
        result = {kind: np.zeros((len(incoming.senders), *x.shape[1:])) for kind, x in parts.items()}
        for edge, (r, s) in enumerate(self._pairs(incoming)):
            frame = received.get((s, self.hosted[r]))
            for kind, rows in expected.get((s, self.hosted[r]), {}).items():
                _place(result[kind], edge, rows, frame, kind)
        return result

    def _flood(self, items: dict[str, list[Array]], rounds: int) -> dict[str, list[Array]]:
        known: list[dict[int, tuple[Part, ...]]] = [
            {agent: tuple(Part(kind, agent, values[i]) for kind, values in items.items())}
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
            self._book_relays(outgoing, incoming)
            for edge, parts in outgoing.items():
                passed[edge].update(part.origin for part in parts)
            for (s, receiver), frame in received.items():
                heard: dict[int, list[Part]] = defaultdict(list)
                for part in frame.parts:
                    heard[part.origin].append(part)
                passed[s, receiver].update(heard)
                for origin, parts_heard in heard.items():
                    known[self._position[receiver]].setdefault(origin, tuple(parts_heard))
        return {kind: self._everyones(known[0], kind) for kind in items}

    def _everyones(self, known: dict[int, tuple[Part, ...]], kind: str) -> list[Array]:
        missing = sorted(set(range(self.agents)) - set(known))
        if missing:
            raise NetworkError(f"a flood of {kind} ended without the values of agents {missing}")
        return [next(p.value for p in known[agent] if p.kind == kind) for agent in range(self.agents)]

    def _round(self, outgoing: dict[Edge, tuple[Part, ...]], expected: list[Edge], round: int) -> dict[Edge, Frame]:
        phase = phase_number(self._phase)
        frames = [Frame(s, r, round, parts, phase) for (s, r), parts in outgoing.items()]
        return self._swap(frames, expected, round)

    def _pairs(self, incoming: Incoming) -> list[Edge]:
        return list(zip(incoming.receivers.tolist(), incoming.senders.tolist(), strict=True))

    def _book_relays(self, outgoing: dict[Edge, tuple[Part, ...]], incoming: Incoming) -> None:
        for position, parts in zip(incoming.outgoing, outgoing.values(), strict=True):
            edge = np.array([position])
            for kind in dict.fromkeys(part.kind for part in parts):
                values = [part.value for part in parts if part.kind == kind]
                size = sum(part_bytes(v.ndim, v.size) for v in values)
                self.ledger.record(self._phase, kind, edge, sum(v.size for v in values), size)
            self.ledger.record(self._phase, FRAMING, edge, 0, HEADER_BYTES)


def _place(values: Array, edge: int, rows: BoolArray | None, frame: Frame | None, kind: str) -> None:
    """Write what a frame holds of a kind to an edge's place, or say what is missing."""
    arrived = None if frame is None else next((p.value for p in frame.parts if p.kind == kind), None)
    shape = values.shape[1:] if rows is None else values[edge][rows].shape
    if frame is None or arrived is None or arrived.shape != shape:
        sender = "a neighbour" if frame is None else f"agent {frame.sender}"
        raise NetworkError(f"{sender} sent no {kind} of shape {shape}")
    if rows is None:
        values[edge] = arrived
    else:
        values[edge][rows] = arrived
