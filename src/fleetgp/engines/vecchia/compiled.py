"""Conditional densities and means of many points, eight at a time. Needs Numba.

Every array of a batch ends with an axis of LANES points, over which the innermost loops run: all points do the same
arithmetic, whatever the number of neighbours, and vector instructions serve all lanes at once. What a point gets does
not depend on the others of its batch. `likelihood` does the same without Numba, and has the formulas.

Pairs (p, q) with q < p are in the order of the rows of the lower triangle; the point itself is the last row, m.
"""

from __future__ import annotations

import math

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.engines.vecchia.batches import (
    LANES,
    Batch,
    MeanBatch,
    adjoint,
    average,
    factorize,
    give,
    room,
    room_for_means,
    take_places,
)
from fleetgp.engines.vecchia.likelihood import LINEAR, MATERN12, MATERN32, PERIODIC, RQ, SE, Layout
from fleetgp.engines.vecchia.ordering import Neighbours
from fleetgp.linalg.compiling import jitted
from fleetgp.linalg.exponential import exp

# ---- of stationary kernels -------------------------------------------------------------------------------------------


@jitted
def _distances(z: Array, size: int, s: Array) -> None:
    """s (P, LANES), squared, between the first places of z (D, size, LANES)."""
    pair = 0
    for p in range(1, size):
        for q in range(p):
            for w in range(LANES):
                s[pair, w] = (z[0, p, w] - z[0, q, w]) ** 2
            for d in range(1, z.shape[0]):
                for w in range(LANES):
                    s[pair, w] += (z[d, p, w] - z[d, q, w]) ** 2
            pair += 1


@jitted
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


@jitted
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


@jitted
def conditionals(
    kind: int, places: Array, y: Array, rows: IntArray, near: Neighbours, ratio: float, result: Array
) -> None:
    """result (n, 1 + D + 2) as `StationaryData.conditionals` has it, of the points `rows` with neighbours near (n, m).

    NaN or infinity where a covariance is not positive definite.
    """
    (count, size), dimension = near.shape, places.shape[1]
    batch = room(1, dimension, size)
    z, slope = batch.z, batch.slope[0]
    batch.diagonal[:, :] = 1.0 + ratio
    u, t = np.empty((size + 1, LANES)), np.empty((size + 1, LANES))
    total, trace = np.empty((dimension, LANES)), np.empty(LANES)
    for start in range(0, count, LANES):
        for w in range(LANES):
            row = min(start + w, count - 1)
            for p in range(size + 1):
                j = rows[row] if p == size else near[row, p]
                batch.values[p, w] = y[j]
                for d in range(dimension):
                    z[d, p, w] = places[j, d]
        _distances(z, size + 1, slope)
        profile(kind, slope, batch.covariance)
        factorize(batch)
        adjoint(batch, u, t)
        trace[:] = 0.0
        for p in range(size + 1):
            for w in range(LANES):
                trace[w] += u[p, w] * t[p, w]
        _slopes(z, slope, u, t, total)
        for w in range(min(LANES, count - start)):
            into, square = result[start + w], batch.left[1, w] * batch.left[1, w] / batch.left[0, w]
            into[0] = 0.5 * (math.log(batch.left[0, w]) + square)
            into[1 : 1 + dimension] = total[:, w]
            into[1 + dimension] = square
            into[2 + dimension] = ratio * trace[w]


@jitted
def means(
    kind: int,
    places: Array,
    starts: IntArray,
    y: Array,
    diagonals: Array,
    prior: Array,
    queries: Array,
    near: Neighbours,
    result: Array,
    weights: Array,
) -> None:
    """result (T, 2): mean and what is explained of a prior variance (T,), and the weights (T, m) of the observations.

    NaN, or more than `prior` explained, where a covariance is not positive definite. Observations are means over the
    points starts[n] .. starts[n + 1] of places (P, D). diagonals: (N,) of C.  near: those with fewer points come first.
    """
    (count, size), dimension = near.shape, places.shape[1]
    batch, over = room(1, dimension, size), room_for_means(dimension, starts, near)
    for start in range(0, count, LANES):
        take_places(batch, over, places, starts, y, diagonals, prior, queries, near, start)
        if over.first[size] == size:  # one point each
            _distances(over.z, size + 1, batch.slope[0])
            profile(kind, batch.slope[0], batch.covariance)
        else:
            _mean_profiles(kind, over, batch.covariance)
        factorize(batch)
        give(batch, start, result, weights)


@jitted
def _mean_profiles(kind: int, over: MeanBatch, a: Array) -> None:
    """a (P, LANES): means of phi over the places of both neighbours, which count by their share."""
    z, first, pairs = over.z, over.first, over.squares
    for p in range(1, len(first) - 1):
        others, k = first[p], 0
        for i in range(first[p], first[p + 1]):
            for j in range(others):
                for w in range(LANES):
                    pairs[k, w] = (z[0, i, w] - z[0, j, w]) ** 2
                for d in range(1, z.shape[0]):
                    for w in range(LANES):
                        pairs[k, w] += (z[d, i, w] - z[d, j, w]) ** 2
                k += 1
        profile(kind, pairs[:k], over.profiles[:k])
        average(over, p, a)


# ---- of sums and products of leaves, each observation with its own noise ---------------------------------------------

ROOT = math.sqrt(2.0)


@jitted
def _square(kind: int, z: Array, scale: float, period: float, p: int, q: int, w: int) -> float:
    """What an input adds to s, from its values z (m + 1, LANES)."""
    apart = z[p, w] - z[q, w]
    if kind == PERIODIC:
        apart = math.sin(math.pi * apart / period)
        apart *= ROOT
    ratio: float = apart / scale
    return ratio * ratio


@jitted
def _leaf_squares(kind: int, alike: bool, z: Array, own: Array, axes: IntArray, p: int, q: int, s: Array) -> None:
    """s (LANES,) of two points of z (D, S, LANES); of a linear leaf phi itself."""
    for w in range(LANES):
        s[w] = 0.0
    count = len(axes)
    for k in range(count):
        d = axes[k]
        if kind == LINEAR:
            for w in range(LANES):
                s[w] += z[d, p, w] * z[d, q, w]
        elif kind == PERIODIC:
            for w in range(LANES):
                s[w] += _square(kind, z[d], own[0 if alike else k], own[count + k], p, q, w)
        else:
            inverse = 1.0 / own[0 if alike else k]
            for w in range(LANES):
                s[w] += ((z[d, p, w] - z[d, q, w]) * inverse) ** 2


@jitted
def _leaf_profile(kind: int, own: Array, phi: Array, slope: Array) -> None:
    """phi and -phi'(s), (n, LANES), from s, which `slope` has."""
    if kind == LINEAR:
        phi[:, :] = slope
        return
    if kind == RQ:
        alpha = own[len(own) - 1]
        for i in range(len(phi)):
            for w in range(LANES):
                ratio = 1.0 + slope[i, w] / alpha
                phi[i, w] = math.exp(-alpha * math.log(ratio))
                slope[i, w] = phi[i, w] / ratio
        return
    profile(SE if kind == PERIODIC else kind, slope, phi)


@jitted
def leaf_values(kind: int, alike: bool, z: Array, own: Array, axes: IntArray, phi: Array, slope: Array) -> None:
    """phi and -phi'(s), (P, LANES), of one leaf with hyperparameters `own`; z (D, m + 1, LANES)."""
    pair = 0
    for p in range(1, z.shape[1]):
        for q in range(p):
            _leaf_squares(kind, alike, z, own, axes, p, q, slope[pair])
            pair += 1
    _leaf_profile(kind, own, phi, slope)


@jitted
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


@jitted
def leaf_diagonal(kind: int, z: Array, axes: IntArray, values: Array) -> None:
    """phi(x, x) of a leaf, (m + 1, LANES)."""
    values[:, :] = 1.0
    if kind == LINEAR:
        for p in range(values.shape[0]):
            for w in range(LANES):
                values[p, w] = 0.0
                for k in range(len(axes)):
                    values[p, w] += z[axes[k], p, w] ** 2


@jitted
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


@jitted
def _own(kernel: Layout, j: int) -> tuple[Array, IntArray]:
    """The hyperparameters of a leaf, and its inputs."""
    first, starts = kernel.first, kernel.starts
    return kernel.theta[first[j] : first[j + 1]], kernel.axes[starts[j] : starts[j + 1]]


@jitted
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


@jitted
def _general_solve(kernel: Layout, batch: Batch) -> None:
    """The covariance, to the noise that is on its diagonal, and what `factorize` makes of it."""
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
    factorize(batch)


@jitted
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
        result = total[kernel.first[j] : kernel.first[j + 1]]
        by_leaf(kernel.kinds[j], kernel.alike[j], batch.z, own, axes, batch.slope[j], beside, result)


@jitted
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


@jitted
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


@jitted
def general_conditionals(
    kernel: Layout,
    inputs: Array,
    y: Array,
    noise: Array,
    slopes: Array,
    rows: IntArray,
    near: Neighbours,
    result: Array,
) -> None:
    """result (n, 2 + P) as `CompositeData.conditionals` has it.

    NaN or infinity where a covariance is not positive definite.
    noise (N,), slopes (Q, N): of the observations' noise, and its derivatives.
    """
    count, size = near.shape
    own = kernel.first[len(kernel.kinds)] + len(kernel.terms)
    batch = room(len(kernel.kinds), inputs.shape[1], size)
    u, t, crossed = np.empty((size + 1, LANES)), np.empty((size + 1, LANES)), np.empty((size + 1, LANES))
    weights, total = np.empty_like(batch.covariance), np.empty((len(kernel.theta), LANES))
    for start in range(0, count, LANES):
        _take(batch, inputs, y, noise, near, start)
        for w in range(LANES):
            row = rows[min(start + w, count - 1)]
            batch.values[size, w], batch.diagonal[size, w] = y[row], noise[row]
            for d in range(inputs.shape[1]):
                batch.z[d, size, w] = inputs[row, d]
        _general_solve(kernel, batch)
        adjoint(batch, u, t)
        _weights(u, t, weights, crossed)
        _by_leaves(kernel, batch, weights, total)
        _by_terms(kernel, batch, weights, crossed, total)
        for w in range(min(LANES, count - start)):
            into, square = result[start + w], batch.left[1, w] * batch.left[1, w] / batch.left[0, w]
            into[0] = 0.5 * (math.log(batch.left[0, w]) + square)
            into[1 : 1 + own] = total[:own, w]
            into[1 + own] = square
            for k in range(len(slopes)):
                into[2 + own + k] = crossed[size, w] * slopes[k, rows[start + w]]
                for p in range(size):
                    into[2 + own + k] += crossed[p, w] * slopes[k, near[start + w, p]]


@jitted
def general_means(
    kernel: Layout,
    inputs: Array,
    y: Array,
    noise: Array,
    queries: Array,
    near: Neighbours,
    result: Array,
    weights: Array,
) -> None:
    """result (T, 2): mean and what is explained of the prior variance, and the weights (T, m) of the observations.

    NaN where a covariance is not positive definite.
    """
    count, size = near.shape
    batch = room(len(kernel.kinds), inputs.shape[1], size)
    for start in range(0, count, LANES):
        _take(batch, inputs, y, noise, near, start)
        for w in range(LANES):
            batch.values[size, w], batch.diagonal[size, w] = 0.0, 0.0
            for d in range(inputs.shape[1]):
                batch.z[d, size, w] = queries[min(start + w, count - 1), d]
        _general_solve(kernel, batch)
        give(batch, start, result, weights)


@jitted
def general_means_of_places(
    kernel: Layout,
    places: Array,
    starts: IntArray,
    y: Array,
    diagonals: Array,
    prior: Array,
    queries: Array,
    near: Neighbours,
    result: Array,
    weights: Array,
) -> None:
    """As `means`, with any kernel."""
    (count, size), dimension = near.shape, places.shape[1]
    batch, over = room(1, dimension, size), room_for_means(dimension, starts, near)
    phi = np.empty((len(kernel.kinds), *over.squares.shape))
    for start in range(0, count, LANES):
        take_places(batch, over, places, starts, y, diagonals, prior, queries, near, start)
        _mean_covariances(kernel, over, phi, batch.covariance)
        factorize(batch)
        give(batch, start, result, weights)


@jitted
def _mean_covariances(kernel: Layout, over: MeanBatch, phi: Array, a: Array) -> None:
    """a (P, LANES): means of the covariance over the places of both. phi: (L, n, LANES), as `MeanBatch` has them."""
    first = over.first
    for p in range(1, len(first) - 1):
        count = (first[p + 1] - first[p]) * first[p]
        for leaf in range(len(kernel.kinds)):
            (own, axes), kind, k = _own(kernel, leaf), kernel.kinds[leaf], 0
            for i in range(first[p], first[p + 1]):
                for j in range(first[p]):
                    _leaf_squares(kind, kernel.alike[leaf], over.z, own, axes, i, j, over.squares[k])
                    k += 1
            _leaf_profile(kind, own, phi[leaf, :count], over.squares[:count])
        sums(kernel.terms, kernel.variances, phi[:, :count], -1, over.profiles[:count])
        average(over, p, a)
