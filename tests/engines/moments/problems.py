"""Data and an independent likelihood for the tests of the moments engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np
import pytest

from fleetgp.arrays import Array
from fleetgp.engines.moments import sums
from fleetgp.kernels.stationary import KERNELS
from tests.conftest import paper_shards

SE = KERNELS["se"]
THETA = np.array([1.2, 0.3, 1.3, 0.1])
#: Transforms of more nodes take too long here.
SLOW = 2e6
#: The ways to read the data.
WAYS = [
    "tiles",
    pytest.param("transform", marks=pytest.mark.skipif(sums.library() is None, reason="needs finufft")),
]


@contextmanager
def summed_by(way: str) -> Iterator[pytest.MonkeyPatch]:
    """Sums over data in one of the two ways, though it may not be the faster one. The largest grids stay with tiles."""

    def chosen(sizes: tuple[int, ...], _: int) -> bool:
        return way == "transform" and len(sizes) < 4 and prod(4 * size for size in sizes) < SLOW

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sums, "worthwhile", chosen)
        yield patch


def exact_nll(inputs: Array, observations: Array, theta: Array) -> float:
    """The likelihood in extended precision: its own kernel, its own Cholesky."""
    x, y, t = (np.asarray(a, dtype=np.longdouble) for a in (inputs, observations, theta))
    s = (((x[:, None, :] - x[None, :, :]) / t[:-2]) ** 2).sum(axis=2)
    c = t[-2] ** 2 * np.exp(-s) + t[-1] ** 2 * np.eye(len(y), dtype=np.longdouble)
    right = y.copy()
    log_determinant = np.longdouble(0.0)
    for k in range(len(y)):
        pivot = np.sqrt(c[k, k])
        log_determinant += 2 * np.log(pivot)
        column = c[k + 1 :, k] / pivot
        right[k] /= pivot
        right[k + 1 :] -= column * right[k]
        c[k + 1 :, k + 1 :] -= column[:, None] * column
    return float((right @ right + log_determinant) / 2)


def places(kind: str, n: int, dimension: int, rng: np.random.Generator) -> Array:
    if kind == "clusters":
        centres = rng.uniform(0, 2, (3, dimension))
        return np.asarray(centres[rng.integers(0, 3, n)] + 1e-3 * rng.standard_normal((n, dimension)))
    if kind == "line":
        return np.asarray(rng.uniform(0, 2, (n, 1)) * np.eye(dimension)[0] + 0.7)
    if kind == "diagonal":
        return np.asarray(rng.uniform(0, 2, (n, 1)) * np.ones(dimension))
    if kind == "repeats":
        return np.asarray(rng.uniform(0, 2, (5, dimension))[rng.integers(0, 5, n)])
    if kind == "far":
        return rng.uniform(0, 2, (n, dimension)) + 1e6
    return rng.uniform(0, 2, (n, dimension))


def spread_out(rows: int, dimension: int) -> tuple[Array, Array]:
    """The first rows of the paper's field, in any number of dimensions."""
    x, y = paper_shards(900, 1)[0]
    return np.tile(x[:rows], (1, 5))[:, :dimension] * np.linspace(1, 1.7, dimension), y[:rows]


def exact_mean(inputs: Array, observations: Array, queries: Array, theta: Array) -> Array:
    """The posterior's mean in extended precision."""
    x, y, q, t = (np.asarray(a, dtype=np.longdouble) for a in (inputs, observations, queries, theta))

    def kernel(a: Any, b: Any) -> Any:
        return t[-2] ** 2 * np.exp(-(((a[:, None] - b[None]) / t[:-2]) ** 2).sum(axis=2))

    c = kernel(x, x) + t[-1] ** 2 * np.eye(len(y), dtype=np.longdouble)
    for j in range(len(y)):  # Gauss, without pivots: C is positive definite
        factors = c[j + 1 :, j] / c[j, j]
        c[j + 1 :, j:] -= factors[:, None] * c[j, j:]
        y[j + 1 :] -= factors * y[j]
    weights = np.zeros_like(y)
    for j in range(len(y) - 1, -1, -1):
        weights[j] = (y[j] - c[j, j + 1 :] @ weights[j + 1 :]) / c[j, j]
    return np.asarray(kernel(q, x) @ weights, dtype=float)
