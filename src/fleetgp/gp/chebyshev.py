"""One-dimensional Chebyshev expansions on [-1, 1], and how many terms the squared exponential needs.

On an interval the kernel exp(-h^2 (t - t')^2), h = half the interval's width over the length-scale, is to any
accuracy a short expansion T(t) A T(t')' in Chebyshev polynomials.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.fft import dct

from fleetgp.arrays import Array


def nodes(count: int) -> Array:
    """The Chebyshev nodes of the first kind on [-1, 1]."""
    return np.cos(np.pi * (np.arange(count) + 0.5) / count)


def polynomials(positions: Array, count: int) -> Array:
    """T_0 .. T_(count-1) at positions in [-1, 1], (count, N), by a recurrence for their differences.

    T_k+1 - T_k = T_k - T_k-1 + 2 (t - 1) T_k keeps all digits near t = 1, and with the parity of T_k near t = -1, where
    the usual recurrence for T_k itself loses k^2 units in the last place.

    >>> t = -1 + 1e-4
    >>> bool(abs(polynomials(np.array([t]), 181)[180, 0] - np.cos(180 * np.arccos(np.longdouble(t)))) < 1e-14)
    True
    """
    values = np.empty((count, len(positions)))
    values[0] = 1.0
    if count > 1:
        distance = np.abs(positions) - 1.0
        difference = distance.copy()
        values[1] = np.abs(positions)
        step = np.empty_like(distance)
        distance *= 2.0
        for k in range(2, count):
            np.multiply(distance, values[k - 1], out=step)
            difference += step
            np.add(values[k - 1], difference, out=values[k])
        values[1::2] *= np.where(positions < 0.0, -1.0, 1.0)
    return values


def coefficients(values: Array) -> Array:
    """Values of a function of two variables on the nodes, (p, p) -> its Chebyshev coefficients."""
    count = len(values)
    both = dct(dct(values, axis=0), axis=1) / count**2
    both[0] *= 0.5
    both[:, 0] *= 0.5
    return np.asarray(both, dtype=float)


@lru_cache(maxsize=256)
def at_nodes(count: int, fine: int) -> Array:
    """(fine, count): T_0 .. T_(count-1) on `fine` nodes, from the nodes' angles.

    A node is rounded, and T_k has a slope of up to k^2 there; its angle, in whole parts of the circle, is not.
    """
    turns = np.outer(2 * np.arange(fine) + 1, np.arange(count)) % (4 * fine)
    return np.asarray(np.cos(turns * (np.pi / (2 * fine))))


@lru_cache(maxsize=256)
def to_nodes(count: int) -> Array:
    """(count, count): Chebyshev moments sum_n T_k(t_n) -> weights on the nodes with the same moments.

    A polynomial f of degree below `count` then has sum_n f(t_n) = sum_i weight_i f(node_i).
    """
    matrix = at_nodes(count, count) * (2.0 / count)
    matrix[:, 0] *= 0.5
    return matrix


@lru_cache(maxsize=256)
def interpolation(coarse: int, fine: int) -> Array:
    """(fine, coarse): values of a polynomial on `coarse` nodes -> its values on `fine` nodes."""
    return np.asarray(at_nodes(coarse, fine) @ to_nodes(coarse).T)


@lru_cache(maxsize=256)
def fejer_weights(count: int) -> Array:
    """Quadrature weights of the nodes for the uniform distribution on [-1, 1]; they sum to 1."""
    k = np.arange(0, count, 2)
    return np.asarray(to_nodes(count)[:, k] @ (1.0 / (1.0 - k**2)))


#: Semi-axes b and b' of the Bernstein ellipses over which the bound below is minimized.
_WIDE = np.geomspace(1e-3, 1e3, 241)[:, None]
_NARROW = np.geomspace(1e-3, 10.0, 41)[None, :]
_SQUARES = (_WIDE + _NARROW) ** 2
#: log rho of the wide ellipses, and log of the geometric sums of rho^-j and rho'^-k.
_LOG_RHO = np.arcsinh(_WIDE)
_LOG_SUMS = -np.log1p(-np.exp(-_LOG_RHO)) - np.log1p(-np.exp(-np.arcsinh(_NARROW)))
#: The logarithm of the largest bound: far above any use, and far below overflow.
_LARGEST = 600.0


def expansion_error(count: int, h: float) -> float:
    """A bound on the sum of |coefficients| of what p = count nodes miss of exp(-h^2 (t - t')^2).

    The kernel is entire; on the ellipses with semi-axes b, b' in the imaginary direction (rho = b + sqrt(b^2 + 1))
    it is at most exp(h^2 (b + b')^2), so its coefficients are at most 4 exp(h^2 (b + b')^2) rho^-j rho'^-k. What lies
    beyond p in either direction is folded back by interpolation, hence twice the tail of both.

    >>> expansion_error(40, 2.0) < 1e-15 < expansion_error(20, 2.0)
    True
    """
    if h == 0.0:
        return 0.0
    tail = h**2 * _SQUARES - count * _LOG_RHO + _LOG_SUMS
    return float(16.0 * np.exp(min(tail.min(), _LARGEST)))


def degree_for(h: float, error: float) -> int:
    """The smallest number of nodes whose `expansion_error` is at most `error`.

    >>> degree_for(0.0, 1e-18), degree_for(2.0, 1e-15) < degree_for(4.0, 1e-15) < degree_for(4.0, 1e-20)
    (1, True)
    """
    if h == 0.0:
        return 1
    low, high = 1, 8
    while expansion_error(high, h) > error:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if expansion_error(middle, h) <= error else (middle, high)
    return high
