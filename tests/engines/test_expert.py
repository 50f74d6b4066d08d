"""The local GP, by a second route each time: SciPy's density, the trace formula, scikit-learn, the joint Gaussian."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

from fleetgp.engines.dense.engine import DenseEngine
from fleetgp.engines.exact import cross_covariance
from fleetgp.errors import NumericalError
from fleetgp.kernels.stationary import KERNELS
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations

THETA = np.array([1.2, 0.4, 1.3, 0.2])


def expert(rng: np.random.Generator, n: int = 40, dimension: int = 2, kernel: str = "se") -> DenseEngine:
    return DenseEngine(
        Observations(rng.uniform(0, 2, (n, dimension)), rng.standard_normal(n)), KERNELS[kernel], agent=3
    )


@pytest.mark.parametrize("kernel", KERNELS)
def test_nll_is_minus_the_log_density(kernel: str, rng: np.random.Generator) -> None:
    e = expert(rng, kernel=kernel)
    h = Hyperparameters.from_theta(THETA)
    covariance = KERNELS[kernel](e.data.inputs, e.data.inputs, h) + h.noise**2 * np.eye(40)
    density = multivariate_normal.logpdf(e.data.values, cov=covariance)
    assert e.evaluate(np.log(THETA)).nll == pytest.approx(-density - 20 * math.log(2 * math.pi), rel=1e-10)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dimension", [1, 2, 4])
def test_gradient_is_the_papers_trace_formula(kernel: str, dimension: int, rng: np.random.Generator) -> None:
    e = expert(rng, dimension=dimension, kernel=kernel)
    theta = np.array([*rng.uniform(0.4, 1.5, dimension), 1.3, 0.2])
    h = Hyperparameters.from_theta(theta)
    inverse = np.linalg.inv(KERNELS[kernel](e.data.inputs, None, h) + h.noise**2 * np.eye(40))
    alpha = inverse @ e.data.values
    derivatives = [*KERNELS[kernel].log_gradient(e.data.inputs, e.data.inputs, h), 2 * h.noise**2 * np.eye(40)]
    expected = [0.5 * np.trace((inverse - np.outer(alpha, alpha)) @ d) for d in derivatives]
    assert np.allclose(e.evaluate(np.log(theta)).gradient, expected, rtol=1e-7, atol=1e-7)


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 3))
def test_gradient_against_finite_differences(seed: int, n: int, dimension: int) -> None:
    rng = np.random.default_rng(seed)
    e = expert(rng, n, dimension)
    log_theta = rng.uniform(-1.0, 0.7, dimension + 2)
    gradient = e.evaluate(log_theta).gradient
    steps = np.eye(dimension + 2) * 1e-5
    differences = [(e.evaluate(log_theta + s).nll - e.evaluate(log_theta - s).nll) / 2e-5 for s in steps]
    assert np.allclose(gradient, differences, rtol=1e-5, atol=1e-5 * np.abs(gradient).max() + 1e-7)


def test_posterior_against_scikit_learn(rng: np.random.Generator) -> None:
    e = expert(rng)
    queries = rng.uniform(-0.5, 2.5, (17, 2))
    kernel = sk.ConstantKernel(1.3**2) * sk.RBF(THETA[:2] / math.sqrt(2.0))
    reference = GaussianProcessRegressor(kernel, alpha=0.2**2, optimizer=None).fit(e.data.inputs, e.data.values)
    mean, deviation = reference.predict(queries, return_std=True)
    ours = e.condition(THETA).mean_and_variance(queries)
    assert np.allclose(ours[0], mean, rtol=1e-8, atol=1e-10)
    assert np.allclose(ours[1], deviation**2, rtol=1e-7, atol=1e-10)


def test_far_from_the_data_is_the_prior(rng: np.random.Generator) -> None:
    mean, variance = expert(rng).condition(THETA).mean_and_variance(np.full((3, 2), 1e4))
    assert np.allclose(mean, 0.0, atol=1e-12)
    assert np.allclose(variance, 1.3**2)


def test_cross_covariances_are_those_of_the_joint_gaussian(rng: np.random.Generator) -> None:
    """mu_i(x*) = W_i y_i is linear in the observations: its covariances follow from those of (y_1, y_2, f*)."""
    one, two = expert(rng, 12), expert(rng, 9)
    queries = rng.uniform(0, 2, (5, 2))
    h = Hyperparameters.from_theta(THETA)
    inputs = np.concatenate([one.data.inputs, two.data.inputs, queries])
    joint = KERNELS["se"](inputs, inputs, h)
    joint[:21, :21] += h.noise**2 * np.eye(21)
    maps = []
    for rows in (slice(0, 12), slice(12, 21)):
        weights = np.zeros((5, len(inputs)))
        weights[:, rows] = np.linalg.solve(joint[rows, rows], joint[rows, 21:]).T
        maps.append(weights)
    posteriors = [one.condition(THETA), two.condition(THETA)]
    sent = [p.weighted(queries)[1] for p in posteriors]
    between = cross_covariance(
        posteriors[0].kernel, posteriors[0].hyperparameters, (one.data.inputs, sent[0]), (two.data.inputs, sent[1])
    )
    assert np.allclose(between, np.diagonal(maps[0] @ joint @ maps[1].T), rtol=1e-9)
    for posterior, weights in zip(posteriors, maps, strict=True):
        own = posterior.explained_variance(queries)
        assert np.allclose(own, np.diagonal(weights @ joint @ weights.T), rtol=1e-9)
        assert np.allclose(own, np.diagonal(weights @ joint[:, 21:]), rtol=1e-9)
        assert np.allclose(own, h.signal**2 - posterior.mean_and_variance(queries)[1], rtol=1e-9)


def test_duplicates_with_tiny_noise_need_jitter_and_say_so(rng: np.random.Generator) -> None:
    x = rng.uniform(0, 1, (10, 1))
    twice = DenseEngine(Observations(np.concatenate([x, x]), rng.standard_normal(20)), KERNELS["se"], agent=1)
    tiny = np.array([0.5, 1.0, 1e-12])
    assert twice.evaluate(np.log(tiny)).jitter > 0.0
    assert twice.condition(tiny).jitter > 0.0
    assert twice.evaluate(np.log([0.5, 1.0, 0.1])).jitter == 0.0


def test_final_failure_names_agent_and_reason(rng: np.random.Generator) -> None:
    broken = DenseEngine(Observations(np.array([[0.0], [np.nan]]), np.zeros(2)), KERNELS["se"], agent=7)
    with pytest.raises(NumericalError, match=r"agent 7.*NaN"):
        broken.condition(np.array([1.0, 1.0, 0.1]))
    with pytest.raises(NumericalError, match=r"agent 3.*out of range"):
        expert(rng).evaluate(np.array([0.0, 0.0, 400.0, 0.0]))


def test_memory_stays_within_three_matrices(rng: np.random.Generator) -> None:
    n = 900
    e = expert(rng, n)
    e.evaluate(np.log(THETA))
    tracemalloc.start()
    e.evaluate(np.log(THETA))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3.2 * 8 * n * n
