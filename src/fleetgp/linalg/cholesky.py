"""The robust Cholesky factorization: jitter is escalated, reported, and never hidden."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array
from fleetgp.linalg import lapack

#: Tried in turn, relative to the mean of the diagonal.
JITTERS = (0.0, 1e-12, 1e-10, 1e-8, 1e-6)


@dataclass(frozen=True)
class Cholesky:
    """C + jitter I = L L'. `lower` is Fortran-ordered; its upper triangle holds no meaning."""

    lower: Array
    jitter: float

    @property
    def log_determinant(self) -> float:
        return 2.0 * float(np.log(np.diagonal(self.lower)).sum())

    def solve(self, right: Array) -> Array:
        """C^-1 right, for a vector or the columns of a matrix."""
        solution = np.array(right, dtype=float, order="F")
        lapack.solve_in_place(self.lower, solution)
        return solution

    def half_solve(self, right: Array) -> Array:
        """L^-1 right: squared column norms are quadratic forms with C^-1."""
        return self.half_solve_in_place(np.array(right, dtype=float, order="F"))

    def half_solve_in_place(self, right: Array) -> Array:
        """L^-1 right, written over `right`, which is Fortran-ordered: no copy of it is made."""
        lapack.half_solve_in_place(self.lower, right)
        return right

    def inverse_in_place(self) -> Array:
        """The lower triangle of C^-1, written over the factor, which is lost."""
        lapack.inverse_in_place(self.lower)
        return self.lower


def factorize(covariance: Array, noise_variance: float | Array, *, pivot: float = 0.0) -> Cholesky | None:
    """Factorize covariance + noise_variance I, with the smallest jitter that works; None if none does.

    noise_variance: of all points, or of each its own, (N,).
    `covariance` (N, N) is symmetric and stays as it is. A squared pivot below `pivot` times the mean of the
    diagonal counts as a failure: rounding can let a singular matrix pass.
    """
    scale = float(np.trace(covariance)) / len(covariance) + float(np.mean(noise_variance))
    work = np.empty_like(covariance, order="C")
    return factorize_in_place(work.T, lambda: np.copyto(work, covariance), noise_variance, scale, pivot=pivot)


def factorize_in_place(
    work: Array, fill: Callable[[], object], noise_variance: float | Array, scale: float, *, pivot: float = 0.0
) -> Cholesky | None:
    """As `factorize`, in `work` (Fortran-ordered), which `fill` fills with the covariance before each attempt.

    scale: what jitter is relative to, the mean of the diagonal with noise.
    """
    if not np.isfinite(scale):
        return None
    diagonal = work.ravel(order="K")[:: len(work) + 1]
    for relative in JITTERS:
        fill()
        diagonal += noise_variance + relative * scale
        if not lapack.cholesky_in_place(work):
            continue
        # A NaN anywhere ends up in the last pivot.
        if np.isfinite(diagonal[-1]) and diagonal.min() ** 2 >= pivot * scale:
            return Cholesky(work, relative * scale)
    return None
