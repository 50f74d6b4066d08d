"""The Vecchia engine: the likelihood as a product of conditional densities, each given the nearest earlier points.

    p(y) = prod_i p(y_i | y_1 .. y_i-1), of which only the m nearest to x_i are kept

Linear in the number of points, for every kernel. It is an approximation, better for rougher kernels, where near points
screen those farther away. With all earlier points as neighbours it is exact.

The result at a theta depends only on the data, the order in which batches came, and that theta, to the bit. Neighbours
are those at length-scales rounded to powers of two relative to each other (`shapes`), so that they seldom change during
a training.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np
import scipy

from fleetgp.arrays import Array, IntArray
from fleetgp.engines.base import (
    LARGEST_LOG,
    MORE_NOISE,
    DataEngine,
    Evaluation,
    Posterior,
    Slopes,
    ThetaError,
    Trend,
    out_of_range,
    owner,
)
from fleetgp.engines.basis import Basis
from fleetgp.engines.covariances import variance_of
from fleetgp.engines.exact import ExactPosterior, slopes_of_each
from fleetgp.engines.vecchia.likelihood import (
    NotPositiveDefiniteError,
    OrderedData,
    conditionals,
    evaluation,
    means,
    ordered_data,
    products,
)
from fleetgp.engines.vecchia.ordering import Neighbours, coarse_to_fine, nearest_earlier
from fleetgp.errors import InputError, NumericalError
from fleetgp.kernels.stationary import Kernel
from fleetgp.linalg.threads import blas_threads
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations

# ---- the posterior ---------------------------------------------------------------------------------------------------

#: Doubles of the basis functions of neighbours that are held at a time.
WORK = 1 << 22
#: Neighbours for leave-one-out predictions, and observations that are predicted at a time.
LEFT_OUT, BLOCK = 30, 4096
#: The most observations of a joint posterior: their covariance takes 200 MB.
MOST_TOGETHER = 5000


class VecchiaPosterior:
    """f | D_i at fixed theta: for each query one small matrix is factorized. jitter: the largest so far."""

    engine = "vecchia"

    def __init__(
        self, data: Observations, kernel: Kernel, h: Hyperparameters, neighbours: int, agent: int | None
    ) -> None:
        self.data, self.kernel, self.hyperparameters = data, kernel, h
        self.jitter, self._agent = 0.0, agent
        self._ordered = ordered_data(kernel, data, h)
        self._neighbours = min(neighbours, len(data))
        self._scales, _ = kernel.scales(h, data.dimension)
        self._tree = scipy.spatial.cKDTree(data.inputs / self._scales)

    def mean_and_variance(self, queries: Array) -> tuple[Array, Array]:
        """Mean and variance of f at the queries, (T,) and (T,); the variance is never negative."""
        result, _, _ = self._answers(queries)
        prior = self.kernel.variance(queries, self.hyperparameters)
        return result[:, 0], np.maximum(prior - result[:, 1], 0.0)

    def mean_and_covariance(self, queries: Array) -> tuple[Array, Array]:
        """Mean and covariance of f at the queries, (T,) and (T, T): exact, given all that are near any of them."""
        near = self._nearest(queries)
        used, h = np.unique(near), self.hyperparameters
        if len(used) > MOST_TOGETHER:
            raise InputError(
                f"{owner(self._agent)}: a joint posterior is of at most {MOST_TOGETHER} observations nearest to any of "
                f"the points, got {len(used)}: give fewer points, points that are closer together, or fewer neighbours"
            )
        posterior = ExactPosterior.of(self.data.rows(used), self.kernel, h)
        if posterior is None:
            raise self._failure(len(used))
        self.jitter = max(self.jitter, posterior.jitter)
        return posterior.mean_and_covariance(queries)

    def slopes(self, queries: Array) -> Slopes:
        """The derivatives of mean and variance by the inputs of the queries, with the same neighbours."""
        result, jitter = slopes_of_each(
            self.kernel,
            self.hyperparameters,
            self.data,
            self._nearest(queries).astype(np.int64),
            queries,
            lambda near: self._failure(len(near)),
        )
        self.jitter = max(self.jitter, jitter)
        return result

    def explained_variance(self, queries: Array) -> Array:
        """[k_A]_i = k_i*' C_i^-1 k_i*, (T,), from the nearest observations."""
        result, _, _ = self._answers(queries)
        return result[:, 1]

    def weighted(self, queries: Array) -> tuple[Observations, Array]:
        """The n observations that count for any of the queries, and their weights (n, T)."""
        _, near, weights = self._answers(queries)
        used, place = np.unique(near, return_inverse=True)
        result = np.zeros((len(used), len(queries)))
        result[place.reshape(near.shape), np.arange(len(queries))[:, None]] = weights
        return self.data.rows(used), result

    def left_out(self) -> tuple[Array, Array]:
        """The error of each observation's prediction from its nearest others, and the variance of f: (N,) each."""
        inputs, size = self.data.inputs, len(self.data)
        count = min(LEFT_OUT, self._neighbours, size - 1)
        error, variance = self.data.values.copy(), variance_of(self.kernel, self.data, self.hyperparameters)
        for start in range(0, size if count else 0, BLOCK):
            rows = np.arange(start, min(start + BLOCK, size))
            _, near = self._tree.query(inputs[rows] / self._scales, k=np.arange(1, count + 2))
            own = near == rows[:, None]
            own[~own.any(axis=1), -1] = True  # as many others are at the same place
            result, _ = self._means(inputs[rows], near[~own].astype(np.int32).reshape(len(rows), count), rows)
            error[rows] -= result[:, 0]
            variance[rows] = np.maximum(variance[rows] - result[:, 1], 0.0)
        return error, variance

    def projected(self, basis: Basis, queries: Array) -> Array:
        """Phi_i' C_i^-1 k_i*, (r, T), for a basis phi on a box that holds the inputs."""
        _, near, weights = self._answers(queries)
        result = np.empty((basis.rank, len(queries)))
        step = max(1, WORK // (basis.rank * self._neighbours))
        for start in range(0, len(queries), step):
            some = slice(start, start + step)
            data = self.data.rows(near[some].reshape(-1))
            values = data.mean(basis.at(data.places))
            result[:, some] = np.einsum("tmr,tm->rt", values.reshape(*near[some].shape, -1), weights[some])
        return result

    def _answers(self, queries: Array) -> tuple[Array, Neighbours, Array]:
        """Mean and what is explained, (T, 2); the nearest observations (T, m); their weights."""
        near = self._nearest(queries)
        result, weights = self._means(queries, near)
        return result, near, weights

    def _nearest(self, queries: Array) -> Neighbours:
        """The nearest observations, (T, m)."""
        count = self._neighbours
        _, near = self._tree.query(queries / self._scales, k=np.arange(1, count + 1))
        return np.asarray(near.astype(np.int32).reshape(len(queries), count))

    def _means(self, queries: Array, near: Neighbours, rows: IntArray | None = None) -> tuple[Array, Array]:
        """Mean and what is explained, (T, 2), given these observations (T, m), and their weights.

        rows: instead of f at the queries, the observations of these numbers without their noise.
        """
        h = self.hyperparameters
        most = self.kernel.variance(queries, h) + self.kernel.sigmas(h.theta).max() ** 2
        try:
            if rows is None:
                result, weights, jitter = means(self._ordered, queries, near, most)
            else:
                result, weights, jitter = self._ordered.means_of(rows, near, most)
        except NotPositiveDefiniteError:
            raise self._failure(near.shape[1]) from None
        self.jitter = max(self.jitter, jitter)
        return result, weights

    def _failure(self, count: int) -> ThetaError:
        what = f"the covariance of the {count} observations at a query is not positive definite, even with jitter,"
        return ThetaError(f"{owner(self._agent)}: {what}", self.hyperparameters.theta, MORE_NOISE)


#: Seconds per pair of neighbours of a point: a distance, an exponential, their part of the gradient.
PAIR = 7e-9
#: Seconds per operation of the small factorizations.
OPERATION = 2e-10
#: Seconds for the calls themselves.
CALLS = 3e-4


def expected_seconds(size: int, n_neighbours: int, points: int) -> float:
    """Of a likelihood with its gradient, neighbours known."""
    pairs = n_neighbours**2 / 2 * (points / size) ** 2
    return size * (PAIR * pairs + OPERATION * n_neighbours**3 / 3) + CALLS


#: Ratios of length-scales are rounded to powers of two; this part of a step, around the border, belongs to both.
BORDER = 0.25
#: Ratios beyond this power of two are as this one: the other axes count for nothing.
MOST = 60.0


@dataclass(frozen=True)
class Shape:
    """powers: (D,) the length-scales relative to the first one, as powers of two.

    weight: its share at the given length-scales.  slope: (D,) the derivative of that by their logarithms.
    """

    powers: tuple[int, ...]
    weight: float
    slope: Array

    def places(self, inputs: Array) -> Array:
        """The inputs in units in which the nearest are near."""
        return np.asarray(inputs / 2.0 ** np.array(self.powers))


def shapes(scales: Array) -> list[Shape]:
    """The shapes that count at these length-scales, the largest weight first; weights sum to 1.

    One, but for ratios around the borders, where the weights change smoothly: minimizers would stop at a jump of the
    likelihood. Multiplying all length-scales by a factor changes nothing.

    >>> [(shape.powers, shape.weight) for shape in shapes(np.array([3.0, 6.5]))]
    [((0, 1), 1.0)]
    >>> [(shape.powers, round(shape.weight, 3)) for shape in shapes(np.array([1.0, 2.0**1.45]))]
    [((0, 1), 0.784), ((0, 2), 0.216)]
    """
    axes = [_powers(ratio) for ratio in np.clip(np.log2(scales[1:] / scales[0]), -MOST, MOST).tolist()]
    result = []
    for chosen in product(*axes):
        weights = [weight for _, weight, _ in chosen]
        slope = np.zeros(len(scales))
        for d, (_, _, change) in enumerate(chosen):
            slope[1 + d] = change / math.log(2.0) * math.prod(weights[:d] + weights[d + 1 :])
        slope[0] = -slope[1:].sum()
        result.append(Shape((0, *(power for power, _, _ in chosen)), math.prod(weights), slope))
    return sorted(result, key=lambda shape: -shape.weight)


def main_shape(scales: Array) -> Shape:
    """The shape that counts most at these length-scales, alone.

    >>> main_shape(np.array([1.0, 2.0**1.45])).powers
    (0, 1)
    """
    ratios = np.clip(np.log2(scales / scales[0]), -MOST, MOST)
    return Shape(tuple(int(power) for power in np.rint(ratios)), 1.0, np.zeros(len(scales)))


def _powers(ratio: float) -> list[tuple[int, float, float]]:
    """The powers next to a ratio (its log2): each with its weight, and the derivative of that by the ratio."""
    below = math.floor(ratio)
    s = (ratio - below - 0.5) / BORDER + 0.5
    if not 0.0 < s < 1.0:
        return [(below + (s >= 1.0), 1.0, 0.0)]
    weight, change = s * s * (3.0 - 2.0 * s), 6.0 * s * (1.0 - s) / BORDER
    return [(below, 1.0 - weight, -change), (below + 1, weight, change)]


#: With more length-scales than this there is one shape, chosen once: of many ratios some are always around a border,
#: and each of them doubles the work of an evaluation.
MOST_BLENDED = 5


# ---- the engine ----------------------------------------------------------------------------------------------------

#: Neighbours of a point by default.
NEIGHBOURS = 30
#: A query has this many times as many. On a real field of 100,000 points with gaps of 30 km more than 4 do not help,
#: and with 2 the CRPS in the gaps is 1% worse.
AROUND = 4
#: Points with twice the neighbours, for an estimate of the error.
SAMPLE = 500
#: Sets of neighbours that are kept.
KEPT = 4


class VecchiaEngine(DataEngine):
    """The GP of one agent's data, each observation given its `n_neighbours` nearest earlier ones; never None."""

    name = "vecchia"

    def __init__(self, data: Observations, kernel: Kernel, agent: int | None, n_neighbours: int = NEIGHBOURS) -> None:
        super().__init__(data, kernel, agent)
        self.n_neighbours = n_neighbours
        self._finite = _all_finite(data)
        #: How many observations were there at the start: they are ordered from coarse to fine, all others as they came.
        self._ordered = len(data)
        self._order: IntArray | None = None
        self._near: dict[tuple[int, ...], Neighbours] = {}
        #: Of many length-scales, the shape whose neighbours are taken.
        self._chosen: Shape | None = None

    def grow(self, data: Observations) -> None:
        """Append new rows to the order: only their own neighbours need to be found."""
        old = self.size
        super().grow(data)
        self._finite = self._finite and _all_finite(data.rows(slice(old, None)))
        if self._order is not None:
            self._order = np.concatenate([self._order, np.arange(len(self._order), self.size)])

    def reobserved(self, data: Observations) -> VecchiaEngine:
        """The same places with other values and noise: order and neighbours stay."""
        result = VecchiaEngine(data, self.kernel, self.agent, self.n_neighbours)
        result._ordered, result._order, result._near = self._ordered, self._order, dict(self._near)
        result._chosen = self._chosen
        return result

    def settle(self, log_theta: Array) -> None:
        """Choose the one shape of many length-scales at log theta; without this the first evaluation does."""
        self._chosen = None
        if (np.abs(log_theta) < LARGEST_LOG).all():
            self._shapes(Hyperparameters.from_log(log_theta))

    def cost(self, theta: Array) -> float:
        return expected_seconds(self.size, min(self.n_neighbours, self.size), len(self.data.places))

    def evaluate(self, log_theta: Array) -> Evaluation:
        """NLL and log-gradient of the approximation, on all cores. For its error see `error_estimate`."""
        h = self._checked(log_theta)
        data, (parts, places) = self._in_order(h), self._shapes(h)
        with blas_threads(1):
            result = [evaluation(data, self._neighbours(shape)) for shape in parts]
        sound = [each for each in result if each is not None]
        if len(sound) < len(result):
            raise self.failure(h)
        return _blended(parts, places, sound)

    def condition(self, theta: Array, before: Posterior | None = None) -> VecchiaPosterior:
        """The posterior at fixed hyperparameters, each query from the observations nearest to it."""
        h = self._checked(np.log(theta))
        return VecchiaPosterior(self.data, self.kernel, h, AROUND * self.n_neighbours, self.agent)

    def products(self, theta: Array, trend: Trend) -> Array:
        """By the approximation: from the conditional residuals of every column."""
        h, order = self._checked(np.log(theta)), self._ordering()
        ordered, (parts, _) = self.data.rows(order), self._shapes(h)
        columns = trend.with_observations(ordered)
        try:
            result = [
                shape.weight * products(self.kernel, h, ordered, self._neighbours(shape), columns) for shape in parts
            ]
        except NotPositiveDefiniteError:
            raise self.failure(h) from None
        return np.asarray(np.sum(result, axis=0))

    def error_estimate(self, log_theta: Array) -> float:
        """By how many nats the likelihood of data from the model would be smaller, on average, with twice as many
        neighbours; estimated from a fixed sample of points. 0 where every point has all earlier ones.

        On average e^2 / v is 1 with any neighbours, so that only log v / 2 counts. Where twice the neighbours remove
        most of the error it is the error itself; with very smooth kernels a part of it.
        """
        h = self._checked(log_theta)
        data, size, more = self._in_order(h), self.size, 2 * self.n_neighbours
        shape = self._shapes(h)[0][0]
        if size <= more:
            rows = np.arange(min(self.n_neighbours, size), size)
            twice = [
                conditionals(data, rows[i : i + 1], np.arange(row, dtype=np.int32)[None]) for i, row in enumerate(rows)
            ]
        else:
            rows = np.unique(np.linspace(more, size - 1, SAMPLE).astype(np.int64))
            twice = [conditionals(data, rows, nearest_earlier(self._places(shape), more, more, rows))]
        if not len(rows):
            return 0.0
        fewer, _ = conditionals(data, rows, self._neighbours(shape)[rows - self.n_neighbours])
        # (log v + e^2 / v) / 2 without its second half
        square = 1 + data.own
        more_rows = np.concatenate([part for part, _ in twice])
        halves = [values[:, 0] - 0.5 * values[:, square] for values in (fewer, more_rows)]
        return float(np.mean(halves[0] - halves[1]) * (size - self.n_neighbours))

    def failure(self, h: Hyperparameters) -> NumericalError:
        """Why a covariance cannot be factorized at these hyperparameters."""
        what = f"the covariance of some of its {self.size} points is not positive definite, even with jitter,"
        return ThetaError(f"{owner(self.agent)}: {what}", h.theta, MORE_NOISE)

    def _checked(self, log_theta: Array) -> Hyperparameters:
        if not (np.abs(log_theta) < LARGEST_LOG).all():
            raise out_of_range(self.agent, log_theta)
        if not self._finite:
            raise NumericalError(f"{owner(self.agent)}: its data hold NaN or infinite values: remove them")
        return Hyperparameters.from_log(log_theta)

    def _in_order(self, h: Hyperparameters) -> OrderedData:
        return ordered_data(self.kernel, self.data.rows(self._ordering()), h)

    def _shapes(self, h: Hyperparameters) -> tuple[list[Shape], IntArray]:
        """Of the inputs whose differences matter, and the positions in theta of their length-scales."""
        scales, places = self.kernel.scales(h, self.data.dimension)
        near = np.flatnonzero(places >= 0)
        if not len(near):  # all are equally near
            return shapes(np.ones(self.data.dimension)), places
        if len(near) > MOST_BLENDED:
            self._chosen = self._chosen or main_shape(scales[near])
            return [self._chosen], places[near]
        return shapes(scales[near]), places[near]

    @cached_property
    def _axes(self) -> IntArray:
        """The inputs whose differences decide which points are near; all of them if none does."""
        dimension = self.data.dimension
        _, places = self.kernel.scales(Hyperparameters.from_log(np.zeros(self.kernel.count(dimension))), dimension)
        return np.flatnonzero((places >= 0) | (places < 0).all())

    def _ordering(self) -> IntArray:
        if self._order is None:
            first = slice(self._ordered)
            base = coarse_to_fine(self.data.inputs[first, self._axes], self.data.values[first])
            self._order = np.concatenate([base, np.arange(self._ordered, self.size)])
        return self._order

    def _places(self, shape: Shape) -> Array:
        return shape.places(self.data.inputs[self._ordering()][:, self._axes])

    def _neighbours(self, shape: Shape) -> Neighbours:
        """(N - m, m) of all points but the first m."""
        count = min(self.n_neighbours, self.size)
        result = self._near.pop(shape.powers, np.empty((0, count), dtype=np.int32))
        missing = self.size - count - len(result)
        if result.shape[1] != count:
            result, missing = np.empty((0, count), dtype=np.int32), self.size - count
        if missing:
            new = nearest_earlier(self._places(shape), count, self.size - missing)
            result = np.concatenate([result, new])
        self._near[shape.powers] = result  # the latest one last
        if len(self._near) > KEPT:
            del self._near[next(iter(self._near))]
        return result


def _all_finite(data: Observations) -> bool:
    return all(bool(np.isfinite(array).all()) for array in data.arrays)


def _blended(parts: Sequence[Shape], places: IntArray, result: Sequence[Evaluation]) -> Evaluation:
    """The weighted mean of likelihoods with several sets of neighbours. places: of their length-scales in theta."""
    first = result[0]
    nll, gradient = first.nll, np.zeros_like(first.gradient)
    for shape, each in zip(parts, result, strict=True):
        nll += shape.weight * (each.nll - first.nll)
        gradient += shape.weight * each.gradient
        if places.min() >= 0:
            np.add.at(gradient, places, shape.slope * (each.nll - first.nll))
    return replace(first, nll=nll, gradient=gradient, jitter=max(each.jitter for each in result))
