"""What `compiled` does, in NumPy and one expert at a time; and with jitter, where C is not positive definite."""

from __future__ import annotations

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.kernels.stationary import scaled_squared_distance
from fleetgp.linalg.cholesky import factorize_in_place

#: Rows that are worked on at a time, so that what they need stays in cache.
ROWS = 64


def squared_distances(z: Array, s: Array) -> None:
    """s (B, P) between the columns of z (B, D, N)."""
    upper = _upper(z.shape[2])
    for points, pairs in zip(z, s, strict=True):
        pairs[:] = scaled_squared_distance(points.T)[upper]


def likelihood(
    profile: Array,
    slope: Array,
    work: Array,
    z: Array,
    y: Array,
    signal: float,
    noise: Array,
    found: Array,
    precision: Array,
) -> float | None:
    """The jitter, with nll and gradient in found (1 + D + 2,); None where no jitter is enough.

    From phi and -phi' (P,), z (D, N), y (N,), and the variances of f and of each observation's noise (N,). The last
    derivative is that of a noise that is the same for all. For any other, precision (N,) gets the diagonal of B; (0,)
    where it is not needed. work (N, N) is overwritten.
    """
    size = len(y)
    upper = _upper(size)
    diagonal = work.ravel()[:: size + 1]

    def fill() -> None:
        work[upper] = signal * profile
        diagonal[:] = signal

    same = float(noise[0])
    level = same if (noise == same).all() else float(noise.mean())
    factor = factorize_in_place(work.T, fill, noise, signal + level)
    if factor is None:
        return None
    alpha = factor.solve(y)
    found[0] = 0.5 * (float(y @ alpha) + factor.log_determinant)
    factor.inverse_in_place()
    trace = float(diagonal.sum() - alpha @ alpha)
    if len(precision):
        precision[:] = diagonal - alpha**2
    for rows in np.array_split(np.arange(size), -(-size // ROWS)):
        work[rows[0] : rows[-1] + 1] -= alpha[rows, None] * alpha
    b = work[upper]
    total = float(b @ profile)
    # sum_ij w_ij (z_i - z_j)^2 over the pairs, from the sums of the rows and columns of the upper triangle w
    work.fill(0.0)
    work[upper] = np.multiply(b, slope, out=b)
    sums = work.sum(axis=0) + work.sum(axis=1)
    scales = (z**2) @ sums - 2.0 * ((z @ work) * z).sum(axis=1)
    found[1:] = [*(2.0 * signal * scales), signal * (trace + 2.0 * total), same * trace]
    return factor.jitter


def _upper(size: int) -> BoolArray:
    """Where the pairs i < j are in a matrix."""
    return ~np.tri(size, dtype=bool)
