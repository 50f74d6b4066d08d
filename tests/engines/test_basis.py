"""Chebyshev expansions and the basis of the squared exponential on a box."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.engines.basis import (
    Basis,
    Box,
    coefficients,
    degree_for,
    expansion_error,
    fejer_weights,
    interpolation,
    nodes,
)
from fleetgp.model.hyperparameters import Hyperparameters
from tests.engines.moments.problems import SE, THETA


@settings(max_examples=40)
@given(st.floats(0.01, 12.0), st.integers(2, 60))
def test_expansion_error_bounds_the_true_tail(h: float, count: int) -> None:
    t = nodes(160)
    tail = np.abs(coefficients(np.exp(-((h * (t[:, None] - t)) ** 2))))
    tail[:count, :count] = 0.0
    bound = expansion_error(count, h)
    assert tail.sum() <= bound + 1e-12
    x = np.linspace(-1, 1, 101)
    grid = nodes(count)
    to_x = np.polynomial.chebyshev.chebvander(x, count - 1) @ np.linalg.inv(
        np.polynomial.chebyshev.chebvander(grid, count - 1)
    )
    interpolated = to_x @ np.exp(-((h * (grid[:, None] - grid)) ** 2)) @ to_x.T
    assert np.abs(interpolated - np.exp(-((h * (x[:, None] - x)) ** 2))).max() <= bound + 1e-11
    assert expansion_error(degree_for(h, 1e-15), h) <= 1e-15


def test_chebyshev_tables() -> None:
    rng = np.random.default_rng(0)
    poly = np.polynomial.Polynomial(rng.standard_normal(7))
    assert np.allclose(interpolation(8, 21) @ poly(nodes(8)), poly(nodes(21)))
    assert fejer_weights(9) @ poly(nodes(9)) == pytest.approx((poly.integ()(1) - poly.integ()(-1)) / 2)


def test_basis_reproduces_the_kernel_and_is_short() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 2, (200, 2))
    h = Hyperparameters.from_theta(THETA)
    box = Box.around(x)
    counts = tuple(degree_for(float(r), 1e-20) for r in box.half / THETA[:2])
    features = Basis(h, box, counts, 1e-14).at(x)
    assert np.abs(features @ features.T - SE(x, None, h)).max() < 1e-10
    assert features.shape[1] < np.prod(counts) / 4
