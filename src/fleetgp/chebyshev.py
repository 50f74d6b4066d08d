"""One-dimensional Chebyshev expansions of a stationary kernel on an interval.

On an interval a smooth kernel is, to rounding, a short expansion k(x, x') = T(x) A T(x')', with T(x) the
Chebyshev polynomials of the position in the interval and A from a cosine transform of the kernel on
Chebyshev nodes.
"""

from __future__ import annotations

import numpy as np
from scipy.fft import dct

from fleetgp.arrays import Array


def nodes(count: int) -> Array:
    """The Chebyshev nodes of the first kind on [-1, 1]."""
    return np.cos(np.pi * (np.arange(count) + 0.5) / count)


def polynomials(positions: Array, count: int) -> Array:
    """T_0 .. T_(count-1) at positions in [-1, 1], (N, count)."""
    return np.cos(np.arange(count) * np.arccos(np.clip(positions, -1.0, 1.0))[:, None])


def coefficients(values: Array) -> Array:
    """Values of a function of two variables on the nodes, (p, p) -> its Chebyshev coefficients."""
    count = len(values)
    both = dct(dct(values, axis=0), axis=1) / count**2
    both[0] *= 0.5
    both[:, 0] *= 0.5
    return np.asarray(both, dtype=float)


def degree_for(width_over_scale: float) -> int:
    """How many polynomials exp(-(x - x')^2 / l^2) needs for rounding accuracy, for a box of width / l."""
    return int(np.ceil(24 + 7.5 * width_over_scale))
