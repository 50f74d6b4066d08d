"""Kernels against their formulas written out, against finite differences, and against scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process import kernels as sk

from fleetgp.errors import InputError
from fleetgp.kernels.expression import as_kernel
from fleetgp.kernels.stationary import KERNELS, scaled_squared_distance
from fleetgp.model.hyperparameters import Hyperparameters

SKLEARN = {
    "se": lambda scales: sk.RBF(np.asarray(scales) / math.sqrt(2.0)),  # the paper's kernel has no factor 1/2
    "matern12": lambda scales: sk.Matern(scales, nu=0.5),
    "matern32": lambda scales: sk.Matern(scales, nu=1.5),
    "matern52": lambda scales: sk.Matern(scales, nu=2.5),
}


def test_squared_exponential_is_the_papers_formula(rng: np.random.Generator) -> None:
    x, z = rng.standard_normal((5, 3)), rng.standard_normal((4, 3))
    h = Hyperparameters((0.7, 1.1, 2.0), 1.3, 0.1)
    value = KERNELS["se"](x, z, h)
    for i in range(5):
        for j in range(4):
            exponent = sum((x[i, d] - z[j, d]) ** 2 / h.length_scales[d] ** 2 for d in range(3))
            assert value[i, j] == pytest.approx(1.3**2 * math.exp(-exponent), rel=1e-12)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_against_scikit_learn(name: str, dimension: int, rng: np.random.Generator) -> None:
    x, z = rng.standard_normal((20, dimension)), rng.standard_normal((15, dimension))
    scales = rng.uniform(0.4, 2.0, dimension)
    h = Hyperparameters(tuple(scales), 1.7, 0.1)
    assert np.allclose(KERNELS[name](x, z, h), 1.7**2 * SKLEARN[name](scales)(x, z), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", KERNELS)
def test_log_gradient_against_finite_differences(name: str, rng: np.random.Generator) -> None:
    x, z = rng.standard_normal((6, 2)), rng.standard_normal((7, 2))
    log_theta = np.log([0.8, 1.4, 1.2, 0.3])
    analytic = KERNELS[name].log_gradient(x, z, Hyperparameters.from_log(log_theta))
    for j, e in enumerate(np.eye(4)[:3] * 1e-6):
        plus = KERNELS[name](x, z, Hyperparameters.from_log(log_theta + e))
        minus = KERNELS[name](x, z, Hyperparameters.from_log(log_theta - e))
        assert np.allclose(analytic[j], (plus - minus) / 2e-6, rtol=1e-6, atol=1e-8)


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 4), st.sampled_from(sorted(KERNELS)), st.floats(-1e6, 1e6))
def test_symmetric_positive_and_shift_invariant(seed: int, dimension: int, name: str, shift: float) -> None:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (12, dimension))
    h = Hyperparameters(tuple(rng.uniform(0.3, 3.0, dimension)), 1.0, 0.1)
    value = KERNELS[name](x, None, h)
    assert np.array_equal(np.diagonal(value), np.ones(12))
    assert np.allclose(value, value.T, atol=1e-14)
    assert np.linalg.eigvalsh(value).min() > -1e-12
    # Far from the origin nothing is lost but the rounding of the coordinates themselves.
    assert np.allclose(KERNELS[name](x + shift, None, h), value, atol=1e-3 if name == "matern12" else 1e-6)


def test_distance_to_itself_is_exactly_zero(rng: np.random.Generator) -> None:
    s = scaled_squared_distance(1e8 + rng.standard_normal((30, 2)))
    assert (np.diagonal(s) == 0.0).all()
    assert (s >= 0.0).all()


def test_unknown_kernel_lists_the_choices() -> None:
    with pytest.raises(InputError, match="se, matern12, matern32, matern52"):
        as_kernel("rbf")


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("width", [1.0, 1e4])
def test_equal_points_have_the_whole_covariance_in_every_matrix(
    name: str, width: float, rng: np.random.Generator
) -> None:
    """|a|^2 + |b|^2 - 2ab of equal points is rounding, not zero, and matern12 takes its root."""
    x = width * rng.uniform(size=(40, 2))
    x = np.concatenate([x, x])
    h = Hyperparameters((0.5, 0.3), 1.5, 0.1)
    within, across = KERNELS[name](x, None, h), KERNELS[name](x[3:], x[:50], h)
    assert (np.diagonal(within, offset=40) == 1.5**2).all()
    assert (np.diagonal(across, offset=3) == 1.5**2).all()
    assert (np.diagonal(across, offset=-37) == 1.5**2).all()


def test_close_points_have_their_distance_far_from_the_centre(rng: np.random.Generator) -> None:
    x = 1e3 * rng.uniform(size=(30, 2))
    near = x + 1e-5
    s = scaled_squared_distance(x, near)
    np.testing.assert_allclose(np.diagonal(s), ((near - x) ** 2).sum(axis=1), rtol=1e-12)


@pytest.mark.parametrize("name", KERNELS)
def test_a_matrix_between_two_sets_is_ready_for_lapack(name: str, rng: np.random.Generator) -> None:
    """In Fortran's order, its entries those of the matrix of both sets."""
    x, h = rng.standard_normal((9, 2)), Hyperparameters((0.5, 0.3), 1.5, 0.1)
    across = KERNELS[name](x[:4], x[4:], h)
    assert across.flags.f_contiguous
    np.testing.assert_allclose(across, KERNELS[name](x, None, h)[:4, 4:], rtol=1e-12)
