"""full-gp, fact-gp and g-fact-gp: one minimization by L-BFGS at a central node. Baselines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize

from fleetgp.arrays import Array
from fleetgp.consensus import Outcome, Status
from fleetgp.network import Network
from fleetgp.training.curvature import Curvature
from fleetgp.training.floor import Floor
from fleetgp.training.objective import Objective, Values
from fleetgp.training.primal import Local

#: The search stays within exp(-12) .. exp(12) of its start, and a step within exp(-2) .. exp(2) of the best so far.
REACH = 12.0
TRUST = 2.0
#: A predicted gain below this share of the likelihood is rounding: what is left to go is some 1e-4 in log theta.
ROUNDING = 1e-9


@dataclass(frozen=True)
class CentralState:
    local: Local


class _OutOfRoundsError(Exception):
    """Raised inside the minimizer to end it."""


class CentralTrainer:
    """Minimizes sum_i l_i(x) over one x = log theta: (P2), and (P1) where one expert holds all data.

    A round is one evaluation: theta to every agent, the likelihoods and gradients back. With `share=False`
    the data are at the centre already and nothing is sent.
    """

    def __init__(self, network: Network, objective: Objective, floor: Floor, *, share: bool) -> None:
        self.network = network
        self.objective = objective
        self.floor = floor
        self.share = share

    def start(self, x: Array) -> CentralState:
        nothing = Values(
            np.full(len(x), np.inf), np.full_like(x, np.nan), np.zeros(len(x)), np.zeros(len(x), dtype=bool)
        )
        return CentralState(Local(x, nothing, Curvature.constant(1.0, x)))

    def run(
        self, state: CentralState, *, rounds: int, tol: float, record: Callable[[int, CentralState], None]
    ) -> Outcome[CentralState]:
        best, done, gradient = state, 0, np.array(np.inf)
        start = state.local.x[0]
        best_total, slope_at_best = np.inf, np.zeros_like(start)
        scale = 0.0  # the gradient at the start: the first step of L-BFGS-B is the gradient itself
        experts = len(state.local.x)

        def value_and_gradient(x: Array) -> tuple[float, Array]:
            nonlocal best, best_total, slope_at_best, done, gradient, scale
            if first is not None and np.array_equal(x, start):
                return first
            if done == rounds:
                raise _OutOfRoundsError
            away = x - best.local.x[0]
            if done and np.abs(away).max() > TRUST:
                # Too far to be worth an evaluation: a wall, from which the line search comes back by a sensible length.
                steep = max(float(np.linalg.norm(slope_at_best)) / (scale * TRUST), 1e-6)
                return best_total / scale + steep * float(away @ away), 2.0 * steep * away
            done += 1
            if self.share:
                self.network.scatter(x, "hyperparameters")
            values = self.objective(np.tile(x, (experts, 1)))
            if self.share:
                self.network.gather({"hyperparameters": np.column_stack([values.nll, values.gradient])})
            total = float(values.nll.sum())
            slope = values.gradient.sum(axis=0)
            if total < best_total:
                best_total, slope_at_best = total, slope
                best = CentralState(replace(state.local, x=np.tile(x, (experts, 1)), values=values))
                gradient = np.array(np.abs(self.floor.cut(x, slope)).max())
            record(done, best)
            if scale == 0.0:
                scale = max(float(np.abs(slope).max()), 1.0) if np.isfinite(total) else 1.0
            return (total / scale, slope / scale) if np.isfinite(total) else (1e100, np.zeros_like(x))

        status: Status = "round limit"
        first: tuple[float, Array] | None = None
        first = value_and_gradient(start)
        bounds = np.stack([self.floor.lifted(start - REACH), start + REACH], axis=1)
        options = {"maxiter": 10 * rounds, "maxfun": 10 * rounds, "gtol": tol / scale, "ftol": 1e-15}
        try:
            found = minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        except _OutOfRoundsError:
            return Outcome(best, done, status, gradient)
        # L-BFGS also ends when rounding hides any further progress; that is the optimum to rounding only
        # if hardly any gradient is left, or hardly anything to be gained by following it.
        away = np.abs(found.x - start)
        away[-1] *= found.x[-1] > self.floor.log  # the floor is where it may end
        if not np.isfinite(best.local.values.nll).all() or (away >= REACH - 1e-9).any():
            status = "diverged"
        else:
            size = np.abs(best.local.values.nll).sum()
            free = self.floor.cut(best.local.x[0], slope_at_best) / scale
            gain = 0.5 * scale * float(free @ found.hess_inv(free))
            if gradient <= max(tol, 1e-6 * size) or 0.0 <= gain <= ROUNDING * size:
                status = "converged"
        return Outcome(best, done, status, gradient)
