"""Many recursions at once, one per item of axis 1 (the queries of a prediction), which end one by one.

One message carries all items that still run. Items may concern some of the agents only (a `Scope`): then only
the edges inside an item's scope carry it.

All items are judged in the same windows, between which the agents rest (`spaced`). An agent outside an item does not
hear its verdicts: there the fleet agrees after a verdict, along the tree, on whether anybody is still busy.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass, replace

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.consensus.cell_links import CellLinks
from fleetgp.consensus.iterate import drive
from fleetgp.consensus.reductions import maximum
from fleetgp.consensus.scope import Scope, WholeFleet
from fleetgp.consensus.spaced import Spaced
from fleetgp.consensus.stopping import Maximin, Status, Verdict
from fleetgp.graph import Graph
from fleetgp.network import Network

#: Whether anybody is busy is asked at the first verdict that is PATIENCE diameters after the last time, because it has
#: rounds without content, and 1 / SHARE of its round, because it takes messages of all agents, however few are busy.
PATIENCE, SHARE = 3, 4


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
    (C, ...) the state at the start of the last window.  spaced: the windows; None with a tolerance of 0.
    asked: the round after which the fleet last agreed on whether anybody is busy.  over: nobody is.
    """

    found: BatchOutcome
    rounds: int
    alive: BoolArray
    rule: BatchRule
    state: Array
    judged: Array
    spaced: Spaced | None
    asked: int = 0
    over: bool = False


class Batch:
    """A rule for all items on a network, as the driver runs it."""

    def __init__(self, network: Network, scope: Scope, tol: float) -> None:
        self.network, self.scope, self.tol = network, scope, tol
        self._near: dict[Graph, CellLinks] = {}  # of the cells that are alive

    def start(self, rule: BatchRule, state: Array) -> Items:
        alive = self.scope.active[list(self.network.hosted)]
        cells = state[alive]
        stopping = Maximin(self.scope.window, self.tol)
        spaced = Spaced.of(stopping, rule.kind, _flat(cells)) if self.tol > 0.0 else None
        found = BatchOutcome.before(state, alive, self.tol)
        return Items(found, 0, alive, rule.narrow(alive.ravel()), cells, cells, spaced)

    def step(self, items: Items) -> tuple[Items, Verdict | None]:
        """One round for all items. An item whose verdict is that it converged ends at the state that was judged."""
        if items.spaced is not None and items.spaced.due:
            items = replace(items, spaced=items.spaced.opened(_flat(items.state)), judged=items.state)
        rule, spaced, graph = items.rule, items.spaced, self.network.topology.at(self.network.round)
        if graph not in self._near:
            self._near[graph] = CellLinks.of(self.network, self.scope, items.alive)
        near = self._near[graph]
        parts = {rule.kind: items.state, **({} if spaced is None else spaced.parts)}
        received = self.network.exchange_parts(parts, dict.fromkeys(parts, near.cargo))
        with np.errstate(over="ignore", invalid="ignore"):
            state = rule.update(items.state, received[rule.kind], near)
        items = replace(items, rounds=items.rounds + 1, state=state)
        if spaced is None:
            return items, None
        spaced = spaced.heard(received, near)
        items, verdict = replace(items, spaced=spaced), spaced.verdict
        return (items, None) if verdict is None else (self._judged(items, spaced, verdict), verdict)

    def ends(self, items: Items, verdict: Verdict) -> bool:
        return items.over

    def _judged(self, items: Items, spaced: Spaced, verdict: Verdict) -> Items:
        """Write the verdicts; go on with the items that neither converged nor diverged."""
        converged = verdict.converged.reshape(-1, *[1] * (items.state.ndim - 1))
        stands = np.where(converged, items.judged, items.state)
        found = items.found.after(items.rounds, stands, items.alive).judged(verdict, items.alive)
        keep = ~verdict.converged & ~verdict.diverged
        alive = items.alive.copy()
        alive[items.alive] = keep
        if not keep.all():
            self._near.clear()
        state, rule = items.state[keep], items.rule.narrow(keep)
        over, asked = self._nobody_busy(items, alive)
        return Items(found, items.rounds, alive, rule, state, state, spaced.rested(verdict, keep), asked, over)

    def _nobody_busy(self, items: Items, alive: BoolArray) -> tuple[bool, int]:
        """After a verdict: whether all items have ended, as far as the fleet knows, and when it last asked."""
        if self.scope.all_hear:
            return not alive.any(), items.asked
        if items.rounds - items.asked < max(PATIENCE * self.network.diameter, items.asked // SHARE):
            return False, items.asked
        return not maximum(self.network, alive.any(axis=1).astype(float)).item(), items.rounds


def iterate_batch(
    rule: BatchRule, state: Array, network: Network, *, rounds: int, tol: float, scope: Scope | None = None
) -> BatchOutcome:
    """Run a rule for all items, each until its agents agree within tol; with tol = 0 for exactly `rounds` rounds."""
    state = np.asarray(state, dtype=float)
    batch = Batch(network, WholeFleet(network, state.shape[1]) if scope is None else scope, tol)
    items, _, _ = drive(batch, batch.start(rule, state), rounds if state.shape[1] else 0)
    return items.found.after(items.rounds, items.state, items.alive)


def _flat(state: Array) -> Array:
    return state.reshape(len(state), int(np.prod(state.shape[1:])))
