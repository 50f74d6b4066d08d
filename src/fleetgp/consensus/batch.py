"""Many recursions at once, one per item of axis 1 (the queries of a prediction), which end one by one.

One message carries all items that still run. Items may concern some of the agents only (a `Scope`): then only
the edges inside an item's scope carry it.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass, replace

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.consensus.cell_links import CellLinks
from fleetgp.consensus.iterate import drive
from fleetgp.consensus.scope import Scope, WholeFleet
from fleetgp.consensus.stopping import Status, Unwatched, Verdict, Watch, Window, watched
from fleetgp.graph import Graph
from fleetgp.network import Network


class BatchRule(abc.ABC):
    """A recursion over neighbours for every item; the state is an array over cells, (C, ...)."""

    kind: str

    @abc.abstractmethod
    def update(self, state: Array, received: Array, near: CellLinks) -> Array:
        """The next state from the messages, which are the neighbours' states, (L, ...)."""

    def narrow(self, keep: BoolArray) -> BatchRule:
        """The same rule for some of the cells."""
        return self


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
    def status(self) -> Status:
        """The worst of all items."""
        if self.diverged.any():
            return "diverged"
        return "converged" if self.converged.all() else "round limit"


@dataclass(frozen=True)
class Items:
    """A batch between two rounds.

    found: what is known of each item.  alive: (A, T) the cells that still run, and of them rule, state (C, ...), judged
    (C, ...) the state at the start of the window.  busy: (A, 1), see `Scope`.
    """

    found: BatchOutcome
    rounds: int
    alive: BoolArray
    rule: BatchRule
    state: Array
    judged: Array
    window: Window | Unwatched
    busy: Array
    over: bool = False


class Batch:
    """A rule for all items on a network, as the driver runs it."""

    def __init__(self, network: Network, scope: Scope, tol: float) -> None:
        self.network, self.scope, self.tol = network, scope, tol
        # Without verdicts all end together anyway, and nothing has to be said about who is busy.
        self._ending = scope if tol > 0.0 else WholeFleet(network, scope.active.shape[1])
        self._near: dict[Graph, CellLinks] = {}  # of the cells that are alive

    def start(self, rule: BatchRule, state: Array) -> Items:
        alive = self.scope.active[list(self.network.hosted)]
        cells = state[alive]
        window = watched(self.scope.window, self.tol).open(Watch(_flat(cells)))
        found = BatchOutcome.before(state, alive, self.tol)
        return Items(found, 0, alive, rule.narrow(alive.ravel()), cells, cells, window, _busy(alive))

    def step(self, items: Items) -> tuple[Items, Verdict | None]:
        """One round for all items. An item whose verdict is that it converged ends at the state that was judged."""
        rule, incoming, graph = items.rule, self.network.incoming, self.network.topology.at(self.network.round)
        if graph not in self._near:
            self._near[graph] = CellLinks.of(self.network, self.scope, items.alive)
        near = self._near[graph]
        parts = {rule.kind: items.state, **items.window.parts}
        busy_parts = self._ending.busy_parts(items.busy)
        received = self.network.exchange_parts({**parts, **busy_parts}, dict.fromkeys(parts, near.cargo))
        with np.errstate(over="ignore", invalid="ignore"):
            state = rule.update(items.state, received[rule.kind], near)
        busy = self._ending.busy_heard(items.busy, received, incoming)
        window = items.window.heard(received, near)
        items = replace(items, rounds=items.rounds + 1, state=state, window=window, busy=busy)
        verdict = window.verdict
        return (items, None) if verdict is None else (self._judged(items, verdict), verdict)

    def ends(self, items: Items, verdict: Verdict) -> bool:
        return items.over

    def _judged(self, items: Items, verdict: Verdict) -> Items:
        """Write the verdicts; go on with the items that neither converged nor diverged."""
        converged = verdict.converged.reshape(-1, *[1] * (items.state.ndim - 1))
        stands = np.where(converged, items.judged, items.state)
        found = items.found.after(items.rounds, stands, items.alive).judged(verdict, items.alive)
        keep = ~verdict.converged & ~verdict.diverged
        alive = items.alive.copy()
        alive[items.alive] = keep
        if not keep.all():
            self._near.clear()
        state, busy = items.state[keep], _busy(alive)
        window = items.window.reopened(Watch(_flat(state)), keep)
        over = self._ending.ends(items.busy, busy)
        return Items(found, items.rounds, alive, items.rule.narrow(keep), state, state, window, busy, over)


def iterate_batch(
    rule: BatchRule, state: Array, network: Network, *, rounds: int, tol: float, scope: Scope | None = None
) -> BatchOutcome:
    """Run a rule for all items, each until its agents agree within tol; with tol = 0 for exactly `rounds` rounds."""
    state = np.asarray(state, dtype=float)
    batch = Batch(network, WholeFleet(network, state.shape[1]) if scope is None else scope, tol)
    items, _, _ = drive(batch, batch.start(rule, state), rounds if state.shape[1] else 0)
    return items.found.after(items.rounds, items.state, items.alive)


def _busy(alive: BoolArray) -> Array:
    """(A, 1): 1 for the hosted agents that have cells alive, 0 for the others."""
    return alive.any(axis=1, keepdims=True).astype(float)


def _flat(state: Array) -> Array:
    return state.reshape(len(state), int(np.prod(state.shape[1:])))
