"""Many recursions at once, one per item of axis 1 (the queries of a prediction), which end one by one.

One message carries all items that still run. Items may concern some of the agents only (a `Scope`): then only the edges
inside an item's scope carry it. A cell is one hosted agent's part in one item; a link brings one cell's value from one
neighbour. An agent outside an item does not get its verdicts: there the fleet agrees after a verdict, along the tree,
on whether anybody is still busy. Rules that need everyone's value flood it, once per iteration (`iterate_flooded`).

All items are judged in the same windows of max-consensus, between which only content travels (`Spaced`). The content of
an averaging round is what is judged. So in the first round of a window the extremes are those of the messages
themselves, and words are needed in the others only: 2 numbers beside each number of content. The first window brings
the magnitudes at the start as well, one number more, in all of its rounds. Before each window the agents rest for three
times as many rounds as it will send numbers beside each number of content: words about stopping are then less than a
quarter of what has been sent at any time. When a window opens follows from the number of rounds.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from scipy.sparse import csr_array

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.consensus.reductions import maximum
from fleetgp.consensus.stopping import KIND, Edges, Maximin, Settled, Status, Verdict, Watch, Window
from fleetgp.graph import Graph, metropolis_weights
from fleetgp.network import Cargo, Network
from fleetgp.network.wire import check_from_peers


class BatchRule(abc.ABC):
    """A recursion over neighbours for every item; the state is an array over cells, (C, ...)."""

    kind: str

    @abc.abstractmethod
    def update(self, state: Array, received: Array, near: CellLinks) -> Array:
        """The next state from the messages, which are the neighbours' states, (L, ...)."""

    def narrow(self, keep: BoolArray) -> BatchRule:
        """The same rule for some of the cells."""
        return self


class FloodRule(abc.ABC):
    """A recursion that needs everyone's value; state (A, T, ...)."""

    kind: str

    @abc.abstractmethod
    def message(self, state: Array) -> Array:
        """What each hosted agent sends, (A, T, ...)."""

    @abc.abstractmethod
    def update(self, state: Array, everyone: Array) -> Array:
        """The next state from all messages, (M, T, ...)."""

    @abc.abstractmethod
    def settling(self, everyone: Array) -> Array:
        """What must settle, (M, T, K), as a function of all messages."""

    @abc.abstractmethod
    def narrow(self, keep: BoolArray) -> FloodRule:
        """The same rule for some of the items."""


@dataclass(frozen=True)
class BatchOutcome:
    """Where each item ended: state (A, T, ...), and rounds, residual, converged and diverged, each (A, T).

    An agent outside an item's scope knows nothing of it: rounds 0, residual 0, converged.
    For flooded rules rounds counts iterations.
    """

    state: Array
    rounds: IntArray
    residual: Array
    converged: BoolArray
    diverged: BoolArray
    tol: float

    @classmethod
    def before(cls, state: Array, alive: BoolArray, tol: float) -> BatchOutcome:
        """Before the first round, for the cells (A, T) that will run."""
        rounds, diverged = np.zeros(alive.shape, dtype=np.int64), np.zeros(alive.shape, dtype=bool)
        return cls(state, rounds, np.where(alive, np.inf, 0.0), ~alive, diverged, tol)

    def after(self, rounds: int, cells: Array, alive: BoolArray) -> BatchOutcome:
        """Where the cells that are alive, (C, ...), stand after so many rounds; the others ended before."""
        state = self.state.copy()
        state[alive] = cells
        return replace(self, state=state, rounds=np.where(alive, rounds, self.rounds))

    def judged(self, verdict: Verdict, alive: BoolArray) -> BatchOutcome:
        """With the verdicts of the cells that are alive, (C,)."""
        residual, converged, diverged = self.residual.copy(), self.converged.copy(), self.diverged.copy()
        residual[alive], converged[alive], diverged[alive] = verdict.residual, verdict.converged, verdict.diverged
        return replace(self, residual=residual, converged=converged, diverged=diverged)

    @property
    def running(self) -> BoolArray:
        """(A, T) the cells without a final verdict."""
        return ~self.converged & ~self.diverged

    @property
    def status(self) -> Status:
        """The worst of all items."""
        if self.diverged.any():
            return "diverged"
        return "converged" if self.converged.all() else "round limit"


#: Whether anybody is busy is asked at the first verdict that is PATIENCE diameters after the last time, because it has
#: rounds without content, and 1 / SHARE of its round, because it takes messages of all agents, however few are busy.
PATIENCE, SHARE = 3, 4


def iterate_batch(
    rule: BatchRule, state: Array, network: Network, *, rounds: int, tol: float, scope: Scope | None = None
) -> BatchOutcome:
    """Run a rule for all items, each until its agents agree within tol; with tol = 0 for exactly `rounds` rounds.

    A verdict is about the state at the start of its window. An item that converged ends at that state.
    """
    state = np.asarray(state, dtype=float)
    scope = WholeFleet(network, state.shape[1]) if scope is None else scope
    alive = scope.active[list(network.hosted)]
    outcome = BatchOutcome.before(state, alive, tol)
    rule, cells = rule.narrow(alive.ravel()), state[alive]
    spaced = Spaced.of(Maximin(scope.window, tol), rule.kind, _flat(cells)) if tol > 0.0 else None
    judged, near = cells, dict[Graph, CellLinks]()
    done, asked = 0, 0  # rounds, and the one after which the fleet last agreed on whether anybody is busy
    while done < rounds and state.shape[1]:
        if spaced is not None and spaced.due:
            spaced, judged = spaced.open(_flat(cells)), cells
        graph = network.topology.at(network.round)
        if graph not in near:
            near[graph] = CellLinks.of(network, scope, alive)
        parts = {rule.kind: cells, **({} if spaced is None else spaced.parts)}
        received = network.exchange_parts(parts, dict.fromkeys(parts, near[graph].cargo))
        with np.errstate(over="ignore", invalid="ignore"):
            cells = rule.update(cells, received[rule.kind], near[graph])
        done += 1
        if spaced is None:
            continue
        spaced = spaced.update(received, near[graph])
        verdict = spaced.verdict
        if verdict is None:
            continue
        converged = verdict.converged.reshape(-1, *[1] * (cells.ndim - 1))
        outcome = outcome.after(done, np.where(converged, judged, cells), alive).judged(verdict, alive)
        keep = ~verdict.converged & ~verdict.diverged
        alive, rule, spaced = alive & outcome.running, rule.narrow(keep), spaced.rest(verdict, keep)
        cells = judged = cells[keep]
        if not keep.all():
            near.clear()
        busy = True
        if scope.all_judge:
            busy = bool(alive.any())
        elif done - asked >= max(PATIENCE * network.diameter, asked // SHARE):
            busy, asked = bool(maximum(network, alive.any(axis=1).astype(float)).item()), done
        if not busy:
            break
    return outcome.after(done, cells, alive)


def iterate_flooded(rule: FloodRule, state: Array, network: Network, *, rounds: int, tol: float) -> BatchOutcome:
    """Run a flooded rule for all items, each until it has settled; with tol = 0 for exactly `rounds` iterations.

    A verdict is about what was sent in its iteration: the state is already one update further.
    """
    agents, items = state.shape[:2]
    alive, settled, done = np.ones((agents, items), dtype=bool), Settled(tol), 0
    outcome = BatchOutcome.before(state, alive, tol)
    while done < rounds and alive.any():
        own = rule.message(state)
        received = network.flood(own, rule.kind)
        check_from_peers(received, partial(_has_shape, own.shape[1:]), f"an array of shape {own.shape[1:]}")
        everyone = np.stack(received)
        with np.errstate(over="ignore", invalid="ignore"):
            state = rule.update(state, everyone)
            settled = settled.update(rule.settling(everyone))
            verdict = settled.verdict
        done += 1
        if verdict is None:
            continue
        same = Verdict(np.tile(verdict.residual, agents), tol)  # everyone saw the same numbers
        outcome = outcome.after(done, _cells(state), alive).judged(same, alive)
        keep = ~verdict.converged & ~verdict.diverged
        if not keep.all():
            alive = alive & outcome.running
            state, rule, settled = state[:, keep], rule.narrow(keep), settled.narrow(keep)
    return outcome.after(done, _cells(state), alive)


class Scope(abc.ABC):
    """Which agents an item concerns; the same knowledge at every agent.

    active: (M, T).  window: rounds within which a word crosses any item's agents.
    """

    active: BoolArray
    window: int

    @cached_property
    def all_judge(self) -> bool:
        """Whether every agent takes part in every item and so gets its verdict; items of a single agent have but one
        verdict, the first, which is known to end them.
        """
        return bool(self.active[:, self.active.sum(axis=0) > 1].all())

    @abc.abstractmethod
    def edges(self, graph: Graph) -> BoolArray:
        """(2E, T), in the order of graph.directed: both ends are active."""

    @abc.abstractmethod
    def degrees(self, graph: Graph) -> IntArray:
        """(M, T): active neighbours of the active agents."""


class WholeFleet(Scope):
    """Every agent takes part in every item."""

    def __init__(self, network: Network, items: int) -> None:
        self.active = np.broadcast_to(True, (network.agents, items))
        self.window = network.diameter

    def edges(self, graph: Graph) -> BoolArray:
        return np.broadcast_to(True, (len(graph.directed), self.active.shape[1]))

    def degrees(self, graph: Graph) -> IntArray:
        return np.broadcast_to(graph.degrees[:, None], self.active.shape)


@dataclass(frozen=True)
class CellLinks:
    """degrees: (C,) links of each cell.  receivers: (L,) the cell of each link.  sender_degrees: (L,) the links that
    the sending cell has.
    """

    degrees: IntArray
    receivers: IntArray
    sender_degrees: IntArray
    cargo: Cargo
    _order: IntArray

    @classmethod
    def of(cls, network: Network, scope: Scope, alive: BoolArray) -> CellLinks:
        """Of the cells (A, T) that are alive, in the next round."""
        incoming, graph = network.incoming, network.topology.at(network.round)
        hosted, ours = list(network.hosted), np.isin(graph.directed[:, 0], network.hosted)
        number = np.cumsum(alive).reshape(alive.shape) - 1
        # Both ends of an edge have the same items alive: they got the same verdicts.
        edges, items = np.nonzero(scope.edges(graph)[ours] & alive[incoming.receivers])
        receivers = number[incoming.receivers[edges], items]
        cargo = Cargo(incoming, edges, receivers, edges)
        order = np.argsort(receivers, kind="stable")  # a cell's links in the order of their senders
        degrees = scope.degrees(graph)
        return cls(degrees[hosted][alive], receivers, degrees[incoming.senders[edges], items], cargo, order)

    def reduce(self, operation: np.ufunc, values: Array, empty: float) -> Array:
        """operation over each cell's links, (L, ...) -> (C, ...); in the order of the senders in every hosting."""
        reduced = np.full((len(self.degrees), *values.shape[1:]), empty)
        for rank, (cells, links) in enumerate(self._ranks):
            values_of_rank = values.take(links, axis=0)
            if not rank and len(cells) == len(reduced):
                reduced = values_of_rank
            elif len(cells) == len(reduced):
                operation(reduced, values_of_rank, out=reduced)
            else:
                reduced[cells] = operation(reduced.take(cells, axis=0), values_of_rank) if rank else values_of_rank
        return reduced

    def differences(self, state: Array, received: Array) -> Array:
        """What every link brings minus what its cell has, (L, ...)."""
        return received - state.take(self.receivers, axis=0)

    def metropolis_sum(self, values: Array) -> Array:
        """The sum over each cell's links, weighted by Metropolis, (L, K) -> (C, K); in the order of the senders."""
        return np.asarray(self._metropolis @ values)

    @cached_property
    def _metropolis(self) -> csr_array:
        weights = metropolis_weights(self.degrees[self.receivers], self.sender_degrees)
        starts = np.concatenate([[0], np.cumsum(self.degrees)])
        return csr_array((weights[self._order], self._order, starts), shape=(len(self.degrees), len(weights)))

    @cached_property
    def _ranks(self) -> list[tuple[IntArray, IntArray]]:
        """For r = 0, 1, ..: the cells that have more than r links, and the r-th link of each.

        All first links at once, then all second ones: with few links a cell that is faster than cell by cell.
        """
        starts = np.cumsum(self.degrees) - self.degrees
        ranks = []
        for rank in range(int(self.degrees.max(initial=0))):
            cells = np.flatnonzero(self.degrees > rank)
            ranks.append((cells, self._order[starts[cells] + rank]))
        return ranks


#: Rounds of rest for each number that a window sends beside a number of content.
REST = 3
#: The section of the first window with the magnitudes at the start.
START = "start"


@dataclass(frozen=True)
class Spaced:
    """Between two rounds of a recursion whose messages, of a kind, are what must agree.

    start: (C, K) the magnitudes at the start, each cell's own before the first verdict, then (agreed) the fleet's.
    age: rounds since the last verdict.  window: None while they rest.
    """

    rule: Maximin
    kind: str
    start: Array
    agreed: bool = False
    age: int = 0
    window: Window | None = None

    @classmethod
    def of(cls, rule: Maximin, kind: str, values: Array) -> Spaced:
        """Before the first round, with the values (C, K) at the start."""
        return cls(rule, kind, np.abs(values))

    @property
    def due(self) -> bool:
        """Whether a window opens with the next round."""
        length = max(self.rule.length, 1)
        words = 2 * (length - 1) + (0 if self.agreed else length)
        return self.age == REST * words

    def open(self, values: Array) -> Spaced:
        """With a window about the values (C, K) of this round."""
        if self.agreed:
            return replace(self, window=Window.of(self.rule, Watch(values), self.start))
        return replace(self, window=Window.of(self.rule, Watch(values, largest={START: self.start}), None))

    @property
    def parts(self) -> dict[str, Array]:
        """What is to be sent in this round beside the content."""
        if self.window is None:
            return {}
        if self.window.age:
            return self.window.parts
        return {} if self.agreed else {KIND: self.start}

    def update(self, received: Mapping[str, Array], edges: Edges) -> Spaced:
        """One round later."""
        if self.window is None:
            return replace(self, age=self.age + 1)
        if not self.window.age:
            content = received[self.kind]
            values = content.reshape(len(content), self.start.shape[1])
            words = [] if self.agreed else [received[KIND]]
            received = {KIND: np.concatenate([values, -values, *words], axis=-1)}
        return replace(self, age=self.age + 1, window=self.window.update(received, edges))

    @property
    def verdict(self) -> Verdict | None:
        """About the values with which the window opened; None in other rounds than its last."""
        verdict = None if self.window is None else self.window.verdict
        if self.window is None or verdict is None or self.agreed:
            return verdict
        return replace(self.window, first_scale=verdict.largest[START]).verdict

    def rest(self, verdict: Verdict, keep: BoolArray) -> Spaced:
        """After a verdict, the next rest; keep: of the cells, those that go on."""
        start = self.start if self.agreed else verdict.largest[START]
        return Spaced(self.rule, self.kind, start[keep], agreed=True)


def _flat(state: Array) -> Array:
    return state.reshape(len(state), int(np.prod(state.shape[1:])))


def _cells(state: Array) -> Array:
    """(A, T, ...) -> (A T, ...)."""
    return state.reshape(-1, *state.shape[2:])


def _has_shape(shape: tuple[int, ...], agent: int, value: Array) -> bool:
    return value.shape == shape
