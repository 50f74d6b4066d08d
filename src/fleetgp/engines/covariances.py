"""Covariances of observations, which may be means of the field f over a few points.

A mean is a linear functional of f, so with any kernel k all of these are exact, and positive definite together:

    cov(y_a, y_b) = mean of k(p, p') over the points p of a and p' of b        cov(y_a, f(x)) = mean of k(p, x) over p

Where every observation has one point (`points` is None) they are the kernel's own, and nothing is added to them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fleetgp.arrays import Array, IntArray
from fleetgp.kernels.composite import Composite, as_composite
from fleetgp.kernels.stationary import Kernel
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations, Points

#: Numbers of observations, also as the search for neighbours has them.
RowNumbers = IntArray | NDArray[np.int32]
#: Covariances between points that are held at a time, in doubles: 64 MB.
BLOCK = 1 << 23


def covariance_of(kernel: Kernel, data: Observations, h: Hyperparameters) -> Array:
    """Between the observations without their noise, (N, N), Fortran-ordered."""
    return kernel(data.inputs, None, h) if data.points is None else between(kernel, data, data, h)


def cross_of(kernel: Kernel, data: Observations, queries: Array, h: Hyperparameters) -> Array:
    """Between the observations and f at the queries, (N, T), Fortran-ordered."""
    if data.points is None:
        return kernel(data.inputs, queries, h)
    result = np.empty((len(data), len(queries)), order="F")
    for some in _blocks(len(queries), len(data.places)):
        result[:, some] = data.points.mean(kernel(data.places, queries[some], h))
    return result


def between(kernel: Kernel, data: Observations, others: Observations, h: Hyperparameters) -> Array:
    """Between observations and others without their noise, (N, N'), Fortran-ordered."""
    if others.points is None:
        return cross_of(kernel, data, others.inputs, h)
    result = np.empty((len(data), len(others)), order="F")
    for some in _blocks(len(others), len(data.places) * int(others.points.counts.max(initial=1))):
        points = others.points.rows(some)
        result[:, some] = points.mean(cross_of(kernel, data, points.places, h).T).T
    return result


def slopes_of(kernel: Kernel, data: Observations, queries: Array, h: Hyperparameters) -> Array:
    """The derivatives of `cross_of` along each column of the queries, (D, N, T)."""
    slopes = kernel.slopes(data.places, queries, h)
    return slopes if data.points is None else np.stack([data.points.mean(each) for each in slopes])


def variance_of(kernel: Kernel, data: Observations, h: Hyperparameters) -> Array:
    """The prior variance of each observation without its noise, (N,)."""
    if data.points is None:
        return kernel.variance(data.inputs, h)
    composite, counts = as_composite(kernel, data.dimension), data.points.counts
    result = np.empty(len(data))
    for count in np.unique(counts):
        rows = np.flatnonzero(counts == count)
        for some in _blocks(len(rows), int(count) ** 2):
            stack = data.points.rows(rows[some]).places.reshape(-1, count, data.dimension)
            result[rows[some]] = composite.at(stack, None, h).matrix.mean(axis=(1, 2))
    return result


def _blocks(count: int, each: int) -> Iterator[slice]:
    """`count` items in parts, each item of so many covariances."""
    step = max(1, BLOCK // max(1, each))
    return (slice(start, start + step) for start in range(0, count, step))


def cross_of_stacks(kernel: Composite, points: Points, near: RowNumbers, queries: Array, h: Hyperparameters) -> Array:
    """Between observations near (T, n) and f at one query each, (T, D): (T, n)."""
    places, share = _filled_up(points, near)
    of_points = kernel.at(places, queries[:, None], h).matrix
    return np.asarray(np.einsum("tns,tns->tn", of_points.reshape(share.shape), share))


def _filled_up(points: Points, near: RowNumbers) -> tuple[Array, Array]:
    """The points of observations near (.., n), as many for each as for the largest, (.., n S, D); and what each counts,
    (.., n, S). What one lacks is its first point again, and counts for nothing.
    """
    counts = points.counts[near]
    slots = np.arange(counts.max(initial=1))
    missing = slots >= counts[..., None]
    numbers = points.starts[near][..., None] + np.where(missing, 0, slots)
    share = np.where(missing, 0.0, 1.0 / counts[..., None])
    return points.places[numbers.reshape(*near.shape[:-1], -1)], share


class MeanCovariance:
    """Covariances between observations in stacks, (.., n, n), with their derivatives, as a `CompositeCovariance`.

    near: (.., n) the numbers of the observations in each stack.
    """

    def __init__(self, kernel: Composite, points: Points, near: RowNumbers, h: Hyperparameters) -> None:
        places, self._share = _filled_up(points, near)
        self._of_points = kernel.at(places, None, h)
        pairs = self._of_points.matrix.reshape(*self._share.shape, *self._share.shape[-2:])
        half = np.einsum("...aibj,...bj->...aib", pairs, self._share)
        self.matrix = np.einsum("...aib,...ai->...ab", half, self._share)

    def contract(self, weights: Array) -> Array:
        """sum_ij weights_ij d matrix_ij / d log theta, (.., P - Q): by all but those of the noise."""
        half = weights[..., :, None, :] * self._share[..., None]
        pairs = half[..., None] * self._share[..., None, None, :, :]
        return self._of_points.contract(pairs.reshape(self._of_points.matrix.shape))
