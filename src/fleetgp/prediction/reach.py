"""How much of the variance an agent explains, at least and at most, from the distance to its nearest observation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.spatial import cKDTree

from fleetgp.arrays import Array, IntArray
from fleetgp.gp.hyperparameters import Hyperparameters
from fleetgp.gp.kernels import KERNELS, Kernel, Stationary
from fleetgp.linalg.threads import side_by_side
from fleetgp.prediction.local import nearest

#: What rounding and jitter (at most 1e-6 of the diagonal) may do to the bounds, relatively, with a margin of ten.
SLACK = 1e-5


class Reach:
    """Bounds of k_i*' C_i^-1 k_i* with C_i = K_i + sigma_eps^2 I, for every hosted agent i.

    No set of observations explains less than one of them alone: at least k^2 / (sigma_f^2 + sigma_eps^2), with k the
    covariance with the nearest one. And C_i^-1 <= I / sigma_eps^2: at most N_i k^2 / sigma_eps^2, if no covariance is
    larger than with the nearest. That holds for kernels that fall with the distance, as all of `KERNELS` do.
    """

    def __init__(self, inputs: Sequence[Array], thetas: Array, kernel: Kernel) -> None:
        self._models = [Hyperparameters.from_theta(theta) for theta in thetas]
        self._sizes = [len(x) for x in inputs]
        self._kernel = kernel
        self._falls = type(kernel) in map(type, KERNELS.values())  # also one that came from another process
        self._scales = [kernel.scales(h, inputs[0].shape[1])[0] for h in self._models]
        self._trees = [cKDTree(x / scales) for x, scales in zip(inputs, self._scales, strict=True)]

    def renew(self, i: int, inputs: Array) -> None:
        """All inputs of one agent, which has got more."""
        self._sizes[i], self._trees[i] = len(inputs), cKDTree(inputs / self._scales[i])

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
