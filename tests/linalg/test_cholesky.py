"""The robust Cholesky factorization against NumPy, and what it does where a matrix is not positive definite."""

from __future__ import annotations

import numpy as np
import pytest

from fleetgp.linalg.cholesky import JITTERS, factorize
from tests.conftest import positive_definite

NOISE = 0.3


def test_solves_as_numpy_does(rng: np.random.Generator) -> None:
    matrix, right = positive_definite(rng, 20), rng.standard_normal((20, 3))
    whole = matrix + NOISE * np.eye(20)
    before = matrix.copy()
    factor = factorize(matrix, NOISE)
    assert factor is not None
    assert factor.jitter == 0.0
    assert np.array_equal(matrix, before)
    assert np.isclose(factor.log_determinant, np.linalg.slogdet(whole)[1])
    assert np.allclose(factor.solve(right), np.linalg.solve(whole, right))
    half = factor.half_solve(right)
    assert np.allclose(half.T @ half, right.T @ np.linalg.solve(whole, right))
    # In place the same, to the bit, and nowhere else.
    own = right.copy(order="F")
    assert factor.half_solve_in_place(own) is own
    assert np.array_equal(own, half)
    assert np.allclose(np.tril(factor.inverse_in_place()), np.tril(np.linalg.inv(whole)))


@pytest.mark.parametrize("jitter", JITTERS[1:])
def test_takes_the_smallest_jitter_that_works_and_says_so(jitter: float) -> None:
    """The eigenvalues of this matrix are 2 and a little less than zero: three times closer to it than the jitter."""
    below = jitter / 3.0
    factor = factorize(np.array([[1.0, 1.0 + below], [1.0 + below, 1.0]]), 0.0)
    assert factor is not None
    assert factor.jitter == jitter


@pytest.mark.parametrize("matrix", [-np.eye(3), np.full((3, 3), np.nan), np.diag([1.0, np.inf, 1.0])])
def test_none_where_no_jitter_is_enough(matrix: np.ndarray) -> None:
    assert factorize(matrix, 0.0) is None


def test_a_small_pivot_counts_as_a_failure() -> None:
    """Rounding lets a singular matrix pass; a squared pivot of 1e-9 is ten times away from either limit."""
    nearly = np.diag([1.0, 1e-9])
    passed, refused = factorize(nearly, 0.0, pivot=1e-10), factorize(nearly, 0.0, pivot=1e-7)
    assert passed is not None
    assert passed.jitter == 0.0
    assert refused is not None
    assert refused.jitter == pytest.approx(0.5e-6)
