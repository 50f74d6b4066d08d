"""The arithmetic of stacks of likelihoods as two compiled calls without the interpreter lock. Needs Numba.

Threads over agents then scale with the cores: in NumPy each step of a small matrix is so short that handing over
the interpreter lock costs more than the step. `likelihood` does the same without Numba.

Pairs (i, j) of points with i < j are in the order of the rows of the upper triangle; P = N (N - 1) / 2.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fleetgp.arrays import Array
from fleetgp.linalg import cholesky
from fleetgp.linalg.exponential import exp

__all__ = ["exp", "likelihoods", "squared_distances"]

# Sums may be reordered, so that they use vector instructions. NaN and infinity keep their meaning.
_compiled = njit(nogil=True, fastmath={"reassoc", "contract"}, error_model="numpy")

_cholesky = _compiled(cholesky.cholesky_at)
_solve = _compiled(cholesky.solve_at)
_invert_triangle = _compiled(cholesky.invert_triangle_at)
_square_triangle = _compiled(cholesky.square_triangle_at)


@_compiled
def squared_distances(z: Array, s: Array) -> None:
    """s (B, P) between the columns of z (B, D, N)."""
    batch, dimension, size = z.shape
    for b in range(batch):
        end = 0
        for i in range(size):
            start, end = end, end + size - 1 - i
            row = s[b, start:end]
            for d in range(dimension):
                here, others = z[b, d, i], z[b, d, i + 1 :]
                for j in range(len(row)):
                    square = (others[j] - here) ** 2
                    row[j] = square if d == 0 else row[j] + square


@_compiled
def likelihoods(
    profile: Array,
    slope: Array,
    work: Array,
    z: Array,
    y: Array,
    signal: Array,
    noise: Array,
    result: Array,
    precision: Array,
) -> None:
    """result (B, 1 + D + 2), nll and gradient, from phi and -phi' (B, P), z (B, D, N), y (B, N), and the variances of f
    (B,) and of each observation's noise (B, N).

    The formulas are those of `likelihood`; the last derivative is that of a noise that is the same for all. For any
    other, precision (B, N) gets the diagonals of B; (B, 0) where they are not needed. A row of NaN where C is not
    positive definite. work (N, N) is overwritten; its upper triangle is LAPACK's lower one.
    """
    batch, dimension, size = z.shape
    address = work.ctypes.data
    for b in range(batch):
        for column in range(1 + dimension + 2):
            result[b, column] = np.nan
        end = 0
        for i in range(size):
            start, end = end, end + size - 1 - i
            row, phi = work[i, i + 1 :], profile[b, start:end]
            work[i, i] = signal[b] + noise[b, i]
            for j in range(len(row)):
                row[j] = signal[b] * phi[j]
        if _cholesky(address, size) != 0 or not np.isfinite(work[size - 1, size - 1]):
            continue
        log_determinant = 0.0
        for i in range(size):
            log_determinant += 2.0 * np.log(work[i, i])
        alpha = y[b].copy()
        _solve(address, size, alpha.ctypes.data, 1)
        _invert_triangle(address, size)
        _square_triangle(address, size)
        quadratic = 0.0
        for i in range(size):
            quadratic += y[b, i] * alpha[i]
        result[b, 0] = 0.5 * (quadratic + log_determinant)
        for i in range(precision.shape[1]):
            precision[b, i] = work[i, i] - alpha[i] * alpha[i]
        _gradient(work, alpha, profile[b], slope[b], z[b], signal[b], noise[b, 0], result[b, 1:])


@_compiled
def _gradient(
    inverse: Array,
    alpha: Array,
    profile: Array,
    slope: Array,
    z: Array,
    signal: float,
    noise: float,
    gradient: Array,
) -> None:
    """From the upper triangle of C^-1, which is overwritten."""
    dimension, size = z.shape
    for d in range(dimension):
        gradient[d] = 0.0
    trace, total, end = 0.0, 0.0, 0
    for i in range(size):
        start, end = end, end + size - 1 - i
        row, phi, descent, others = inverse[i, i + 1 :], profile[start:end], slope[start:end], alpha[i + 1 :]
        trace += inverse[i, i] - alpha[i] * alpha[i]
        for j in range(len(row)):
            b = row[j] - alpha[i] * others[j]
            total += b * phi[j]
            row[j] = b * descent[j]
        for d in range(dimension):
            here, there, share = z[d, i], z[d, i + 1 :], 0.0
            for j in range(len(row)):
                share += row[j] * (there[j] - here) ** 2
            gradient[d] += 2.0 * signal * share
    gradient[dimension] = signal * (trace + 2.0 * total)
    gradient[dimension + 1] = noise * trace
