"""The exact posterior of observations whose covariance is one matrix.

It is the dense engine's, and that of a few nearest observations.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.engines.base import Slopes, joined, symmetric
from fleetgp.engines.basis import Basis
from fleetgp.engines.covariances import between, covariance_of, cross_of, slopes_of
from fleetgp.errors import NumericalError
from fleetgp.kernels.stationary import Kernel
from fleetgp.linalg.cholesky import Cholesky, factorize
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations


class ExactPosterior:
    """f | D_i at fixed theta; eqs. (local_mean), (local_variance), (local_covariance)."""

    engine = "dense"

    def __init__(self, data: Observations, kernel: Kernel, h: Hyperparameters, factor: Cholesky) -> None:
        self.data = data
        self.kernel = kernel
        self.hyperparameters = h
        self.jitter = factor.jitter
        self._factor = factor
        self._alpha = factor.solve(data.values)

    @classmethod
    def of(cls, data: Observations, kernel: Kernel, h: Hyperparameters, pivot: float = 0.0) -> ExactPosterior | None:
        """None where no jitter makes the covariance positive definite. pivot: see `factorize`."""
        factor = factorize(covariance_of(kernel, data, h), kernel.noise(data, h), pivot=pivot)
        return None if factor is None else cls(data, kernel, h, factor)

    def extended(self, data: Observations) -> ExactPosterior | None:
        """With more rows after its own, all of which are given; None where it has to be recomputed."""
        old, h = len(self.data), self.hyperparameters
        more = data.rows(slice(old, None))
        if not len(more):
            return self
        cross, corner = between(self.kernel, self.data, more, h), covariance_of(self.kernel, more, h)
        factor = self._factor.extended(cross, corner, self.kernel.noise(more, h))
        return None if factor is None else ExactPosterior(data, self.kernel, h, factor)

    def left_out(self) -> tuple[Array, Array]:
        """How far each observation is from the mean given all others, and the variance of f there, (N,) each.

        With C the covariance, noise and all: (C^-1 y)_n / (C^-1)_nn and 1 / (C^-1)_nn - sigma_n^2.
        """
        half = self._factor.half_solve(np.eye(len(self.data)))
        precision = np.einsum("mn,mn->n", half, half)
        noise = self.kernel.noise(self.data, self.hyperparameters) + self.jitter
        return self._alpha / precision, np.maximum(1.0 / precision - noise, 0.0)

    def _cross(self, queries: Array) -> Array:
        return cross_of(self.kernel, self.data, queries, self.hyperparameters)

    def mean_and_variance(self, queries: Array) -> tuple[Array, Array]:
        """Mean and variance of f at the queries, (T,) and (T,); the variance is never negative."""
        cross = self._cross(queries)
        mean = self._alpha @ cross
        prior = self.kernel.variance(queries, self.hyperparameters)
        return mean, np.maximum(prior - self._explained(cross), 0.0)

    def mean_and_covariance(self, queries: Array) -> tuple[Array, Array]:
        """Mean and covariance of f at the queries, (T,) and (T, T), which is symmetric; no variance is negative."""
        cross = self._cross(queries)
        mean = self._alpha @ cross
        half = self._factor.half_solve_in_place(cross)
        return mean, symmetric(self.kernel(queries, None, self.hyperparameters) - half.T @ half)

    def slopes(self, queries: Array) -> Slopes:
        """The derivatives of mean and variance by the inputs of the queries."""
        changes = slopes_of(self.kernel, self.data, queries, self.hyperparameters)  # (D, N, T)
        solved = self._factor.solve(self._cross(queries))
        of_prior, bends = self.kernel.curvature(queries, self.hyperparameters)
        halves = np.stack([self._factor.half_solve(change) for change in changes])
        return Slopes(
            np.einsum("n,dnt->td", self._alpha, changes),
            of_prior - 2.0 * np.einsum("nt,dnt->td", solved, changes),
            bends - np.einsum("ant,bnt->tab", halves, halves),
        )

    def explained_variance(self, queries: Array) -> Array:
        """[k_A]_i = k_i*' C_i^-1 k_i*, (T,): NPAE's cross-covariance and CBNN's correlation."""
        return self._explained(self._cross(queries))

    def _explained(self, cross: Array) -> Array:
        """k_i*' C_i^-1 k_i* from k_i*, which is overwritten."""
        half = self._factor.half_solve_in_place(cross)
        return np.asarray(np.einsum("nt,nt->t", half, half))

    def weighted(self, queries: Array) -> tuple[Observations, Array]:
        """All observations, and their weights C_i^-1 k_i*, (N_i, T)."""
        return self.data, self._factor.solve(self._cross(queries))

    def projected(self, basis: Basis, queries: Array) -> Array:
        """Phi_i' C_i^-1 k_i*, (r, T), for a basis phi on a box that holds the inputs."""
        _, weights = self.weighted(queries)
        return np.asarray(self.data.mean(basis.at(self.data.places)).T @ weights)


def slopes_of_each(
    kernel: Kernel,
    h: Hyperparameters,
    data: Observations,
    rows: IntArray,
    queries: Array,
    failure: Callable[[IntArray], NumericalError],
) -> tuple[Slopes, float]:
    """At each query given its own rows (T, m) of the data, and the largest jitter.

    failure: the error where the covariance of some rows cannot be factorized.
    """
    result, jitter = [], 0.0
    for near, query in zip(rows, queries, strict=True):
        posterior = ExactPosterior.of(data.rows(near), kernel, h)
        if posterior is None:
            raise failure(near)
        jitter = max(jitter, posterior.jitter)
        result.append(posterior.slopes(query[None]))
    return joined(result, queries.shape[1]), jitter


def cross_covariance(kernel: Kernel, h: Hyperparameters, one: tuple[Array, Array], other: tuple[Array, Array]) -> Array:
    """Eq. (cross_covariance) for i != j: w_i' k(X_i, X_j) w_j at each query, (T,), from inputs X (N, D) and weights w
    (N, T) of both; no noise term.

    For i = j it is `explained_variance`, since there C_ii holds the noise.
    """
    (inputs, weights), (other_inputs, other_weights) = one, other
    return np.asarray(np.einsum("nt,nt->t", weights, kernel(inputs, other_inputs, h) @ other_weights))
