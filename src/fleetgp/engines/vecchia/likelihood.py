"""The likelihood of N points as the product of N conditional densities, and its gradient in log theta.

The first m points are taken together. Every other one is given its m nearest earlier ones. With C the covariance of a
point's neighbours, noise and all, k that with the point itself, a = C^-1 k and alpha = C^-1 y:

    v = k(x, x) + noise - k'a        e = y_i - a'y        -log p(y_i | neighbours) = (log v + e^2 / v) / 2

A change of the covariances of all m + 1 points, dC, changes v by u'dC u and e by u'dC w, with u = (-a, 1) and
w = (-alpha, 0). So all derivatives are sums over pairs of points,

    d = sum_pq u_p t_q dC_pq        t = (1 - e^2 / v) u / 2v + e w / v

`StationaryData` is for a stationary kernel, in units of sigma_f, `CompositeData` for any other, and `MeansData` for
observations that are means over several points. Compiled loops (`compiled`) do the same where there is Numba; where a
covariance is not positive definite NumPy finds the jitter.
"""

from __future__ import annotations

import abc
from functools import cached_property
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.engines.base import Evaluation
from fleetgp.engines.covariances import MeanCovariance, RowNumbers, between, covariance_of, cross_of_stacks, variance_of
from fleetgp.engines.vecchia.ordering import Neighbours
from fleetgp.kernels.composite import (
    Composite,
    CompositeCovariance,
    Leaf,
    Linear,
    Periodic,
    RationalQuadratic,
    Scaled,
    as_composite,
)
from fleetgp.kernels.stationary import KERNELS, Kernel, Matern12, Matern32, Matern52, SquaredExponential, Stationary
from fleetgp.linalg.cholesky import JITTERS, factorize
from fleetgp.linalg.compiling import compiled_module
from fleetgp.linalg.threads import spread
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations, Points

#: Points of which the sum is taken at a time, whatever the number of threads: all have the same bits.
CHUNK = 2048
#: Doubles of one of the arrays that NumPy works on at a time.
WORK = 1 << 20
#: Squared pivots below this part of the diagonal are rounding.
SMALLEST = 1e-15


class NotPositiveDefiniteError(Exception):
    """A covariance cannot be factorized, even with jitter."""


def compiled() -> ModuleType | None:
    """The compiled inner loops; None where there is no Numba."""
    return compiled_module("fleetgp.engines.vecchia.compiled")


# ---- the points ------------------------------------------------------------------------------------------------------


class OrderedData(abc.ABC):
    """Observations in their order, at one theta.

    width: of a row that an observation adds to the sum: (log v + e^2 / v) / 2, its derivatives by the `own`
        hyperparameters of the covariance, e^2 / v, and the derivatives by those of the noise.
    unit: of the observations here, in those of the data.
    most: how many points an observation is the mean of, at most.
    """

    inputs: Array
    values: Array
    h: Hyperparameters
    own: int
    width: int
    unit: float
    most: int = 1

    @abc.abstractmethod
    def fast_conditionals(self, rows: IntArray, near: Neighbours, result: Array) -> None:
        """Rows (n, width) of the points `rows` with neighbours near (n, m), where compiled loops have them."""

    @abc.abstractmethod
    def fast_means(self, queries: Array, near: Neighbours, result: Array, weights: Array) -> None:
        """Mean and what is explained of the prior variance, (T, 2), and the weights (T, m), where compiled."""

    @abc.abstractmethod
    def together(self, count: int) -> tuple[Array, float]:
        """The row (width,) of the first points together, -log p(y) all of it at once, and the jitter."""

    @abc.abstractmethod
    def summed(self, total: Array) -> tuple[float, Array]:
        """The likelihood and its log-gradient from the sum of all rows."""

    @abc.abstractmethod
    def _covariance(self, near: RowNumbers) -> tuple[Array | None, float, Any]:
        """C (n, m, m) of points (n, m), the jitter in units of the data's variances, and what its derivatives are of.

        None if, of several, one is not positive definite; of a single one with the jitter that it needs.
        """

    @abc.abstractmethod
    def _cross(self, near: RowNumbers, queries: Array) -> Array:
        """k between points (T, m) and queries (T, D), (T, m, 1)."""

    @abc.abstractmethod
    def _derivatives(self, of: Any, near: RowNumbers, u: Array, t: Array) -> tuple[Array, Array]:
        """sum_pq u_p t_q dC_pq by the hyperparameters of the covariance and by those of the noise, one row a point."""

    def conditionals(self, rows: IntArray, near: Neighbours) -> tuple[Array, float]:
        """Rows (n, width) of the points `rows` with neighbours near (n, m), and the largest jitter."""
        everyone = np.concatenate([near, rows[:, None]], axis=1)
        c, jitter, of = self._covariance(everyone)
        if c is None:  # one of them is not positive definite: half of them at a time
            result = [self.conditionals(rows[half], near[half]) for half in halves(len(rows))]
            return np.concatenate([values for values, _ in result]), max(jitter for _, jitter in result)
        k, observed = c[:, -1, :-1], self.values[near]
        a, alpha = np.moveaxis(np.linalg.solve(c[:, :-1, :-1], np.stack([k, observed], axis=2)), 2, 0)
        v = c[:, -1, -1] - np.einsum("nm,nm->n", k, a)
        e = self.values[rows] - np.einsum("nm,nm->n", a, observed)
        u = np.pad(-a, ((0, 0), (0, 1)), constant_values=1.0)
        w = np.pad(-alpha, ((0, 0), (0, 1)))
        t = (0.5 * (1.0 - e * e / v) / v)[:, None] * u + (e / v)[:, None] * w
        by_own, by_noise = self._derivatives(of, everyone, u, t)
        return np.column_stack([0.5 * (np.log(v) + e * e / v), by_own, e * e / v, by_noise]), jitter

    def means(self, queries: Array, near: Neighbours) -> tuple[Array, Array, float]:
        """(T, 2) mean and what is explained of the prior variance; the weights (T, m); and the largest jitter."""
        c, jitter, _ = self._covariance(near)
        if c is None:
            parts = [self.means(queries[half], near[half]) for half in halves(len(near))]
            values, weights, jitters = zip(*parts, strict=True)
            return np.concatenate(values), np.concatenate(weights), max(jitters)
        k = self._cross(near, queries)
        a = np.asarray(np.linalg.solve(c, k)[..., 0], dtype=np.float64)
        both = np.einsum("tm,tm->t", a, self.values[near]), np.einsum("tm,tm->t", a, k[..., 0])
        return np.stack(both, axis=1) * [self.unit, self.unit**2], a, jitter

    def means_of(self, rows: IntArray, near: Neighbours, most: Array) -> tuple[Array, Array, float]:
        """As the function `means`, of the observations `rows` without their noise."""
        return means(self, self.inputs[rows], near, most)


def ordered_data(kernel: Kernel, data: Observations, h: Hyperparameters) -> OrderedData:
    """As this kernel and these observations need it."""
    if data.points is not None:
        return MeansData(kernel, data, data.points, h)
    if isinstance(kernel, Composite):
        return CompositeData(kernel, data, h)
    if kernel.noise_differs(data):
        return CompositeData(as_composite(kernel, data.dimension), data, h)
    assert isinstance(kernel, Stationary)
    return StationaryData(kernel, data, h)


def halves(count: int) -> tuple[slice, slice]:
    """Of as many points."""
    return slice(None, count // 2), slice(count // 2, None)


def _with_noise(matrices: Array, noise: Array, size: Array) -> tuple[Array | None, float]:
    """Covariances with noise (n, m) on their diagonals, (n, m, m), and the jitter relative to `size` (n,).

    None if, of several, one is not positive definite; a single one gets the jitter that it needs.
    """
    if not np.isfinite(matrices).all():
        raise NotPositiveDefiniteError
    eye = np.eye(matrices.shape[-1])
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
            return c, jitter
        if len(c) > 1:
            return None, 0.0
    raise NotPositiveDefiniteError


# ---- with a stationary kernel ----------------------------------------------------------------------------------------

#: The numbers of kernels and leaves in compiled loops.
SE, MATERN12, MATERN32, MATERN52, RQ, PERIODIC, LINEAR = range(7)
KINDS: dict[type[Stationary], int] = {
    SquaredExponential: SE,
    Matern12: MATERN12,
    Matern32: MATERN32,
    Matern52: MATERN52,
}


class StationaryData(OrderedData):
    r"""With a stationary kernel: the places (N, D) over the length-scales, and the observations (N,) over sigma_f.

    With r = (sigma_eps / sigma_f)^2 and everything in units of sigma_f, sigma_f itself enters by its logarithm, by r,
    and by the observations over it:

        l = sum_i (log v_i + e_i^2 / v_i) / 2 + N log sigma_f
        dl / d log sigma_f = N - sum_i e_i^2 / v_i - 2 dl / d log r        dl / d log sigma_eps = 2 dl / d log r
    """

    def __init__(self, kernel: Stationary, data: Observations, h: Hyperparameters) -> None:
        self.kernel, self.inputs, self.h = kernel, data.inputs, h
        self.places = self._placed(data.inputs)
        self.values = data.values / h.signal
        self.ratio, self.unit = (h.noise / h.signal) ** 2, h.signal
        self.own = int(self.places.shape[1])
        self.width = self.own + 3

    def _placed(self, inputs: Array) -> Array:
        return np.ascontiguousarray(inputs / np.asarray(self.h.length_scales))

    def fast_conditionals(self, rows: IntArray, near: Neighbours, result: Array) -> None:
        loops, kind = compiled(), KINDS.get(type(self.kernel))
        if loops is not None and kind is not None:
            loops.conditionals(kind, self.places, self.values, rows, near, self.ratio, result)

    def fast_means(self, queries: Array, near: Neighbours, result: Array, weights: Array) -> None:
        loops, kind = compiled(), KINDS.get(type(self.kernel))
        if loops is not None and kind is not None:
            size, prior = len(self.values), 1.0 + self.ratio
            data = self.places, np.arange(size + 1), self.values, np.full(size, prior)
            loops.means(kind, *data, np.full(len(queries), prior), self._placed(queries), near, result, weights)
            result *= [self.unit, self.unit**2]

    def _covariance(self, near: RowNumbers) -> tuple[Array | None, float, tuple[Array, Array]]:
        places = self.places[near]
        squares = np.asarray((places[:, :, None] - places[:, None]) ** 2)  # (n, m, m, D)
        phi, slope = self.kernel.profile_and_slope(squares.sum(axis=3))
        noise, size = np.full(near.shape, self.ratio), np.full(len(near), 1.0 + self.ratio)
        c, jitter = _with_noise(phi, noise, size)
        return c, jitter * (self.h.signal**2 + self.h.noise**2), (slope, squares)

    def _cross(self, near: RowNumbers, queries: Array) -> Array:
        apart = self.places[near] - self._placed(queries)[:, None]
        return self.kernel.profile_and_slope((apart**2).sum(axis=2))[0][..., None]

    def _derivatives(self, of: tuple[Array, Array], near: RowNumbers, u: Array, t: Array) -> tuple[Array, Array]:
        slope, squares = of
        by_scales = 2.0 * np.einsum("npq,npqd->nd", u[:, :, None] * t[:, None] * slope, squares)
        return by_scales, self.ratio * np.einsum("np,np->n", u, t)

    def together(self, count: int) -> tuple[Array, float]:
        c, jitter, (slope, squares) = self._covariance(np.arange(count)[None])
        assert c is not None  # of a single one
        value, square, b = _at_once(c[0], self.values[:count])
        by_scales = np.einsum("pq,pqd->d", b * slope[0], squares[0])
        return np.array([value, *by_scales, square, 0.5 * self.ratio * np.trace(b)]), jitter

    def summed(self, total: Array) -> tuple[float, Array]:
        size, (square, by_ratio) = len(self.values), total[-2:]
        gradient = np.array([*total[1:-2], size - square - 2.0 * by_ratio, 2.0 * by_ratio])
        return float(total[0] + size * np.log(self.h.signal)), gradient


def _at_once(c: Array, y: Array) -> tuple[float, float, Array]:
    """(y'C^-1 y + log|C|) / 2, y'C^-1 y, and B = C^-1 - C^-1 y y'C^-1."""
    inverse, alpha = np.linalg.inv(c), np.linalg.solve(c, y)
    square = float(y @ alpha)
    return 0.5 * (square + float(np.linalg.slogdet(c).logabsdet)), square, np.asarray(inverse - np.outer(alpha, alpha))


# ---- with any kernel -------------------------------------------------------------------------------------------------


class Layout(NamedTuple):
    """A composite kernel as arrays, for compiled loops.

    kinds: (L,) of the leaves.  alike: (L,) whether all inputs have one length-scale.
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
        np.array(kernel.offsets),
        terms,
        kernel.split(h)[1],
    )


def _kind(leaf: Leaf) -> int | None:
    if type(leaf) is Scaled:
        return KINDS.get(type(KERNELS[leaf.profile]))
    return {RationalQuadratic: RQ, Periodic: PERIODIC, Linear: LINEAR}.get(type(leaf))


class CompositeData(OrderedData):
    """With any kernel, in the units of the data: every observation has a noise of its own, (N,), with derivatives by
    the logarithms of the hyperparameters of the noise, (Q, N), and all derivatives are by the hyperparameters
    themselves.
    """

    unit = 1.0

    def __init__(self, kernel: Composite, data: Observations, h: Hyperparameters) -> None:
        self.kernel, self.h = kernel, h
        self.inputs, self.values = np.ascontiguousarray(data.inputs), data.values
        self.noise, self.slopes = kernel.noise(data, h), kernel.noise_slopes(data, h)
        self.own = len(h.theta) - len(self.slopes)
        self.width = len(h.theta) + 2

    def fast_conditionals(self, rows: IntArray, near: Neighbours, result: Array) -> None:
        loops, kernel = compiled(), layout(self.kernel, self.h)
        if loops is not None and kernel is not None:
            data = self.inputs, self.values, self.noise, self.slopes
            loops.general_conditionals(kernel, *data, rows, near, result)

    def fast_means(self, queries: Array, near: Neighbours, result: Array, weights: Array) -> None:
        loops, kernel = compiled(), layout(self.kernel, self.h)
        if loops is not None and kernel is not None:
            data = self.inputs, self.values, self.noise, np.ascontiguousarray(queries)
            loops.general_means(kernel, *data, near, result, weights)

    def _between(self, near: RowNumbers) -> CompositeCovariance | MeanCovariance:
        """The covariances between observations (.., m), without noise."""
        return self.kernel.at(self.inputs[near], None, self.h)

    def _covariance(self, near: RowNumbers) -> tuple[Array | None, float, CompositeCovariance | MeanCovariance]:
        covariance, noise = self._between(near), self.noise[near]
        size = (np.einsum("nii->n", covariance.matrix) + noise.sum(axis=1)) / near.shape[1]
        c, jitter = _with_noise(covariance.matrix, noise, size)
        return c, jitter * float(size.max()), covariance

    def _cross(self, near: RowNumbers, queries: Array) -> Array:
        return self.kernel.at(self.inputs[near], queries[:, None], self.h).matrix

    def _derivatives(
        self, of: CompositeCovariance | MeanCovariance, near: RowNumbers, u: Array, t: Array
    ) -> tuple[Array, Array]:
        by_noise = np.einsum("np,qnp->nq", u * t, self.slopes[:, near])
        return of.contract(u[:, :, None] * t[:, None]), by_noise

    def together(self, count: int) -> tuple[Array, float]:
        covariance = self._between(np.arange(count))
        noise = self.noise[None, :count]
        size = (np.einsum("nii->n", covariance.matrix[None]) + noise.sum(axis=1)) / count
        c, jitter = _with_noise(covariance.matrix[None], noise, size)
        assert c is not None  # of a single one
        value, square, b = _at_once(c[0], self.values[:count])
        by_noise = 0.5 * self.slopes[:, :count] @ np.diagonal(b)
        row = np.array([value, *(0.5 * covariance.contract(b)), square, *by_noise])
        return row, jitter * float(size.max())

    def summed(self, total: Array) -> tuple[float, Array]:
        return float(total[0]), np.concatenate([total[1 : 1 + self.own], total[2 + self.own :]])


# ---- with means over several points ----------------------------------------------------------------------------------


class MeansData(CompositeData):
    """Of observations that are means of f over a few points each: NumPy, and compiled means where the kernel is
    stationary, or where all neighbours have one point.
    """

    def __init__(self, kernel: Kernel, data: Observations, points: Points, h: Hyperparameters) -> None:
        super().__init__(as_composite(kernel, data.dimension), data, h)
        self._data, self._points = data, points
        self.most = int(points.counts.max(initial=1))
        self._stationary = kernel if isinstance(kernel, Stationary) else None

    def fast_conditionals(self, rows: IntArray, near: Neighbours, result: Array) -> None:
        """Of those that have one point, as their neighbours do."""
        counts = self._points.counts
        single = (counts[near] == 1).all(axis=1) & (counts[rows] == 1)
        part = result[single]
        super().fast_conditionals(rows[single], near[single], part)
        result[single] = part

    def fast_means(self, queries: Array, near: Neighbours, result: Array, weights: Array) -> None:
        loops, made, counts = compiled(), layout(self.kernel, self.h), self._points.counts[near]
        if loops is None or made is None:
            return
        # Batches work on as many points as any of their queries has in the same place of the order: alike go together.
        queue, order = np.argsort(counts.sum(axis=1), kind="stable"), np.argsort(counts, axis=1, kind="stable")
        sorted_near = np.take_along_axis(near, order, axis=1)[queue]
        part, weights_part = result[queue], weights[queue]
        starts, diagonal, queries = self._points.starts, self._variances + self.noise, queries[queue]
        into = sorted_near, part, weights_part
        kernel = self._stationary
        kind = None if kernel is None else KINDS.get(type(kernel))
        if kernel is None or kind is None:
            prior, places = self.kernel.variance(queries, self.h), np.ascontiguousarray(self._points.places)
            data = places, starts, self.values, diagonal, prior, np.ascontiguousarray(queries)
            loops.general_means_of_places(made, *data, *into)
        else:
            scales, signal = kernel.split(self.h)
            places, queries = (np.ascontiguousarray(inputs / scales) for inputs in (self._points.places, queries))
            data = places, starts, self.values / signal, diagonal / signal**2, np.ones(len(queries)), queries
            loops.means(kind, *data, *into)
            part *= [signal, signal**2]
        result[queue] = part
        weights[queue[:, None], order[queue]] = weights_part

    @cached_property
    def _variances(self) -> Array:
        return variance_of(self.kernel, self._data, self.h)

    def _between(self, near: RowNumbers) -> MeanCovariance:
        return MeanCovariance(self.kernel, self._points, near, self.h)

    def _cross(self, near: RowNumbers, queries: Array) -> Array:
        return cross_of_stacks(self.kernel, self._points, near, queries, self.h)[..., None]

    def means_of(self, rows: IntArray, near: Neighbours, most: Array) -> tuple[Array, Array, float]:
        result, weights, jitter = np.empty((len(rows), 2)), np.empty(near.shape), 0.0
        for i, (row, own) in enumerate(zip(rows, near, strict=True)):
            some = self._data.rows(own)
            factor = factorize(covariance_of(self.kernel, some, self.h), self.noise[own])
            if factor is None:
                raise NotPositiveDefiniteError
            k = between(self.kernel, some, self._data.rows([row]), self.h)[:, 0]
            weights[i], jitter = factor.solve(k), max(jitter, factor.jitter)
            result[i] = weights[i] @ some.values, weights[i] @ k
        return result, weights, jitter


# ---- sums over all points --------------------------------------------------------------------------------------------


def evaluation(data: OrderedData, near: Neighbours) -> Evaluation | None:
    """NLL and log-gradient; None where no jitter helps. near: (N - m, m) neighbours of all points but the first m."""
    size = len(data.values)
    together = size - len(near)
    try:
        with np.errstate(all="ignore"):
            first, jitter = data.together(together)
        chunks = [np.arange(start, min(start + CHUNK, size)) for start in range(together, size, CHUNK)]
        parts = spread(lambda rows: _summed(data, rows, near[rows[0] - together : rows[-1] + 1 - together]), chunks)
    except NotPositiveDefiniteError:
        return None
    total = np.sum([first, *(part for part, _ in parts)], axis=0)
    if not np.isfinite(total).all():
        return None
    nll, gradient = data.summed(total)
    return Evaluation(nll, gradient, max([jitter, *(jitter for _, jitter in parts)]), "vecchia")


def _summed(data: OrderedData, rows: IntArray, near: Neighbours) -> tuple[Array, float]:
    values, jitter = conditionals(data, rows, near)
    return values.sum(axis=0), jitter


def conditionals(data: OrderedData, rows: IntArray, near: Neighbours) -> tuple[Array, float]:
    """Rows (n, width), compiled if possible, and with jitter only where it is needed."""
    result = np.full((len(rows), data.width), np.nan)
    data.fast_conditionals(rows, near, result)
    wrong = np.flatnonzero(~np.isfinite(result).all(axis=1))
    jitters = [0.0]
    for part in in_parts(len(wrong), near.shape[1] * data.most):
        some = wrong[part]
        with np.errstate(all="ignore"):
            result[some], jitter = data.conditionals(rows[some], near[some])
        jitters.append(jitter)
    return result, max(jitters)


def products(kernel: Kernel, h: Hyperparameters, observations: Observations, near: Neighbours, columns: Array) -> Array:
    """columns'C^-1 columns, (q, q): sums of e e'/v over the points, e (q,) of all columns.

    Raises NotPositiveDefiniteError. near: as of `evaluation`; columns: (N, q), in the order of the points.
    """
    data, noise = ordered_data(kernel, observations, h), kernel.noise(observations, h)
    size = len(observations)
    together = size - len(near)
    variance = variance_of(kernel, observations, h) + noise
    with np.errstate(all="ignore"):
        factor = factorize(covariance_of(kernel, observations.rows(slice(together)), h), noise[:together])
        if factor is None:
            raise NotPositiveDefiniteError
        result = np.asarray(columns[:together].T @ factor.solve(columns[:together]))
        for part in in_parts(len(near), near.shape[1]):
            rows = np.arange(together, size)[part]
            explained, weights, _ = data.means_of(rows, near[part], variance[rows])
            e = columns[rows] - np.einsum("nm,nmq->nq", weights, columns[near[part]])
            result = result + e.T @ (e / (variance[rows] - explained[:, 1])[:, None])
    return result


def means(data: OrderedData, queries: Array, near: Neighbours, most: Array) -> tuple[Array, Array, float]:
    """Mean and what is explained of the prior variance, (T, 2), the weights (T, m), and the largest jitter.

    Compiled if possible, and with jitter only where it is needed. most: (T,) more than this cannot be explained.
    Raises NotPositiveDefiniteError.
    """
    result, weights, jitters = np.full((len(queries), 2), np.nan), np.zeros(near.shape), [0.0]
    data.fast_means(queries, near, result, weights)
    wrong = np.flatnonzero(~(np.isfinite(result).all(axis=1) & (result[:, 1] <= most)))
    for part in in_parts(len(wrong), near.shape[1] * data.most):
        some = wrong[part]
        with np.errstate(all="ignore"):
            result[some], weights[some], jitter = data.means(queries[some], near[some])
        jitters.append(jitter)
    return result, weights, max(jitters)


def in_parts(count: int, neighbours: int) -> list[slice]:
    """`count` points in parts, such that NumPy's arrays of all their pairs stay small."""
    step = max(1, WORK // (neighbours + 1) ** 2)
    return [slice(start, start + step) for start in range(0, count, step)]
