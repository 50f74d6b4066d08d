"""The trainers by ADMM: over the edges of the graph, with a central node (baselines), and the local step of both.

In every round each agent minimizes over its own log theta

    l_i(x) + b_i'x + (1/2) sum_j w_ij (x_j - c_ij)^2

where b (the duals), c and w (the pull of the others) come from the neighbours or from the central node, and x stays
within its bounds. `NestedStep` minimizes it; `LinearizedStep` replaces l_i by a quadratic model around an anchor, one
evaluation a round. {central node, edges} x {nested, linearized} x {plain, augmented data} are the paper's six trainers:
eqs. (cadmm), (apxadmm), (dec_c_admm) and (dec_apx_admm).
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Self, TypeVar

import numpy as np
import scipy

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.consensus import (
    LATE,
    UNWATCHED,
    Interlude,
    Maximin,
    NeighbourRule,
    OverNeighbours,
    Running,
    Verdict,
    Watch,
    WithInterludes,
    maximum,
)
from fleetgp.consensus.stopping import NEVER, Deadline
from fleetgp.graph import Graph
from fleetgp.model.hyperparameters import LOG_RANGE
from fleetgp.network import Incoming, Network
from fleetgp.training.constraints import Bounds
from fleetgp.training.newton import FLAT
from fleetgp.training.objective import Curvature, Local, Objective, measure_curvature
from fleetgp.training.solver import RoundSolver, SolverState, StepwiseSolver

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


class Primal(abc.ABC):
    """Solves the local problems of the agents in `active`; the others stay where they are.

    measures: whether the curvature of its local states is measured.  stiffness: the curvature that is not.
    convexify: an automatic rho makes the pull outweigh the likelihood's concavity by this factor. The exact step needs
    more of it, since it follows the true, concave likelihood.
    """

    measures: bool
    convexify: float
    stiffness = 1.0

    def __init__(self, objective: Objective, bounds: Bounds) -> None:
        self.objective, self.bounds = objective, bounds

    def start(self, x: Array) -> Local:
        return self.measured(Local(x, self.objective(x), Curvature.constant(self.stiffness, x)))

    def measured(self, local: Local) -> Local:
        return remeasured(self.objective, local) if self.measures else local

    @abc.abstractmethod
    def anchored(self, local: Local, x: Array) -> Local:
        """Where the step's model stands if the others ask for one around x."""

    @abc.abstractmethod
    def step(self, local: Local, anchor: Local, pull: Pull, active: BoolArray) -> Local: ...

    @abc.abstractmethod
    def unsolved(self, local: Local, slope: Array, weight: Array) -> Array:
        """(A,) how far from its solution, in log theta, a local problem of this slope was left."""


class NestedStep(Primal):
    """The exact step of c-GP and DEC-c-GP, by L-BFGS or, with a step size, by the paper's gradient descent.

    L-BFGS works in coordinates that the measured curvature makes round, which saves most of its evaluations.
    """

    convexify = 6.0

    def __init__(
        self, objective: Objective, bounds: Bounds, *, step_size: float | None = None, iterations: int = 200
    ) -> None:
        super().__init__(objective, bounds)
        self.step_size, self.iterations = step_size, iterations
        self.measures = step_size is None

    def step(self, local: Local, anchor: Local, pull: Pull, active: BoolArray) -> Local:
        solve = self._lbfgs if self.step_size is None else self._descend
        x = local.x.copy()
        for i in np.flatnonzero(active).tolist():
            x[i] = solve(i, local, Pull(pull.linear[i], pull.centre[i], pull.weight[i]))
        return self.measured(replace(local, x=x, values=self.objective.renewed(local.values, x, active)))

    def anchored(self, local: Local, x: Array) -> Local:
        """It follows the likelihood itself, from where the agent stands."""
        return local

    def unsolved(self, local: Local, slope: Array, weight: Array) -> Array:
        """The paper's gradient descent may stop far from the solution."""
        return np.asarray(np.abs(self.bounds.cut(local.x, slope / weight)).max(axis=1))

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
            values = self.objective(x[None], np.array([i]))
            if not np.isfinite(values.nll[0]):
                return 1e100, np.zeros_like(u)
            slope = np.linalg.solve(shape, (values.gradient[0] + pull.gradient(x))[order])
            return float(values.nll[0]) + float(pull.value(x)), np.asarray(slope, dtype=float)

        ends = np.stack([self.bounds.lower - start, self.bounds.upper - start], axis=1)[order]
        ends = np.where(given[order][:, None], ends, [-np.inf, np.inf])
        bounds = ends * np.diagonal(shape)[:, None] if given.any() else None
        options = {"maxiter": self.iterations, "gtol": NESTED_GRADIENT, "ftol": NESTED_DECREASE}
        result = scipy.optimize.minimize(
            value_and_gradient, np.zeros_like(start), jac=True, method="L-BFGS-B", bounds=bounds, options=options
        )
        return place(result.x)

    def _descend(self, i: int, local: Local, pull: Pull) -> Array:
        """Plain gradient descent with a fixed step, projected: the paper's nested solver."""
        assert self.step_size is not None
        x = local.x[i]
        for _ in range(self.iterations):
            gradient = self.objective(x[None], np.array([i])).gradient[0] + pull.gradient(x)
            move = self.bounds.cut(x, self.step_size * gradient)
            x = self.bounds.clipped(x - move)
            if not np.isfinite(x).all() or np.abs(move).max() < STANDSTILL:
                break
        return np.asarray(x)


class LinearizedStep(Primal):
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
        super().__init__(objective, bounds)
        self.kappa, self.at_anchor = kappa, at_anchor
        self.measures = kappa is None
        if kappa is not None:
            self.stiffness = kappa

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
            if self.at_anchor:
                return replace(local, x=x, values=local.values.replaced(active, anchor.values))
            return replace(local, x=x, values=self.objective.renewed(local.values, x, active))
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
            values = self.objective.renewed(values, x, pending)
            wanted = before + SUFFICIENT * (gradient * move).sum(axis=1) + ROUNDING * np.abs(before)
            pending &= ~(values.nll + pull.value(x) <= wanted)
            if not pending.any():
                break
            matrix = np.where(pending[:, None, None], 4.0 * matrix, matrix)
        # An agent without a way down stays; one that stiffened its model measures it again where it is now.
        x = np.where(pending[:, None], anchor.x, x)
        values = values.replaced(pending, anchor.values)
        stiffened = (matrix != local.curvature.matrix).any(axis=(1, 2))
        measured_at = np.where(stiffened[:, None], np.inf, local.curvature.measured_at)
        return remeasured(self.objective, Local(x, values, replace(local.curvature, measured_at=measured_at)))


State = TypeVar("State", bound=SolverState)


class Admm(StepwiseSolver[State]):
    """A solver by ADMM on x = log theta."""

    def __init__(self, network: Network, primal: Primal, rho: float | None, deadline: Deadline = NEVER) -> None:
        self.network, self.primal, self.rho, self.deadline = network, primal, rho, deadline

    @abc.abstractmethod
    def moved(self, state: State, numbers: IntArray, values: Array) -> State:
        """With some hyperparameters of all agents at these values, where every likelihood is flat along them."""

    def pinned(self, numbers: IntArray, values: Array) -> Self:
        """A solver like this one that leaves some hyperparameters at these values."""
        pinned = copy(self)
        pinned.primal = copy(self.primal)
        pinned.primal.bounds = self.primal.bounds.pinned(numbers, values)
        return pinned


#: How far above critical damping an automatic rho goes.
OVERDAMP = 1.15


@dataclass(frozen=True)
class EdgeState:
    """Local state (A, ..), sums of duals p (A, P), edge midpoints (E, P), the penalty rho (P,).

    stiffness: (P,) the fleet's largest curvature per hyperparameter, as last agreed; NaN if not measured.
    """

    local: Local
    dual: Array
    middle: Array
    rho: Array
    stiffness: Array


class EdgeAdmm(Admm[EdgeState], NeighbourRule[EdgeState]):
    r"""One round of edge-based ADMM on x = log theta:

        p_i <- p_i + rho sum_j (x_i - x_j)
        x_i <- argmin l_i(x) + p_i'x + rho sum_j |x - (x_i + x_j)/2|^2

    On a time-varying graph only the edges of the round act: their midpoints and duals are renewed, those of
    the other edges of the union are remembered, and an agent without a link waits (the edge-wise
    asynchronous ADMM). On a fixed graph this is the paper's scheme. The duals always sum to zero over the
    fleet, so agreement together with grad l_i + p_i = 0 everywhere is a stationary point of the sum; at a bound
    its coordinate may push against it.

    Without a rho it is chosen per hyperparameter and follows the measured curvature: see `_wishes`. The
    maximum over the fleet rides along with the stopping messages, and all agents change rho in one round.
    """

    kind = "hyperparameters"

    def __init__(
        self,
        network: Network,
        primal: Primal,
        rho: float | None,
        interlude: Interlude | None = None,
        deadline: Deadline = NEVER,
    ) -> None:
        super().__init__(network, primal, rho, deadline)
        self.interlude = interlude
        self._edges = network.union_incoming
        self._degrees = self._edges.degrees[:, None].astype(float)
        self._pace = best_pace(network.topology.union) if rho is None else np.nan

    def begin(self, x: Array) -> EdgeState:
        local = self.primal.start(x)
        rho = np.full(x.shape[1], np.nan if self.rho is None else float(self.rho))
        state = EdgeState(local, np.zeros_like(x), x[self._edges.receivers], rho, np.full(x.shape[1], np.nan))
        if self.rho is not None:
            return state  # the curvature, if anybody wants it, comes with the first verdict
        wishes = self._wishes(local)
        agreed = maximum(self.network, np.concatenate(list(wishes.values()), axis=1))
        return self.learn(state, dict(zip(wishes, np.split(agreed, len(wishes)), strict=True)))

    def rounds(self, tol: float) -> OverNeighbours[EdgeState]:
        watching = tol > 0 or self.rho is None or self.deadline.given
        stopping = Maximin(self.network.diameter, tol, relative=False) if watching else UNWATCHED
        rule = self if self.interlude is None else WithInterludes(self, self.interlude)
        return OverNeighbours(rule, self.network, stopping)

    def state_of(self, running: Running[EdgeState]) -> EdgeState:
        return running.state

    def moved(self, state: EdgeState, numbers: IntArray, values: Array) -> EdgeState:
        x, dual, middle = state.local.x.copy(), state.dual.copy(), state.middle.copy()
        x[:, numbers], dual[:, numbers], middle[:, numbers] = values, 0.0, values
        return replace(state, local=self.primal.start(x), dual=dual, middle=middle)

    # ---- the rule that the driver runs ----------------------------------------------------------------

    def message(self, state: EdgeState) -> Array:
        return state.local.x

    def update(self, state: EdgeState, received: Array, incoming: Incoming) -> EdgeState:
        own = state.local.x[incoming.receivers]
        dual = state.dual + state.rho * incoming.reduce(np.add, own - received, 0.0)
        middle = state.middle.copy()
        middle[incoming.slots] = 0.5 * (own + received)
        centre = self._edges.reduce(np.add, middle, 0.0) / np.maximum(self._degrees, 1.0)
        pull = Pull(dual, centre, 2.0 * state.rho * self._degrees)
        active = (incoming.degrees > 0) | (self._edges.degrees == 0)
        local = _in_range(self.primal.step(state.local, state.local, pull, active), state.local)
        return replace(state, local=local, dual=dual, middle=middle)

    def watch(self, state: EdgeState) -> Watch:
        """x must agree, and grad l_i + p_i must be small at every agent: as a distance in log theta where the
        fleet's curvature is known, else in nats per unit of log theta.
        """
        slope = state.local.values.gradient + state.dual
        known = np.isfinite(state.stiffness)
        stiffness = np.where(known, np.maximum(state.stiffness, FLAT), 1.0)
        distance = self.primal.bounds.cut(state.local.x, slope / stiffness)
        left = np.abs(distance).max(axis=1)
        left = np.where(np.isfinite(state.local.values.nll), left, np.nan)[:, None]
        largest = self._wishes(state.local)
        if self.deadline.given:
            largest[LATE] = np.full_like(left, self.deadline.passed)
        return Watch(state.local.x, left, largest)

    def learn(self, state: EdgeState, largest: Mapping[str, Array]) -> EdgeState:
        """Take in the fleet's curvature; renew an automatic rho where it has moved by more than a factor of two."""
        if "stiffness" in largest:
            state = replace(state, stiffness=largest["stiffness"])
        if "rho" not in largest:
            return state
        wanted = largest["rho"]
        kept = (wanted <= 2.0 * state.rho) & (wanted >= 0.5 * state.rho)
        kept |= ~np.isfinite(wanted) & np.isfinite(state.rho)  # an agent diverges: that is judged, not followed
        return replace(state, rho=np.where(kept, state.rho, wanted))

    def _wishes(self, local: Local) -> dict[str, Array]:
        """Of which the fleet's maxima are agreed, each (A, P): stiffness, the curvature, where it is measured; and,
        where none is given, the rho an agent would have: at the best pace where its likelihood is convex, and enough
        to outweigh it where it is not.
        """
        stiffness = np.diagonal(local.curvature.matrix, axis1=1, axis2=2)
        wishes = {"stiffness": stiffness} if self.primal.measures else {}
        if self.rho is None:
            outweigh = self.primal.convexify * local.curvature.concavity / np.maximum(2.0 * self._degrees, 1.0)
            wishes["rho"] = np.maximum(self._pace * stiffness, outweigh)
        return wishes


def _in_range(local: Local, before: Local) -> Local:
    """Whoever leaves the range of sound hyperparameters has diverged: it stays where it is, and says so."""
    lost: BoolArray = np.asarray(~(np.abs(local.x) <= LOG_RANGE).all(axis=1))
    if not lost.any():
        return local
    nowhere = replace(
        local.values, nll=np.full_like(local.values.nll, np.inf), gradient=np.full_like(local.values.gradient, np.nan)
    )
    return replace(local, x=np.where(lost[:, None], before.x, local.x), values=local.values.replaced(lost, nowhere))


def best_pace(graph: Graph) -> float:
    """rho over the curvature h for the fastest agreement on a graph, and a little more, since less costs more rounds
    than more does.
    """
    if graph.agents == 1:
        return 1.0
    best, degree, _ = _best_damping(graph)
    return OVERDAMP * best / (1.0 - best) / (2.0 * degree)


def best_radius(graph: Graph) -> float:
    """What at best is left after a round of what was to be agreed on, for likelihoods of one curvature.

    >>> best_radius(Graph.complete(4)) < best_radius(Graph.path(4)) < best_radius(Graph.path(8)) < 1.0
    True
    """
    return 0.5 if graph.agents == 1 else _best_damping(graph)[2]


def _best_damping(graph: Graph) -> tuple[float, float, float]:
    r"""b of the fastest agreement on a graph, the degree that it is for, and by how much a round shrinks what is left.

    For l_i = (h/2)(x - a_i)^2 on a regular graph of degree d, with r = rho/h and b = 2rd/(1 + 2rd), the mode
    with Laplacian eigenvalue lambda = mu d obeys z^2 - z (1 + b(1 - mu)) + b(1 - mu/2) = 0, and the fleet's mean
    shrinks by b. We take the b with the smallest root over the mean, the slowest mode lambda_2 and mu = 2, the
    largest there can be. On other graphs the harmonic mean of the degrees serves for d.
    """
    degree = float(1.0 / (1.0 / graph.degrees).mean())
    b = np.linspace(0.0, 1.0, 10_001)[1:-1]
    radius = np.maximum(b, 1.0 - b)
    mu = min(graph.algebraic_connectivity / degree, 2.0)
    trace, product = 1.0 + b * (1.0 - mu), b * (1.0 - mu / 2.0)
    root = np.sqrt((trace**2 - 4.0 * product).astype(complex))
    radius = np.maximum(radius, np.maximum(np.abs(trace + root), np.abs(trace - root)) / 2.0)
    best = int(np.argmin(radius))
    return float(b[best]), degree, float(radius[best])


@dataclass(frozen=True)
class ServerState:
    """Local state (A, ..), duals psi (A, P), the last z (A, P), rho and the fleet's curvature (P,).

    mean: (P,) of x_i + psi_i / rho over the fleet, at the central node.  rounds: so far.
    """

    local: Local
    dual: Array
    centre: Array
    rho: Array
    stiffness: Array
    mean: Array
    rounds: int = 0


class ServerAdmm(Admm[ServerState], RoundSolver[ServerState]):
    r"""One round of consensus ADMM on x = log theta:

        z     <- mean_i (x_i + psi_i / rho), within the bounds       (central node)
        x_i   <- argmin l_i(x) + psi_i'(x - z) + (rho/2) |x - z|^2   (or its linearization around z)
        psi_i <- psi_i + rho (x_i - z)

    until |x_i - z|_2 < tol at every agent, the paper's rule. With an automatic rho the gradients that are left,
    grad l_i + psi_i and rho (z - z_before), must be within tol of zero too: the paper's rule alone can hold
    long before the optimum.
    """

    def begin(self, x: Array) -> ServerState:
        local = self.primal.start(x)
        rho = np.full(x.shape[1], np.nan if self.rho is None else float(self.rho))
        state = ServerState(local, np.zeros_like(x), x, rho, np.ones(x.shape[1]), np.full(x.shape[1], np.nan))
        return self.gathered(self._retuned(state), np.full(len(x), np.inf))[0]

    def moved(self, state: ServerState, numbers: IntArray, values: Array) -> ServerState:
        x, dual, centre, mean = (each.copy() for each in (state.local.x, state.dual, state.centre, state.mean))
        x[:, numbers], dual[:, numbers], centre[:, numbers], mean[numbers] = values, 0.0, values, values
        return replace(state, local=self.primal.start(x), dual=dual, centre=centre, mean=mean)

    def step(self, state: ServerState, tol: float) -> tuple[ServerState, Verdict]:
        """The central node judges every round: its verdict is about the state itself."""
        state, left = self.gathered(*self.answered(state))
        late = self.deadline.passed_at_centre(self.network)
        return state, Verdict(np.full(1, left), tol, late=late, highest=state.centre)

    def answered(self, state: ServerState) -> tuple[ServerState, Array]:
        """The central node answers with z and every agent takes its step; the new state, and its gaps (A,)."""
        z = self.network.scatter(self.primal.bounds.clipped(state.mean), "hyperparameters")
        pull = Pull(state.dual, z, np.broadcast_to(state.rho, z.shape))
        local = self.primal.step(state.local, self.primal.anchored(state.local, z), pull, np.ones(len(z), dtype=bool))
        away = local.x - z
        dual = state.dual + state.rho * away
        slope = local.values.gradient + dual
        gap = np.sqrt((away**2).sum(axis=1))
        if self.rho is None:
            stiffness = np.maximum(state.stiffness, FLAT)
            gap = np.maximum(gap, np.abs(self.primal.bounds.cut(local.x, slope / stiffness)).max(axis=1))
            gap = np.maximum(gap, np.abs(state.rho * (z - state.centre) / stiffness).max(axis=1))
        else:
            gap = np.maximum(gap, self.primal.unsolved(local, slope, state.rho))
        gap = np.where(np.isfinite(local.values.nll), gap, np.nan)
        state = replace(state, local=local, dual=dual, centre=z, rounds=state.rounds + 1)
        due = state.rounds & (state.rounds - 1) == 0  # after 1, 2, 4, 8, .. rounds
        return self._retuned(state) if due else state, gap

    def gathered(self, state: ServerState, gap: Array) -> tuple[ServerState, float]:
        """Tell the central node where the agents stand, and how far from agreement; it knows the largest gap."""
        gathered = self.network.gather({"hyperparameters": state.local.x + state.dual / state.rho, "stopping": gap})
        return replace(state, mean=np.mean(gathered["hyperparameters"], axis=0)), float(np.max(gathered["stopping"]))

    def _retuned(self, state: ServerState) -> ServerState:
        """An automatic rho: the fleet's mean curvature, or what outweighs its largest concavity, per hyperparameter."""
        if self.rho is not None:
            return state
        curvature = state.local.curvature
        stiffness = np.diagonal(curvature.matrix, axis1=1, axis2=2)
        sent = self.network.gather({"statistics": np.stack([stiffness, curvature.concavity], axis=1)})
        everyone = np.stack(sent["statistics"])
        wanted = np.maximum(everyone[:, 0].mean(axis=0), self.primal.convexify * everyone[:, 1].max(axis=0))
        answer = self.network.scatter(np.stack([everyone[:, 0].max(axis=0), wanted]), "statistics")[0]
        kept = (answer[1] <= 2.0 * state.rho) & (answer[1] >= 0.5 * state.rho)
        return replace(state, stiffness=answer[0], rho=np.where(kept, state.rho, answer[1]))
