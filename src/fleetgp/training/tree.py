"""DEC-FACT-GP: the sum of the agents' likelihoods, minimized by Newton's method over the spanning tree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.consensus import UNWATCHED, Interlude, Outcome, Running, Verdict, drive
from fleetgp.network import Network
from fleetgp.training.bounds import Bounds
from fleetgp.training.central import unevaluated
from fleetgp.training.curvature import evaluate_with_hessian
from fleetgp.training.deadline import NEVER, Deadline
from fleetgp.training.newton import ROUNDING, Newton, Search, Sum, pack, unpack
from fleetgp.training.objective import Objective, Values
from fleetgp.training.primal import Local

#: An agent whose likelihood or one of its derivatives is larger has failed: sums stay finite.
LARGEST = 1e100
#: After so many evaluations in a row that brought nothing, rounding hides the way to the minimum.
MOST_STALLS = 30


@dataclass(frozen=True)
class TreeState:
    """local: the likelihoods at the best x so far, the same x at all agents.  search: the same bits at all agents.

    stalls: how many evaluations in a row have brought nothing; each agent counts them, from the same bits.
    """

    local: Local
    start: Array
    search: Search
    stalls: int = 0


class TreeNewton:
    """One round is one evaluation of sum_i l_i(x), its gradient and its Hessian, and one reduction.

    Each agent measures its own Hessian, without talking. Up the tree go the sums, at the root Newton's decision is
    taken, and down comes the whole search. All agents hold the same bits of it, also on different processors; so that
    they stop together costs nothing, and any of them could be the root of the next round.
    """

    def __init__(
        self,
        network: Network,
        objective: Objective,
        bounds: Bounds,
        interlude: Interlude | None = None,
        deadline: Deadline = NEVER,
    ) -> None:
        self.network, self.objective, self.bounds = network, objective, bounds
        self.interlude, self.deadline = interlude, deadline

    def begin(self, x: Array) -> TreeState:
        """From a start (A, P) that is the same at all agents."""
        return TreeState(unevaluated(x), x[0], Search.at(x[0]))

    def rounds(self, tol: float) -> TreeRounds:
        return TreeRounds(self, tol)

    def run(
        self, state: TreeState, *, rounds: int, tol: float, record: Callable[[int, TreeState], None]
    ) -> Outcome[TreeState]:
        """To a minimum within tol in log theta; with tol = 0 for exactly `rounds` evaluations."""
        recursion, residual = self.rounds(tol), state.search.residual
        if tol > 0.0 and residual <= tol:
            return Outcome(state, 0, "converged", np.array(residual), state.search.x)
        running, done, verdict = drive(
            recursion, recursion.start(state), rounds, lambda done, running: record(done, running.state)
        )
        return replace(Outcome.of(running.state, done, verdict), agreed=running.state.search.x)

    def step(self, state: TreeState, tol: float) -> tuple[TreeState, bool, bool]:
        """One evaluation; the new state, whether somebody wants an interlude, and whether somebody's time is up."""
        x = np.tile(state.search.x, (len(self.objective.experts), 1))
        values, hessian = evaluate_with_hessian(self.objective, x)
        told = self._decided(state, tol, self._rows(values, hessian))
        before, search = state.search, Search.of(told[:-2], x.shape[1])
        # The start is each agent's own logarithm; from then on x is the root's.
        accepted = np.isfinite(search.value) and (np.isinf(before.value) or np.array_equal(search.best, before.x))
        local = replace(state.local, x=np.tile(search.best, (len(x), 1)), values=values) if accepted else state.local
        better = np.isinf(before.value) or search.value < before.value - ROUNDING * abs(before.value)
        stalls = 0 if better else state.stalls + 1
        return replace(state, local=local, search=search, stalls=stalls), bool(told[-2] > 0.0), bool(told[-1] > 0.0)

    def landed(self, state: TreeState) -> TreeState:
        """The last step, which no sum has to be known for: each agent takes it alone."""
        x = np.tile(state.search.x, (len(state.local.x), 1))
        values = self.objective(x)
        values = state.local.values.replaced(np.isfinite(values.nll), values)
        return replace(state, local=replace(state.local, x=x, values=values))

    def _rows(self, values: Values, hessian: Array) -> Array:
        """What each hosted agent adds to the sums, (A, K): l_i, |l_i|, its derivatives; whether it has failed, when it
        adds nothing else; whether it wants an interlude; whether its time is up.
        """
        rows = np.column_stack([values.nll, np.abs(values.nll), values.gradient, pack(hessian)])
        failed = ~(np.abs(rows) <= LARGEST).all(axis=1)
        wanted = self.interlude is not None and self.interlude.wanted()
        signs = np.tile(np.array([wanted, self.deadline.passed], dtype=float), (len(rows), 1))
        return np.column_stack([np.where(failed[:, None], 0.0, rows), failed, signs])

    def _decided(self, state: TreeState, tol: float, rows: Array) -> Array:
        """The search after the fleet's evaluation as a row, how many want an interlude, and how many are late."""
        width = rows.shape[1]
        newton, parameters = Newton(state.start, self.bounds, tol), len(state.start)

        def finish(total: Array, _: BoolArray | None) -> Array:
            (value, size), gradient, hessian, (failed, *signs) = np.split(total[0], [2, 2 + parameters, width - 3])
            found = Sum(np.inf if failed else value, size, gradient, unpack(hessian, parameters))
            return np.append(newton.decide(state.search, found).row, signs)[None]

        told = self.network.reduce(rows[:, None], "statistics", finish=finish, told=(len(state.search.row) + 2,))
        assert told is not None, "all agents are told"
        return np.asarray(told[0])


class TreeRounds:
    """The rounds, of which every one is judged."""

    def __init__(self, trainer: TreeNewton, tol: float) -> None:
        self.trainer, self.tol = trainer, tol

    def start(self, state: TreeState) -> Running[TreeState]:
        return Running(state, state, UNWATCHED)

    def step(self, running: Running[TreeState]) -> tuple[Running[TreeState], Verdict | None]:
        state, wanted, late = self.trainer.step(running.state, self.tol)
        verdict = Verdict(np.full(1, state.search.residual), self.tol, late=late)
        if verdict.status == "converged":
            state = self.trainer.landed(state)
        elif verdict.status == "round limit" and wanted and self.trainer.interlude is not None:
            self.trainer.interlude.play()
        return self.start(state), verdict

    def ends(self, running: Running[TreeState], verdict: Verdict) -> bool:
        stuck = self.tol > 0.0 and running.state.stalls >= MOST_STALLS
        return verdict.status != "round limit" or stuck
