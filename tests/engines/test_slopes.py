"""Derivatives of kernels and posteriors by the inputs, against differences."""

from __future__ import annotations

import numpy as np
import pytest

from fleetgp.arrays import Array
from fleetgp.engines.dense.engine import DenseEngine
from fleetgp.engines.moments.engine import MomentsEngine
from fleetgp.engines.vecchia.engine import VecchiaEngine
from fleetgp.kernels.expression import as_kernel
from fleetgp.kernels.stationary import KERNELS, Kernel
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations

STEP = 1e-5
#: Every leaf, sums, products, and a leaf that is in two terms.
EXPRESSIONS = (
    *KERNELS,
    "rq",
    "iso-matern52",
    "iso-rq(1, 2)",
    "se(1) * periodic(2)",
    "linear(1, 2) + matern32(1, 2)",
    "linear(1) * linear(1, 2) * se(2)",
    "(se(1) + linear(2)) * matern52(2)",
    "matern12(1) * se(2) + periodic(1, 2)",
)
SMOOTH = [text for text in EXPRESSIONS if "matern12" not in text]


def model(text: str) -> tuple[Kernel, Hyperparameters, Array]:
    kernel = as_kernel(text, 2)
    theta = np.linspace(0.7, 1.4, kernel.count(2))
    return kernel, Hyperparameters.from_theta(theta), theta


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_slopes_of_kernels_are_limits_of_differences(text: str, rng: np.random.Generator) -> None:
    kernel, h, _ = model(text)
    left, right = rng.uniform(-1, 1, (7, 2)), rng.uniform(-1, 1, (5, 2))
    found = kernel.slopes(left, right, h)
    assert found.shape == (2, 7, 5)
    for d, step in enumerate(STEP * np.eye(2)):
        expected = (kernel(left, right + step, h) - kernel(left, right - step, h)) / (2 * STEP)
        np.testing.assert_allclose(found[d], expected, atol=1e-8)


@pytest.mark.parametrize("text", SMOOTH)
def test_curvatures_are_limits_of_differences(text: str, rng: np.random.Generator) -> None:
    kernel, h, _ = model(text)
    points = rng.uniform(-1, 1, (4, 2))
    first, second = kernel.curvature(points, h)
    for d, step in enumerate(STEP * np.eye(2)):
        expected = (kernel.variance(points + step, h) - kernel.variance(points - step, h)) / (2 * STEP)
        np.testing.assert_allclose(first[:, d], expected, atol=1e-8)
        for t, point in enumerate(points):
            ahead, behind = (kernel.slopes((point + sign * step)[None], point[None], h) for sign in (1, -1))
            # matern32 has a third derivative that jumps: differences of its slopes are off by as much as the step.
            np.testing.assert_allclose(second[t, d], ((ahead - behind) / (2 * STEP))[:, 0, 0], atol=1e-3)


def test_a_kernel_with_a_kink_has_no_curvature_and_says_where() -> None:
    kernel, h, _ = model("matern12(1) * se(2) + periodic(1, 2)")
    assert np.isinf(kernel.curvature(np.zeros((1, 2)), h)[1][0, 0, 0])
    assert np.isfinite(kernel.curvature(np.zeros((1, 2)), h)[1][0, 1, 1])
    assert kernel.rough_axes(2) == ((0,),)
    assert KERNELS["matern12"].rough_axes(3) == ((0, 1, 2),)
    assert KERNELS["matern32"].rough_axes(3) == ()
    equal = KERNELS["matern12"].slopes(np.ones((1, 1)), np.ones((1, 1)), Hyperparameters.from_theta([1, 1, 1]))
    assert equal.item() == 0.0


@pytest.mark.parametrize("text", SMOOTH)
def test_slopes_of_posteriors_are_limits_of_differences(text: str, rng: np.random.Generator) -> None:
    """Of mean and variance; the covariance of f's derivatives is that of differences of f, from the joint posterior."""
    kernel, _, theta = model(text)
    inputs, y, points = rng.uniform(-1, 1, (25, 2)), rng.standard_normal(25), rng.uniform(-1, 1, (4, 2))
    dense = DenseEngine(Observations(inputs, y), kernel, 0).condition(theta)
    for posterior in (dense, VecchiaEngine(Observations(inputs, y), kernel, 0, 25).condition(theta)):
        found = posterior.slopes(points)
        for d, step in enumerate(STEP * np.eye(2)):
            ahead, behind = (posterior.mean_and_variance(points + sign * step) for sign in (1, -1))
            np.testing.assert_allclose(found.mean[:, d], (ahead[0] - behind[0]) / (2 * STEP), atol=1e-6)
            np.testing.assert_allclose(found.variance[:, d], (ahead[1] - behind[1]) / (2 * STEP), atol=1e-6)
    wide = 1e-3
    for t, point in enumerate(points):
        around = point + wide * np.array([[1, 0], [-1, 0], [0, 1], [0, -1]])
        _, covariance = dense.mean_and_covariance(around)
        apart = np.array([[1, -1, 0, 0], [0, 0, 1, -1]]) / (2 * wide)
        np.testing.assert_allclose(found.covariance[t], apart @ covariance @ apart.T, rtol=0.02, atol=1e-3)


@pytest.mark.parametrize("theta", [[1.2, 0.3, 1.3, 0.3], [0.8, 0.8, 2.0, 0.5]])
def test_slopes_from_moments_are_those_of_the_dense_engine(theta: list[float], rng: np.random.Generator) -> None:
    """Inside the box of the data and beyond it."""
    inputs, y = rng.uniform(0, 2, (300, 2)), rng.standard_normal(300)
    points = np.concatenate([rng.uniform(0.1, 1.9, (15, 2)), rng.uniform(-0.3, 2.3, (15, 2))])
    posterior = MomentsEngine(Observations(inputs, y), 0).condition(np.array(theta))
    assert posterior is not None
    found, exact = (
        one.slopes(points)
        for one in (posterior, DenseEngine(Observations(inputs, y), KERNELS["se"], 0).condition(np.array(theta)))
    )
    np.testing.assert_allclose(found.mean, exact.mean, atol=1e-5)
    np.testing.assert_allclose(found.variance, exact.variance, atol=1e-5)
    np.testing.assert_allclose(found.covariance, exact.covariance, atol=1e-4)
