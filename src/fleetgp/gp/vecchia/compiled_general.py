"""What `compiled` does, for sums and products of leaves and observations with noise of their own. Needs Numba.

A kernel comes as arrays (`Layout`). Arrays of a batch are those of `compiled`: pairs (p, q) with q < p, eight lanes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.gp.composite import Composite
from fleetgp.gp.leaves import Leaf, Linear, Periodic, RationalQuadratic, Scaled
from fleetgp.gp.vecchia.compiled import LANES, adjoint, back, factorized, last_row, profile
from fleetgp.gp.vecchia.neighbours import Neighbours
from fleetgp.linalg.compiling import kept

#: Stationary leaves go by their numbers in `compiled`.
PROFILES = {"se": 0, "matern12": 1, "matern32": 2, "matern52": 3}
RQ, PERIODIC, LINEAR = 4, 5, 6
ROOT = math.sqrt(2.0)


class Layout(NamedTuple):
    """kinds: (L,) of the leaves.  alike: (L,) whether all inputs have one length-scale.

    axes: the inputs of all leaves, one leaf after the other; `starts` (L + 1,) tells where each begins. first: (L + 1,)
    where its hyperparameters begin in theta; the last one is where those of the terms begin.
    terms: (S, L) which leaves are in which term.
    """

    kinds: IntArray
    alike: BoolArray
    starts: IntArray
    axes: IntArray
    first: IntArray
    terms: BoolArray


def layout(kernel: Composite) -> Layout:
    """Of a kernel."""
    leaves = kernel.leaves
    terms = np.zeros((len(kernel.terms), len(leaves)), dtype=np.bool_)
    for row, term in zip(terms, kernel.terms, strict=True):
        row[list(term)] = True
    return Layout(
        np.array([_kind(leaf) for leaf in leaves]),
        np.array([isinstance(leaf, Scaled) and leaf.alike for leaf in leaves]),
        np.cumsum([0, *(len(leaf.axes) for leaf in leaves)]),
        np.array([axis for leaf in leaves for axis in leaf.axes]),
        np.cumsum([0, *(len(leaf.units()) for leaf in leaves)]),
        terms,
    )


def _kind(leaf: Leaf) -> int:
    if isinstance(leaf, RationalQuadratic):
        return RQ
    if isinstance(leaf, Scaled):
        return PROFILES[leaf.profile]
    return {Periodic: PERIODIC, Linear: LINEAR}[type(leaf)]


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
def _leaf(kind: int, alike: bool, z: Array, own: Array, axes: IntArray, phi: Array, slope: Array) -> None:
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
def _sums(terms: BoolArray, variances: Array, phi: Array, without: int, a: Array) -> None:
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
def _diagonals(kind: int, z: Array, axes: IntArray, values: Array) -> None:
    """phi(x, x) of a leaf, (m + 1, LANES)."""
    values[:, :] = 1.0
    if kind == LINEAR:
        for p in range(values.shape[0]):
            for w in range(LANES):
                values[p, w] = 0.0
                for k in range(len(axes)):
                    values[p, w] += z[axes[k], p, w] ** 2


@kept
def _by_leaf(
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


@kept
def conditionals(
    kinds: IntArray,
    alike: BoolArray,
    starts: IntArray,
    axes: IntArray,
    first: IntArray,
    terms: BoolArray,
    theta: Array,
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
    leaves, pairs, last = len(kinds), size * (size + 1) // 2, first[len(kinds)]
    variances = theta[last : last + len(terms)] ** 2
    z, values, diagonal = _room(inputs.shape[1], size)
    phi, slope, on = (
        np.empty((leaves, pairs, LANES)),
        np.empty((leaves, pairs, LANES)),
        np.empty((leaves, size + 1, LANES)),
    )
    a, weights, beside = np.empty((pairs, LANES)), np.empty((pairs, LANES)), np.empty((pairs, LANES))
    scales, alpha, weighted = np.empty((size, LANES)), np.empty((size, LANES)), np.empty((size, LANES))
    left, u, t = np.empty((2, LANES)), np.empty((size + 1, LANES)), np.empty((size + 1, LANES))
    total = np.empty((len(theta), LANES))
    for start in range(0, count, LANES):
        for w in range(LANES):
            row = min(start + w, count - 1)
            for p in range(size + 1):
                j = rows[row] if p == size else near[row, p]
                values[p, w] = y[j]
                for d in range(inputs.shape[1]):
                    z[d, p, w] = inputs[j, d]
        for j in range(leaves):
            own, mine = theta[first[j] : first[j + 1]], axes[starts[j] : starts[j + 1]]
            _leaf(kinds[j], alike[j], z, own, mine, phi[j], slope[j])
            _diagonals(kinds[j], z, mine, on[j])
        _sums(terms, variances, phi, -1, a)
        _sums(terms, variances, on, -1, diagonal)
        for w in range(LANES):
            row = min(start + w, count - 1)
            for p in range(size + 1):
                diagonal[p, w] += noise[rows[row] if p == size else near[row, p]]
        factorized(a, values, diagonal, scales, alpha, left)
        last_row(a, weighted)
        back(a, scales, weighted)
        back(a, scales, alpha)
        adjoint(left, weighted, alpha, u, t)
        pair = 0
        for p in range(1, size + 1):
            for q in range(p):
                for w in range(LANES):
                    weights[pair, w] = u[p, w] * t[q, w] + u[q, w] * t[p, w]
                pair += 1
        for j in range(leaves):
            if first[j + 1] == first[j]:
                continue
            _sums(terms, variances, phi, j, beside)
            for i in range(pairs):
                for w in range(LANES):
                    beside[i, w] *= weights[i, w]
            own, mine = theta[first[j] : first[j + 1]], axes[starts[j] : starts[j + 1]]
            _by_leaf(kinds[j], alike[j], z, own, mine, slope[j], beside, total[first[j] : first[j + 1]])
        for k in range(len(terms)):
            _sums(terms[k : k + 1], variances[k : k + 1], phi, -1, beside)
            _sums(terms[k : k + 1], variances[k : k + 1], on, -1, diagonal)
            for w in range(LANES):
                total[last + k, w] = 0.0
            for i in range(pairs):
                for w in range(LANES):
                    total[last + k, w] += 2.0 * weights[i, w] * beside[i, w]
            for p in range(size + 1):
                for w in range(LANES):
                    total[last + k, w] += 2.0 * u[p, w] * t[p, w] * diagonal[p, w]
        own_count = last + len(terms)
        for w in range(min(LANES, count - start)):
            square = left[1, w] * left[1, w] / left[0, w]
            found[start + w, 0] = 0.5 * (math.log(left[0, w]) + square)
            for k in range(own_count):
                found[start + w, 1 + k] = total[k, w]
            found[start + w, 1 + own_count] = square
            for k in range(len(slopes)):
                change = 0.0
                for p in range(size + 1):
                    j = rows[start + w] if p == size else near[start + w, p]
                    change += u[p, w] * t[p, w] * slopes[k, j]
                found[start + w, 2 + own_count + k] = change


@kept
def _room(dimension: int, size: int) -> tuple[Array, Array, Array]:
    """Inputs, values and the diagonal of a batch."""
    return np.empty((dimension, size + 1, LANES)), np.empty((size + 1, LANES)), np.empty((size + 1, LANES))


@kept
def means(
    kinds: IntArray,
    alike: BoolArray,
    starts: IntArray,
    axes: IntArray,
    first: IntArray,
    terms: BoolArray,
    theta: Array,
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
    leaves, pairs, last = len(kinds), size * (size + 1) // 2, first[len(kinds)]
    variances = theta[last : last + len(terms)] ** 2
    z, values, diagonal = _room(inputs.shape[1], size)
    phi, slope, on = np.empty((leaves, pairs, LANES)), np.empty((pairs, LANES)), np.empty((leaves, size + 1, LANES))
    a, scales, alpha = np.empty((pairs, LANES)), np.empty((size, LANES)), np.empty((size, LANES))
    left, weighted = np.empty((2, LANES)), np.empty((size, LANES))
    for start in range(0, count, LANES):
        for w in range(LANES):
            row = min(start + w, count - 1)
            for p in range(size):
                values[p, w] = y[near[row, p]]
            values[size, w] = 0.0
            for d in range(inputs.shape[1]):
                for p in range(size):
                    z[d, p, w] = inputs[near[row, p], d]
                z[d, size, w] = queries[row, d]
        for j in range(leaves):
            own, mine = theta[first[j] : first[j + 1]], axes[starts[j] : starts[j + 1]]
            _leaf(kinds[j], alike[j], z, own, mine, phi[j], slope)
            _diagonals(kinds[j], z, mine, on[j])
        _sums(terms, variances, phi, -1, a)
        _sums(terms, variances, on, -1, diagonal)
        for w in range(LANES):
            row = min(start + w, count - 1)
            for p in range(size):
                diagonal[p, w] += noise[near[row, p]]
        factorized(a, values, diagonal, scales, alpha, left)
        last_row(a, weighted)
        back(a, scales, weighted)
        for w in range(min(LANES, count - start)):
            found[start + w, 0] = -left[1, w]
            found[start + w, 1] = diagonal[size, w] - left[0, w]
            for p in range(size):
                weights[start + w, p] = weighted[p, w]
