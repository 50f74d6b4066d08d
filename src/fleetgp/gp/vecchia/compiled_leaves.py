"""The leaves of a composite kernel between eight points and their neighbours each. Needs Numba; `leaves` has the rules.

Arrays are those of `compiled`: pairs (p, q) with q < p, eight lanes.
"""

from __future__ import annotations

import math

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.gp.vecchia.compiled import LANES, profile
from fleetgp.gp.vecchia.layout import LINEAR, PERIODIC, RQ
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
