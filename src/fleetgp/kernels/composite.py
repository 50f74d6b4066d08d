"""Sums of products of leaves: k(x, x') = sum_t sigma_t^2 prod_j phi_j(x, x'), j over the leaves of term t.

A leaf is a function of some of the inputs, with hyperparameters p of its own. It gives its values between points
(.., N, D) and (.., N', D), also in stacks, and their derivatives by the logarithms of p. Stationary ones have
phi(x, x) = 1. A leaf may be in several terms: (a + b) * c is a c + b c with one c.

theta: the hyperparameters of the leaves in the order of the expression, then sigma_f of every term, then the noise's.
"""

from __future__ import annotations

import abc
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.errors import InputError
from fleetgp.kernels.stationary import KERNELS, OBSERVED, PURE, Kernel
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.noise import SAME, NoiseModel
from fleetgp.model.observations import Observations

#: Where trainings start: the shape of a rational quadratic, and the length-scale of a periodic kernel, in no units.
SHAPE, SMOOTHNESS = 1.0, 1.0


#: Arrays (.., N, N'), one for each hyperparameter.
Derivatives = Callable[[], Iterator[Array]]


@dataclass(frozen=True)
class Leaf(abc.ABC):
    """axes: the inputs that it is a function of."""

    axes: tuple[int, ...]

    @abc.abstractmethod
    def names(self, inputs: Sequence[str]) -> tuple[str, ...]:
        """Of its hyperparameters. inputs: the names of all inputs."""

    @abc.abstractmethod
    def units(self) -> tuple[int, ...]:
        """Of its hyperparameters, as in `Kernel.units`."""

    @abc.abstractmethod
    def at(self, left: Array, right: Array, p: Array) -> tuple[Array, Derivatives]:
        """phi, (.., N, N'), and an iterator over d phi / d log p."""

    def diagonal(self, points: Array, p: Array) -> Array:
        """phi(x, x), (.., N)."""
        return np.ones(points.shape[:-1])

    @abc.abstractmethod
    def slopes(self, left: Array, right: Array, p: Array) -> dict[int, Array]:
        """d phi / d right by input, (.., N, N') each; at a kink zero, the mean of both sides."""

    def slopes_of_equals(self, points: Array, p: Array) -> Array:
        """d phi(x, x') / dx' at x' = x, by each of its inputs, (N, d)."""
        return np.zeros((len(points), len(self.axes)))

    @abc.abstractmethod
    def bends(self, p: Array) -> Array:
        """d^2 phi(x, x') / dx_d dx'_d at x' = x, by each of its inputs, (d,); those of two inputs are zero."""

    @property
    def kinked(self) -> bool:
        """Whether it has a kink where two points are equal."""
        return False

    @abc.abstractmethod
    def near(self) -> dict[int, int]:
        """For each input whose differences decide which points are near, the position in p of its length-scale."""

    @abc.abstractmethod
    def start(self, reach: Array, span: float) -> list[float]:
        """p where a training may start. reach: (D,) of the inputs.  span: a length-scale as a share of it."""


def _difference(left: Array, right: Array, axis: int) -> Array:
    return np.asarray(left[..., :, None, axis] - right[..., None, :, axis])


@dataclass(frozen=True)
class Scaled(Leaf):
    """A profile of s = sum_d (x_d - x'_d)^2 / l_d^2.

    alike: with one length-scale for all inputs.  named: of these the ones that the user knows; none for all.
    """

    profile: str
    alike: bool = False
    named: tuple[int, ...] = ()

    def names(self, inputs: Sequence[str]) -> tuple[str, ...]:
        if self.alike and len(self.axes) > 1:
            known = self.named or self.axes
            return ("l" if len(known) == len(inputs) else f"l_{'_'.join(inputs[d] for d in known)}",)
        return tuple(f"l_{inputs[d]}" for d in self.axes)

    def units(self) -> tuple[int, ...]:
        if self.named:
            return self.named[:1]
        return (self.axes[0] if len(self.axes) == 1 else PURE,) if self.alike else self.axes

    def near(self) -> dict[int, int]:
        return {axis: 0 if self.alike else k for k, axis in enumerate(self.axes)}

    def start(self, reach: Array, span: float) -> list[float]:
        scales = span * reach[list(self.axes)]
        return [float(scales.max())] if self.alike else scales.tolist()

    def at(self, left: Array, right: Array, p: Array) -> tuple[Array, Derivatives]:
        s = self.distance(left, right, p)
        value, slope = self.rule(s, p)
        return value, lambda: self.along(left, right, p, s, slope)

    def rule(self, s: Array, p: Array) -> tuple[Array, Array]:
        """phi and -phi' of s."""
        return KERNELS[self.profile].profile_and_slope(s)

    def slopes(self, left: Array, right: Array, p: Array) -> dict[int, Array]:
        _, slope = self.rule(self.distance(left, right, p), p)
        scales = np.broadcast_to(p[:1] if self.alike else p[: len(self.axes)], len(self.axes))
        return {
            axis: 2.0 * slope * _difference(left, right, axis) / scale**2
            for axis, scale in zip(self.axes, scales, strict=True)
        }

    def bends(self, p: Array) -> Array:
        steepness = np.inf if self.kinked else self.rule(np.zeros(1), p)[1][0]
        return np.broadcast_to(2.0 * steepness / (p[:1] if self.alike else p[: len(self.axes)]) ** 2, len(self.axes))

    @property
    def kinked(self) -> bool:
        return KERNELS[self.profile].kinked

    def distance(self, left: Array, right: Array, p: Array) -> Array:
        """s."""
        return np.asarray(sum(self.square(left, right, p, k) for k in range(len(self.axes))))

    def square(self, left: Array, right: Array, p: Array, k: int) -> Array:
        """The part of s along one of its inputs."""
        return np.asarray((_difference(left, right, self.axes[k]) / p[0 if self.alike else k]) ** 2)

    def along(self, left: Array, right: Array, p: Array, s: Array, slope: Array) -> Iterator[Array]:
        """By the length-scales. slope: -phi'(s)."""
        if self.alike:
            yield 2.0 * slope * s
        else:
            for k in range(len(self.axes)):
                yield 2.0 * slope * self.square(left, right, p, k)


@dataclass(frozen=True)
class RationalQuadratic(Scaled):
    """(1 + s / alpha)^-alpha: a mixture of squared exponentials of many length-scales. p: length-scales, alpha.

    For large alpha it is the squared exponential. scikit-learn's has sqrt(2) times shorter length-scales.
    """

    profile: str = "rq"

    def names(self, inputs: Sequence[str]) -> tuple[str, ...]:
        return (*super().names(inputs), "alpha")

    def units(self) -> tuple[int, ...]:
        return (*super().units(), PURE)

    def start(self, reach: Array, span: float) -> list[float]:
        return [*super().start(reach, span), SHAPE]

    @property
    def kinked(self) -> bool:
        return False

    def rule(self, s: Array, p: Array) -> tuple[Array, Array]:
        value = np.exp(-p[-1] * np.log1p(s / p[-1]))
        return value, value / (1.0 + s / p[-1])

    def at(self, left: Array, right: Array, p: Array) -> tuple[Array, Derivatives]:
        s, alpha = self.distance(left, right, p), p[-1]
        value, slope = self.rule(s, p)

        def derivatives() -> Iterator[Array]:
            yield from self.along(left, right, p, s, slope)
            yield alpha * value * (s / (alpha + s) - np.log1p(s / alpha))

        return value, derivatives


@dataclass(frozen=True)
class Periodic(Leaf):
    """exp(-2 sum_d sin^2(pi (x_d - x'_d) / period_d) / l_d^2), as in scikit-learn. p: length-scales, periods."""

    def names(self, inputs: Sequence[str]) -> tuple[str, ...]:
        return (*(f"l_{inputs[d]}" for d in self.axes), *(f"period_{inputs[d]}" for d in self.axes))

    def units(self) -> tuple[int, ...]:
        return (*(PURE,) * len(self.axes), *self.axes)

    def near(self) -> dict[int, int]:
        return {axis: len(self.axes) + k for k, axis in enumerate(self.axes)}

    def start(self, reach: Array, span: float) -> list[float]:
        return [*(SMOOTHNESS,) * len(self.axes), *(span * reach[list(self.axes)]).tolist()]

    def _turns(self, left: Array, right: Array, p: Array, k: int) -> Array:
        return np.asarray(np.pi * _difference(left, right, self.axes[k]) / p[len(self.axes) + k])

    def at(self, left: Array, right: Array, p: Array) -> tuple[Array, Derivatives]:
        turns = [self._turns(left, right, p, k) for k in range(len(self.axes))]
        parts = [2.0 * (np.sin(turn) / scale) ** 2 for turn, scale in zip(turns, p, strict=False)]
        value = np.asarray(np.exp(-sum(parts)))

        def derivatives() -> Iterator[Array]:
            yield from (2.0 * value * part for part in parts)
            for turn, scale in zip(turns, p, strict=False):
                yield 2.0 * value * np.sin(2.0 * turn) * turn / scale**2

        return value, derivatives

    def slopes(self, left: Array, right: Array, p: Array) -> dict[int, Array]:
        value, _ = self.at(left, right, p)
        count = len(self.axes)
        return {
            axis: value * 2.0 * np.sin(2.0 * self._turns(left, right, p, k)) * np.pi / (p[k] ** 2 * p[count + k])
            for k, axis in enumerate(self.axes)
        }

    def bends(self, p: Array) -> Array:
        count = len(self.axes)
        return np.asarray((2.0 * np.pi / (p[:count] * p[count:])) ** 2)


@dataclass(frozen=True)
class Linear(Leaf):
    """sum_d x_d x'_d: straight lines through the origin. It has no hyperparameters of its own."""

    def names(self, inputs: Sequence[str]) -> tuple[str, ...]:
        return ()

    def units(self) -> tuple[int, ...]:
        return ()

    def near(self) -> dict[int, int]:
        return {}

    def start(self, reach: Array, span: float) -> list[float]:
        return []

    def at(self, left: Array, right: Array, p: Array) -> tuple[Array, Derivatives]:
        axes = list(self.axes)
        return np.asarray(left[..., axes] @ np.swapaxes(right[..., axes], -1, -2)), lambda: iter(())

    def diagonal(self, points: Array, p: Array) -> Array:
        return np.asarray((points[..., list(self.axes)] ** 2).sum(axis=-1))

    def slopes(self, left: Array, right: Array, p: Array) -> dict[int, Array]:
        shape = (*left.shape[:-1], right.shape[-2])
        return {axis: np.broadcast_to(left[..., axis, None], shape) for axis in self.axes}

    def slopes_of_equals(self, points: Array, p: Array) -> Array:
        return points[:, list(self.axes)]

    def bends(self, p: Array) -> Array:
        return np.ones(len(self.axes))


def leaf(name: str, axes: tuple[int, ...]) -> Leaf | None:
    """By its name in an expression; None if there is none of this name."""
    alike = name.startswith(ALIKE)
    profile = name.removeprefix(ALIKE)
    if profile == "rq":
        return RationalQuadratic(axes, alike=alike)
    if name in OTHERS:
        return OTHERS[name](axes)
    return Scaled(axes, profile, alike) if profile in KERNELS else None


#: Before the name of a kernel: with one length-scale for all inputs.
ALIKE = "iso-"
#: Leaves that are not made of a stationary kernel.
OTHERS: dict[str, Callable[[tuple[int, ...]], Leaf]] = {"periodic": Periodic, "linear": Linear}


def leaf_names() -> tuple[str, ...]:
    """What an expression can be made of."""
    return (*KERNELS, "rq", *OTHERS, *(f"{ALIKE}{name}" for name in (*KERNELS, "rq")))


#: A second leaf of the same inputs starts with shorter length-scales, since two equal ones would stay equal.
SHORTER = 3.0


@dataclass(frozen=True)
class Composite(Kernel):
    """name: the expression.  terms: of each the numbers of its leaves."""

    name: str
    leaves: tuple[Leaf, ...]
    terms: tuple[tuple[int, ...], ...]
    noise_model: NoiseModel = SAME

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Where the hyperparameters of each leaf start in theta; the last number is where those of the terms do."""
        return (0, *np.cumsum([len(one.units()) for one in self.leaves]).tolist())

    def split(self, h: Hyperparameters) -> tuple[list[Array], Array]:
        """The hyperparameters of each leaf, and the variances sigma_t^2 of the terms."""
        own = [h.theta[start:end] for start, end in pairwise(self.offsets)]
        return own, h.theta[self.offsets[-1] :][: len(self.terms)] ** 2

    # ---- hyperparameters ---------------------------------------------------------------------------------

    def names(self, inputs: int | Sequence[str]) -> tuple[str, ...]:
        labels = [str(d + 1) for d in range(inputs)] if isinstance(inputs, int) else list(inputs)
        own = [one.names(labels) for one in self.leaves]
        often = Counter(name for each in own for name in each)
        result: list[str] = []
        for j, each in enumerate(own):
            result += [name if often[name] == 1 else f"{self._called(j)}.{name}" for name in each]
        several = len(self.terms) > 1
        result += [f"sigma_f{t + 1}" if several else "sigma_f" for t in range(len(self.terms))]
        return (*result, *self.noise_model.names)

    def _called(self, j: int) -> str:
        """A leaf by the name of its kernel, with a number if there are several of that name."""
        called = [_kind(one) for one in self.leaves]
        return called[j] + (str(called[: j + 1].count(called[j])) if called.count(called[j]) > 1 else "")

    def units(self, dimension: int) -> IntArray:
        own = [unit for one in self.leaves for unit in one.units()]
        return np.array([*own, *(OBSERVED,) * (len(self.terms) + self.noise_count)])

    def scales(self, h: Hyperparameters, dimension: int) -> tuple[Array, IntArray]:
        """From the first leaf that has a length-scale for an input."""
        result, places = np.full(dimension, np.inf), np.full(dimension, -1)
        for j, one in enumerate(self.leaves):
            for axis, k in one.near().items():
                if places[axis] < 0:
                    places[axis] = self.offsets[j] + k
                    result[axis] = h.theta[places[axis]]
        return result, places

    def start(self, reach: Array, span: float, size: float) -> Array:
        seen: Counter[tuple[int, ...]] = Counter()
        own: list[float] = []
        for one in self.leaves:
            own += one.start(reach, span / SHORTER ** seen[one.axes])
            seen[one.axes] += bool(one.near())
        share = size / math.sqrt(len(self.terms))
        return np.array([*own, *(share / self._wide(term, reach) for term in self.terms)])

    def _wide(self, term: tuple[int, ...], reach: Array) -> float:
        """The size of the linear leaves of a term over the data."""
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
        result = np.zeros((right.shape[1], len(left), len(right)))
        for j, (one, p) in enumerate(zip(self.leaves, own, strict=True)):
            beside = self.beside(j, values, variances)
            for axis, slope in one.slopes(left, right, p).items():
                result[axis] += beside * slope
        return result

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
        result = [one.at(left, right, p) for one, p in zip(kernel.leaves, own, strict=True)]
        self._values, self._slopes = [value for value, _ in result], [slopes for _, slopes in result]
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
        result = [np.einsum("...ij,...ij->...", weights, change) for change in self.derivatives()]
        return np.stack(result, axis=-1)


def with_noise(kernel: Kernel, noise_model: NoiseModel) -> Kernel:
    """The same covariance, of observations whose noise differs.

    >>> with_noise(KERNELS["se"], NoiseModel(groups=("good", "cheap"))).names(["lon"])
    ('l_lon', 'sigma_f', 'sigma_eps_good', 'sigma_eps_cheap')
    """
    if not noise_model.differs:
        return kernel
    if isinstance(kernel, Composite):
        return replace(kernel, noise_model=noise_model)
    if kernel.name not in KERNELS or type(kernel) is not type(KERNELS[kernel.name]):
        raise InputError(
            f"noise that differs needs a kernel by its name, or an expression of such, got {type(kernel).__name__}"
        )
    result = copy(KERNELS[kernel.name])
    result.noise_model = noise_model
    return result


def as_composite(kernel: Kernel, dimension: int) -> Composite:
    """A kernel of `KERNELS` as a sum of one product of one leaf: for loops that only know those."""
    if isinstance(kernel, Composite):
        return kernel
    leaf = Scaled(tuple(range(dimension)), kernel.name)
    return Composite(kernel.name, (leaf,), ((0,),), kernel.noise_model)


def _kind(one: Leaf) -> str:
    return str(getattr(one, "profile", type(one).__name__.lower()))
