r"""Sums of products of leaves: k(x, x') = sum_t sigma_t^2 prod_j phi_j(x, x'), j over the leaves of term t.

A leaf may stand in several terms: (a + b) * c is a c + b c with one c. theta: the hyperparameters of the leaves, in the
order in which they were written, then sigma_f of every term, then those of the noise.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.errors import InputError
from fleetgp.gp.hyperparameters import Hyperparameters
from fleetgp.gp.kernels import KERNELS, OBSERVED, Kernel
from fleetgp.gp.leaves import Leaf, Linear, Scaled
from fleetgp.model.noise import SAME, NoiseModel
from fleetgp.model.observations import Observations

#: A leaf that stands where one did before starts with length-scales as much shorter: two alike would stay so.
SHORTER = 3.0


@dataclass(frozen=True)
class Composite(Kernel):
    """name: the expression.  terms: of each the numbers of its leaves."""

    name: str
    leaves: tuple[Leaf, ...]
    terms: tuple[tuple[int, ...], ...]
    noise_model: NoiseModel = SAME

    @cached_property
    def _ends(self) -> tuple[int, ...]:
        """Where the hyperparameters of each leaf end in theta, and where the first begin."""
        return (0, *np.cumsum([len(one.units()) for one in self.leaves]).tolist())

    def _own(self, j: int) -> slice:
        return slice(self._ends[j], self._ends[j + 1])

    def split(self, h: Hyperparameters) -> tuple[list[Array], Array]:
        """The hyperparameters of each leaf, and the variances sigma_t^2 of the terms."""
        theta, last = h.theta, self._ends[-1]
        return [theta[self._own(j)] for j in range(len(self.leaves))], theta[last : last + len(self.terms)] ** 2

    # ---- what it tells of its hyperparameters ------------------------------------------------------------

    def names(self, inputs: int | Sequence[str]) -> tuple[str, ...]:

        labels = [str(d + 1) for d in range(inputs)] if isinstance(inputs, int) else list(inputs)
        own = [one.names(labels) for one in self.leaves]
        often = Counter(name for each in own for name in each)
        found: list[str] = []
        for j, each in enumerate(own):
            found += [name if often[name] == 1 else f"{self._called(j)}.{name}" for name in each]
        several = len(self.terms) > 1
        found += [f"sigma_f{t + 1}" if several else "sigma_f" for t in range(len(self.terms))]
        return (*found, *self.noise_model.names)

    def _called(self, j: int) -> str:
        """A leaf by the name of its kernel, with a number if there are several of that name."""
        called = [_kind(one) for one in self.leaves]
        return called[j] + (str(called[: j + 1].count(called[j])) if called.count(called[j]) > 1 else "")

    def units(self, dimension: int) -> IntArray:
        own = [unit for one in self.leaves for unit in one.units()]
        return np.array([*own, *(OBSERVED,) * (len(self.terms) + self.noise_count)])

    def scales(self, h: Hyperparameters, dimension: int) -> tuple[Array, IntArray]:
        """From the first leaf that says something about an input."""
        found, places = np.full(dimension, np.inf), np.full(dimension, -1)
        for j, one in enumerate(self.leaves):
            for axis, k in one.near().items():
                if places[axis] < 0:
                    places[axis] = self._ends[j] + k
                    found[axis] = h.theta[places[axis]]
        return found, places

    def start(self, reach: Array, span: float, size: float) -> Array:
        seen: Counter[tuple[int, ...]] = Counter()
        own: list[float] = []
        for one in self.leaves:
            own += one.start(reach, span / SHORTER ** seen[one.axes])
            seen[one.axes] += bool(one.near())
        share = size / math.sqrt(len(self.terms))
        return np.array([*own, *(share / self._wide(term, reach) for term in self.terms)])

    def _wide(self, term: tuple[int, ...], reach: Array) -> float:
        """How large the leaves of a term are, where they grow with the inputs."""
        lines = [self.leaves[j] for j in term if isinstance(self.leaves[j], Linear)]
        return math.prod(math.sqrt(float((reach[list(one.axes)] ** 2).sum())) for one in lines)

    # ---- covariances -------------------------------------------------------------------------------------

    def at(self, left: Array, right: Array | None, h: Hyperparameters) -> CompositeCovariance:
        """Covariances between points (.., N, D) and (.., N', D), with their derivatives."""
        return CompositeCovariance(self, left, left if right is None else right, h)

    def __call__(self, left: Array, right: Array | None, h: Hyperparameters) -> Array:
        return np.asfortranarray(self.at(left, right, h).matrix)

    def log_gradient(self, left: Array, right: Array | None, h: Hyperparameters) -> Array:
        return np.stack(list(self.at(left, right, h).derivatives()))

    def variance(self, points: Array, h: Hyperparameters) -> Array:
        own, variances = self.split(h)
        return self.summed([one.diagonal(points, p) for one, p in zip(self.leaves, own, strict=True)], variances)

    def slopes(self, left: Array, right: Array, h: Hyperparameters) -> Array:
        own, variances = self.split(h)
        values = [one.at(left, right, p)[0] for one, p in zip(self.leaves, own, strict=True)]
        found = np.zeros((right.shape[1], len(left), len(right)))
        for j, (one, p) in enumerate(zip(self.leaves, own, strict=True)):
            beside = self.beside(j, values, variances)
            for axis, slope in one.slopes(left, right, p).items():
                found[axis] += beside * slope
        return found

    def curvature(self, points: Array, h: Hyperparameters) -> tuple[Array, Array]:
        """Of a product: every leaf's own, and the slopes of each two by x and by x'."""
        (own, variances), (size, dimension) = self.split(h), points.shape
        values = [one.diagonal(points, p) for one, p in zip(self.leaves, own, strict=True)]
        slopes, bends = np.zeros((len(own), size, dimension)), np.zeros((len(own), size, dimension, dimension))
        for j, (one, p) in enumerate(zip(self.leaves, own, strict=True)):
            axes = list(one.axes)
            slopes[j][:, axes] = one.slopes_of_equals(points, p)
            bends[j][:, axes, axes] = one.bends(p)
        first, second = np.zeros((size, dimension)), np.zeros((size, dimension, dimension))
        for variance, term in zip(variances, self.terms, strict=True):
            for j in term:
                rest = variance * math.prod((values[k] for k in term if k != j), start=np.ones(size))
                first += 2.0 * rest[:, None] * slopes[j]
                second += np.where(bends[j] != 0.0, rest[:, None, None] * bends[j], 0.0)
                for k in term:
                    if k != j:
                        both = variance * math.prod((values[i] for i in term if i not in (j, k)), start=np.ones(size))
                        second += both[:, None, None] * slopes[j][:, :, None] * slopes[k][:, None, :]
        return first, second

    def rough_axes(self, dimension: int) -> tuple[tuple[int, ...], ...]:
        return tuple(one.axes for one in self.leaves if one.kinked)

    def noise(self, data: Observations, h: Hyperparameters) -> Array:
        return self.noise_model.variance(data, self.sigmas(h.theta))

    def noise_slopes(self, data: Observations, h: Hyperparameters) -> Array:
        return self.noise_model.slopes(data, self.sigmas(h.theta))

    def summed(self, values: Sequence[Array], variances: Array) -> Array:
        """sum_t sigma_t^2 prod_j phi_j."""
        return np.asarray(
            sum(
                variance * math.prod(values[j] for j in term)
                for variance, term in zip(variances, self.terms, strict=True)
            )
        )

    def beside(self, j: int, values: Sequence[Array], variances: Array) -> Array:
        """What a leaf is multiplied with: the derivative of the kernel by its value."""
        mine = [(variance, term) for variance, term in zip(variances, self.terms, strict=True) if j in term]
        return np.asarray(sum(variance * math.prod(values[k] for k in term if k != j) for variance, term in mine))


class CompositeCovariance:
    """Covariances between points, (.., N, N'), and their derivatives by all logarithms but those of the noise."""

    def __init__(self, kernel: Composite, left: Array, right: Array, h: Hyperparameters) -> None:
        self._kernel = kernel
        own, self._variances = kernel.split(h)
        found = [one.at(left, right, p) for one, p in zip(kernel.leaves, own, strict=True)]
        self._values, self._slopes = [value for value, _ in found], [slopes for _, slopes in found]
        self.matrix = kernel.summed(self._values, self._variances)

    def derivatives(self) -> Iterator[Array]:
        """One after the other, (.., N, N') each."""
        for j, one in enumerate(self._kernel.leaves):
            if one.units():
                beside = self._kernel.beside(j, self._values, self._variances)
                yield from (beside * change for change in self._slopes[j]())
        for variance, term in zip(self._variances, self._kernel.terms, strict=True):
            yield 2.0 * variance * math.prod(self._values[j] for j in term)

    def contract(self, weights: Array) -> Array:
        """sum_ij weights_ij d matrix_ij / d log theta, (.., P - Q): by all but those of the noise."""
        found = [np.einsum("...ij,...ij->...", weights, change) for change in self.derivatives()]
        return np.stack(found, axis=-1)


def with_noise(kernel: Kernel, noise_model: NoiseModel) -> Kernel:
    """The same covariance, of observations whose noise differs.

    >>> with_noise(KERNELS["se"], NoiseModel(groups=("good", "cheap"))).names(["lon"])
    ('l_lon', 'sigma_f', 'sigma_eps_good', 'sigma_eps_cheap')
    """
    if not noise_model.differs:
        return kernel
    if isinstance(kernel, Composite):
        return replace(kernel, noise_model=noise_model)
    if type(kernel) is not type(KERNELS.get(kernel.name)):
        raise InputError(
            f"noise that differs needs a kernel by its name, or an expression of such, got {type(kernel).__name__}"
        )
    found = copy(KERNELS[kernel.name])
    found.noise_model = noise_model
    return found


def as_composite(kernel: Kernel, dimension: int) -> Composite:
    """A kernel of `KERNELS` as a sum of one product of one leaf: for loops that only know those."""
    leaf = Scaled(tuple(range(dimension)), kernel.name)
    return Composite(kernel.name, (leaf,), ((0,),), kernel.noise_model)


def _kind(one: Leaf) -> str:
    return str(getattr(one, "profile", type(one).__name__.lower()))
