"""Eight points and their neighbours at a time, for compiled loops: the arrays, and the equations that they solve.

Every array of a batch ends with an axis of LANES points: `compiled` says why. Needs Numba.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.engines.vecchia.ordering import Neighbours
from fleetgp.linalg.compiling import jitted

#: Points of a batch.
LANES = 8


class Batch(NamedTuple):
    """Of eight points with m neighbours each, the point itself last.

    z: (D, m + 1, LANES) their inputs.  values: (m + 1, LANES) observations.
    phi, slope: (L, P, LANES) of all pairs, the kernel's leaves and -phi'.  on: (L, m + 1, LANES) phi on the diagonal.
    covariance: (P, LANES).  diagonal: (m + 1, LANES).
    scales, alpha, weighted: (m, LANES), and left: (2, LANES), what `factorize` makes of them.
    """

    z: Array
    values: Array
    phi: Array
    slope: Array
    on: Array
    covariance: Array
    diagonal: Array
    scales: Array
    alpha: Array
    weighted: Array
    left: Array


@jitted
def room(leaves: int, dimension: int, size: int) -> Batch:
    pairs = size * (size + 1) // 2
    return Batch(
        np.empty((dimension, size + 1, LANES)),
        np.empty((size + 1, LANES)),
        np.empty((leaves, pairs, LANES)),
        np.empty((leaves, pairs, LANES)),
        np.empty((leaves, size + 1, LANES)),
        np.empty((pairs, LANES)),
        np.empty((size + 1, LANES)),
        np.empty((size, LANES)),
        np.empty((size, LANES)),
        np.empty((size, LANES)),
        np.empty((2, LANES)),
    )


# ---- equations -------------------------------------------------------------------------------------------------------


@jitted
def factorize(batch: Batch) -> None:
    """The Cholesky factor over `covariance`, and C^-1 k into `weighted`."""
    a, weighted = batch.covariance, batch.weighted
    _factorize(a, batch.values, batch.diagonal, batch.scales, batch.alpha, batch.left)
    start = len(a) - len(weighted)
    for p in range(len(weighted)):
        for w in range(LANES):
            weighted[p, w] = a[start + p, w]
    back(a, batch.scales, weighted)


@jitted
def _factorize(a: Array, y: Array, diagonal: Array, scales: Array, solved: Array, left: Array) -> None:
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


@jitted
def back(a: Array, scales: Array, right: Array) -> None:
    """L'^-1 right, over right (m, LANES)."""
    for p in range(len(scales) - 1, -1, -1):
        row = p * (p - 1) // 2
        for w in range(LANES):
            right[p, w] *= scales[p, w]
        for q in range(p):
            for w in range(LANES):
                right[q, w] -= a[row + q, w] * right[p, w]


@jitted
def adjoint(batch: Batch, u: Array, t: Array) -> None:
    """u and t (m + 1, LANES); `alpha` becomes C^-1 y."""
    left, weighted, alpha = batch.left, batch.weighted, batch.alpha
    back(batch.covariance, batch.scales, alpha)
    size = len(weighted)
    for w in range(LANES):
        t[size, w] = 0.5 * (1.0 - left[1, w] * left[1, w] / left[0, w]) / left[0, w]
        u[size, w] = 1.0
    for p in range(size):
        for w in range(LANES):
            u[p, w] = -weighted[p, w]
            t[p, w] = -t[size, w] * weighted[p, w] - left[1, w] / left[0, w] * alpha[p, w]


# ---- neighbours that are means over several places -------------------------------------------------------------------


class MeanBatch(NamedTuple):
    """Of eight points with m neighbours each: the neighbours are means over several places, S in all with the point.

    z: (D, S, LANES) the places.  share: (S, LANES) what each counts.  first: (m + 2,) where those of a neighbour begin;
    the point itself is the last one.  squares, profiles: (n, LANES), of the pairs with the places of one neighbour.
    """

    z: Array
    share: Array
    first: IntArray
    squares: Array
    profiles: Array


@jitted
def room_for_means(dimension: int, starts: IntArray, near: Neighbours) -> MeanBatch:
    (count, size), widest = near.shape, 1
    for t in range(count):
        for p in range(size):
            widest = max(widest, starts[near[t, p] + 1] - starts[near[t, p]])
    slots = widest * size + 1
    return MeanBatch(
        np.empty((dimension, slots, LANES)),
        np.empty((slots, LANES)),
        np.zeros(size + 2, dtype=np.int64),
        np.empty((widest * slots, LANES)),
        np.empty((widest * slots, LANES)),
    )


@jitted
def take_places(
    batch: Batch,
    over: MeanBatch,
    places: Array,
    starts: IntArray,
    y: Array,
    diagonals: Array,
    prior: Array,
    queries: Array,
    near: Neighbours,
    start: int,
) -> None:
    """Eight queries and the places of their neighbours; of one with fewer the first again, which counts for nothing."""
    (count, size), z, share, first = near.shape, over.z, over.share, over.first
    for p in range(size):
        most = 1
        for w in range(LANES):
            n = near[min(start + w, count - 1), p]
            most = max(most, starts[n + 1] - starts[n])
        first[p + 1] = first[p] + most
    last = first[size]
    first[size + 1] = last + 1
    for w in range(LANES):
        row = min(start + w, count - 1)
        for p in range(size):
            n = near[row, p]
            batch.values[p, w], batch.diagonal[p, w] = y[n], diagonals[n]
            own = starts[n + 1] - starts[n]
            for i in range(first[p + 1] - first[p]):
                share[first[p] + i, w] = 1.0 / own if i < own else 0.0
                for d in range(z.shape[0]):
                    z[d, first[p] + i, w] = places[starts[n] + (i if i < own else 0), d]
        batch.values[size, w], batch.diagonal[size, w], share[last, w] = 0.0, prior[row], 1.0
        for d in range(z.shape[0]):
            z[d, last, w] = queries[row, d]


@jitted
def give(batch: Batch, start: int, result: Array, weights: Array) -> None:
    """Mean and what is explained into result (T, 2), and the weights (T, m), of the queries from `start` on."""
    size = len(batch.weighted)
    for w in range(min(LANES, len(result) - start)):
        result[start + w, 0] = -batch.left[1, w]
        result[start + w, 1] = batch.diagonal[size, w] - batch.left[0, w]
        weights[start + w] = batch.weighted[:, w]


@jitted
def average(over: MeanBatch, p: int, a: Array) -> None:
    """Row p of a, from the `profiles` of all pairs of its places with those of the neighbours before it."""
    share, first, pair = over.share, over.first, p * (p - 1) // 2
    for q in range(p):
        for w in range(LANES):
            a[pair, w] = 0.0
        for i in range(first[p], first[p + 1]):
            for j in range(first[q], first[q + 1]):
                k = (i - first[p]) * first[p] + j
                for w in range(LANES):
                    a[pair, w] += share[i, w] * share[j, w] * over.profiles[k, w]
        pair += 1
