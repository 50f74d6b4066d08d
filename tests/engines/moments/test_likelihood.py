"""The likelihood by moments against exact arithmetic, its formulas over the data, and the dense engine."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fleetgp.engines.dense.engine import DenseEngine
from fleetgp.engines.expert import tolerance
from fleetgp.engines.moments.engine import MomentsEngine, evaluation
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations
from tests.conftest import paper_shards
from tests.engines.moments.problems import SE, THETA, WAYS, exact_nll, places, summed_by
from tests.engines.moments.reference import likelihood


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=25)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["uniform", "clusters", "line", "diagonal", "far", "repeats"]),
    st.integers(1, 90),
    st.integers(1, 3),
    st.floats(-1.0, 1.5),
    st.floats(-4.0, 0.5),
)
@example(1, "uniform", 1, 2, 0.0, -1.0)
@example(2, "clusters", 90, 2, 0.0, -3.0)
@example(3, "uniform", 80, 1, -1.0, -4.0)
@example(4, "line", 60, 3, 0.0, -2.0)
@example(27525, "clusters", 69, 2, 0.037109375, 0.03125)
@example(3, "far", 51, 1, 0.46, -0.95)
def test_the_true_error_is_below_the_certificate(
    way: str, seed: int, kind: str, n: int, dimension: int, log_scale: float, log_noise: float
) -> None:
    rng = np.random.default_rng(seed)
    x = places(kind, n, dimension, rng)
    theta = np.array([*np.exp(log_scale + rng.uniform(-0.5, 0.5, dimension)), 1.3, 10.0**log_noise])
    y = rng.standard_normal(n) * rng.choice([0.1, 1.0, 10.0])
    if seed % 3 == 0:  # smooth, and larger than the model says
        y = 30.0 * np.cos(5.0 * (x - x.mean(axis=0)).sum(axis=1))
    with summed_by(way):
        found = MomentsEngine(Observations(x, y), agent=0).evaluate(np.log(theta))
    if found is None:
        return  # refused: nothing is claimed
    error = abs(found.nll - exact_nll(x, y, theta))
    assert error <= found.error
    if found.error <= tolerance(n):
        dense = DenseEngine(Observations(x, y), SE, 0).evaluate(np.log(theta))
        assert abs(found.nll - dense.nll) <= 1e-6 + 1e-10 * abs(dense.nll)
        assert np.allclose(found.gradient, dense.gradient, rtol=1e-5, atol=1e-5)


@settings(max_examples=20)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["uniform", "clusters", "diagonal", "repeats"]),
    st.integers(1, 90),
    st.integers(1, 3),
    st.floats(-1.0, 0.5),
)
def test_the_engine_computes_the_formulas(seed: int, kind: str, n: int, dimension: int, log_noise: float) -> None:
    """By the grid as over the data, and as the dense engine's matrices: value and gradient, three ways."""
    rng = np.random.default_rng(seed)
    x, y = places(kind, n, dimension, rng), rng.standard_normal(n)
    theta = np.array([*rng.uniform(1.0, 3.0, dimension), 1.3, 10.0**log_noise])
    expert, h = MomentsEngine(Observations(x, y), 0), Hyperparameters.from_theta(theta)
    s = expert.solve(h, 1e-14)
    if s is None:  # more functions than three-dimensional data of a few points are worth
        return
    fast = evaluation(s, 0.0)
    nll, gradient = likelihood(s.grid.basis, h.noise, x, y)
    dense = DenseEngine(Observations(x, y), SE, 0).evaluate(np.log(theta))
    assert nll == pytest.approx(fast.nll, rel=1e-9, abs=1e-8)
    assert nll == pytest.approx(dense.nll, rel=1e-9, abs=1e-6)
    assert np.allclose(gradient, fast.gradient, rtol=1e-7, atol=1e-7)
    assert np.allclose(gradient, dense.gradient, rtol=1e-5, atol=1e-5)


def test_a_likelihood_leaves_its_solution_as_it_was() -> None:
    x, y = paper_shards(900, 1)[0]
    s = MomentsEngine(Observations(x, y), 0).solve(Hyperparameters.from_theta(THETA), 1e-12)
    assert s is not None
    lower = s.lower.copy()
    first = evaluation(s, 0.0)
    assert np.array_equal(s.lower, lower)
    assert np.array_equal(evaluation(s, 0.0).gradient, first.gradient)


def test_the_certificate_is_tight_enough_to_be_of_use() -> None:
    """Ordinary data are certified, in one, two and three dimensions."""
    rng = np.random.default_rng(0)
    for dimension in (1, 2, 3):
        x = rng.uniform(0, 1, (400, dimension))
        y = np.sin(3 * x.sum(axis=1)) + 0.1 * rng.standard_normal(400)
        found = MomentsEngine(Observations(x, y), 0).evaluate(np.log([0.8] * dimension + [1.0, 0.3]))
        assert found is not None
        assert found.error <= tolerance(400)


def test_likelihood_and_gradient_of_the_papers_field_are_the_dense_ones() -> None:
    for agents in (1, 4):
        x, y = paper_shards(2025, agents)[agents // 2]
        moments, dense = MomentsEngine(Observations(x, y), 0), DenseEngine(Observations(x, y), SE, 0)
        for theta in (THETA, np.array([2.0, 0.5, 1.0, 1.0]), np.array([0.5, 0.9, 2.0, 0.3])):
            a, b = moments.evaluate(np.log(theta)), dense.evaluate(np.log(theta))
            assert a is not None
            assert abs(a.nll - b.nll) <= a.error <= tolerance(len(y))
            assert np.allclose(a.gradient, b.gradient, rtol=1e-6, atol=1e-6)


def test_a_long_series_needs_no_table_of_pairs() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 120, (2000, 1))
    y = np.sin(x[:, 0]) + 0.1 * rng.standard_normal(2000)
    theta = np.array([1.0, 1.0, 0.1])
    tracemalloc.start()
    found = MomentsEngine(Observations(x, y), 0).evaluate(np.log(theta))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found is not None
    assert peak < 200e6
    assert abs(found.nll - DenseEngine(Observations(x, y), SE, 0).evaluate(np.log(theta)).nll) <= found.error


def test_no_kronecker_matrix_is_ever_built() -> None:
    x, y = paper_shards(2025, 1)[0]
    expert = MomentsEngine(Observations(x, y), 0)
    expert.evaluate(np.log(THETA))
    moments = expert.prepare(Hyperparameters.from_theta(THETA))
    assert moments is not None
    functions = np.prod([(size - 1) // 2 for size in moments.sizes])
    tracemalloc.start()
    expert.evaluate(np.log(THETA))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * functions**2 / 4
