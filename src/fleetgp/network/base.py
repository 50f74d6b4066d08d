"""The network: the only way in which agents touch each other.

Axis 0 of every array runs over the agents that this process hosts, in increasing id. The verbs of a `Network` are the
only non-local lines of any algorithm: `exchange` and what reduces over neighbours take one round; `reduce` and
`collect` go along the spanning tree (the fewest bytes), `flood` over all edges (the fewest rounds); `gather` and
`scatter` are for the centralized baselines, and refused by every peer-to-peer network.

A network keeps the count of rounds, which picks the graph of a time-varying topology, and the ledger.
"""

from __future__ import annotations

import abc
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Self

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.errors import Cancelled, NetworkError
from fleetgp.graph import Graph, Topology, Tree, require_connected
from fleetgp.network.edges import Cargo, Incoming
from fleetgp.network.ledger import SERVER, Ledger, check_kind
from fleetgp.network.pricing import Pricing
from fleetgp.network.reduction import SUM, Finish, Merge, Reduced, ReductionTask, Schedule


class Clock:
    """This machine's clock, by which a process judges whether the time of its work is up; it never goes back."""

    @property
    def began(self) -> float:
        """When the work began that begins now."""
        return time.monotonic()

    def passed(self, at: float) -> bool:
        return time.monotonic() >= at


class Network(abc.ABC):
    """Base of all networks: verbs and ledger once, transport in the subclass.

    Any thread can end it: by `close`, by `cancel`, or by a round that failed. It stays ended.
    waiting_for: the neighbours that a verb waits for at the moment; for other threads to look at.
    """

    def __init__(self, topology: Topology, hosted: Sequence[int]) -> None:
        self.waiting_for: frozenset[int] = frozenset()
        self._over: BaseException | None = None
        require_connected(topology.union)
        self.topology = topology
        self.hosted = tuple(sorted(hosted))
        self.round = 0
        self.clock = Clock()  # of time limits
        self._phase = "setup"
        receivers, senders = topology.union.directed.T
        agents = np.arange(topology.agents)
        server = np.full(topology.agents, SERVER)
        # Row e of the directed list is the edge receiver <- sender; its reverse is where the receiver sends.
        self.ledger = Ledger(
            senders=np.concatenate([senders, agents, server]), receivers=np.concatenate([receivers, server, agents])
        )
        self._uplinks = len(senders) + np.asarray(self.hosted, dtype=np.int64)
        self._incoming: dict[Graph, Incoming] = {}

    # ---- facts known to every agent -------------------------------------------------------------------

    @property
    def agents(self) -> int:
        """M, the size of the fleet (the paper's Assumption 6: known to all)."""
        return self.topology.agents

    @property
    def diameter(self) -> int:
        """Of the graph: the rounds of a flood."""
        return self.topology.diameter

    @property
    def tree(self) -> Tree:
        """The spanning tree of reductions: of the union of all rounds' graphs."""
        return Tree.of(self.topology.union)

    @property
    def incoming(self) -> Incoming:
        """The edges on which the next exchange will deliver."""
        return self.incoming_of(self.topology.at(self.round))

    @property
    def union_incoming(self) -> Incoming:
        """The edges into the hosted agents in the union of all rounds' graphs."""
        return self.incoming_of(self.topology.union)

    def incoming_of(self, graph: Graph) -> Incoming:
        """The edges of a graph into the hosted agents."""
        if graph not in self._incoming:
            self._incoming[graph] = Incoming.of(graph, self.topology.union, self.hosted)
        return self._incoming[graph]

    @property
    def _pricing(self) -> Pricing:
        return Pricing(self.ledger, self._phase)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Book the rounds inside under a phase's name."""
        before, self._phase = self._phase, name
        try:
            yield
        finally:
            self._phase = before

    # ---- how it ends ----------------------------------------------------------------------------------

    def close(self) -> None:
        """End it: a verb that waits, and every later one, raises a NetworkError. Safe to call twice."""
        self._end(NetworkError("the network is closed: open another one"))

    def cancel(self, why: Cancelled) -> None:
        """End the work: a verb that waits, and every later one, raises what is given here."""
        self._end(why)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _end(self, why: BaseException) -> None:
        if self._over is None:
            self._over = why
            self.wake()

    def wait_for(self, neighbours: frozenset[int]) -> None:
        """Announce for whom a verb waits, before each wait. It raises if the network has ended."""
        self.waiting_for = neighbours
        self._check_open()

    def _check_open(self) -> None:
        if self._over is not None:
            raise type(self._over)(*self._over.args)

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        """A verb at work. If it fails, neighbours may be in another round: no later round could be trusted."""
        self._check_open()
        try:
            yield
        except BaseException as error:
            why = f"an earlier round failed ({type(error).__name__}: {error})"
            self._end(NetworkError(f"{why}: begin again with another network"))
            raise
        finally:
            self.waiting_for = frozenset()

    @abc.abstractmethod
    def wake(self) -> None:
        """Wake the thread that waits in a verb, if there may be one: it calls `wait_for` again."""

    # ---- verbs ----------------------------------------------------------------------------------------

    def exchange(self, x: Array, kind: str) -> Array:
        """One round: send x to the neighbours, get theirs; (A, ...) -> (E, ...) on the incoming edges.

        The edges are those of `incoming`, sorted by receiver, then sender.
        """
        return self.exchange_parts({kind: x})[kind]

    def exchange_parts(
        self, parts: Mapping[str, Array], carries: Mapping[str, Cargo] | None = None
    ) -> dict[str, Array]:
        """One round whose messages carry several kinds of content.

        carries[kind]: which rows of a part (n, ...) go over which edge; both ends must know it. Such a part returns
        the rows that arrive, (L', ...), in the cargo's order. A part without rows is left out, and a message
        without parts is not sent at all.
        """
        incoming, carried = self.incoming, carries or {}
        if any(cargo.incoming is not incoming for cargo in carried.values()):
            raise NetworkError("expected cargos made for the edges of this round, got one of other edges")
        arrays = {
            check_kind(kind): np.asarray(x, dtype=float) if kind in carried else self._as_hosted(x)
            for kind, x in parts.items()
        }
        cargos = {kind: carried.get(kind, incoming.every_value) for kind in arrays}
        with self._in_use():
            self._pricing.exchange(incoming, arrays, cargos)
            received = self._deliver(arrays, cargos, incoming)
        self.round += 1
        return received

    def neighbour_sum(self, x: Array, kind: str) -> Array:
        """One round: the sum of the neighbours' values, (A, ...) -> (A, ...)."""
        incoming = self.incoming
        return incoming.reduce(np.add, self.exchange(x, kind), 0.0)

    def neighbour_max(self, x: Array, kind: str) -> Array:
        """One round: the largest of the neighbours' values; -inf without any."""
        incoming = self.incoming
        return incoming.reduce(np.maximum, self.exchange(x, kind), -np.inf)

    def neighbour_min(self, x: Array, kind: str) -> Array:
        """One round: the smallest of the neighbours' values; inf without any."""
        incoming = self.incoming
        return incoming.reduce(np.minimum, self.exchange(x, kind), np.inf)

    def flood(self, x: Array | Sequence[Array], kind: str) -> list[Array]:
        """Everyone's value, by agent id, the same at every agent; `diameter` rounds.

        In every round each agent passes on, over each of its links, all it knows that has not yet gone over
        that link either way. Values may differ in shape between agents; an agent whose values are all empty sends
        nothing, and empty arrays (0,) stand for what was not sent.
        """
        return self.flood_parts({kind: x})[kind]

    def flood_parts(self, parts: Mapping[str, Array | Sequence[Array]]) -> dict[str, list[Array]]:
        """A flood whose items carry several kinds of content."""
        items = self._as_items(parts)
        rounds = self.diameter
        with self._in_use():
            flooded = self._flood(items, rounds)
        self.ledger.count_rounds(self._phase, rounds)
        self.round += rounds
        return flooded

    def reduce(
        self,
        x: Array,
        kind: str,
        merge: Merge = SUM,
        *,
        finish: Finish | None = None,
        result_shape: tuple[int, ...] | None = None,
        recipient: int | None = None,
    ) -> Array | None:
        """The fleet's total of x by an associative operation on rows, (A, n, ..) -> (n, ..), the same bits everywhere.

        finish(total, None): what the root makes of the total, rows of shape `result_shape`; it goes down in its place.
            It may use what all agents know.
        recipient: the only agent that gets the result; None is returned where it is not hosted.
        """
        task = ReductionTask(
            self._as_hosted(x), check_kind(kind), merge, None, finish, _row(x, result_shape), recipient
        )
        return self._reduced(task).value

    def reduce_present(
        self,
        x: Array,
        present: BoolArray,
        kind: str,
        merge: Merge = SUM,
        *,
        finish: Finish | None = None,
        result_shape: tuple[int, ...] | None = None,
        recipient: int | None = None,
    ) -> Reduced:
        """The same where not every agent takes part in every row, present (A, n).

        Nothing is sent for a row from a part of the tree in which nobody is present. Who was travels along: finish gets
        it as its second argument. Every agent learns in which rows nobody was.
        """
        rows = np.where(present.reshape(*present.shape, *[1] * (np.ndim(x) - 2)), self._as_hosted(x), merge.identity)
        return self._reduced(
            ReductionTask(rows, check_kind(kind), merge, present, finish, _row(x, result_shape), recipient)
        )

    def _reduced(self, task: ReductionTask) -> Reduced:
        self._check_own(task)
        up, down = len(task.pieces(task.x.shape[2:])), len(task.pieces(task.result_shape))
        schedule = Schedule.of(self.topology, self.round, task.recipient, up, down)
        with self._in_use():
            reduced = self._reduce(task, schedule)
        self.ledger.count_rounds(self._phase, schedule.rounds)
        self.round += schedule.rounds
        return reduced

    def collect(
        self, parts: Mapping[str, Array | Sequence[Array]], *, recipient: int | None = None
    ) -> dict[str, list[Array]] | None:
        """Everyone's values, by kind and agent id, the same at every agent; each goes once over each edge of the tree.

        Values may differ in shape between agents; an agent whose values are all empty sends nothing, and empty
        arrays (0,) stand for what was not sent. recipient: as in `reduce`.
        Bytes may be collected too, as arrays of uint8.
        """
        items = self._as_items(parts)
        schedule = Schedule.of(self.topology, self.round, recipient, 1, 1)
        with self._in_use():
            everyone = self._collect(items, schedule, recipient)
        self.ledger.count_rounds(self._phase, schedule.rounds)
        self.round += schedule.rounds
        return everyone if recipient is None or recipient in self.hosted else None

    def gather(self, parts: Mapping[str, Array | Sequence[Array]]) -> dict[str, list[Array]]:
        """One round to a central node: everyone's values there, by kind and agent id."""
        raise NetworkError("gather needs a central node, and this network has none: use a dec- method")

    def scatter(self, x: Array, kind: str) -> Array:
        """The central node's answer, in the round of the gather: the same value to all, (...) -> (A, ...)."""
        raise NetworkError("scatter needs a central node, and this network has none: use a dec- method")

    def at_centre(self, x: Array) -> Array:
        """What the central node has for x: no message, where it is one node. For what it decides by itself."""
        raise NetworkError("this network has no central node: use a dec- method")

    # ---- transport, by subclass -----------------------------------------------------------------------

    @abc.abstractmethod
    def _deliver(self, parts: dict[str, Array], cargos: dict[str, Cargo], incoming: Incoming) -> dict[str, Array]:
        """Move the rows of a round's parts to the incoming edges. cargos: of every part."""

    @abc.abstractmethod
    def _flood(self, items: dict[str, list[Array]], rounds: int) -> dict[str, list[Array]]:
        """Relay for some rounds, and write the traffic into the ledger."""

    @abc.abstractmethod
    def _reduce(self, task: ReductionTask, schedule: Schedule) -> Reduced:
        """Reduce along the tree, and write the traffic into the ledger."""

    @abc.abstractmethod
    def _collect(
        self, items: dict[str, list[Array]], schedule: Schedule, recipient: int | None
    ) -> dict[str, list[Array]]:
        """Collect along the tree, and write the traffic into the ledger."""

    def _check_own(self, task: ReductionTask) -> None:
        """An agent does not send what its neighbours would refuse."""
        task.merge.check(self.hosted, task.x, task.present)

    def _as_items(self, parts: Mapping[str, Array | Sequence[Array]]) -> dict[str, list[Array]]:
        items = {check_kind(kind): [_numbers(v) for v in x] for kind, x in parts.items()}
        for kind, values in items.items():
            if len(values) != len(self.hosted):
                raise NetworkError(
                    f"{kind}: expected one value per hosted agent ({len(self.hosted)}), got {len(values)}"
                )
        return items

    def _as_hosted(self, x: Array) -> Array:
        array = np.asarray(x, dtype=float)
        if array.ndim == 0 or len(array) != len(self.hosted):
            raise NetworkError(
                f"expected an array whose axis 0 runs over the {len(self.hosted)} hosted agents, "
                f"got shape {array.shape}"
            )
        return array


def _numbers(value: Array) -> Array:
    """Doubles, or bytes as they are."""
    array = np.asarray(value)
    return array if array.dtype == np.uint8 else np.asarray(array, dtype=float)


def _row(x: Array, result_shape: tuple[int, ...] | None) -> tuple[int, ...]:
    """The shape of a row that goes down."""
    return tuple(np.shape(x)[2:]) if result_shape is None else result_shape
