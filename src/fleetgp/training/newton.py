"""dec-fact-gp: the sum of the agents' likelihoods, minimized by Newton's method over the spanning tree.

Newton's method with a trust region, on a sum that others evaluate: one decision after each evaluation. `Search` is its
state between two evaluations, and a row of numbers: any agent that has it can take the next decision. x is log theta,
within bounds.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.consensus import Interlude, Outcome, Verdict
from fleetgp.consensus.stopping import NEVER, Deadline
from fleetgp.network import Network
from fleetgp.training.constraints import Bounds
from fleetgp.training.objective import ForwardDifferences, Local, Objective, Values, measure_hessian
from fleetgp.training.solver import RoundSolver

#: How far a first step may go in each coordinate, how far any, and how much farther after one that kept its promise.
FIRST_RADIUS, LARGEST_RADIUS, GROWTH = 2.0, 4.0, 3.0
#: A step that brings less than this share of what its model promised is poor, one that brings more than that is good.
POOR, GOOD = 0.25, 0.75
#: After a poor step the radius is this share of its length, at least and at most; the least where nothing is known.
SHRINK = (0.1, 0.5)
#: Changes of the sum below this share of its terms' sizes are rounding.
ROUNDING = 1e-9
#: Where the sum bends by less than this, in nats per unit of log theta squared, the data say next to nothing: how far
#: there is to go is judged as if it bent by as much.
FLAT = 1.0
#: How far a step goes, at least, along a direction in which the sum is concave.
ESCAPE = 0.1
#: Along a step a Hessian from gradients keeps at least this share of what it was.
DAMPING = 0.2
#: A minimum is sought within exp(-12) .. exp(12) of the start, or within the bounds where there are any.
REACH = 12.0


@dataclass(frozen=True)
class Sum:
    """The sum at a point: its value, the sum of its terms' magnitudes, its gradient (P,) and Hessian (P, P).

    An infinite value says that the point is no good; the rest then holds no meaning.
    """

    value: float
    size: float
    gradient: Array
    hessian: Array


@dataclass(frozen=True)
class Search:
    """A minimization between two evaluations.

    x: (P,) the point to be evaluated next; of a converged search the minimum.
    best, value, gradient, hessian: the best point so far, and the sum there; infinite before the first evaluation.
    radius: how far a step may go in each coordinate.  predicted: how much smaller the model is at x.
    newton: the length of the step to x if it is Newton's own, on a firm model; else 0.
    residual: an estimate of how far the minimum is from x, in log theta; infinite if there is none, NaN if there is no
        minimum within reach.
    """

    x: Array
    best: Array
    value: float
    gradient: Array
    hessian: Array
    radius: float = FIRST_RADIUS
    predicted: float = 0.0
    newton: float = 0.0
    residual: float = np.inf

    @classmethod
    def at(cls, x: Array) -> Search:
        """Before the first evaluation.

        >>> search = Search.at(np.array([0.5, -1.0]))
        >>> search.row.tolist() == Search.of(search.row, 2).row.tolist()
        True
        """
        return cls(x, x, np.inf, np.zeros_like(x), np.zeros((len(x), len(x))))

    @property
    def row(self) -> Array:
        """As numbers, none of which is NaN."""
        finite = replace(self, residual=-1.0 if np.isnan(self.residual) else self.residual)
        return np.concatenate([pack(np.atleast_1d(value)) for value in astuple(finite)])

    @classmethod
    def of(cls, row: Array, width: int) -> Search:
        """From its row; width: P."""
        lengths = (width, width, 1, width, width * (width + 1) // 2, 1, 1, 1, 1)
        x, best, value, gradient, hessian, *rest = np.split(row, np.cumsum(lengths)[:-1])
        radius, predicted, newton, residual = (float(number[0]) for number in rest)
        matrix = unpack(hessian, width)
        left = np.nan if residual < 0.0 else residual
        return cls(x, best, float(value[0]), gradient, matrix, radius, predicted, newton, left)


def pack(value: Array) -> Array:
    """Of symmetric matrices (.., P, P) the upper triangles, (.., P (P + 1) / 2); vectors as they are."""
    if value.ndim < 2:
        return value
    rows, columns = np.triu_indices(value.shape[-1])
    return np.asarray(value[..., rows, columns])


def unpack(row: Array, width: int) -> Array:
    """The symmetric matrix of which a row is the upper triangle.

    >>> unpack(pack(np.array([[1.0, 2.0], [2.0, 5.0]])), 2).tolist()
    [[1.0, 2.0], [2.0, 5.0]]
    """
    matrix = np.zeros((width, width))
    rows, columns = np.triu_indices(width)
    matrix[rows, columns] = matrix[columns, rows] = row
    return matrix


class Newton:
    """Minimizes from a start to a tolerance in log theta.

    The model is quadratic, with the magnitudes of the Hessian's eigenvalues: a step leads away from a saddle. Close to
    a minimum steps shrink ever faster. So, once two of Newton's own steps are known, the second shorter by a factor,
    what is left after the second is taken to be at most as much shorter again; and the last step needs no evaluation.
    """

    def __init__(self, start: Array, bounds: Bounds, tol: float) -> None:
        self.bounds, self.reach, self.tol = bounds, bounds.within(start, REACH), tol

    def decide(self, search: Search, there: Sum) -> Search:
        """Take in the sum at `search.x`, and say where to look next."""
        first, rounding = np.isinf(search.value), ROUNDING * there.size
        if not np.isfinite(there.value):
            if first:
                return replace(search, residual=np.nan)
            return self._ahead(replace(search, radius=SHRINK[0] * _length(search.x - search.best)))
        gain = search.value - there.value
        radius = search.radius if first else _radius(search, there, gain, rounding)
        if gain < -rounding:
            return self._ahead(replace(search, radius=radius))
        here = replace(
            search, best=search.x, value=there.value, gradient=there.gradient, hessian=there.hessian, radius=radius
        )
        if (here.best != self.reach.clipped(here.best)).any():
            return replace(here, residual=np.nan)
        return self._ahead(here, search.newton)

    def remeasured(self, search: Search, hessian: Array) -> Search:
        """The next point with the Hessian at the best one, where another one was assumed so far."""
        return self._ahead(replace(search, hessian=hessian))

    def _ahead(self, search: Search, before: float = 0.0) -> Search:
        """The next point, from the best one. before: `newton` of the step that led there."""
        model = Model.of(search, self.bounds)
        judged = model.move(np.maximum(model.magnitudes, FLAT), model.slopes)
        left, newton = _length(judged), 0.0
        residual = np.inf if model.concave else left
        if model.firm and before > 0.0:
            residual *= min(1.0, left / before)
        step = judged if residual <= self.tol else model.step(search.radius)
        if model.firm and _length(step) >= left:
            newton = left
        step = model.whole(step)
        return replace(
            search,
            x=self.bounds.clipped(search.best + step),
            predicted=-float(search.gradient @ step + 0.5 * step @ search.hessian @ step),
            newton=newton,
            residual=residual,
        )


@dataclass(frozen=True)
class Model:
    """The quadratic model around a point x, in the coordinates in which it can be left: not in those that stand at a
    bound if the gradient pushes against it.

    free: (P,) which coordinates these are.  eigenvalues, vectors: of the Hessian.  slopes: the gradient along them.
    """

    x: Array
    bounds: Bounds
    free: BoolArray
    eigenvalues: Array
    vectors: Array
    slopes: Array

    @classmethod
    def of(cls, search: Search, bounds: Bounds) -> Model:
        free = ~bounds.held(search.best, search.gradient)
        eigenvalues, vectors = np.linalg.eigh(search.hessian[np.ix_(free, free)])
        slopes = vectors.T @ search.gradient[free]
        return cls(search.best[free], bounds.part(free), free, eigenvalues, vectors, slopes)

    def whole(self, step: Array) -> Array:
        """A step of the free coordinates as one of all."""
        whole = np.zeros(len(self.free))
        whole[self.free] = step
        return whole

    @property
    def magnitudes(self) -> Array:
        return np.abs(self.eigenvalues)

    @property
    def concave(self) -> bool:
        """In some direction."""
        return bool((self.eigenvalues < -FLAT).any())

    @property
    def firm(self) -> bool:
        """Convex, and flat in no direction."""
        return bool((self.eigenvalues >= FLAT).all())

    def move(self, curvatures: Array, slopes: Array, stiffening: float = 0.0) -> Array:
        """To the minimum of a model with other curvatures and slopes along the eigenvectors.

        stiffening: how much larger its diagonal is, relatively.
        """
        matrix = (self.vectors * curvatures) @ self.vectors.T
        matrix += stiffening * np.diag(np.diagonal(matrix))
        return self.bounds.best_move(self.x, matrix, self.vectors @ slopes)

    def step(self, radius: float) -> Array:
        """Down, and away from a saddle; the model is stiffened until no coordinate goes beyond the radius."""
        curvatures = np.maximum(self.magnitudes, 1e-12 * max(_length(self.magnitudes), FLAT))
        least = np.where(self.eigenvalues < -FLAT, ESCAPE * curvatures, 0.0)
        slopes = np.copysign(np.maximum(np.abs(self.slopes), least), self.slopes)
        if _length(free := self.move(curvatures, slopes)) <= radius:
            return free
        low, high = -8.0, 8.0  # powers of ten
        for _ in range(50):
            middle = 0.5 * (low + high)
            far = _length(self.move(curvatures, slopes, 10.0**middle)) > radius
            low, high = (middle, high) if far else (low, middle)
        return self.move(curvatures, slopes, 10.0**high)


def secant_hessian(hessian: Array, step: Array, change: Array) -> Array:
    """BFGS with Powell's damping: positive definite, and with H step = change where the sum is convex on the way.

    step: of x, (P,).  change: of the gradient along it.

    >>> secant_hessian(np.eye(2), np.array([1.0, 0.0]), np.array([3.0, 1.0])) @ [1.0, 0.0]
    array([3., 1.])
    """
    image = hessian @ step
    bend = float(step @ image)
    if not (np.isfinite(change).all() and bend > 0.0):
        return hessian
    along = float(step @ change)
    if along < DAMPING * bend:
        share = (1.0 - DAMPING) * bend / (bend - along)
        change = share * change + (1.0 - share) * image
        along = float(step @ change)
    return np.asarray(hessian - np.outer(image, image) / bend + np.outer(change, change) / along)


def _radius(search: Search, there: Sum, gain: float, rounding: float) -> float:
    """How far the next step may go."""
    step = search.x - search.best
    if max(abs(gain), search.predicted) <= rounding or gain >= GOOD * search.predicted:
        reached = _length(step) > 0.8 * search.radius
        return min(GROWTH * search.radius, LARGEST_RADIUS) if reached else search.radius
    if gain >= POOR * search.predicted:
        return search.radius
    return _length(step) * _lowest(-gain, float(search.gradient @ step), float(there.gradient @ step))


def _lowest(rise: float, slope: float, slope_there: float) -> float:
    """Where along a poor step, 0 .. 1, the cubic through both ends' values and slopes is lowest, within `SHRINK`.

    >>> _lowest(1.0, -1.0, 3.0)  # of 2 t^2 - t
    0.25
    """
    cubic, square = slope + slope_there - 2.0 * rise, 3.0 * rise - 2.0 * slope - slope_there
    root = square**2 - 3.0 * cubic * slope
    below = square + np.sqrt(root) if root >= 0.0 else 0.0
    return float(np.clip(-slope / below if below > 0.0 else 0.0, *SHRINK))


def _length(step: Array) -> float:
    return float(np.abs(step).max(initial=0.0))


# ---- over the spanning tree ------------------------------------------------------------------------------------------

#: With so many hyperparameters an agent that is alone measures its Hessian only where it has to.
MANY = 8
#: A Hessian serves until it is farther away than this, in log theta, from where it was measured, or until a step is
#: poor. What it says of a minimum counts only as close as this.
AWAY, CLOSE = 4.0, 0.05
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


class TreeNewton(RoundSolver[TreeState]):
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
        return TreeState(Local.unevaluated(x), x[0], Search.at(x[0]))

    def ended(self, state: TreeState, tol: float) -> Outcome[TreeState] | None:
        residual = state.search.residual
        if tol > 0.0 and residual <= tol:
            return Outcome(state, 0, "converged", np.array(residual), state.search.x)
        return None

    def ends(self, state: TreeState, verdict: Verdict) -> bool:
        stuck = verdict.tol > 0.0 and state.stalls >= MOST_STALLS
        return verdict.status != "round limit" or stuck

    def step(self, state: TreeState, tol: float) -> tuple[TreeState, Verdict]:
        """One evaluation; where it is not the last one, an interlude if an agent wants one."""
        x = np.tile(state.search.x, (len(self.objective.experts), 1))
        if self.lazy and np.isfinite(state.search.value):
            values = self.objective(x)
            step, change = state.search.x - state.search.best, values.gradient[0] - state.search.gradient
            hessian = secant_hessian(state.search.hessian, step, change)[None]
        else:
            # All at once, so that they run side by side: an agent that is alone in its process then uses all cores
            # without threads inside BLAS, which wait for each other as soon as other work needs a core.
            steps = ForwardDifferences(self.objective, x)
            agents = np.concatenate([np.arange(len(x)), steps.agents])
            every = self.objective(np.concatenate([x, steps.places]), agents)
            values = every.part(slice(len(x)))
            hessian = steps.hessian(values, every.part(slice(len(x), None)))
            state = replace(state, measured_at=state.search.x)
        row, before = self._decided(state, tol, self._rows(values, hessian)), state.search
        wanted, late = row[-2:] > 0.0
        state = self._moved(state, Search.of(row[:-2], x.shape[1]), values)
        if self.lazy and _stale(before, state, tol):
            state = self._with_measured_hessian(state, tol)
        verdict = Verdict(np.full(1, state.search.residual), tol, late=bool(late), highest=state.search.x[None])
        if verdict.status == "converged":
            state = self._landed(state)
        elif verdict.status == "round limit" and wanted and self.interlude is not None:
            self.interlude.play()
        return state, verdict

    def _moved(self, state: TreeState, search: Search, values: Values) -> TreeState:
        """After the root's decision about the values at `search.x`."""
        before = state.search
        # The start is each agent's own logarithm; from then on x is the root's.
        accepted = np.isfinite(search.value) and (np.isinf(before.value) or np.array_equal(search.best, before.x))
        x = np.tile(search.best, (len(values.nll), 1))
        local = replace(state.local, x=x, values=values) if accepted else state.local
        better = np.isinf(before.value) or search.value < before.value - ROUNDING * abs(before.value)
        return replace(state, local=local, search=search, stalls=0 if better else state.stalls + 1)

    def _with_measured_hessian(self, state: TreeState, tol: float) -> TreeState:
        """With the Hessian at the best point so far, by finite differences, and the next step that follows from it."""
        local = state.local
        hessian = measure_hessian(self.objective, local.x, local.values, np.ones(len(local.x), dtype=bool))[0]
        if not np.isfinite(hessian).all():
            return state
        search = Newton(state.start, self.bounds, tol).remeasured(state.search, hessian)
        return replace(state, search=search, measured_at=search.best)

    def _landed(self, state: TreeState) -> TreeState:
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
            total_there = Sum(np.inf if failed else value, size, gradient, unpack(hessian, parameters))
            return np.append(newton.decide(state.search, total_there).row, signs)[None]

        row = self.network.reduce(rows[:, None], "statistics", finish=finish, result_shape=(len(state.search.row) + 2,))
        assert row is not None, "all agents are row"
        return np.asarray(row[0])
