r"""The local step that all ADMM trainers share.

In every round each agent minimizes over its own log theta

    l_i(x) + b_i'x + (1/2) sum_j w_ij (x_j - c_ij)^2

where b (the duals), c and w (the pull of the others) come from the neighbours or from the central node, and
x stays within its bounds.
`NestedStep` minimizes it; `LinearizedStep` replaces l_i by a quadratic model around an anchor, one evaluation a
round. {central node, edges} x {nested, linearized} x {plain, augmented data} are the paper's six ADMM
trainers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import scipy

from fleetgp.arrays import Array, BoolArray
from fleetgp.training.constraints import Bounds
from fleetgp.training.objective import Curvature, Local, Objective, measure_curvature

#: No hyperparameter changes by more than this factor's logarithm in one round.
TRUST = 1.0
#: A measured curvature serves as long as no hyperparameter has moved by more than this in log.
DRIFT = 0.3
#: The gradient at which a nested minimization by L-BFGS ends, in its round coordinates.
NESTED_GRADIENT = 1e-6
#: A bound that is farther away than this, in log theta, is not met in one round.
CLOSE = 5.0
#: L-BFGS ends where a step changes the value by less than this share: rounding.
NESTED_DECREASE = 1e-15
#: Gradient descent moves no more where a step is shorter than this, in log theta.
STANDSTILL = 1e-6
#: A step must bring this share of what its gradient promises, but for a share of the value that is rounding.
SUFFICIENT, ROUNDING = 0.1, 1e-10
#: How often a step may be taken back in one round.
MOST_TRIES = 25


@dataclass(frozen=True)
class Pull:
    """linear b, centre c and weight w of the local problem, each (A, P)."""

    linear: Array
    centre: Array
    weight: Array

    def value(self, x: Array) -> Array:
        return np.asarray((self.linear * x + 0.5 * self.weight * (x - self.centre) ** 2).sum(axis=-1))

    def gradient(self, x: Array) -> Array:
        return self.linear + self.weight * (x - self.centre)


def remeasured(objective: Objective, local: Local) -> Local:
    """Measure the curvature again at the agents that have moved away from where it was measured."""
    moved = ~(np.abs(local.x - local.curvature.measured_at).max(axis=1) <= DRIFT)
    moved &= np.isfinite(local.values.nll)
    if not moved.any():
        return local
    renewed = measure_curvature(objective, local.x, local.values, moved)
    return replace(local, curvature=local.curvature.replaced(moved, renewed))


class Primal(Protocol):
    """Solves the local problems of the agents in `active`; the others stay where they are.

    measures: whether the curvature of its local states is measured.
    convexify: an automatic rho makes the pull outweigh the likelihood's concavity by this factor. The exact
    step needs more of it, since it follows the true, concave likelihood.
    """

    objective: Objective
    bounds: Bounds
    convexify: float

    @property
    def measures(self) -> bool: ...

    def start(self, x: Array) -> Local: ...

    def anchored(self, local: Local, x: Array) -> Local:
        """Where the step's model stands if the others ask for one around x."""
        ...

    def step(self, local: Local, anchor: Local, pull: Pull, active: BoolArray) -> Local: ...

    def unsolved(self, local: Local, slope: Array, weight: Array) -> Array:
        """(A,) how far from its solution, in log theta, a local problem of this slope was left."""
        ...


class NestedStep:
    """The exact step of c-GP and DEC-c-GP, by L-BFGS or, with a step size, by the paper's gradient descent.

    L-BFGS works in coordinates that the measured curvature makes round, which saves most of its evaluations.
    """

    convexify = 6.0

    def __init__(
        self, objective: Objective, bounds: Bounds, *, step_size: float | None = None, iterations: int = 200
    ) -> None:
        self.objective = objective
        self.bounds = bounds
        self.step_size = step_size
        self.iterations = iterations

    def start(self, x: Array) -> Local:
        return self._kept(Local(x, self.objective(x), Curvature.constant(1.0, x)))

    def step(self, local: Local, anchor: Local, pull: Pull, active: BoolArray) -> Local:
        solve = self._lbfgs if self.step_size is None else self._descend
        x = local.x.copy()
        for i in np.flatnonzero(active).tolist():
            x[i] = solve(i, local, Pull(pull.linear[i], pull.centre[i], pull.weight[i]))
        return self._kept(replace(local, x=x, values=local.values.replaced(active, self.objective(x, active))))

    @property
    def measures(self) -> bool:
        return self.step_size is None

    def anchored(self, local: Local, x: Array) -> Local:
        """It follows the likelihood itself, from where the agent stands."""
        return local

    def unsolved(self, local: Local, slope: Array, weight: Array) -> Array:
        """The paper's gradient descent may stop far from the solution."""
        return np.asarray(np.abs(self.bounds.cut(local.x, slope / weight)).max(axis=1))

    def _kept(self, local: Local) -> Local:
        return remeasured(self.objective, local) if self.measures else local

    def _lbfgs(self, i: int, local: Local, pull: Pull) -> Array:
        """L-BFGS in coordinates u = L'(x - start), LL' = curvature + weight, in which the problem is nearly round.

        Those near a bound come last. L' is upper triangular, and among them made diagonal: each of their u is one of x,
        scaled, and a bound on it alone. One of them is as round as without; several are no longer so to each other.
        """
        start = local.x[i]
        given = np.asarray((start - self.bounds.lower < CLOSE) | (self.bounds.upper - start < CLOSE))
        order = np.argsort(given, kind="stable")
        shape = np.linalg.cholesky((local.curvature.matrix[i] + np.diag(pull.weight))[np.ix_(order, order)])
        last = np.ix_(given[order], given[order])
        shape[last] = np.diag(np.diagonal(shape[last]))

        def place(u: Array) -> Array:
            x = start.copy()
            x[order] += np.linalg.solve(shape.T, u)
            return self.bounds.clipped(x)

        def value_and_gradient(u: Array) -> tuple[float, Array]:
            x = place(u)
            nll, gradient, _ = self.objective.one(i, x)
            if not np.isfinite(nll):
                return 1e100, np.zeros_like(u)
            slope = np.linalg.solve(shape, (gradient + pull.gradient(x))[order])
            return nll + float(pull.value(x)), np.asarray(slope, dtype=float)

        ends = np.stack([self.bounds.lower - start, self.bounds.upper - start], axis=1)[order]
        ends = np.where(given[order][:, None], ends, [-np.inf, np.inf])
        bounds = ends * np.diagonal(shape)[:, None] if given.any() else None
        options = {"maxiter": self.iterations, "gtol": NESTED_GRADIENT, "ftol": NESTED_DECREASE}
        found = scipy.optimize.minimize(
            value_and_gradient, np.zeros_like(start), jac=True, method="L-BFGS-B", bounds=bounds, options=options
        )
        return place(found.x)

    def _descend(self, i: int, local: Local, pull: Pull) -> Array:
        """Plain gradient descent with a fixed step, projected: the paper's nested solver."""
        assert self.step_size is not None
        x = local.x[i]
        for _ in range(self.iterations):
            move = self.bounds.cut(x, self.step_size * (self.objective.one(i, x)[1] + pull.gradient(x)))
            x = self.bounds.clipped(x - move)
            if not np.isfinite(x).all() or np.abs(move).max() < STANDSTILL:
                break
        return np.asarray(x)


class LinearizedStep:
    """The closed-form step of apx-GP and DEC-apx-GP.

    With a number for kappa it is the paper's: l_i ~ g'(x - a) + (kappa/2) |x - a|^2 around the anchor a, so
    x = (kappa a + w c - g - b) / (kappa + w), and what is beyond a bound, at it.

    With kappa=None the model's curvature is a matrix per agent, measured where the agent stands and again
    when it has moved on, and safe: a step after which the local problem has not come down as the model
    promised is taken back, the model is stiffened and the step tried again, without any communication. A
    number has to be as large as the stiffest direction (the noise, about 2 N_i) and then crawls along the
    softest (a length-scale); a matrix fits both.

    `at_anchor`: the anchor is not where the agent goes next (it is the central node's z), so with a fixed
    kappa the likelihood is evaluated there alone.
    """

    convexify = 3.0

    def __init__(self, objective: Objective, bounds: Bounds, kappa: float | None, *, at_anchor: bool = False) -> None:
        self.objective = objective
        self.bounds = bounds
        self.kappa = kappa
        self.at_anchor = at_anchor

    @property
    def measures(self) -> bool:
        return self.kappa is None

    def start(self, x: Array) -> Local:
        values = self.objective(x)
        if self.kappa is None:
            return remeasured(self.objective, Local(x, values, Curvature.constant(1.0, x)))
        return Local(x, values, Curvature.constant(self.kappa, x))

    def anchored(self, local: Local, x: Array) -> Local:
        return replace(local, x=x, values=self.objective(x))

    def unsolved(self, local: Local, slope: Array, weight: Array) -> Array:
        """Its model is minimized in closed form."""
        return np.zeros(len(local.x))

    def step(self, local: Local, anchor: Local, pull: Pull, active: BoolArray) -> Local:
        gradient = anchor.values.gradient + pull.gradient(anchor.x)
        if self.kappa is not None:
            x = self.bounds.clipped(anchor.x - gradient / (self.kappa + pull.weight))
            x = np.where(active[:, None], x, local.x)
            values = anchor.values if self.at_anchor else self.objective(x, active)
            return replace(local, x=x, values=local.values.replaced(active, values))
        return self._safe_step(local, anchor, pull, gradient, active)

    def _safe_step(self, local: Local, anchor: Local, pull: Pull, gradient: Array, active: BoolArray) -> Local:
        x, values, matrix = local.x, local.values, local.curvature.matrix
        before = anchor.values.nll + pull.value(anchor.x)
        pending = active.copy()
        for _ in range(MOST_TRIES):
            system = matrix + pull.weight[..., None] * np.eye(x.shape[1])
            move = self.bounds.best_move(anchor.x, system, gradient)
            move *= np.minimum(1.0, TRUST / np.maximum(np.abs(move).max(axis=1), 1e-300))[:, None]
            x = np.where(pending[:, None], self.bounds.clipped(anchor.x + move), x)
            values = values.replaced(pending, self.objective(x, pending))
            wanted = before + SUFFICIENT * (gradient * move).sum(axis=1) + ROUNDING * np.abs(before)
            pending &= ~(values.nll + pull.value(x) <= wanted)
            if not pending.any():
                break
            matrix = np.where(pending[:, None, None], 4.0 * matrix, matrix)
        # Whoever found no way down stays; whoever had to stiffen its model measures it again where it is now.
        x = np.where(pending[:, None], anchor.x, x)
        values = values.replaced(pending, anchor.values)
        stiffened = (matrix != local.curvature.matrix).any(axis=(1, 2))
        measured_at = np.where(stiffened[:, None], np.inf, local.curvature.measured_at)
        return remeasured(self.objective, Local(x, values, replace(local.curvature, measured_at=measured_at)))
