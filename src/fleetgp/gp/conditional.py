"""The joint posterior of f at several points, given observations whose covariance is factorized."""

from __future__ import annotations

import numpy as np

from fleetgp.arrays import Array
from fleetgp.gp.hyperparameters import Hyperparameters
from fleetgp.gp.kernels import Kernel
from fleetgp.linalg.cholesky import Cholesky


def mean_and_covariance(
    kernel: Kernel, h: Hyperparameters, inputs: Array, factor: Cholesky, weights: Array, queries: Array
) -> tuple[Array, Array]:
    """Mean (T,) and covariance (T, T) of f at the queries, given observations y at the inputs (N, D).

    factor: of C, the covariance of the observations.  weights: C^-1 y, (N,).
    """
    cross = kernel(inputs, queries, h)
    mean = weights @ cross
    half = factor.half_solve_in_place(cross)
    return mean, symmetric(kernel(queries, None, h) - half.T @ half)


def symmetric(covariance: Array) -> Array:
    """A covariance without what rounding has done to its symmetry, and to variances of zero.

    >>> symmetric(np.array([[1.0, 0.5], [0.3, -1e-17]])).tolist()
    [[1.0, 0.4], [0.4, 0.0]]
    """
    found = 0.5 * (covariance + covariance.T)
    np.fill_diagonal(found, np.maximum(np.diagonal(found), 0.0))
    return np.asarray(found)
