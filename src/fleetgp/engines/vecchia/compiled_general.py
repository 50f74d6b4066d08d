"""The leaves of a composite kernel between eight points and their neighbours each. Needs Numba; `leaves` has the rules.

Arrays are those of `compiled`: pairs (p, q) with q < p, eight lanes.

What `compiled` does, for sums and products of leaves and observations with noise of their own. Needs Numba.

A kernel comes as arrays (`layout`). Arrays of a batch are those of `compiled`: pairs (p, q) with q < p, eight lanes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.engines.vecchia.compiled import LANES, adjoint, back, factorized, last_row, profile
from fleetgp.engines.vecchia.general import LINEAR, PERIODIC, RQ, Layout
from fleetgp.engines.vecchia.ordering import Neighbours
from fleetgp.linalg.compiling import kept

ROOT = math.sqrt(2.0)


@kept
def _square(kind: int, z: Array, scale: float, period: float, p: int, q: int, w: int) -> float:
    """What an input adds to s, from its values z (m + 1, LANES)."""
    apart = z[p, w] - z[q, w]
    if kind == PERIODIC:
        apart = math.sin(math.pi * apart / period)
        apart *= ROOT
    ratio: float = apart / scale
    return ratio * ratio


@kept
def leaf_values(kind: int, alike: bool, z: Array, own: Array, axes: IntArray, phi: Array, slope: Array) -> None:
    """phi and -phi'(s), (P, LANES), of one leaf with hyperparameters `own`; z (D, m + 1, LANES)."""
    size, count, pair = z.shape[1], len(axes), 0
    for p in range(1, size):
        for q in range(p):
            for w in range(LANES):
                s = 0.0
                for k in range(count):
                    d = axes[k]
                    if kind == LINEAR:
                        s += z[d, p, w] * z[d, q, w]
                    else:
                        period = own[count + k] if kind == PERIODIC else 1.0
                        s += _square(kind, z[d], own[0 if alike else k], period, p, q, w)
                slope[pair, w] = s
            pair += 1
    if kind == LINEAR:
        phi[:, :] = slope
        return
    if kind == RQ:
        alpha = own[len(own) - 1]
        for i in range(pair):
            for w in range(LANES):
                ratio = 1.0 + slope[i, w] / alpha
                phi[i, w] = math.exp(-alpha * math.log(ratio))
                slope[i, w] = phi[i, w] / ratio
        return
    profile(0 if kind == PERIODIC else kind, slope, phi)


@kept
def sums(terms: BoolArray, variances: Array, phi: Array, without: int, a: Array) -> None:
    """sum_t sigma_t^2 prod_j phi_j, (P, LANES), from phi (L, P, LANES); of the terms with one leaf, without that."""
    a[:, :] = 0.0
    for t in range(len(terms)):
        if without >= 0 and not terms[t, without]:
            continue
        for i in range(a.shape[0]):
            for w in range(LANES):
                product = variances[t]
                for j in range(terms.shape[1]):
                    if terms[t, j] and j != without:
                        product *= phi[j, i, w]
                a[i, w] += product


@kept
def leaf_diagonal(kind: int, z: Array, axes: IntArray, values: Array) -> None:
    """phi(x, x) of a leaf, (m + 1, LANES)."""
    values[:, :] = 1.0
    if kind == LINEAR:
        for p in range(values.shape[0]):
            for w in range(LANES):
                values[p, w] = 0.0
                for k in range(len(axes)):
                    values[p, w] += z[axes[k], p, w] ** 2


@kept
def by_leaf(
    kind: int, alike: bool, z: Array, own: Array, axes: IntArray, slope: Array, pairs: Array, total: Array
) -> None:
    """total (n, LANES): sums over pairs, weighted (P, LANES), of d phi / d log p."""
    size, count, pair = z.shape[1], len(axes), 0
    total[:, :] = 0.0
    for p in range(1, size):
        for q in range(p):
            for w in range(LANES):
                steep, s = pairs[pair, w] * slope[pair, w], 0.0
                for k in range(count):
                    d, place = axes[k], 0 if alike else k
                    period = own[count + k] if kind == PERIODIC else 1.0
                    square = _square(kind, z[d], own[place], period, p, q, w)
                    s += square
                    total[place, w] += 2.0 * steep * square
                    if kind == PERIODIC:
                        turns = math.pi * (z[d, p, w] - z[d, q, w]) / period
                        total[count + k, w] += 2.0 * steep * math.sin(2.0 * turns) * turns / own[k] ** 2
                if kind == RQ:
                    alpha = own[len(own) - 1]
                    value = slope[pair, w] * (1.0 + s / alpha)
                    change = s / (alpha + s) - math.log(1.0 + s / alpha)
                    total[len(own) - 1, w] += pairs[pair, w] * alpha * value * change
            pair += 1


class Batch(NamedTuple):
    """Of eight points: their inputs and those of their neighbours z, observations, the leaves' values and slopes (L, P,
    LANES), those on the diagonal, and the covariance with what becomes of it; see `compiled.factorized`.
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


@kept
def _room(leaves: int, dimension: int, size: int) -> Batch:
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


@kept
def _own(kernel: Layout, j: int) -> tuple[Array, IntArray]:
    """The hyperparameters of a leaf, and its inputs."""
    first, starts = kernel.first, kernel.starts
    return kernel.theta[first[j] : first[j + 1]], kernel.axes[starts[j] : starts[j + 1]]


@kept
def _take(batch: Batch, inputs: Array, y: Array, noise: Array, near: Neighbours, start: int) -> None:
    """The neighbours of eight points, with their noise on the diagonal; of the last row nothing yet."""
    count, size = near.shape
    for w in range(LANES):
        row = min(start + w, count - 1)
        for p in range(size):
            batch.values[p, w] = y[near[row, p]]
            batch.diagonal[p, w] = noise[near[row, p]]
            for d in range(inputs.shape[1]):
                batch.z[d, p, w] = inputs[near[row, p], d]


@kept
def _solve(kernel: Layout, batch: Batch) -> None:
    """C^-1 k into `weighted`, and the rest as `compiled.factorized` has it. The diagonal has the noise."""
    for j in range(len(kernel.kinds)):
        own, axes = _own(kernel, j)
        leaf_values(kernel.kinds[j], kernel.alike[j], batch.z, own, axes, batch.phi[j], batch.slope[j])
        leaf_diagonal(kernel.kinds[j], batch.z, axes, batch.on[j])
    sums(kernel.terms, kernel.variances, batch.phi, -1, batch.covariance)
    clean = np.empty_like(batch.diagonal)
    sums(kernel.terms, kernel.variances, batch.on, -1, clean)
    for p in range(clean.shape[0]):
        for w in range(LANES):
            batch.diagonal[p, w] += clean[p, w]
    factorized(batch.covariance, batch.values, batch.diagonal, batch.scales, batch.alpha, batch.left)
    last_row(batch.covariance, batch.weighted)
    back(batch.covariance, batch.scales, batch.weighted)


@kept
def _by_leaves(kernel: Layout, batch: Batch, weights: Array, total: Array) -> None:
    """total (P, LANES): the derivatives by the hyperparameters of the leaves. weights: (P, LANES) of the pairs."""
    beside = np.empty_like(weights)
    for j in range(len(kernel.kinds)):
        if kernel.first[j + 1] == kernel.first[j]:
            continue
        sums(kernel.terms, kernel.variances, batch.phi, j, beside)
        for i in range(weights.shape[0]):
            for w in range(LANES):
                beside[i, w] *= weights[i, w]
        own, axes = _own(kernel, j)
        found = total[kernel.first[j] : kernel.first[j + 1]]
        by_leaf(kernel.kinds[j], kernel.alike[j], batch.z, own, axes, batch.slope[j], beside, found)


@kept
def _by_terms(kernel: Layout, batch: Batch, weights: Array, crossed: Array, total: Array) -> None:
    """The same by those of the terms. crossed: (m + 1, LANES) the weights of the diagonal."""
    last = kernel.first[len(kernel.kinds)]
    pairs, clean = np.empty_like(weights), np.empty_like(crossed)
    for k in range(len(kernel.terms)):
        sums(kernel.terms[k : k + 1], kernel.variances[k : k + 1], batch.phi, -1, pairs)
        sums(kernel.terms[k : k + 1], kernel.variances[k : k + 1], batch.on, -1, clean)
        for w in range(LANES):
            total[last + k, w] = 0.0
        for i in range(weights.shape[0]):
            for w in range(LANES):
                total[last + k, w] += 2.0 * weights[i, w] * pairs[i, w]
        for p in range(crossed.shape[0]):
            for w in range(LANES):
                total[last + k, w] += 2.0 * crossed[p, w] * clean[p, w]


@kept
def _weights(u: Array, t: Array, weights: Array, crossed: Array) -> None:
    """Of the derivatives of all pairs, both ways, and of the diagonal."""
    pair = 0
    for p in range(u.shape[0]):
        for w in range(LANES):
            crossed[p, w] = u[p, w] * t[p, w]
        for q in range(p):
            for w in range(LANES):
                weights[pair, w] = u[p, w] * t[q, w] + u[q, w] * t[p, w]
            pair += 1


@kept
def conditionals(
    kernel: Layout,
    inputs: Array,
    y: Array,
    noise: Array,
    slopes: Array,
    rows: IntArray,
    near: Neighbours,
    found: Array,
) -> None:
    """found (n, 2 + P) as `General.conditionals` has it. NaN or infinity where a covariance is not positive definite.

    noise (N,), slopes (Q, N): of the observations' noise, and its derivatives.
    """
    count, size = near.shape
    own = kernel.first[len(kernel.kinds)] + len(kernel.terms)
    batch = _room(len(kernel.kinds), inputs.shape[1], size)
    u, t, crossed = np.empty((size + 1, LANES)), np.empty((size + 1, LANES)), np.empty((size + 1, LANES))
    weights, total = np.empty_like(batch.covariance), np.empty((len(kernel.theta), LANES))
    for start in range(0, count, LANES):
        _take(batch, inputs, y, noise, near, start)
        for w in range(LANES):
            row = rows[min(start + w, count - 1)]
            batch.values[size, w], batch.diagonal[size, w] = y[row], noise[row]
            for d in range(inputs.shape[1]):
                batch.z[d, size, w] = inputs[row, d]
        _solve(kernel, batch)
        back(batch.covariance, batch.scales, batch.alpha)
        adjoint(batch.left, batch.weighted, batch.alpha, u, t)
        _weights(u, t, weights, crossed)
        _by_leaves(kernel, batch, weights, total)
        _by_terms(kernel, batch, weights, crossed, total)
        for w in range(min(LANES, count - start)):
            told, square = found[start + w], batch.left[1, w] * batch.left[1, w] / batch.left[0, w]
            told[0] = 0.5 * (math.log(batch.left[0, w]) + square)
            told[1 : 1 + own] = total[:own, w]
            told[1 + own] = square
            for k in range(len(slopes)):
                told[2 + own + k] = crossed[size, w] * slopes[k, rows[start + w]]
                for p in range(size):
                    told[2 + own + k] += crossed[p, w] * slopes[k, near[start + w, p]]


@kept
def means(
    kernel: Layout,
    inputs: Array,
    y: Array,
    noise: Array,
    queries: Array,
    near: Neighbours,
    found: Array,
    weights: Array,
) -> None:
    """found (T, 2): mean and what is explained of the prior variance, and the weights (T, m) of the observations.

    NaN where a covariance is not positive definite.
    """
    count, size = near.shape
    batch = _room(len(kernel.kinds), inputs.shape[1], size)
    for start in range(0, count, LANES):
        _take(batch, inputs, y, noise, near, start)
        for w in range(LANES):
            batch.values[size, w], batch.diagonal[size, w] = 0.0, 0.0
            for d in range(inputs.shape[1]):
                batch.z[d, size, w] = queries[min(start + w, count - 1), d]
        _solve(kernel, batch)
        for w in range(min(LANES, count - start)):
            found[start + w, 0] = -batch.left[1, w]
            found[start + w, 1] = batch.diagonal[size, w] - batch.left[0, w]
            for p in range(size):
                weights[start + w, p] = batch.weighted[p, w]
