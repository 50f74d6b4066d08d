"""The robust Cholesky factorization: jitter is escalated, reported, and never hidden."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from fleetgp.arrays import Array

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
        solution, _ = lapack.dpotrs(self.lower, right, lower=1)
        return np.asarray(solution, dtype=float).reshape(right.shape)

    def half_solve(self, right: Array) -> Array:
        """L^-1 right: squared column norms are quadratic forms with C^-1."""
        solution, _ = lapack.dtrtrs(self.lower, right, lower=1)
        return np.asarray(solution, dtype=float).reshape(right.shape)

    def inverse_in_place(self) -> Array:
        """The lower triangle of C^-1, written over the factor, which is lost."""
        inverse, _ = lapack.dpotri(self.lower, lower=1, overwrite_c=1)
        return np.asarray(inverse, dtype=float)


def factorize(covariance: Array, noise_variance: float, *, pivot: float = 0.0) -> Cholesky | None:
    """Factorize covariance + noise_variance I, with the smallest jitter that works; None if none does.

    `covariance` (N, N) is symmetric and stays as it is. A squared pivot below `pivot` times the mean of the
    diagonal counts as a failure: rounding can let a singular matrix pass.
    """
    size = len(covariance)
    if not (np.isfinite(noise_variance) and np.isfinite(covariance).all()):
        return None
    scale = float(np.trace(covariance)) / size + noise_variance
    for relative in JITTERS:
        work = covariance.copy()
        work.flat[:: size + 1] += noise_variance + relative * scale
        lower, info = lapack.dpotrf(work.T, lower=1, clean=0, overwrite_a=1)
        if info == 0 and np.isfinite(lower[-1, -1]) and np.diagonal(lower).min() ** 2 >= pivot * scale:
            return Cholesky(lower, relative * scale)
    return None
