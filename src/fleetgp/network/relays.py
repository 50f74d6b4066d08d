"""What crosses which edge in a flood, computed and not sent: for networks that know everybody's sizes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fleetgp.arrays import BoolArray, IntArray
from fleetgp.graph import Topology
from fleetgp.network.edges import edge_positions

#: Where values cross edges in a flood is kept for fleets with at most this many agents times edges.
MEMORABLE = 5_000_000

#: Edges in use, what they carry of each amount (E, K), and in how many messages.
Carried = Iterator[tuple[IntArray, IntArray, IntArray]]


class Relays:
    """Of the edges over which some agents send. sending: (M,) which."""

    def __init__(self, topology: Topology, sending: BoolArray) -> None:
        self._topology, self._sending = topology, sending
        self._edges = np.flatnonzero(sending[topology.union.directed[:, 1]])
        self._crossings: dict[int, tuple[IntArray, IntArray]] = {}

    def of(self, sources: IntArray, amounts: IntArray, round: int, rounds: int) -> Carried:
        """From a round on. amounts: (S, K) what each source says."""
        if self._topology.period == 1:
            return self._at_once(sources, amounts, rounds)
        return self._round_by_round(sources, amounts, round, rounds)

    def _at_once(self, sources: IntArray, amounts: IntArray, rounds: int) -> Carried:
        """For all rounds at once, from distances.

        A value goes from u to v when u has it and v has not sent it to u: where u is not farther from its source.
        """
        union = self._topology.union
        receivers, senders = union.directed[self._edges].T
        carrying = np.zeros((len(senders), rounds), dtype=bool)
        carried = np.zeros((len(senders), amounts.shape[1]), dtype=np.int64)
        for source, amount in zip(sources.tolist(), amounts, strict=True):
            crossing = self._crossings.get(source)
            if crossing is None:
                distance = union.distances(source)
                crossed = np.flatnonzero((distance[senders] <= distance[receivers]) & (distance[senders] < rounds))
                crossing = crossed, distance[senders[crossed]]
                if union.agents * len(senders) <= MEMORABLE:
                    self._crossings[source] = crossing
            carrying[crossing] = True
            carried[crossing[0]] += amount
        yield self._edges, carried, carrying.sum(axis=1)

    def _round_by_round(self, sources: IntArray, amounts: IntArray, round: int, rounds: int) -> Carried:
        """On a topology that changes."""
        union = self._topology.union
        known = np.eye(union.agents, dtype=bool)[:, sources]
        passed = np.zeros((len(union.directed), len(sources)), dtype=bool)
        for step in range(rounds):
            receivers, senders = self._topology.at(round + step).directed.T
            there, back = edge_positions(union, receivers, senders), edge_positions(union, senders, receivers)
            relayed = known[senders] & ~passed[there] & ~passed[back]
            mine = self._sending[senders]
            yield there[mine], relayed[mine] @ amounts, np.asarray(relayed[mine].any(axis=1), dtype=np.int64)
            passed[there] |= relayed
            known = known.copy()
            np.logical_or.at(known, receivers, relayed)
