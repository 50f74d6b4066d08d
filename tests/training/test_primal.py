"""The local step that all ADMM trainers share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

import fleetgp as fg
from fleetgp.arrays import Array, IntArray
from fleetgp.engines.expert import Expert
from fleetgp.kernels.stationary import KERNELS
from fleetgp.model.observations import Observations
from fleetgp.training.admm import DRIFT, LinearizedStep, NestedStep, Pull, remeasured
from fleetgp.training.constraints import Bounds
from fleetgp.training.objective import Curvature, Local, Objective, Values, measure_curvature
from tests.conftest import paper_shards
from tests.training.problems import floor_at
from tests.training.quadratics import Quadratics, quadratics


@pytest.mark.parametrize("softness", [1.0, 10.0])
def test_a_step_that_does_not_come_down_enough_is_taken_back(softness: float) -> None:
    """The model is far softer than the likelihood: it overshoots, and each agent ends a good deal lower, or stays."""
    objective = Objective(
        [Expert(Observations(x, y), KERNELS["se"], i, "dense") for i, (x, y) in enumerate(paper_shards(300, 3))]
    )
    x = np.tile(np.log(fg.PAPER_THETA), (3, 1)) + 0.02
    values = objective(x)
    curvature = Curvature(np.tile(softness * np.eye(4), (3, 1, 1)), np.zeros((3, 4)), x)
    pull = Pull(np.full((3, 4), 0.3), x - 0.01, np.full((3, 4), 2.0))
    gradient, before = values.gradient + pull.gradient(x), values.nll + pull.value(x)
    move = -gradient / (softness + 2.0)
    overshot = x + move * np.minimum(1.0, 1.0 / np.abs(move).max(axis=1, keepdims=True))
    rise = objective(overshot).nll + pull.value(overshot) - before
    assert (rise > 1e-6 * np.abs(before)).all(), "the example must overshoot"
    local = Local(x, values, curvature)
    after = LinearizedStep(objective, Bounds(), None).step(local, local, pull, np.ones(3, dtype=bool))
    promised = 0.1 * (gradient * (after.x - x)).sum(axis=1)
    assert (promised < 0.0).all()
    assert (objective(after.x).nll + pull.value(after.x) - before <= promised + 1e-9 * np.abs(before)).all()


# ---- on quadratics, where every step is known -----------------------------------------------------------

EVERYONE = np.ones(3, dtype=bool)
PULL = Pull(
    np.array([[0.3, -0.2, 0.5], [1.0, 0.0, -0.4], [0.2, 0.6, -0.9]]),
    np.array([[0.1, 0.2, -0.3], [-0.2, 0.1, 0.0], [0.3, 0.0, 0.2]]),
    np.array([[2.0, 1.0, 4.0], [3.0, 0.5, 1.0], [0.1, 5.0, 2.0]]),
)
ORIGIN = np.zeros((3, 3))


def solved(objective: Quadratics, pull: Pull = PULL) -> Array:
    """The minimizers of l_i(x) + b'x + w (x - c)^2 / 2, (A, P)."""
    system = objective.matrix + pull.weight[..., None] * np.eye(3)
    right = (objective.matrix @ objective.centre[..., None])[..., 0] + pull.weight * pull.centre - pull.linear
    return np.asarray(np.linalg.solve(system, right[..., None])[..., 0])


def bounded(objective: Quadratics, pull: Pull, lowest: float) -> Array:
    """The same with a lower bound on the last coordinate, by SciPy."""
    found = []
    for i, matrix in enumerate(objective.matrix):

        def value(x: Array, i: int = i, matrix: Array = matrix) -> float:
            away = x - objective.centre[i]
            own = Pull(pull.linear[i], pull.centre[i], pull.weight[i])
            return 0.5 * float(away @ matrix @ away) + float(own.value(x))

        bounds = [(None, None), (None, None), (lowest, None)]
        options = {"ftol": 1e-16, "gtol": 1e-9}
        found.append(minimize(value, [0, 0, max(0, lowest)], bounds=bounds, jac="3-point", options=options).x)
    return np.array(found)


def test_a_pull_is_its_own_derivative() -> None:
    x, step = np.linspace(-1, 1, 9).reshape(3, 3), 1e-6
    columns = [(PULL.value(x + step * e) - PULL.value(x - step * e)) / (2 * step) for e in np.eye(3)]
    np.testing.assert_allclose(np.stack(columns, axis=1), PULL.gradient(x), atol=1e-8)


@pytest.mark.parametrize("at_anchor", [True, False])
def test_a_fixed_kappa_is_the_papers_closed_form(at_anchor: bool) -> None:
    objective, active = quadratics(3), np.array([True, False, True])
    primal = LinearizedStep(objective, Bounds(), 50.0, at_anchor=at_anchor)
    local = primal.start(ORIGIN)
    anchor = primal.anchored(local, ORIGIN + 0.1)
    assert np.array_equal(anchor.values.nll, objective(ORIGIN + 0.1).nll)
    after = primal.step(local, anchor, PULL, active)
    a, g = anchor.x, anchor.values.gradient
    expected = (50.0 * a + PULL.weight * PULL.centre - g - PULL.linear) / (50.0 + PULL.weight)
    np.testing.assert_allclose(after.x[active], expected[active], rtol=1e-12)
    assert np.array_equal(after.x[1], local.x[1]), "who is not active stays"
    assert after.values.nll[1] == local.values.nll[1]
    at = anchor.values if at_anchor else objective(after.x)
    assert np.array_equal(after.values.nll[active], at.nll[active])
    assert (primal.measures, primal.unsolved(after, g, PULL.weight).tolist()) == (False, [0.0] * 3)


def test_a_fixed_kappa_is_projected_on_the_floor() -> None:
    primal = LinearizedStep(quadratics(3), floor_at(0.25, 3), 50.0)
    local = primal.start(ORIGIN + 0.3)
    after = primal.step(local, local, PULL, EVERYONE)
    free = LinearizedStep(quadratics(3), Bounds(), 50.0).step(local, local, PULL, EVERYONE)
    assert (free.x[:, -1] < 0.25).any()
    assert np.array_equal(after.x[:, -1], np.maximum(free.x[:, -1], 0.25))
    assert np.array_equal(after.x[:, :-1], free.x[:, :-1])


def test_a_measured_model_of_a_quadratic_is_exact() -> None:
    objective = quadratics(3)
    primal = LinearizedStep(objective, Bounds(), None)
    local = primal.start(ORIGIN)
    np.testing.assert_allclose(local.curvature.matrix, objective.matrix, rtol=1e-7)
    assert np.array_equal(local.curvature.measured_at, ORIGIN)
    before = objective.evaluated.copy()
    after = primal.step(local, local, PULL, EVERYONE)
    np.testing.assert_allclose(after.x, solved(objective), atol=1e-7)
    far = np.abs(after.x).max(axis=1) > DRIFT
    assert (objective.evaluated - before == np.where(far, 1 + 3, 1)).all(), "the step holds; who is far measures"
    assert np.array_equal(after.values.nll, objective(after.x).nll)
    assert primal.measures


def test_at_the_floor_the_step_is_the_bounded_minimum() -> None:
    """Not the free one cut off: the other coordinates answer to the bound."""
    objective = quadratics(3)
    lowest = float(np.median(solved(objective)[:, -1])) + 0.01
    primal = LinearizedStep(objective, floor_at(lowest, 3), None)
    local = primal.start(np.tile([0.0, 0.0, max(lowest, 0.0)], (3, 1)))
    after = primal.step(local, local, PULL, EVERYONE)
    expected = bounded(objective, PULL, lowest)
    assert 0 < (expected[:, -1] == lowest).sum() < 3, "the floor holds some and not all"
    np.testing.assert_allclose(after.x, expected, atol=1e-6)


def test_no_step_is_longer_than_a_factor_of_e() -> None:
    objective = quadratics(3)
    objective.centre = objective.centre + np.array([5.0, -3.0, 0.0])
    primal = LinearizedStep(objective, Bounds(), None)
    local = primal.start(ORIGIN)
    free = solved(objective)
    assert (np.abs(free).max(axis=1) > 1.5).all()
    after = primal.step(local, local, PULL, EVERYONE)
    np.testing.assert_allclose(after.x, free / np.abs(free).max(axis=1, keepdims=True), atol=1e-7)


def softened(objective: Quadratics, factor: float) -> Local:
    """Agents that believe their likelihoods to be softer than they are."""
    local = LinearizedStep(objective, Bounds(), None).start(ORIGIN)
    return replace(local, curvature=replace(local.curvature, matrix=local.curvature.matrix / factor))


NO_PULL = Pull(ORIGIN, ORIGIN, ORIGIN)


@pytest.mark.parametrize(("factor", "tries"), [(1.7, 1), (1.9, 2), (7.0, 2), (8.0, 3)])
def test_the_decrease_that_is_asked_for_is_a_tenth_of_the_slope(factor: float, tries: int) -> None:
    """A model f times too soft goes f times too far: it comes down by f - f^2/2 of g'H^-1 g, f of which the slope
    promises. A tenth of f is asked for: up to f = 1.8 the step holds; beyond, the model is stiffened fourfold.
    """
    objective = quadratics(3, stiffness=2000.0)
    objective.centre = 1e-2 * objective.centre
    local = softened(objective, factor)
    before = objective.evaluated.copy()
    after = LinearizedStep(objective, Bounds(), None).step(local, local, NO_PULL, EVERYONE)
    reach = factor / 4.0 ** (tries - 1)
    np.testing.assert_allclose(after.x, reach * objective.centre, rtol=1e-6)
    measured = 3 if tries > 1 else 0
    assert (objective.evaluated - before).tolist() == [tries + measured] * 3, "who stiffened its model measures again"
    if tries > 1:
        np.testing.assert_allclose(after.curvature.matrix, objective.matrix, rtol=1e-5)
        assert np.array_equal(after.curvature.measured_at, after.x)


def test_only_rounding_is_forgiven() -> None:
    """Where hardly anything is to be gained, a rise of 1e-10 of the likelihood passes, and one of 1e-8 does not."""

    def settles(rise: float) -> bool:
        objective = quadratics(3)
        objective.centre = np.zeros((3, 3))
        objective.centre[:, 0] = np.sqrt(2 * 7.0 * rise / objective.matrix[:, 0, 0]) / 7.0
        local = softened(objective, 8.0)
        before = objective.evaluated.copy()
        LinearizedStep(objective, Bounds(), None).step(local, local, NO_PULL, EVERYONE)
        return bool((objective.evaluated - before == 1).all())

    # Eight times too far costs (8^2/2 - 8) g'H^-1 g = 24 g'H^-1 g, and g'H^-1 g = 2 * 7 * rise / 49.
    assert settles(1e-11)
    assert not settles(1e-8)


def test_who_finds_no_way_down_stays() -> None:
    class Cliff(Quadratics):
        """Agent 1 has a likelihood at its start alone."""

        def __call__(self, log_thetas: Array, agents: IntArray | None = None) -> Values:
            values = super().__call__(log_thetas, agents)
            who = np.arange(len(log_thetas)) if agents is None else agents
            values.nll[(who == 1) & (log_thetas != 0.0).any(axis=1)] = np.inf
            return values

    steady = quadratics(3)
    objective = Cliff(steady.matrix, steady.centre)
    local = LinearizedStep(steady, Bounds(), None).start(ORIGIN)
    after = LinearizedStep(objective, Bounds(), None).step(local, local, PULL, EVERYONE)
    assert np.array_equal(after.x[1], ORIGIN[1])
    assert after.values.nll[1] == local.values.nll[1]
    assert np.array_equal(after.values.gradient[1], local.values.gradient[1])
    np.testing.assert_allclose(after.x[[0, 2]], solved(steady)[[0, 2]], atol=1e-7)


def test_the_curvature_is_measured_again_where_an_agent_has_moved() -> None:
    objective = quadratics(3)
    local = LinearizedStep(objective, Bounds(), None).start(ORIGIN)
    objective.matrix = 2.0 * objective.matrix
    moved = ORIGIN.copy()
    moved[0, 1], moved[1, 2], moved[2, 0] = 0.29, -0.31, 5.0
    values = objective(moved)
    values.nll[2] = np.inf
    again = remeasured(objective, Local(moved, values, local.curvature))
    assert np.array_equal(again.curvature.matrix[0], local.curvature.matrix[0]), "not far enough"
    np.testing.assert_allclose(again.curvature.matrix[1], objective.matrix[1], rtol=1e-7)
    assert np.array_equal(again.curvature.measured_at[1], moved[1])
    assert np.array_equal(again.curvature.matrix[2], local.curvature.matrix[2]), "nothing can be measured there"


@pytest.mark.parametrize("lowest", [-np.inf, 0.05])
def test_nested_lbfgs_solves_the_local_problem(lowest: float) -> None:
    objective, active = quadratics(3), np.array([True, True, False])
    primal = NestedStep(objective, floor_at(lowest, 3))
    local = primal.start(np.tile([0.0, 0.0, 0.1], (3, 1)))
    after = primal.step(local, primal.anchored(local, ORIGIN + 9.0), PULL, active)
    expected = bounded(objective, PULL, lowest)
    np.testing.assert_allclose(after.x[active], expected[active], atol=1e-5)
    assert np.array_equal(after.x[2], local.x[2])
    assert np.array_equal(after.values.nll, objective(after.x).nll)
    slope = after.values.gradient + PULL.gradient(after.x)
    assert (primal.unsolved(after, slope, PULL.weight)[:2] < 1e-4).all()
    assert primal.unsolved(local, np.array([[1.0, -6.0, 0.0]] * 3), np.full((3, 3), 2.0)).tolist() == [3.0] * 3


def test_nested_descent_takes_its_steps_and_stops_when_it_stands() -> None:
    objective = quadratics(3)
    primal = NestedStep(objective, Bounds(), step_size=0.01, iterations=7)
    local = primal.start(ORIGIN)
    assert not primal.measures
    x = ORIGIN.copy()
    for _ in range(7):
        x = x - 0.01 * (objective(x).gradient + PULL.gradient(x))
    np.testing.assert_allclose(primal.step(local, local, PULL, EVERYONE).x, x, rtol=1e-12)
    patient = NestedStep(objective, Bounds(), step_size=0.02, iterations=100_000)
    before = objective.evaluated.copy()
    after = patient.step(local, local, PULL, EVERYONE)
    assert (objective.evaluated - before < 5000).all(), "it ends when it moves by less than 1e-6"
    np.testing.assert_allclose(after.x, solved(objective), atol=1e-4)


def test_curvature_is_the_hessian_by_magnitude_with_a_floor() -> None:
    vectors = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))[0]
    spectrum = np.array([50.0, -8.0, 1e-3])
    objective = Quadratics((vectors * spectrum @ vectors.T)[None], np.zeros((1, 3)))
    x = np.full((1, 3), 0.2)
    found = measure_curvature(objective, x, objective(x), np.array([True]))
    expected = vectors * np.array([50.0, 8.0, 5e-2]) @ vectors.T
    np.testing.assert_allclose(found.matrix[0], expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found.concavity[0], 8.0 * vectors[:, 1] ** 2, rtol=1e-5)
