"""Many recursions at once that need everyone's value: one flood of diam(G) rounds per iteration."""

from __future__ import annotations

import abc
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.consensus.batch import BatchOutcome
from fleetgp.consensus.iterate import drive
from fleetgp.consensus.stopping import Settled, Verdict
from fleetgp.network import Network
from fleetgp.network.peer_checks import check_from_peers


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
class FloodedItems:
    """found: what is known of each item.  alive: (T,) those that still run, and of them rule, state and settled."""

    found: BatchOutcome
    iterations: int
    alive: BoolArray
    rule: FloodRule
    state: Array
    settled: Settled


class Flooded:
    """A flooded rule on a network, as the driver runs it."""

    def __init__(self, network: Network) -> None:
        self.network = network

    def start(self, rule: FloodRule, state: Array, tol: float) -> FloodedItems:
        everything = np.ones(state.shape[:2], dtype=bool)
        return FloodedItems(BatchOutcome.before(state, everything, tol), 0, everything[0], rule, state, Settled(tol))

    def step(self, items: FloodedItems) -> tuple[FloodedItems, Verdict | None]:
        """One iteration. A verdict is about what was told in it: the state is already one update further."""
        own = items.rule.message(items.state)
        told = self.network.flood(own, items.rule.kind)
        check_from_peers(told, partial(_has_shape, own.shape[1:]), f"an array of shape {own.shape[1:]}")
        everyone = np.stack(told)
        with np.errstate(over="ignore", invalid="ignore"):
            state = items.rule.update(items.state, everyone)
            settled = items.settled.heard(items.rule.settling(everyone))
            verdict = settled.verdict
        items = replace(items, iterations=items.iterations + 1, state=state, settled=settled)
        return (items, None) if verdict is None else (self._judged(items, verdict), verdict)

    def ends(self, items: FloodedItems, verdict: Verdict) -> bool:
        return not items.alive.any()

    def _judged(self, items: FloodedItems, verdict: Verdict) -> FloodedItems:
        keep = ~verdict.converged & ~verdict.diverged
        agents = len(items.state)
        alike = Verdict(np.tile(verdict.residual, agents), verdict.tol)  # everyone saw the same numbers
        found = current(items).judged(alike, _cells(items))
        if keep.all():
            return replace(items, found=found)
        alive = items.alive.copy()
        alive[items.alive] = keep
        narrowed = items.settled.narrowed(keep)
        return FloodedItems(found, items.iterations, alive, items.rule.narrow(keep), items.state[:, keep], narrowed)


def current(items: FloodedItems) -> BatchOutcome:
    """Where all items stand now."""
    cells = items.state.reshape(-1, *items.state.shape[2:])
    return items.found.after(items.iterations, cells, _cells(items))


def iterate_flooded(rule: FloodRule, state: Array, network: Network, *, rounds: int, tol: float) -> BatchOutcome:
    """Run a flooded rule for all items, each until it has settled; with tol = 0 for exactly `rounds` iterations."""
    flooded = Flooded(network)
    items, _, _ = drive(flooded, flooded.start(rule, state, tol), rounds if state.shape[1] else 0)
    return current(items)


def _cells(items: FloodedItems) -> BoolArray:
    return np.broadcast_to(items.alive, items.found.residual.shape)


def _has_shape(shape: tuple[int, ...], agent: int, value: Array) -> bool:
    return value.shape == shape
