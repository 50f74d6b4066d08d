"""Conditional densities and means of many points, eight at a time. Needs Numba.

Every array of a batch ends with an axis of LANES points, over which the innermost loops run: all points do the same
arithmetic, whatever the number of neighbours, and vector instructions serve all lanes at once. What a point gets does
not depend on the others of its batch. `plain` does the same without Numba, and has the formulas.

Pairs (p, q) with q < p are in the order of the rows of the lower triangle; the point itself is the last row, m.
"""

from __future__ import annotations

import math

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.engines.vecchia.ordering import Neighbours
from fleetgp.kernels.stationary import Matern12, Matern32, Matern52, SquaredExponential, Stationary
from fleetgp.linalg.compiling import kept
from fleetgp.linalg.exponential import exp

#: Points of a batch.
LANES = 8
SE, MATERN12, MATERN32, MATERN52 = 0, 1, 2, 3
KINDS: dict[type[Stationary], int] = {
    SquaredExponential: SE,
    Matern12: MATERN12,
    Matern32: MATERN32,
    Matern52: MATERN52,
}


@kept
def _distances(z: Array, s: Array) -> None:
    """s (P, LANES), squared, between the places z (D, m + 1, LANES)."""
    dimension, size, _ = z.shape
    pair = 0
    for p in range(1, size):
        for q in range(p):
            for w in range(LANES):
                s[pair, w] = (z[0, p, w] - z[0, q, w]) ** 2
            for d in range(1, dimension):
                for w in range(LANES):
                    s[pair, w] += (z[d, p, w] - z[d, q, w]) ** 2
            pair += 1


@kept
def profile(kind: int, pairs: Array, profiles: Array) -> None:
    """phi(s) into `profiles`, and -phi'(s) over `pairs`, which have s: `kernels` has the formulas."""
    s, phi = pairs.reshape(pairs.size), profiles.reshape(pairs.size)
    if kind == SE:
        for i in range(s.size):
            phi[i] = -s[i]
        decay = exp(phi)
        for i in range(s.size):
            phi[i] = decay[i]
            s[i] = decay[i]
        return
    factor = 1.0 if kind == MATERN12 else 3.0 if kind == MATERN32 else 5.0
    for i in range(s.size):
        phi[i] = -math.sqrt(factor * s[i])
    decay = exp(phi)
    if kind == MATERN12:
        for i in range(s.size):
            r = -phi[i]
            phi[i] = decay[i]
            s[i] = 0.5 * decay[i] / r if r > 0.0 else 0.0
    elif kind == MATERN32:
        for i in range(s.size):
            phi[i] = (1.0 - phi[i]) * decay[i]
            s[i] = 1.5 * decay[i]
    else:
        for i in range(s.size):
            r = -phi[i]
            phi[i] = (1.0 + r + r * r / 3.0) * decay[i]
            s[i] = (5.0 / 6.0) * (1.0 + r) * decay[i]


@kept
def factorized(a: Array, y: Array, diagonal: Array, scales: Array, solved: Array, left: Array) -> None:
    """The Cholesky factor of C over its lower triangle a (P, LANES), whose last row becomes b = L^-1 k.

    diagonal (m + 1, LANES): of C.  scales (m, LANES): one over the factor's diagonal.  solved (m, LANES): c = L^-1 y.
    left (2, LANES): the conditional variance, and what the last of y is beyond its conditional mean. NaN, or a variance
    that is not positive, where C is not positive definite.
    """
    last = len(y) - 1
    for p in range(last + 1):
        row = p * (p - 1) // 2
        for q in range(p):
            column = q * (q - 1) // 2
            for w in range(LANES):
                left[0, w] = a[row + q, w]
            for k in range(q):
                for w in range(LANES):
                    left[0, w] -= a[row + k, w] * a[column + k, w]
            for w in range(LANES):
                a[row + q, w] = left[0, w] * scales[q, w]
        for w in range(LANES):
            left[0, w] = diagonal[p, w]
            left[1, w] = y[p, w]
        for k in range(p):
            for w in range(LANES):
                left[0, w] -= a[row + k, w] * a[row + k, w]
            for w in range(LANES):
                left[1, w] -= a[row + k, w] * solved[k, w]
        if p < last:
            for w in range(LANES):
                scales[p, w] = 1.0 / math.sqrt(left[0, w])
            for w in range(LANES):
                solved[p, w] = left[1, w] * scales[p, w]


@kept
def back(a: Array, scales: Array, right: Array) -> None:
    """L'^-1 right, over right (m, LANES)."""
    for p in range(len(scales) - 1, -1, -1):
        row = p * (p - 1) // 2
        for w in range(LANES):
            right[p, w] *= scales[p, w]
        for q in range(p):
            for w in range(LANES):
                right[q, w] -= a[row + q, w] * right[p, w]


@kept
def last_row(a: Array, row: Array) -> None:
    """b = L^-1 k, (m, LANES)."""
    start = len(a) - len(row)
    for p in range(len(row)):
        for w in range(LANES):
            row[p, w] = a[start + p, w]


@kept
def _solve(
    kind: int,
    z: Array,
    values: Array,
    diagonal: Array,
    slope: Array,
    a: Array,
    scales: Array,
    alpha: Array,
    left: Array,
    weighted: Array,
) -> None:
    """C^-1 k into `weighted`, L^-1 y into `alpha`, and the rest as above."""
    _distances(z, slope)
    profile(kind, slope, a)
    factorized(a, values, diagonal, scales, alpha, left)
    last_row(a, weighted)
    back(a, scales, weighted)


@kept
def adjoint(left: Array, weighted: Array, alpha: Array, u: Array, t: Array) -> None:
    """u and t (m + 1, LANES) of `plain`, from what is left, C^-1 k and C^-1 y."""
    size = len(weighted)
    for w in range(LANES):
        t[size, w] = 0.5 * (1.0 - left[1, w] * left[1, w] / left[0, w]) / left[0, w]
        u[size, w] = 1.0
    for p in range(size):
        for w in range(LANES):
            u[p, w] = -weighted[p, w]
            t[p, w] = -t[size, w] * weighted[p, w] - left[1, w] / left[0, w] * alpha[p, w]


@kept
def _slopes(z: Array, slope: Array, u: Array, t: Array, total: Array) -> None:
    """total (D, LANES): the sum over all pairs, both ways, of u_p t_q dC_pq / d log l_d. slope (P, LANES) is lost."""
    dimension, size, _ = z.shape
    for d in range(dimension):
        for w in range(LANES):
            total[d, w] = 0.0
    pair = 0
    for p in range(1, size):
        for q in range(p):
            for w in range(LANES):
                slope[pair, w] *= 2.0 * (u[p, w] * t[q, w] + u[q, w] * t[p, w])
            for d in range(dimension):
                for w in range(LANES):
                    total[d, w] += slope[pair, w] * (z[d, p, w] - z[d, q, w]) ** 2
            pair += 1


@kept
def _room(dimension: int, size: int) -> tuple[Array, Array, Array, Array, Array, Array, Array, Array]:
    """Arrays for a batch: places, values, -phi', the factor, its diagonal, C^-1 y, what is left, and C^-1 k."""
    pairs = size * (size + 1) // 2
    return (
        np.empty((dimension, size + 1, LANES)),
        np.empty((size + 1, LANES)),
        np.empty((pairs, LANES)),
        np.empty((pairs, LANES)),
        np.empty((size, LANES)),
        np.empty((size, LANES)),
        np.empty((2, LANES)),
        np.empty((size, LANES)),
    )


@kept
def conditionals(
    kind: int, places: Array, y: Array, rows: IntArray, near: Neighbours, ratio: float, found: Array
) -> None:
    """found (n, 1 + D + 2) as `plain.conditionals` has it, of the points `rows` with neighbours near (n, m).

    NaN or infinity where a covariance is not positive definite.
    """
    count, size = near.shape
    dimension = places.shape[1]
    z, values, slope, a, scales, alpha, left, weighted = _room(dimension, size)
    diagonal = np.full((size + 1, LANES), 1.0 + ratio)
    u, t = np.empty((size + 1, LANES)), np.empty((size + 1, LANES))
    total, trace = np.empty((dimension, LANES)), np.empty(LANES)
    for start in range(0, count, LANES):
        for w in range(LANES):
            row = min(start + w, count - 1)
            for p in range(size + 1):
                j = rows[row] if p == size else near[row, p]
                values[p, w] = y[j]
                for d in range(dimension):
                    z[d, p, w] = places[j, d]
        _solve(kind, z, values, diagonal, slope, a, scales, alpha, left, weighted)
        back(a, scales, alpha)
        adjoint(left, weighted, alpha, u, t)
        for w in range(LANES):
            trace[w] = 0.0
        for p in range(size + 1):
            for w in range(LANES):
                trace[w] += u[p, w] * t[p, w]
        _slopes(z, slope, u, t, total)
        for w in range(min(LANES, count - start)):
            square = left[1, w] * left[1, w] / left[0, w]
            found[start + w, 0] = 0.5 * (math.log(left[0, w]) + square)
            for d in range(dimension):
                found[start + w, 1 + d] = total[d, w]
            found[start + w, 1 + dimension] = square
            found[start + w, 2 + dimension] = ratio * trace[w]


@kept
def means(
    kind: int, places: Array, y: Array, queries: Array, near: Neighbours, ratio: float, found: Array, weights: Array
) -> None:
    """found (T, 2): mean and what is explained of a prior variance of 1, and the weights (T, m) of the observations.

    NaN, or more than 1 explained, where a covariance is not positive definite.
    """
    count, size = near.shape
    dimension = places.shape[1]
    z, values, slope, a, scales, alpha, left, weighted = _room(dimension, size)
    diagonal = np.full((size + 1, LANES), 1.0 + ratio)
    for start in range(0, count, LANES):
        for w in range(LANES):
            row = min(start + w, count - 1)
            for p in range(size):
                values[p, w] = y[near[row, p]]
            values[size, w] = 0.0
            for d in range(dimension):
                for p in range(size):
                    z[d, p, w] = places[near[row, p], d]
                z[d, size, w] = queries[row, d]
        _solve(kind, z, values, diagonal, slope, a, scales, alpha, left, weighted)
        for w in range(min(LANES, count - start)):
            found[start + w, 0] = -left[1, w]
            found[start + w, 1] = 1.0 + ratio - left[0, w]
            for p in range(size):
                weights[start + w, p] = weighted[p, w]
