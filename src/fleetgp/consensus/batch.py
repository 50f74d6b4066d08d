"""Many recursions at once, one per item of axis 1 (the queries of a prediction), which end one by one.

One message carries all items that still run. Items may concern some of the agents only (a `Scope`): then only
the edges inside an item's scope carry it.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.consensus.links import Links
from fleetgp.consensus.stopping import Maximin, Settled, Status, Verdict, Watch
from fleetgp.graph import Graph
from fleetgp.network import Cargo, Incoming, Network
from fleetgp.network.sound import check_told


@dataclass(frozen=True)
class Near:
    """What the cells have around them in one round.

    A cell is one hosted agent's part in one item; a link brings one cell's value from one neighbour.
    degrees: (C,) links of each cell.  receivers: (L,) the cell of each link.  sender_degrees: (L,) the links that
    the sending cell has.
    """

    degrees: IntArray
    receivers: IntArray
    sender_degrees: IntArray
    cargo: Cargo
    links: Links

    @classmethod
    def of(
        cls, incoming: Incoming, on: BoolArray, degrees: IntArray, sender_degrees: IntArray, alive: BoolArray
    ) -> Near:
        """From edges in use (E, T), degrees (A, T), the senders' degrees (E, T), and the cells (A, T) there are."""
        number = np.cumsum(alive).reshape(alive.shape) - 1
        edges, items = np.nonzero(on)
        receivers = number[incoming.receivers[edges], items]
        cargo = Cargo(incoming, edges, receivers, edges)
        links = Links(receivers, int(alive.sum()))  # in the order of the senders
        return cls(degrees[alive], receivers, sender_degrees[edges, items], cargo, links)

    def reduce(self, operation: np.ufunc, values: Array, empty: float) -> Array:
        """operation over each cell's links, (L, ...) -> (C, ...); in the order of the senders, whoever is hosted."""
        return self.links.reduce(operation, values, empty)


class Scope(Protocol):
    """Which agents an item concerns; the same knowledge at every agent.

    active: (M, T).  window: rounds within which a word crosses any item's agents, and the fleet.
    """

    active: BoolArray
    window: int

    def edges(self, graph: Graph) -> BoolArray:
        """(2E, T), in the order of graph.directed: both ends are active."""
        ...

    def degrees(self, graph: Graph) -> IntArray:
        """(M, T): active neighbours of the active agents."""
        ...


class BatchRule(abc.ABC):
    """A recursion over neighbours for every item; the state is an array over cells, (C, ...)."""

    kind: str

    @abc.abstractmethod
    def update(self, state: Array, received: Array, near: Near) -> Array:
        """The next state from the messages, which are the neighbours' states, (L, ...)."""

    def narrow(self, keep: BoolArray) -> BatchRule:
        """The same rule for some of the cells."""
        return self


class FloodRule(abc.ABC):
    """A recursion that needs everyone's value: one flood of diam(G) rounds per iteration; state (A, T, ...)."""

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

    @property
    def status(self) -> Status:
        """The worst of all items."""
        if self.diverged.any():
            return "diverged"
        return "converged" if self.converged.all() else "round limit"


def iterate_batch(
    rule: BatchRule, state: Array, network: Network, *, rounds: int, tol: float, scope: Scope | None = None
) -> BatchOutcome:
    """Run a rule for all items, each until its agents agree within tol; with tol = 0 for exactly `rounds` rounds."""
    state = np.asarray(state, dtype=float)
    agents, items = state.shape[:2]
    hosted = np.asarray(network.hosted)
    alive = np.ones((agents, items), dtype=bool) if scope is None else scope.active[hosted].copy()
    result = BatchOutcome(
        state.copy(),
        np.zeros((agents, items), dtype=np.int64),
        np.where(alive, np.inf, 0.0),
        ~alive,
        np.zeros((agents, items), dtype=bool),
        tol,
    )
    rule, state = rule.narrow(alive.ravel()), state[alive]
    surroundings: dict[Graph, Near] = {}
    stopping = Maximin(network.diameter if scope is None else scope.window, tol) if tol > 0 else None
    flag = alive.any(axis=1).astype(float)[:, None]
    if stopping is not None:
        stopping.open(Watch(_flat(state)))
    for _ in range(rounds):
        if scope is None and not alive.any():
            break
        incoming, graph = network.incoming, network.topology.at(network.round)
        if graph not in surroundings:
            surroundings[graph] = _near(network, incoming, graph, scope, alive)
        near = surroundings[graph]
        parts, carries = {rule.kind: state}, {rule.kind: near.cargo}
        if stopping is not None:
            parts["stopping"], carries["stopping"] = stopping.carried, near.cargo
            if scope is not None:
                parts["statistics"] = flag
        received = network.exchange_parts(parts, carries)
        with np.errstate(over="ignore", invalid="ignore"):
            state = rule.update(state, received[rule.kind], near)
        result.rounds[alive] += 1
        if stopping is None:
            continue
        if scope is not None:
            flag = np.maximum(flag, incoming.reduce(np.maximum, received["statistics"], 0.0))
        verdict = stopping.hear(near.reduce(np.maximum, received["stopping"], -np.inf))
        if verdict is None:
            continue
        if scope is not None and not flag[0, 0]:  # the same at every agent: nobody had anything left to do
            break
        result.state[alive] = state
        keep = _judge(result, verdict, alive)
        alive[alive] = keep
        flag = alive.any(axis=1).astype(float)[:, None]
        rule, state = rule.narrow(keep), state[keep]
        surroundings.clear()
        stopping.narrow(keep)
        stopping.open(Watch(_flat(state)))
    result.state[alive] = state
    return result


def iterate_flooded(rule: FloodRule, state: Array, network: Network, *, rounds: int, tol: float) -> BatchOutcome:
    """Run a flooded rule for all items, each until it has settled; with tol = 0 for exactly `rounds` iterations."""
    agents, items = state.shape[:2]
    result = BatchOutcome(
        state.copy(),
        np.zeros((agents, items), dtype=np.int64),
        np.full((agents, items), np.inf),
        np.zeros((agents, items), dtype=bool),
        np.zeros((agents, items), dtype=bool),
        tol,
    )
    items_left = np.arange(items)
    stopping = Settled(tol) if tol > 0 else None
    for _ in range(rounds):
        if not items_left.size:
            break
        own = rule.message(state)
        told = network.flood(own, rule.kind)
        check_told(told, partial(_has_shape, own.shape[1:]), f"an array of shape {own.shape[1:]}")
        everyone = np.stack(told)
        with np.errstate(over="ignore", invalid="ignore"):
            state = rule.update(state, everyone)
            result.state[:, items_left] = state
            result.rounds[:, items_left] += 1
            verdict = None if stopping is None else stopping.hear(rule.settling(everyone))
        if verdict is None or stopping is None:
            continue
        alive = np.zeros((agents, items), dtype=bool)
        alive[:, items_left] = True
        spread_out = Verdict(np.tile(verdict.residual, agents), verdict.tol)
        keep = _judge(result, spread_out, alive)[: len(items_left)]  # everyone saw the same numbers
        if not keep.all():
            items_left, state, rule = items_left[keep], state[:, keep], rule.narrow(keep)
            stopping.narrow(keep)
    return result


def _has_shape(shape: tuple[int, ...], agent: int, value: Array) -> bool:
    return value.shape == shape


def _judge(result: BatchOutcome, verdict: Verdict, alive: BoolArray) -> BoolArray:
    """Write the verdicts of the cells that are alive, (C,); which of them go on."""
    result.residual[alive] = verdict.residual
    result.converged[alive] = verdict.converged
    result.diverged[alive] = verdict.diverged
    return ~verdict.converged & ~verdict.diverged


def _near(network: Network, incoming: Incoming, graph: Graph, scope: Scope | None, alive: BoolArray) -> Near:
    # Both ends of an edge have the same items alive: they heard the same verdicts.
    own = alive[incoming.receivers]
    if scope is None:
        degrees = np.broadcast_to(incoming.degrees[:, None], alive.shape)
        return Near.of(incoming, own, degrees, np.broadcast_to(incoming.sender_degrees[:, None], own.shape), alive)
    hosted = np.isin(graph.directed[:, 0], network.hosted)
    degrees = scope.degrees(graph)
    return Near.of(
        incoming, scope.edges(graph)[hosted] & own, degrees[list(network.hosted)], degrees[incoming.senders], alive
    )


def _flat(state: Array) -> Array:
    return state.reshape(len(state), int(np.prod(state.shape[1:])))
