"""Newton's method on sums: against SciPy, on functions of which everything is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple

import numpy as np
import pytest
from scipy.optimize import minimize

from fleetgp.arrays import Array
from fleetgp.training.newton import FLAT, REACH, Newton, Search, Sum
from tests.training.problems import floor_at

TOL = 1e-6


class Function:
    """sum_k a_k exp(b_k'x) + c_k cos(d_k'x), as a sum: it is smooth, and convex without the cosines."""

    def __init__(self, seed: int, width: int, waves: int = 0) -> None:
        rng = np.random.default_rng(seed)
        directions = np.concatenate([np.eye(width), -np.eye(width), rng.standard_normal((3, width))])
        self.b, self.a = directions, 50.0 * np.exp(rng.uniform(-1.0, 1.0, len(directions)))
        self.d, self.c = 1.5 * rng.standard_normal((waves, width)), rng.uniform(50.0, 300.0, waves)
        self.start = rng.uniform(-3.0, 3.0, width)

    def __call__(self, x: Array) -> Sum:
        e, angle = self.a * np.exp(self.b @ x), self.d @ x
        wave = self.c * np.cos(angle)
        gradient = self.b.T @ e - self.d.T @ (self.c * np.sin(angle))
        hessian = (self.b.T * e) @ self.b - (self.d.T * wave) @ self.d
        return Sum(
            float(e.sum() + wave.sum()), float(e.sum() + np.abs(wave).sum()), gradient, 0.5 * (hessian + hessian.T)
        )

    def by_scipy(self, start: Array, floor: float) -> Array:
        bounds = [(None, None)] * (len(start) - 1) + [(floor, None)]
        options = {"ftol": 1e-16, "gtol": 1e-7, "maxiter": 1000}
        found = minimize(lambda x: (self(x).value, self(x).gradient), start, jac=True, bounds=bounds, options=options)
        return np.asarray(found.x)


def minimized(
    function: Callable[[Array], Sum], start: Array, floor: float = -np.inf, tol: float = TOL, most: int = 60
) -> tuple[Search, int]:
    newton, search = Newton(start, floor_at(floor, len(start)), tol), Search.at(start)
    for evaluations in range(1, most + 1):
        # What travels between two evaluations is the row.
        search = Search.of(newton.decide(search, function(search.x)).row, len(start))
        if search.residual <= tol or np.isnan(search.residual):
            return search, evaluations
    return search, most


@pytest.mark.parametrize("width", [1, 2, 5])
@pytest.mark.parametrize("seed", range(6))
def test_a_convex_function_has_scipys_minimum(seed: int, width: int) -> None:
    function = Function(seed, width)
    search, evaluations = minimized(function, function.start)
    assert evaluations <= 14
    np.testing.assert_allclose(search.x, function.by_scipy(function.start, -np.inf), atol=TOL)


@pytest.mark.parametrize("seed", range(6))
def test_the_floor_is_a_bound(seed: int) -> None:
    function = Function(seed, 3)
    free = minimized(function, function.start)[0].x
    for floor in (free[-1] + 0.5, free[-1] - 0.5):
        start = np.append(function.start[:-1], max(function.start[-1], floor))
        search, evaluations = minimized(function, start, floor)
        assert evaluations <= 14
        assert search.x[-1] >= floor
        assert (search.x[-1] == floor) == (floor > free[-1])
        np.testing.assert_allclose(search.x, function.by_scipy(start, floor), atol=TOL)


@pytest.mark.parametrize("floor", [-np.inf, 0.3])
@pytest.mark.parametrize("seed", range(10))
def test_where_it_is_not_convex_it_ends_in_a_minimum(seed: int, floor: float) -> None:
    """SciPy, from there, finds nothing better nearby; and no direction that is free leads down."""
    function = Function(seed, 4, waves=8)
    start = floor_at(floor, len(function.start)).clipped(function.start)
    search, evaluations = minimized(function, start, floor)
    assert search.residual <= TOL
    assert evaluations <= 30
    found = function(search.x)
    assert found.value < function(start).value
    free = slice(None, -1 if search.x[-1] == floor else None)
    assert (np.linalg.eigvalsh(found.hessian[free, free]) > -FLAT).all()
    np.testing.assert_allclose(search.x, function.by_scipy(search.x, floor), atol=TOL)


@pytest.mark.parametrize("seed", range(6))
def test_the_residual_bounds_what_is_left(seed: int) -> None:
    function = Function(seed, 4, waves=4)
    search, _ = minimized(function, function.start, tol=1e-3)
    assert 0.0 < search.residual <= 1e-3
    exact, _ = minimized(function, search.x, tol=1e-12)
    assert np.abs(search.x - exact.x).max() <= search.residual


def test_a_saddle_is_left() -> None:
    """100 (x^4 / 4 - x^2 / 2 + y^2 / 2), from (0, 0) itself."""

    def function(x: Array) -> Sum:
        value = 100.0 * (x[0] ** 4 / 4.0 - x[0] ** 2 / 2.0 + x[1] ** 2 / 2.0)
        gradient = 100.0 * np.array([x[0] ** 3 - x[0], x[1]])
        return Sum(value, abs(value), gradient, np.diag([300.0 * x[0] ** 2 - 100.0, 100.0]))

    search, evaluations = minimized(function, np.zeros(2))
    np.testing.assert_allclose(np.abs(search.x), [1.0, 0.0], atol=TOL)
    assert evaluations <= 12


def test_points_where_it_is_infinite_are_avoided() -> None:
    """100 (x - log(3 + x) - log(1 - y) + (y + 1)^2): a step that leaves x > -3, y < 1 is taken back."""

    def function(x: Array) -> Sum:
        if x[0] <= -3.0 or x[1] >= 1.0:
            return Sum(np.inf, 0.0, np.zeros(2), np.zeros((2, 2)))
        terms = np.array([x[0], -np.log(3.0 + x[0]), -np.log(1.0 - x[1]), (x[1] + 1.0) ** 2])
        gradient = np.array([1.0 - 1.0 / (3.0 + x[0]), 1.0 / (1.0 - x[1]) + 2.0 * (x[1] + 1.0)])
        curvature = np.diag([1.0 / (3.0 + x[0]) ** 2, 1.0 / (1.0 - x[1]) ** 2 + 2.0])
        return Sum(100.0 * terms.sum(), 100.0 * np.abs(terms).sum(), 100.0 * gradient, 100.0 * curvature)

    asked = []

    def noted(x: Array) -> Sum:
        asked.append(function(x).value)
        return function(x)

    search, _ = minimized(noted, np.array([3.0, 0.9]))
    assert np.inf in asked, "the example must leave its domain"
    # 1 / (1 - y) + 2 (y + 1) = 0 at y = -sqrt(3 / 2).
    np.testing.assert_allclose(search.x, [-2.0, -np.sqrt(1.5)], atol=TOL)


def test_a_start_where_it_is_infinite_and_a_slope_without_end_are_no_minimum() -> None:
    nowhere = Sum(np.inf, 0.0, np.zeros(2), np.zeros((2, 2)))
    search, evaluations = minimized(lambda _: nowhere, np.zeros(2))
    assert np.isnan(search.residual)
    assert evaluations == 1

    def falling(x: Array) -> Sum:
        return Sum(-50.0 * x.sum(), 50.0 * np.abs(x).sum(), np.full(2, -50.0), np.zeros((2, 2)))

    search, evaluations = minimized(falling, np.zeros(2))
    assert np.isnan(search.residual)
    assert search.best.max() > REACH
    assert evaluations < 10


def test_a_valley_that_never_ends_is_followed_to_where_its_slope_is_below_the_tolerance() -> None:
    """100 exp(-2 x) + 100 y^2: what the data do not tell. The slope, not the distance, is what is left."""

    def function(x: Array) -> Sum:
        tail = 100.0 * np.exp(-2.0 * x[0])
        value = tail + 100.0 * x[1] ** 2
        return Sum(value, value, np.array([-2.0 * tail, 200.0 * x[1]]), np.diag([4.0 * tail, 200.0]))

    search, evaluations = minimized(function, np.zeros(2), tol=1e-5)
    assert search.residual <= 1e-5
    assert np.abs(function(search.x).gradient).max() <= 1e-5
    assert evaluations <= 30


def test_values_that_are_known_to_ten_digits_are_good_enough() -> None:
    function, noise = Function(1, 3), np.random.default_rng(1)

    def rounded(x: Array) -> Sum:
        found = function(x)
        value = found.value + 1e-10 * found.size * noise.uniform(-1.0, 1.0)
        return Sum(value, found.size, found.gradient, found.hessian)

    search, evaluations = minimized(rounded, function.start)
    assert evaluations <= 14
    np.testing.assert_allclose(search.x, minimized(function, function.start)[0].x, atol=TOL)


def test_a_row_holds_all_of_a_search() -> None:
    newton, function = Newton(np.zeros(3), floor_at(-2.0, 3), TOL), Function(3, 3, waves=2)
    search = Search.at(np.zeros(3))
    for _ in range(4):
        search = newton.decide(search, function(search.x))
        for one, other in zip(astuple(search), astuple(Search.of(search.row, 3)), strict=True):
            np.testing.assert_array_equal(one, other)
    assert not np.isnan(Search.at(np.zeros(2)).row).any()
