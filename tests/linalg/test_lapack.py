"""LAPACK's routines against NumPy's, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from fleetgp.linalg import cholesky
from tests.conftest import positive_definite


@pytest.mark.parametrize("size", [1, 7, 32, 33, 64, 65, 130])
def test_lapack_routines(size: int, rng: np.random.Generator) -> None:
    matrix = positive_definite(rng, size)
    lower = matrix.copy(order="F")
    assert cholesky.cholesky_in_place(lower)
    assert np.allclose(np.tril(lower), np.linalg.cholesky(matrix))
    right = np.asfortranarray(rng.standard_normal((size, 3)))
    solved, half, product = (right.copy(order="F") for _ in range(3))
    cholesky.solve_in_place(lower, solved)
    assert np.allclose(matrix @ solved, right)
    cholesky.half_solve_in_place(lower, half)
    assert np.allclose(np.tril(lower) @ half, right)
    cholesky.multiply_triangle_in_place(lower, product)
    assert np.allclose(product, np.tril(lower) @ right)
    cholesky.inverse_in_place(lower)
    assert np.allclose(np.tril(lower), np.tril(np.linalg.inv(matrix)))


def test_lapack_refuses_what_it_would_misread() -> None:
    assert not cholesky.cholesky_in_place(np.asfortranarray([[1.0, 2.0], [2.0, 1.0]]))
    for wrong in (np.ones((2, 2), dtype=np.float32, order="F"), np.arange(6.0).reshape(2, 3)[:, :2]):
        with pytest.raises(TypeError, match="Fortran"):
            cholesky.cholesky_in_place(wrong)  # type: ignore[arg-type]
