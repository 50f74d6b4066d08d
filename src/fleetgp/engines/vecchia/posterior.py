"""The posterior of one agent's data, at each query from the observations nearest to it."""

from __future__ import annotations

import numpy as np
import scipy

from fleetgp.arrays import Array
from fleetgp.engines.base import MORE_NOISE, Slopes, ThetaError, mean_and_covariance, owner, slopes_of_each
from fleetgp.engines.basis import Basis
from fleetgp.engines.vecchia.likelihood import means, points
from fleetgp.engines.vecchia.ordering import Neighbours
from fleetgp.engines.vecchia.plain import NotPositiveDefiniteError
from fleetgp.errors import InputError
from fleetgp.kernels.stationary import Kernel
from fleetgp.linalg.cholesky import factorize
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations

#: Doubles of all that a query's neighbours are multiplied with, at a time.
WORK = 1 << 22
#: Neighbours that tell how far an observation is off, and observations that are asked at a time.
LEFT_OUT, BLOCK = 30, 4096
#: Observations that a joint posterior is of at most: their covariance takes 200 MB.
MOST_TOGETHER = 5000


class VecchiaPosterior:
    """f | D_i at fixed theta. Nothing is factorized before a query comes; then one small matrix for each.

    jitter: the largest that a query has needed so far.
    """

    engine = "vecchia"

    def __init__(
        self, data: Observations, kernel: Kernel, h: Hyperparameters, neighbours: int, agent: int | None
    ) -> None:
        self.data, self.kernel, self.hyperparameters = data, kernel, h
        self.jitter, self._agent = 0.0, agent
        self._points = points(kernel, data, h)
        self._neighbours = min(neighbours, len(data))
        self._scales, _ = kernel.scales(h, data.dimension)
        self._tree = scipy.spatial.cKDTree(data.inputs / self._scales)

    def mean_and_variance(self, queries: Array) -> tuple[Array, Array]:
        """Mean and variance of f at the queries, (T,) and (T,); the variance is never negative."""
        found, _, _ = self._asked(queries)
        prior = self.kernel.variance(queries, self.hyperparameters)
        return found[:, 0], np.maximum(prior - found[:, 1], 0.0)

    def mean_and_covariance(self, queries: Array) -> tuple[Array, Array]:
        """Mean and covariance of f at the queries, (T,) and (T, T): the exact GP of all observations that are among the
        nearest to any of them.
        """
        near = self._nearest(queries)
        used, h = np.unique(near), self.hyperparameters
        if len(used) > MOST_TOGETHER:
            raise InputError(
                f"{owner(self._agent)}: a joint posterior is of at most {MOST_TOGETHER} observations nearest to any of "
                f"the points, got {len(used)}: give fewer points, points that are closer together, or fewer neighbours"
            )
        data = self.data.rows(used)
        factor = factorize(self.kernel(data.inputs, None, h), self.kernel.noise(data, h))
        if factor is None:
            raise self._failure(len(used))
        self.jitter = max(self.jitter, factor.jitter)
        weights = factor.solve(data.values)
        return mean_and_covariance(self.kernel, h, data.inputs, factor, weights, queries)

    def slopes(self, queries: Array) -> Slopes:
        """The derivatives of mean and variance by the inputs of the queries, given the nearest as they are there."""
        found, jitter = slopes_of_each(
            self.kernel,
            self.hyperparameters,
            self.data,
            self._nearest(queries).astype(np.int64),
            queries,
            lambda near: self._failure(len(near)),
        )
        self.jitter = max(self.jitter, jitter)
        return found

    def explained_variance(self, queries: Array) -> Array:
        """[k_A]_i = k_i*' C_i^-1 k_i*, (T,), from the nearest observations."""
        found, _, _ = self._asked(queries)
        return found[:, 1]

    def weighted(self, queries: Array) -> tuple[Observations, Array]:
        """The n observations that count for any of the queries, and their weights (n, T)."""
        _, near, weights = self._asked(queries)
        used, place = np.unique(near, return_inverse=True)
        found = np.zeros((len(used), len(queries)))
        found[place.reshape(near.shape), np.arange(len(queries))[:, None]] = weights
        return self.data.rows(used), found

    def left_out(self) -> tuple[Array, Array]:
        """How far each observation is off the mean given its nearest others, and the variance of f there: (N,) each."""
        inputs, size = self.data.inputs, len(self.data)
        count = min(LEFT_OUT, self._neighbours, size - 1)
        error, variance = self.data.values.copy(), self.kernel.variance(inputs, self.hyperparameters)
        for start in range(0, size if count else 0, BLOCK):
            rows = np.arange(start, min(start + BLOCK, size))
            _, near = self._tree.query(inputs[rows] / self._scales, k=np.arange(1, count + 2))
            own = near == rows[:, None]
            own[~own.any(axis=1), -1] = True  # as many others are at the same place
            found, _ = self._given(inputs[rows], near[~own].astype(np.int32).reshape(len(rows), count))
            error[rows] -= found[:, 0]
            variance[rows] = np.maximum(variance[rows] - found[:, 1], 0.0)
        return error, variance

    def projected(self, basis: Basis, queries: Array) -> Array:
        """Phi_i' C_i^-1 k_i*, (r, T), for a basis phi on a box that holds the inputs."""
        _, near, weights = self._asked(queries)
        found = np.empty((basis.rank, len(queries)))
        step = max(1, WORK // (basis.rank * self._neighbours))
        for start in range(0, len(queries), step):
            some = slice(start, start + step)
            values = basis.at(self.data.inputs[near[some]].reshape(-1, self.data.dimension))
            found[:, some] = np.einsum("tmr,tm->rt", values.reshape(*near[some].shape, -1), weights[some])
        return found

    def _asked(self, queries: Array) -> tuple[Array, Neighbours, Array]:
        """Mean and what is explained, (T, 2); the nearest observations (T, m); their weights."""
        near = self._nearest(queries)
        found, weights = self._given(queries, near)
        return found, near, weights

    def _nearest(self, queries: Array) -> Neighbours:
        """The nearest observations, (T, m)."""
        count = self._neighbours
        _, near = self._tree.query(queries / self._scales, k=np.arange(1, count + 1))
        return np.asarray(near.astype(np.int32).reshape(len(queries), count))

    def _given(self, queries: Array, near: Neighbours) -> tuple[Array, Array]:
        """Mean and what is explained, (T, 2), given these observations (T, m), and their weights."""
        h = self.hyperparameters
        most = self.kernel.variance(queries, h) + self.kernel.sigmas(h.theta).max() ** 2
        try:
            found, weights, jitter = means(self._points, queries, near, most)
        except NotPositiveDefiniteError:
            raise self._failure(near.shape[1]) from None
        self.jitter = max(self.jitter, jitter)
        return found, weights

    def _failure(self, count: int) -> ThetaError:
        what = f"the covariance of the {count} observations at a query is not positive definite, even with jitter,"
        return ThetaError(f"{owner(self._agent)}: {what}", self.hyperparameters.theta, MORE_NOISE)
