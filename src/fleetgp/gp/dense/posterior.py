"""The exact posterior of one agent, and what the means of two agents have in common."""

from __future__ import annotations

import numpy as np

from fleetgp.arrays import Array
from fleetgp.gp.basis import Basis
from fleetgp.gp.conditional import mean_and_covariance
from fleetgp.gp.hyperparameters import Hyperparameters
from fleetgp.gp.kernels import Kernel
from fleetgp.gp.slopes import Slopes, slopes_given
from fleetgp.linalg.cholesky import Cholesky
from fleetgp.model.observations import Observations


class DensePosterior:
    """f | D_i at fixed theta; eqs. (local_mean), (local_variance), (local_covariance)."""

    engine = "dense"

    def __init__(self, data: Observations, kernel: Kernel, h: Hyperparameters, factor: Cholesky) -> None:
        self.data = data
        self.kernel = kernel
        self.hyperparameters = h
        self.jitter = factor.jitter
        self._factor = factor
        self._alpha = factor.solve(data.values)

    def extended(self, data: Observations) -> DensePosterior | None:
        """With more rows after those that it is of, all of which are given; None where it has to be computed anew."""
        old, h = len(self.data), self.hyperparameters
        more = data.rows(slice(old, None))
        if not len(more):
            return self
        cross, corner = self.kernel(self.data.inputs, more.inputs, h), self.kernel(more.inputs, None, h)
        factor = self._factor.extended(cross, corner, self.kernel.noise(more, h))
        return None if factor is None else DensePosterior(data, self.kernel, h, factor)

    def left_out(self) -> tuple[Array, Array]:
        """How far each observation is from the mean given all others, and the variance of f there, (N,) each.

        With C the covariance, noise and all: (C^-1 y)_n / (C^-1)_nn and 1 / (C^-1)_nn - sigma_n^2.
        """
        half = self._factor.half_solve(np.eye(len(self.data)))
        precision = np.einsum("mn,mn->n", half, half)
        noise = self.kernel.noise(self.data, self.hyperparameters) + self.jitter
        return self._alpha / precision, np.maximum(1.0 / precision - noise, 0.0)

    def _cross(self, queries: Array) -> Array:
        return self.kernel(self.data.inputs, queries, self.hyperparameters)

    def mean_and_variance(self, queries: Array) -> tuple[Array, Array]:
        """Mean and variance of f at the queries, (T,) and (T,); the variance is never negative."""
        cross = self._cross(queries)
        mean = self._alpha @ cross
        prior = self.kernel.variance(queries, self.hyperparameters)
        return mean, np.maximum(prior - self._explained(cross), 0.0)

    def mean_and_covariance(self, queries: Array) -> tuple[Array, Array]:
        """Mean and covariance of f at the queries, (T,) and (T, T), which is symmetric; no variance is negative."""
        h = self.hyperparameters
        return mean_and_covariance(self.kernel, h, self.data.inputs, self._factor, self._alpha, queries)

    def slopes(self, queries: Array) -> Slopes:
        """The derivatives of mean and variance by the inputs of the queries."""
        return slopes_given(self.kernel, self.hyperparameters, self.data.inputs, self._factor, self._alpha, queries)

    def explained_variance(self, queries: Array) -> Array:
        """[k_A]_i = k_i*' C_i^-1 k_i*, (T,): NPAE's cross-covariance and CBNN's correlation."""
        return self._explained(self._cross(queries))

    def _explained(self, cross: Array) -> Array:
        """k_i*' C_i^-1 k_i* from k_i*, which is overwritten."""
        half = self._factor.half_solve_in_place(cross)
        return np.asarray(np.einsum("nt,nt->t", half, half))

    def weights(self, queries: Array) -> Array:
        """C_i^-1 k_i*, (N_i, T): what another agent needs, with X_i, for a cross-covariance."""
        return self._factor.solve(self._cross(queries))

    def weighted(self, queries: Array) -> tuple[Observations, Array]:
        """All observations, and their weights."""
        return self.data, self.weights(queries)

    def projected(self, basis: Basis, queries: Array) -> Array:
        """Phi_i' C_i^-1 k_i*, (r, T), for a basis phi on a box that holds the inputs."""
        return np.asarray(basis.at(self.data.inputs).T @ self.weights(queries))


def cross_covariance(kernel: Kernel, h: Hyperparameters, one: tuple[Array, Array], other: tuple[Array, Array]) -> Array:
    """Eq. (cross_covariance) for i != j: w_i' k(X_i, X_j) w_j at each query, (T,), from inputs X (N, D) and weights w
    (N, T) of both; no noise term.

    For i = j it is `explained_variance`, since there C_ii holds the noise.
    """
    (inputs, weights), (other_inputs, other_weights) = one, other
    return np.asarray(np.einsum("nt,nt->t", weights, kernel(inputs, other_inputs, h) @ other_weights))
