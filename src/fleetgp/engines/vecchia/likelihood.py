"""The likelihood of N points as the product of N conditional densities, and its gradient in log theta.

The first m points are taken together. Every other one is given its m nearest earlier ones (`plain` has the formulas).
`Ordered` has the points of a stationary kernel, in units of sigma_f; `general.General` those of any other.
"""

from __future__ import annotations

from types import ModuleType
from typing import Protocol

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.engines.base import Evaluation
from fleetgp.engines.vecchia import plain
from fleetgp.engines.vecchia.general import General
from fleetgp.engines.vecchia.ordering import Neighbours
from fleetgp.kernels.composite import Composite, as_composite
from fleetgp.kernels.stationary import Kernel, Stationary
from fleetgp.linalg.cholesky import factorize
from fleetgp.linalg.compiling import compiled_module
from fleetgp.linalg.threads import spread
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations

#: Points of which the sum is taken at a time, whatever the number of threads: all have the same bits.
CHUNK = 2048
#: Doubles of one of the arrays that NumPy works on at a time.
WORK = 1 << 20


class Points(Protocol):
    """Observations in their order, at one theta.

    width: of a row that an observation adds to the sum. own: how many hyperparameters come before e^2 / v in it.
    """

    @property
    def values(self) -> Array: ...

    @property
    def inputs(self) -> Array: ...

    @property
    def h(self) -> Hyperparameters: ...

    @property
    def width(self) -> int: ...

    @property
    def own(self) -> int: ...

    def fast_conditionals(self, rows: IntArray, near: Neighbours, found: Array) -> None:
        """Rows (n, width) of the points `rows` with neighbours near (n, m), where compiled loops have them."""

    def conditionals(self, rows: IntArray, near: Neighbours) -> tuple[Array, float]:
        """The same without, and the largest jitter, in the units of variances."""

    def together(self, count: int) -> tuple[Array, float]:
        """The row (width,) of the first points together, and the jitter."""

    def summed(self, total: Array) -> tuple[float, Array]:
        """The likelihood and its log-gradient from the sum of all rows."""

    def fast_means(self, queries: Array, near: Neighbours, found: Array, weights: Array) -> None:
        """Mean and what is explained of the prior variance, (T, 2), and the weights (T, m), where compiled."""

    def means(self, queries: Array, near: Neighbours) -> tuple[Array, Array, float]:
        """The same without, and the largest jitter."""


def points(kernel: Kernel, data: Observations, h: Hyperparameters) -> Points:
    """As this kernel needs them."""
    if isinstance(kernel, Composite):
        return General.of(kernel, data, h)
    if kernel.noise_model.differs:
        return General.of(as_composite(kernel, data.dimension), data, h)
    assert isinstance(kernel, Stationary)
    return Ordered(kernel, data, h)


def compiled() -> ModuleType | None:
    """The compiled inner loops; None where there is no Numba."""
    return compiled_module("fleetgp.engines.vecchia.compiled")


class Ordered:
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
        self.ratio = (h.noise / h.signal) ** 2
        self._unit = h.signal**2 + h.noise**2  # of the jitter

    def _placed(self, inputs: Array) -> Array:
        return np.ascontiguousarray(inputs / np.asarray(self.h.length_scales))

    @property
    def own(self) -> int:
        return int(self.places.shape[1])

    @property
    def width(self) -> int:
        return self.own + 3

    def fast_conditionals(self, rows: IntArray, near: Neighbours, found: Array) -> None:
        loops = compiled()
        if loops is not None and type(self.kernel) in loops.KINDS:
            kind = loops.KINDS[type(self.kernel)]
            loops.conditionals(kind, self.places, self.values, rows, near, self.ratio, found)

    def conditionals(self, rows: IntArray, near: Neighbours) -> tuple[Array, float]:
        found, jitter = plain.conditionals(self.kernel, self.places, self.values, rows, near, self.ratio)
        return found, jitter * self._unit

    def together(self, count: int) -> tuple[Array, float]:
        found, jitter = plain.together(self.kernel, self.places[:count], self.values[:count], self.ratio)
        return found, jitter * self._unit

    def summed(self, total: Array) -> tuple[float, Array]:
        size, (square, by_ratio) = len(self.values), total[-2:]
        gradient = np.array([*total[1:-2], size - square - 2.0 * by_ratio, 2.0 * by_ratio])
        return float(total[0] + size * np.log(self.h.signal)), gradient

    def fast_means(self, queries: Array, near: Neighbours, found: Array, weights: Array) -> None:
        loops = compiled()
        if loops is not None and type(self.kernel) in loops.KINDS:
            kind = loops.KINDS[type(self.kernel)]
            places = self._placed(queries)
            loops.means(kind, self.places, self.values, places, near, self.ratio, found, weights)
            found[:, 0] *= self.h.signal
            found[:, 1] *= self.h.signal**2

    def means(self, queries: Array, near: Neighbours) -> tuple[Array, Array, float]:
        places = self._placed(queries)
        found, weights, jitter = plain.means(self.kernel, self.places, self.values, places, near, self.ratio)
        return found * [self.h.signal, self.h.signal**2], weights, jitter * self._unit


def evaluation(data: Points, near: Neighbours) -> Evaluation | None:
    """NLL and log-gradient; None where no jitter helps. near: (N - m, m) neighbours of all points but the first m."""
    size = len(data.values)
    together = size - len(near)
    try:
        with np.errstate(all="ignore"):
            first, jitter = data.together(together)
        chunks = [np.arange(start, min(start + CHUNK, size)) for start in range(together, size, CHUNK)]
        parts = spread(lambda rows: _summed(data, rows, near[rows[0] - together : rows[-1] + 1 - together]), chunks)
    except plain.NotPositiveDefiniteError:
        return None
    total = np.sum([first, *(part for part, _ in parts)], axis=0)
    if not np.isfinite(total).all():
        return None
    nll, gradient = data.summed(total)
    return Evaluation(nll, gradient, max([jitter, *(jitter for _, jitter in parts)]), "vecchia")


def _summed(data: Points, rows: IntArray, near: Neighbours) -> tuple[Array, float]:
    values, jitter = conditionals(data, rows, near)
    return values.sum(axis=0), jitter


def conditionals(data: Points, rows: IntArray, near: Neighbours) -> tuple[Array, float]:
    """Rows (n, width), compiled if possible, and with jitter only where it is needed."""
    found = np.full((len(rows), data.width), np.nan)
    data.fast_conditionals(rows, near, found)
    wrong = np.flatnonzero(~np.isfinite(found).all(axis=1))
    jitters = [0.0]
    for part in in_parts(len(wrong), near.shape[1]):
        some = wrong[part]
        with np.errstate(all="ignore"):
            found[some], jitter = data.conditionals(rows[some], near[some])
        jitters.append(jitter)
    return found, max(jitters)


def products(kernel: Kernel, data: Points, noise: Array, near: Neighbours, columns: Array) -> Array:
    """columns'C^-1 columns, (q, q): sums of e e'/v over the points, e (q,) of all columns.

    Raises NotPositiveDefiniteError. near: as of `evaluation`; columns: (N, q), in the order of the points; noise: (N,)
    its variances.
    """
    size, inputs, h = len(data.values), data.inputs, data.h
    together = size - len(near)
    variance = kernel.variance(inputs, h) + noise
    with np.errstate(all="ignore"):
        factor = factorize(kernel(inputs[:together], None, h), noise[:together])
        if factor is None:
            raise plain.NotPositiveDefiniteError
        found = np.asarray(columns[:together].T @ factor.solve(columns[:together]))
        for part in in_parts(len(near), near.shape[1]):
            rows = np.arange(together, size)[part]
            told, weights, _ = means(data, inputs[rows], near[part], variance[rows])
            e = columns[rows] - np.einsum("nm,nmq->nq", weights, columns[near[part]])
            found = found + e.T @ (e / (variance[rows] - told[:, 1])[:, None])
    return found


def means(data: Points, queries: Array, near: Neighbours, most: Array) -> tuple[Array, Array, float]:
    """Mean and what is explained of the prior variance, (T, 2), the weights (T, m), and the largest jitter.

    Compiled if possible, and with jitter only where it is needed. most: (T,) more than this cannot be explained.
    Raises NotPositiveDefiniteError.
    """
    found, weights, jitters = np.full((len(queries), 2), np.nan), np.zeros(near.shape), [0.0]
    data.fast_means(queries, near, found, weights)
    wrong = np.flatnonzero(~(np.isfinite(found).all(axis=1) & (found[:, 1] <= most)))
    for part in in_parts(len(wrong), near.shape[1]):
        some = wrong[part]
        with np.errstate(all="ignore"):
            found[some], weights[some], jitter = data.means(queries[some], near[some])
        jitters.append(jitter)
    return found, weights, max(jitters)


def in_parts(count: int, neighbours: int) -> list[slice]:
    """`count` points in parts, such that NumPy's arrays of all their pairs stay small."""
    step = max(1, WORK // (neighbours + 1) ** 2)
    return [slice(start, start + step) for start in range(0, count, step)]
