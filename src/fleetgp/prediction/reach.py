"""How far data reach: the observations nearest to a query, and how much of the variance an agent explains at most."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy

from fleetgp.arrays import Array, IntArray
from fleetgp.kernels.stationary import Kernel, Stationary
from fleetgp.linalg.threads import side_by_side
from fleetgp.model.hyperparameters import Hyperparameters


def nearest(tree: scipy.spatial.cKDTree, points: Array, count: int) -> tuple[Array, IntArray]:
    """Distances and rows (T, count) of each point's nearest, in this order; infinity and tree.n if there are fewer.

    Of equally near ones, as on grids, those count whose inputs are smaller: then it does not matter which agent has
    them.
    """
    distance, row = tree.query(points, k=np.arange(1, count + 2))
    tied = np.flatnonzero((distance[:, -1] == distance[:, -2]) & np.isfinite(distance[:, -1]))
    distance, row = distance[:, :count], row[:, :count]
    asked = 2 * count
    while tied.size:
        wide, rows = tree.query(points[tied], k=np.arange(1, asked + 1))
        places = np.append(tree.data, np.full((1, tree.m), np.inf), axis=0)[rows]
        order = np.lexsort((rows, *np.moveaxis(places, -1, 0)[::-1], wide))[:, :count]
        row[tied] = np.take_along_axis(rows, order, axis=1)
        tied, asked = tied[(wide[:, -1] == distance[tied, -1]) & (asked < tree.n)], 2 * asked
    return distance, row


def nearest_in(inputs: Array, queries: Array, count: int, kernel: Kernel, h: Hyperparameters) -> IntArray:
    """Which of the inputs are nearest to each query, (T, m); all, where there are no more."""
    if len(inputs) <= count:
        return np.tile(np.arange(len(inputs)), (len(queries), 1))
    scales, _ = kernel.scales(h, queries.shape[1])
    return nearest(scipy.spatial.cKDTree(inputs / scales), queries / scales, count)[1]


#: What rounding and jitter (at most 1e-6 of the diagonal) may do to the bounds, relatively, with a margin of ten.
SLACK = 1e-5


class Reach:
    """Bounds of k_i*' C_i^-1 k_i* with C_i = K_i + sigma_eps^2 I, for every hosted agent i.

    No set of observations explains less than one of them alone: at least k^2 / (sigma_f^2 + sigma_eps^2), with k the
    covariance with the nearest one. And C_i^-1 <= I / sigma_eps^2: at most N_i k^2 / sigma_eps^2, if no covariance is
    larger than with the nearest. That holds for kernels that fall with the distance, as all of ours do.
    """

    def __init__(self, inputs: Sequence[Array], thetas: Array, kernel: Kernel) -> None:
        self._models = [Hyperparameters.from_theta(theta) for theta in thetas]
        self._sizes = [len(x) for x in inputs]
        self._kernel = kernel
        self._falls = isinstance(kernel, Stationary) and kernel.decreasing
        self._scales = [kernel.scales(h, inputs[0].shape[1])[0] for h in self._models]
        self._trees = [scipy.spatial.cKDTree(x / scales) for x, scales in zip(inputs, self._scales, strict=True)]

    def renew(self, i: int, inputs: Array) -> None:
        """All inputs of one agent, whose rows have changed."""
        self._sizes[i], self._trees[i] = len(inputs), scipy.spatial.cKDTree(inputs / self._scales[i])

    def nearest(self, queries: Array, count: int) -> tuple[Array, IntArray]:
        """Scaled distances and rows of each agent's observations nearest to the queries, (A, T, count) each."""

        def of_agent(i: int) -> tuple[Array, IntArray]:
            return nearest(self._trees[i], queries / self._scales[i], count)

        distances, rows = zip(*side_by_side(of_agent, range(len(self._trees))), strict=True)
        return np.stack(distances), np.stack(rows)

    def bounds(self, queries: Array) -> tuple[Array, Array]:
        """The least and the most that each agent explains at the queries, (A, T) each."""
        kernel = self._kernel
        if not isinstance(kernel, Stationary) or kernel.noise_model.differs:  # nothing and everything
            prior = np.stack([kernel.variance(queries, h) for h in self._models])
            return np.zeros_like(prior), prior

        def squared(i: int) -> Array:
            """k^2 with the nearest observation."""
            h = self._models[i]
            distance, _ = self._trees[i].query(queries / self._scales[i])
            profile, _ = kernel.profile_and_slope(distance**2)
            return np.asarray((h.signal**2 * profile) ** 2)

        near = np.stack(side_by_side(squared, range(len(self._trees))))
        signal, noise = np.array([[h.signal**2, h.noise**2] for h in self._models]).T
        least = near * ((1.0 - SLACK) / (signal + noise))[:, None]
        if not self._falls:
            return least, np.repeat(signal[:, None], near.shape[1], axis=1)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            most = near * ((1.0 + SLACK) * np.array(self._sizes) / noise)[:, None]
        return least, np.where(np.isfinite(most), np.minimum(most, signal[:, None]), signal[:, None])
