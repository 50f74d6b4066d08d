"""The central minimization on likelihoods whose optimum is known in closed form."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fleetgp.arrays import Array
from fleetgp.consensus import Outcome
from fleetgp.training.central import REACH, TRUST, CentralMinimizer, CentralState, Pooled
from fleetgp.training.constraints import Bounds
from fleetgp.training.objective import Objective, Values
from tests.training.problems import THETA0, fleet, floor_at

#: Most trainings here are cut short on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning")

CENTRES = np.array([[0.3, -1.0, 0.5], [1.1, 0.4, -0.7]])
CURVATURES = np.array([[3.0, 50.0, 1.0], [1.0, 4.0, 9.0]])


class Formula(Pooled):
    """Two agents with a formula for a likelihood; it remembers where it was evaluated."""

    def __init__(self, formula: Callable[[Array], tuple[Array, Array]]) -> None:
        super().__init__(Objective([]))
        self.formula = formula
        self.seen: list[Array] = []

    def __call__(self, x: Array) -> tuple[Values, Array, Array]:
        self.seen.append(x.copy())
        nll, gradient = self.formula(x)
        return Values(nll, gradient, np.zeros(2), np.zeros(2, dtype=bool)), nll, gradient


def bowls(x: Array) -> tuple[Array, Array]:
    """Sums of squares, each with its own centre: the optimum of their sum is the weighted mean of the centres."""
    away = x - CENTRES
    return 0.5 * (CURVATURES * away**2).sum(axis=1) + 10.0, CURVATURES * away


BOTTOM = (CURVATURES * CENTRES).sum(axis=0) / CURVATURES.sum(axis=0)


def minimized(
    formula: Formula, floor: Bounds | None = None, rounds: int = 200, tol: float = 1e-7, start: float = 4.0
) -> tuple[Outcome[CentralState], list[Array]]:
    minimizer = CentralMinimizer(formula, Bounds() if floor is None else floor)
    history: list[Array] = []
    begun = minimizer.begin(np.full((2, 3), start))
    outcome = minimizer.run(begun, rounds=rounds, tol=tol, record=lambda _, s: history.append(s.local.x[0]))
    return outcome, history


def test_it_ends_at_the_weighted_mean() -> None:
    outcome, history = minimized(Formula(bowls))
    assert outcome.status == "converged"
    np.testing.assert_allclose(outcome.state.local.x, np.tile(BOTTOM, (2, 1)), atol=1e-6)
    assert outcome.rounds == len(history)
    assert outcome.residual == pytest.approx(np.abs(bowls(outcome.state.local.x[0])[1].sum(axis=0)).max(), abs=1e-12)


def test_with_a_floor_it_ends_at_the_bounded_optimum() -> None:
    """The coordinates do not meet in this sum: only the last one stands at its bound."""
    lowest = BOTTOM[-1] + 0.4
    outcome, _ = minimized(Formula(bowls), floor_at(lowest, 3))
    assert outcome.status == "converged"
    np.testing.assert_allclose(outcome.state.local.x[0], [*BOTTOM[:2], lowest], atol=1e-6)
    assert outcome.residual < 1e-6, "what pushes against the floor is not left to do"


@pytest.mark.parametrize("rounds", [1, 2, 3, 5])
def test_rounds_are_evaluations_and_never_more(rounds: int) -> None:
    formula = Formula(bowls)
    outcome, history = minimized(formula, rounds=rounds)
    assert (outcome.status, outcome.rounds, len(formula.seen), len(history)) == ("round limit", rounds, rounds, rounds)
    totals = [bowls(x)[0].sum() for x in formula.seen]
    assert np.array_equal(outcome.state.local.x[0], formula.seen[int(np.argmin(totals))]), "the best of them"


def test_it_evaluates_nothing_far_from_the_best_so_far() -> None:
    formula = Formula(lambda x: (np.exp(0.5 * x).sum() + np.zeros(2), np.tile(0.5 * np.exp(0.5 * x), (2, 1)) / 2))
    minimized(formula, rounds=12, start=3.0)
    best, lowest = formula.seen[0], np.inf
    for x in formula.seen:
        assert np.abs(x - best).max() <= TRUST
        if np.exp(0.5 * x).sum() < lowest:
            best, lowest = x, np.exp(0.5 * x).sum()


def test_a_likelihood_that_falls_for_ever_has_diverged() -> None:
    formula = Formula(lambda x: (np.full(2, 5.0 + 0.5 * x[0]), np.tile([0.5, 0.0, 0.0], (2, 1))))
    outcome, _ = minimized(formula)
    assert outcome.status == "diverged"
    assert outcome.state.local.x[0, 0] == pytest.approx(4.0 - REACH)


def test_a_start_without_a_likelihood_has_diverged() -> None:
    formula = Formula(lambda _: (np.full(2, np.inf), np.full((2, 3), np.nan)))
    outcome, _ = minimized(formula)
    assert (outcome.status, outcome.rounds) == ("diverged", 1)


def test_a_place_without_a_likelihood_is_left_again() -> None:
    """Beyond a cliff it is infinite: the line search must come back."""
    optimum = np.array([0.0, 0.0, 0.0])

    def cliff(x: Array) -> tuple[Array, Array]:
        if x[0] < -0.5:
            return np.full(2, np.inf), np.full((2, 3), np.nan)
        return np.full(2, 1.0 + 0.5 * (x**2).sum()), np.tile(x, (2, 1))

    outcome, _ = minimized(Formula(cliff), start=1.5)
    assert outcome.status == "converged"
    np.testing.assert_allclose(outcome.state.local.x[0], optimum, atol=1e-6)


@pytest.mark.parametrize("method", ["fact-gp", "g-fact-gp"])
def test_a_round_is_theta_out_and_likelihoods_back(method: str) -> None:
    fit = fleet(45, 3).train(method, theta0=THETA0, rounds=4, noise_floor=0)
    sent = fit.ledger.by_phase()["training"]
    assert sent.scalars == 4 * 3 * (4 + 1 + 4), "theta to each of three agents, nll and gradient back"
