"""full-gp, fact-gp and g-fact-gp: one minimization by L-BFGS at a central node. Baselines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy

from fleetgp.arrays import Array
from fleetgp.consensus import Outcome, Status
from fleetgp.network import Network
from fleetgp.training.constraints import Bounds
from fleetgp.training.objective import Local, Objective, Values
from fleetgp.training.solver import Minimizer

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
        received = self.network.scatter(x, "hyperparameters")
        values, nll, gradient = super().__call__(received[0])
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


class CentralMinimizer(Minimizer[CentralState]):
    """Minimizes sum_i l_i(x) over one x = log theta: (P2), and (P1) where one expert holds all data.

    A round is one evaluation. L-BFGS-B asks for it in the midst of its line search: there is no step to take alone.
    late(): whether the time is up.
    """

    def __init__(self, likelihoods: Pooled, bounds: Bounds, late: Callable[[], bool] = lambda: False) -> None:
        self.likelihoods = likelihoods
        self.bounds = bounds
        self.late = late

    def begin(self, x: Array) -> CentralState:
        return CentralState(Local.unevaluated(x))

    def run(
        self, state: CentralState, *, rounds: int, tol: float, record: Callable[[int, CentralState], None]
    ) -> Outcome[CentralState]:
        search = CentralSearch(self.likelihoods, state, rounds, self.late, record)
        reach = self.bounds.within(search.start, REACH)
        bounds = np.stack([reach.lower, reach.upper], axis=1)
        options = {"maxiter": 10 * rounds, "maxfun": 10 * rounds, "gtol": tol / search.scale, "ftol": DECREASE}
        result = scipy.optimize.minimize(
            search, search.start, jac=True, method="L-BFGS-B", bounds=bounds, options=options, callback=search.stop
        )
        gradient = np.abs(self.bounds.cut(search.best.local.x[0], search.slope)).max()
        left = gradient if np.isfinite(search.total) else np.inf
        status = self._judged(search, result, left, tol)
        return Outcome(search.best, search.evaluations, status, np.asarray(left), search.best.local.x[0])

    def _judged(self, search: CentralSearch, result: scipy.optimize.OptimizeResult, left: float, tol: float) -> Status:
        """L-BFGS also ends when rounding hides any further progress. That is the optimum, to rounding, only if hardly
        any gradient is left, or hardly anything to be gained by following it.
        """
        if search.ended is not None and np.isfinite(search.total):
            return search.ended
        near = Bounds().within(search.start, REACH - TOUCHING)
        beyond = (result.x <= near.lower) & np.isinf(self.bounds.lower)  # a bound is where it may end
        beyond |= (result.x >= near.upper) & np.isinf(self.bounds.upper)
        if not np.isfinite(search.total) or beyond.any():
            return "diverged"
        if left <= max(tol, ROUNDING_GRADIENT * search.size):
            return "converged"
        free = self.bounds.cut(search.best.local.x[0], search.slope) / search.scale
        gain = 0.5 * search.scale * float(free @ result.hess_inv(free))
        return "converged" if 0.0 <= gain <= CENTRAL_ROUNDING * search.size else "round limit"
