"""full-gp, fact-gp and g-fact-gp: one minimization by L-BFGS at a central node. Baselines.

DEC-FACT-GP: the sum of the agents' likelihoods, minimized by Newton's method over the spanning tree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy

from fleetgp.arrays import Array, BoolArray
from fleetgp.consensus import UNWATCHED, Interlude, Outcome, Running, Status, Verdict, drive
from fleetgp.consensus.stopping import NEVER, Deadline
from fleetgp.network import Network
from fleetgp.training.constraints import Bounds
from fleetgp.training.newton import ROUNDING, Newton, Search, Sum, pack, secant_hessian, unpack
from fleetgp.training.objective import Curvature, Objective, Values, evaluate_with_hessian, measure_hessian
from fleetgp.training.primal import Local

#: The search stays within its bounds, or within exp(-12) .. exp(12) of its start where it has none; and a step within
#: exp(-2) .. exp(2) of the best so far.
REACH = 12.0
TRUST = 2.0
#: A predicted gain below this share of the likelihood is rounding: what is left to go is some 1e-4 in log theta.
CENTRAL_ROUNDING = 1e-9
#: A gradient below this share of the likelihood is rounding.
ROUNDING_GRADIENT = 1e-6
#: L-BFGS ends where a step changes the value by less than this share: rounding.
DECREASE = 1e-15
#: The bowl in place of an evaluation is at least this steep.
GENTLEST = 1e-6
#: As close as this to the end of its reach, a search has come to it.
TOUCHING = 1e-9
#: What L-BFGS-B takes for a value at which the likelihood is infinite; larger than any likelihood.
INFINITE = 1e100


@dataclass(frozen=True)
class CentralState:
    """Where the experts stand, all at the same x."""

    local: Local


def unevaluated(x: Array) -> Local:
    """At a start (A, P), before anything is known there."""
    nothing = Values(np.full(len(x), np.inf), np.full_like(x, np.nan), np.zeros(len(x)), np.zeros(len(x), dtype=bool))
    return Local(x, nothing, Curvature.constant(1.0, x))


class Pooled:
    """The likelihoods where the data are at the central node already: nothing is sent."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective

    def __call__(self, x: Array) -> tuple[Values, Array, Array]:
        """Of the experts here; and everyone's likelihoods (M,) and gradients (M, P), at the central node."""
        values = self.objective(np.tile(x, (len(self.objective.experts), 1)))
        return values, values.nll, values.gradient


class Shared(Pooled):
    """The likelihoods where the data stay with the agents: theta to every agent, likelihoods and gradients back."""

    def __init__(self, objective: Objective, network: Network) -> None:
        super().__init__(objective)
        self.network = network

    def __call__(self, x: Array) -> tuple[Values, Array, Array]:
        told = self.network.scatter(x, "hyperparameters")
        values, nll, gradient = super().__call__(told[0])
        sent = self.network.gather({"hyperparameters": np.column_stack([nll, gradient])})
        everyone = np.stack(sent["hyperparameters"])
        return values, np.ascontiguousarray(everyone[:, 0]), np.ascontiguousarray(everyone[:, 1:])


class CentralSearch:
    """sum_i l_i(x) and its gradient as L-BFGS-B asks for them, over the gradient's size at the start, since its first
    step is the gradient itself. It counts evaluations and remembers the best of them.
    """

    def __init__(
        self,
        likelihoods: Pooled,
        state: CentralState,
        most: int,
        late: Callable[[], bool],
        record: Callable[[int, CentralState], None],
    ) -> None:
        self.likelihoods, self.most, self.late, self.record = likelihoods, most, late, record
        self.best = state
        self.total, self.slope = np.inf, np.zeros_like(state.local.x[0])  # of the best
        self.size = np.inf  # of its likelihoods, whatever their signs
        self.evaluations = 0
        self.ended: Status | None = None  # by the caller's limits
        self.start = state.local.x[0]
        self.scale = 1.0
        value, slope = self._evaluated(self.start)
        if np.isfinite(value):
            self.scale = max(float(np.abs(slope).max()), 1.0)
        self._first = self._scaled(value, slope)

    def __call__(self, x: Array) -> tuple[float, Array]:
        if np.array_equal(x, self.start):
            return self._first
        if self.ended is None and self.late():
            self.ended = "time limit"
        elif self.ended is None and self.evaluations == self.most:
            self.ended = "round limit"
        if self.ended is not None:
            return self._rising(x)
        if np.abs(x - self.best.local.x[0]).max() > TRUST:
            return self._rising(x)  # too far to be worth an evaluation
        value, slope = self._evaluated(x)
        if not np.isfinite(value) and np.isfinite(self.total):
            return self._rising(x)  # a wall of infinity would end the line search
        return self._scaled(value, slope)

    def stop(self, intermediate_result: scipy.optimize.OptimizeResult) -> None:
        """The callback after each iteration of the minimizer, which `StopIteration` ends."""
        if self.ended is not None:
            raise StopIteration

    def _evaluated(self, x: Array) -> tuple[float, Array]:
        self.evaluations += 1
        values, nlls, gradients = self.likelihoods(x)
        total, slope = float(nlls.sum()), gradients.sum(axis=0)
        if total < self.total:
            self.total, self.slope, self.size = total, slope, float(np.abs(nlls).sum())
            local = replace(self.best.local, x=np.tile(x, (len(values.nll), 1)), values=values)
            self.best = CentralState(local)
        self.record(self.evaluations, self.best)
        return total, slope

    def _scaled(self, value: float, slope: Array) -> tuple[float, Array]:
        return (value / self.scale, slope / self.scale) if np.isfinite(value) else (INFINITE, np.zeros_like(slope))

    def _rising(self, x: Array) -> tuple[float, Array]:
        """In place of an evaluation: a bowl around the best x, so steep that the line search comes back close to it."""
        away = x - self.best.local.x[0]
        steep = max(float(np.linalg.norm(self.slope)) / (self.scale * TRUST), GENTLEST)
        return self.total / self.scale + steep * float(away @ away), 2.0 * steep * away


class CentralMinimizer:
    """Minimizes sum_i l_i(x) over one x = log theta: (P2), and (P1) where one expert holds all data.

    A round is one evaluation. L-BFGS-B asks for it in the midst of its line search: there is no step to take alone.
    late(): whether the time is up.
    """

    def __init__(self, likelihoods: Pooled, bounds: Bounds, late: Callable[[], bool] = lambda: False) -> None:
        self.likelihoods = likelihoods
        self.bounds = bounds
        self.late = late

    def begin(self, x: Array) -> CentralState:
        return CentralState(unevaluated(x))

    def run(
        self, state: CentralState, *, rounds: int, tol: float, record: Callable[[int, CentralState], None]
    ) -> Outcome[CentralState]:
        search = CentralSearch(self.likelihoods, state, rounds, self.late, record)
        reach = self.bounds.within(search.start, REACH)
        bounds = np.stack([reach.lower, reach.upper], axis=1)
        options = {"maxiter": 10 * rounds, "maxfun": 10 * rounds, "gtol": tol / search.scale, "ftol": DECREASE}
        found = scipy.optimize.minimize(
            search, search.start, jac=True, method="L-BFGS-B", bounds=bounds, options=options, callback=search.stop
        )
        gradient = np.abs(self.bounds.cut(search.best.local.x[0], search.slope)).max()
        left = gradient if np.isfinite(search.total) else np.inf
        status = self._judged(search, found, left, tol)
        return Outcome(search.best, search.evaluations, status, np.asarray(left), search.best.local.x[0])

    def _judged(self, search: CentralSearch, found: scipy.optimize.OptimizeResult, left: float, tol: float) -> Status:
        """L-BFGS also ends when rounding hides any further progress. That is the optimum, to rounding, only if hardly
        any gradient is left, or hardly anything to be gained by following it.
        """
        if search.ended is not None and np.isfinite(search.total):
            return search.ended
        near = Bounds().within(search.start, REACH - TOUCHING)
        beyond = (found.x <= near.lower) & np.isinf(self.bounds.lower)  # a bound is where it may end
        beyond |= (found.x >= near.upper) & np.isinf(self.bounds.upper)
        if not np.isfinite(search.total) or beyond.any():
            return "diverged"
        if left <= max(tol, ROUNDING_GRADIENT * search.size):
            return "converged"
        free = self.bounds.cut(search.best.local.x[0], search.slope) / search.scale
        gain = 0.5 * search.scale * float(free @ found.hess_inv(free))
        return "converged" if 0.0 <= gain <= CENTRAL_ROUNDING * search.size else "round limit"


#: With so many hyperparameters an agent that is alone measures its Hessian only where it has to.
MANY = 8
#: A Hessian serves until it is farther away than this, in log theta, from where it was measured, or until a step brings
#: less than this share of what was promised. What it says of a minimum counts only as close as this.
AWAY, POOR, CLOSE = 4.0, 0.25, 0.05
#: An agent whose likelihood or one of its derivatives is larger has failed: sums stay finite.
LARGEST = 1e100
#: After so many evaluations in a row that brought nothing, rounding hides the way to the minimum.
MOST_STALLS = 30


@dataclass(frozen=True)
class TreeState:
    """local: the likelihoods at the best x so far, the same x at all agents.  search: the same bits at all agents.

    stalls: how many evaluations in a row have brought nothing; each agent counts them, from the same bits.
    measured_at: (P,) where the Hessian was measured last.
    """

    local: Local
    start: Array
    search: Search
    stalls: int = 0
    measured_at: Array | None = None


def _stale(before: Search, state: TreeState, tol: float) -> bool:
    """Whether the Hessian has to be measured again at the best point."""
    search = state.search
    moved = float(np.abs(search.best - state.measured_at).max()) if state.measured_at is not None else np.inf
    poor = search.residual > tol and before.value - search.value < POOR * before.predicted
    return moved > AWAY or (poor and moved > 0.0) or (search.residual <= max(tol, CLOSE) and moved > CLOSE)


class TreeNewton:
    """One round is one evaluation of sum_i l_i(x), its gradient and its Hessian, and one reduction.

    Each agent measures its own Hessian, without talking, by P more evaluations. An agent that is alone, with many
    hyperparameters, learns it from the gradients on its way instead (BFGS), and measures it where that does not do, and
    near the minimum. Up the tree go the sums, at the root Newton's decision is taken, and down comes the whole search.
    All agents hold the same bits of it, also on different processors; so that they stop together costs nothing, and any
    of them could be the root of the next round.
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
        self.lazy = network.agents == 1 and objective.silent.shape[1] >= MANY

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
        if self.lazy and np.isfinite(state.search.value):
            values = self.objective(x)
            hessian = self._secant(state.search, values)
        else:
            values, hessian = evaluate_with_hessian(self.objective, x)
            state = replace(state, measured_at=state.search.x)
        told = self._decided(state, tol, self._rows(values, hessian))
        before, search = state.search, Search.of(told[:-2], x.shape[1])
        # The start is each agent's own logarithm; from then on x is the root's.
        accepted = np.isfinite(search.value) and (np.isinf(before.value) or np.array_equal(search.best, before.x))
        local = replace(state.local, x=np.tile(search.best, (len(x), 1)), values=values) if accepted else state.local
        better = np.isinf(before.value) or search.value < before.value - ROUNDING * abs(before.value)
        stalls = 0 if better else state.stalls + 1
        state = replace(state, local=local, search=search, stalls=stalls)
        if self.lazy and _stale(before, state, tol):
            state = self._with_measured_hessian(state, tol)
        return state, bool(told[-2] > 0.0), bool(told[-1] > 0.0)

    def _secant(self, search: Search, values: Values) -> Array:
        """(1, P, P) the Hessian, from how the gradient has changed on the way to `search.x`."""
        step, change = search.x - search.best, values.gradient[0] - search.gradient
        return secant_hessian(search.hessian, step, change)[None]

    def _with_measured_hessian(self, state: TreeState, tol: float) -> TreeState:
        """With the Hessian at the best point so far, by finite differences, and the next step that follows from it."""
        local = state.local
        hessian = measure_hessian(self.objective, local.x, local.values, np.ones(len(local.x), dtype=bool))[0]
        if not np.isfinite(hessian).all():
            return state
        search = Newton(state.start, self.bounds, tol).remeasured(state.search, hessian)
        return replace(state, search=search, measured_at=search.best)

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

        told = self.network.reduce(
            rows[:, None], "statistics", finish=finish, result_shape=(len(state.search.row) + 2,)
        )
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
