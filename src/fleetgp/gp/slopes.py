"""Derivatives of a posterior by the inputs of its queries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.errors import NumericalError
from fleetgp.gp.hyperparameters import Hyperparameters
from fleetgp.gp.kernels import Kernel
from fleetgp.linalg.cholesky import Cholesky, factorize
from fleetgp.model.observations import Observations


@dataclass(frozen=True)
class Slopes:
    """By the D columns of T queries: of the mean and of the variance of f, (T, D) each.

    covariance: (T, D, D) of the derivatives of f; infinite where it has none.
    """

    mean: Array
    variance: Array
    covariance: Array


def slopes_given(
    kernel: Kernel, h: Hyperparameters, inputs: Array, factor: Cholesky, weights: Array, queries: Array
) -> Slopes:
    """At the queries (T, D), given observations y at the inputs (N, D).

    factor: of C, the covariance of the observations.  weights: C^-1 y, (N,).
    """
    changes = kernel.slopes(inputs, queries, h)  # (D, N, T)
    solved = factor.solve(kernel(inputs, queries, h))
    of_prior, bends = kernel.curvature(queries, h)
    halves = np.stack([factor.half_solve(change) for change in changes])
    return Slopes(
        np.einsum("n,dnt->td", weights, changes),
        of_prior - 2.0 * np.einsum("nt,dnt->td", solved, changes),
        bends - np.einsum("ant,bnt->tab", halves, halves),
    )


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
    found, jitter, noise = [], 0.0, kernel.noise(data, h)
    for near, query in zip(rows, queries, strict=True):
        inputs, values = data.inputs[near], data.values[near]
        factor = factorize(kernel(inputs, None, h), noise[near])
        if factor is None:
            raise failure(near)
        jitter = max(jitter, factor.jitter)
        found.append(slopes_given(kernel, h, inputs, factor, factor.solve(values), query[None]))
    return joined(found, queries.shape[1]), jitter


def joined(parts: list[Slopes], dimension: int) -> Slopes:
    """One after the other, of queries with so many columns."""
    empty = np.zeros((0, dimension))
    return Slopes(
        np.concatenate([empty, *(part.mean for part in parts)]),
        np.concatenate([empty, *(part.variance for part in parts)]),
        np.concatenate([np.zeros((0, dimension, dimension)), *(part.covariance for part in parts)]),
    )
