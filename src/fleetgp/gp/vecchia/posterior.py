"""The posterior of one agent's data, at each query from the observations nearest to it."""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from fleetgp.arrays import Array
from fleetgp.gp.basis import Basis
from fleetgp.gp.failure import MORE_NOISE, ThetaError, owner
from fleetgp.gp.hyperparameters import Hyperparameters
from fleetgp.gp.kernels import Kernel
from fleetgp.gp.vecchia import plain
from fleetgp.gp.vecchia.likelihood import in_parts, points
from fleetgp.gp.vecchia.neighbours import Neighbours

#: Doubles of all that a query's neighbours are multiplied with, at a time.
WORK = 1 << 22


class VecchiaPosterior:
    """f | D_i at fixed theta. Nothing is factorized before a query comes; then one small matrix for each.

    jitter: the largest that a query has needed so far.
    """

    engine = "vecchia"

    def __init__(
        self, inputs: Array, observations: Array, kernel: Kernel, h: Hyperparameters, neighbours: int, agent: int | None
    ) -> None:
        self.inputs, self.kernel, self.hyperparameters = inputs, kernel, h
        self.jitter, self._agent = 0.0, agent
        self._data = points(kernel, inputs, observations, h)
        self._neighbours = min(neighbours, len(observations))
        self._scales, _ = kernel.scales(h, inputs.shape[1])
        self._tree = cKDTree(inputs / self._scales)

    def mean_and_variance(self, queries: Array) -> tuple[Array, Array]:
        """Mean and variance of f at the queries, (T,) and (T,); the variance is never negative."""
        found, _, _ = self._asked(queries)
        prior = self.kernel.variance(queries, self.hyperparameters)
        return found[:, 0], np.maximum(prior - found[:, 1], 0.0)

    def explained_variance(self, queries: Array) -> Array:
        """[k_A]_i = k_i*' C_i^-1 k_i*, (T,), from the nearest observations."""
        found, _, _ = self._asked(queries)
        return found[:, 1]

    def weighted(self, queries: Array) -> tuple[Array, Array]:
        """The observations that count for any of the queries, their inputs (n, D), and their weights (n, T)."""
        _, near, weights = self._asked(queries)
        used, place = np.unique(near, return_inverse=True)
        found = np.zeros((len(used), len(queries)))
        found[place.reshape(near.shape), np.arange(len(queries))[:, None]] = weights
        return self.inputs[used], found

    def projected(self, basis: Basis, queries: Array) -> Array:
        """Phi_i' C_i^-1 k_i*, (r, T), for a basis phi on a box that holds the inputs."""
        _, near, weights = self._asked(queries)
        found = np.empty((basis.rank, len(queries)))
        step = max(1, WORK // (basis.rank * self._neighbours))
        for start in range(0, len(queries), step):
            some = slice(start, start + step)
            values = basis.at(self.inputs[near[some]].reshape(-1, self.inputs.shape[1]))
            found[:, some] = np.einsum("tmr,tm->rt", values.reshape(*near[some].shape, -1), weights[some])
        return found

    def _asked(self, queries: Array) -> tuple[Array, Neighbours, Array]:
        """Mean and what is explained, (T, 2); the nearest observations (T, m); their weights."""
        data, count = self._data, self._neighbours
        _, near = self._tree.query(queries / self._scales, k=np.arange(1, count + 1))
        near = near.astype(np.int32).reshape(len(queries), count)
        found, weights = np.full((len(queries), 2), np.nan), np.zeros((len(queries), count))
        data.fast_means(queries, near, found, weights)
        h = self.hyperparameters
        most = self.kernel.variance(queries, h) + h.noise**2
        wrong = np.flatnonzero(~(np.isfinite(found).all(axis=1) & (found[:, 1] <= most)))
        for part in in_parts(len(wrong), count):
            some = wrong[part]
            try:
                with np.errstate(all="ignore"):
                    found[some], weights[some], jitter = data.means(queries[some], near[some])
            except plain.NotPositiveDefiniteError:
                what = (
                    f"the covariance of the {count} observations at a query is not positive definite, even with jitter,"
                )
                raise ThetaError(f"{owner(self._agent)}: {what}", h.theta, MORE_NOISE) from None
            self.jitter = max(self.jitter, jitter)
        return found, near, weights
