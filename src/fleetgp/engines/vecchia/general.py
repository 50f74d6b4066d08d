"""Composite kernels for the Vecchia engine: their layout as arrays, and batches of conditionals.

A composite kernel as arrays: for compiled loops.

Conditional densities and means with any kernel, in the units of the data: `plain` has the formulas.

Here every observation has a noise of its own, and the derivatives are by all hyperparameters themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.engines.vecchia.ordering import Neighbours
from fleetgp.engines.vecchia.plain import SMALLEST, NotPositiveDefiniteError, halves
from fleetgp.kernels.composite import Composite, Leaf, Linear, Periodic, RationalQuadratic, Scaled
from fleetgp.linalg.cholesky import JITTERS
from fleetgp.linalg.compiling import compiled_module
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations

#: The leaves that compiled loops know, by their numbers; the first four are those of `compiled`.
PROFILES = {"se": 0, "matern12": 1, "matern32": 2, "matern52": 3}
RQ, PERIODIC, LINEAR = 4, 5, 6


class Layout(NamedTuple):
    """kinds: (L,) of the leaves.  alike: (L,) whether all inputs have one length-scale.

    axes: the inputs of all leaves, one leaf after the other; `starts` (L + 1,) tells where each begins.
    theta: (P,). first: (L + 1,) where the hyperparameters of each leaf begin in it; the last one is where those of the
    terms begin.  terms: (S, L) which leaves are in which term.  variances: (S,) of the terms.
    """

    kinds: IntArray
    alike: BoolArray
    starts: IntArray
    axes: IntArray
    theta: Array
    first: IntArray
    terms: BoolArray
    variances: Array


def layout(kernel: Composite, h: Hyperparameters) -> Layout | None:
    """Of a kernel at a theta; None if one of its leaves is not known to compiled loops."""
    leaves, kinds = kernel.leaves, [_kind(leaf) for leaf in kernel.leaves]
    if None in kinds:
        return None
    terms = np.zeros((len(kernel.terms), len(leaves)), dtype=np.bool_)
    for row, term in zip(terms, kernel.terms, strict=True):
        row[list(term)] = True
    return Layout(
        np.array(kinds),
        np.array([isinstance(leaf, Scaled) and leaf.alike for leaf in leaves]),
        np.cumsum([0, *(len(leaf.axes) for leaf in leaves)]),
        np.array([axis for leaf in leaves for axis in leaf.axes]),
        h.theta,
        np.cumsum([0, *(len(leaf.units()) for leaf in leaves)]),
        terms,
        kernel.split(h)[1],
    )


def _kind(leaf: Leaf) -> int | None:
    if type(leaf) is Scaled:
        return PROFILES.get(leaf.profile)
    return {RationalQuadratic: RQ, Periodic: PERIODIC, Linear: LINEAR}.get(type(leaf))


@dataclass(frozen=True)
class General:
    """Points in their order: inputs (N, D), observations (N,), variances of their noise (N,), and the derivatives of
    these by the logarithms of the hyperparameters of the noise, (Q, N).
    """

    kernel: Composite
    inputs: Array
    values: Array
    noise: Array
    slopes: Array
    h: Hyperparameters

    @classmethod
    def of(cls, kernel: Composite, data: Observations, h: Hyperparameters) -> General:
        inputs = np.ascontiguousarray(data.inputs)
        return cls(kernel, inputs, data.values, kernel.noise(data, h), kernel.noise_slopes(data, h), h)

    @property
    def own(self) -> int:
        """How many hyperparameters are of the covariance."""
        return len(self.h.theta) - len(self.slopes)

    @property
    def width(self) -> int:
        """Of a row of `conditionals`."""
        return len(self.h.theta) + 2

    def fast_conditionals(self, rows: IntArray, near: Neighbours, found: Array) -> None:
        """As `conditionals`, where there are compiled loops."""
        loops, kernel = compiled_module("fleetgp.engines.vecchia.compiled_general"), layout(self.kernel, self.h)
        if loops is not None and kernel is not None:
            loops.conditionals(kernel, self.inputs, self.values, self.noise, self.slopes, rows, near, found)

    def fast_means(self, queries: Array, near: Neighbours, found: Array, weights: Array) -> None:
        """As `means`, likewise."""
        loops, kernel = compiled_module("fleetgp.engines.vecchia.compiled_general"), layout(self.kernel, self.h)
        if loops is not None and kernel is not None:
            queries = np.ascontiguousarray(queries)
            loops.means(kernel, self.inputs, self.values, self.noise, queries, near, found, weights)

    def conditionals(self, rows: IntArray, near: Neighbours) -> tuple[Array, float]:
        """(n, 2 + P) of the points `rows` with neighbours near (n, m), and the largest jitter, over the variances.

        (log v + e^2 / v) / 2, its derivatives by the hyperparameters of the covariance, e^2 / v, and the derivatives by
        those of the noise.
        """
        everyone = np.concatenate([near, rows[:, None]], axis=1)
        covariance = self.kernel.at(self.inputs[everyone], None, self.h)
        c, jitter = _noisy(covariance.matrix, self.noise[everyone])
        if c is None:  # one of them is not positive definite: half of them at a time
            found = [self.conditionals(rows[half], near[half]) for half in halves(len(rows))]
            return np.concatenate([values for values, _ in found]), max(jitter for _, jitter in found)
        k, observed = c[:, -1, :-1], self.values[near]
        a, alpha = np.moveaxis(np.linalg.solve(c[:, :-1, :-1], np.stack([k, observed], axis=2)), 2, 0)
        v = c[:, -1, -1] - np.einsum("nm,nm->n", k, a)
        e = self.values[rows] - np.einsum("nm,nm->n", a, observed)
        u = np.pad(-a, ((0, 0), (0, 1)), constant_values=1.0)
        w = np.pad(-alpha, ((0, 0), (0, 1)))
        t = (0.5 * (1.0 - e * e / v) / v)[:, None] * u + (e / v)[:, None] * w
        by_own = covariance.contract(u[:, :, None] * t[:, None])
        by_noise = np.einsum("np,qnp->nq", u * t, self.slopes[:, everyone])
        return np.column_stack([0.5 * (np.log(v) + e * e / v), by_own, e * e / v, by_noise]), jitter

    def together(self, count: int) -> tuple[Array, float]:
        """(2 + P,) as of `conditionals`, of the first points together, and the jitter."""
        covariance = self.kernel.at(self.inputs[:count], None, self.h)
        c, jitter = _noisy(covariance.matrix[None], self.noise[None, :count])
        assert c is not None  # of a single one
        alpha = np.linalg.solve(c[0], self.values[:count])
        b = np.linalg.inv(c[0]) - np.outer(alpha, alpha)
        square = float(self.values[:count] @ alpha)
        value = 0.5 * (square + np.linalg.slogdet(c[0]).logabsdet)
        by_noise = 0.5 * self.slopes[:, :count] @ np.diagonal(b)
        return np.array([value, *(0.5 * covariance.contract(b)), square, *by_noise]), jitter

    def means(self, queries: Array, near: Neighbours) -> tuple[Array, Array, float]:
        """(T, 2) mean and what is explained of the prior variance; the weights (T, m); and the largest jitter."""
        points = self.inputs[near]
        c, jitter = _noisy(self.kernel.at(points, None, self.h).matrix, self.noise[near])
        if c is None:
            parts = [self.means(queries[half], near[half]) for half in halves(len(near))]
            values, weights, jitters = zip(*parts, strict=True)
            return np.concatenate(values), np.concatenate(weights), max(jitters)
        k = self.kernel.at(points, queries[:, None], self.h).matrix
        a = np.asarray(np.linalg.solve(c, k)[..., 0], dtype=np.float64)
        both = np.einsum("tm,tm->t", a, self.values[near]), np.einsum("tm,tm->t", a, k[..., 0])
        return np.stack(both, axis=1), a, jitter

    def summed(self, total: Array) -> tuple[float, Array]:
        """The likelihood and its log-gradient from the sum of all rows."""
        return float(total[0]), np.concatenate([total[1 : 1 + self.own], total[2 + self.own :]])


def _noisy(matrices: Array, noise: Array) -> tuple[Array | None, float]:
    """With the noise (n, m) on their diagonals, (n, m, m), and the jitter; that of a single one with what it needs.

    None if, of several, one is not positive definite.
    """
    if not np.isfinite(matrices).all():
        raise NotPositiveDefiniteError
    eye = np.eye(matrices.shape[-1])
    size = (np.einsum("nii->n", matrices) + noise.sum(axis=1)) / matrices.shape[-1]
    for jitter in JITTERS:
        c = matrices + (noise + jitter * size[:, None])[:, :, None] * eye
        try:
            lower = np.linalg.cholesky(c)
        except np.linalg.LinAlgError:
            if len(c) > 1:
                return None, 0.0
            continue
        # Rounding can let a singular matrix pass.
        if (np.diagonal(lower, axis1=1, axis2=2) ** 2 > SMALLEST * size[:, None]).all():
            return c, jitter * float(size.max())
        if len(c) > 1:
            return None, 0.0
    raise NotPositiveDefiniteError
