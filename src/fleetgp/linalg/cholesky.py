"""The robust Cholesky factorization: jitter is escalated, reported, and never hidden."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array
from fleetgp.linalg import lapack

#: Tried in turn, relative to the mean of the diagonal.
JITTERS = (0.0, 1e-12, 1e-10, 1e-8, 1e-6)
#: Squared pivots must be at least this part of the noise variance, which is what they are without any rounding.
CERTAIN = 0.9


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

    def certain(self, noise_variance: float | Array) -> bool:
        """Whether no squared pivot is below the noise: else rounding is larger than that, and nothing is certain."""
        return self.jitter == 0.0 and not (np.diagonal(self.lower) ** 2 < CERTAIN * noise_variance).any()

    def extended(self, cross: Array, corner: Array, noise_variance: Array) -> Cholesky | None:
        r"""That of more points, of which only the new ones are worked on; None where it is not certain to be so.

            [C       cross ]   [L 0] [L 0]'
            [cross'  corner] = [B S] [B S]      B = cross' L'^-1      S S' = corner - B B'

        cross: (N, k).  corner: (k, k) without its noise, of which noise_variance is (k,). Both stay as they are.

        >>> points = np.random.default_rng(0).standard_normal((5, 9))
        >>> whole = points @ points.T
        >>> first = factorize(whole[:3, :3], 1.0)
        >>> more = first.extended(whole[:3, 3:], whole[3:, 3:], np.ones(2))
        >>> bool(np.allclose(np.tril(more.lower), np.tril(factorize(whole, 1.0).lower)))
        True
        """
        if self.jitter > 0.0:
            return None
        below = self.half_solve(cross)
        last = factorize(corner - below.T @ below, noise_variance)
        if last is None or not last.certain(noise_variance):
            return None
        old, size = len(self.lower), len(self.lower) + len(corner)
        lower = np.empty((size, size), order="F")
        lower[:old, :old], lower[old:, :old], lower[old:, old:] = self.lower, below.T, last.lower
        return Cholesky(lower, 0.0)

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
