r"""What kernels are composed of: functions phi(x, x') of some of the inputs, with hyperparameters p of their own.

Each is the rule for points (.., N, D) and (.., N', D), which may come in stacks: its value, and the derivatives of that
by the logarithms of p. Stationary ones have phi(x, x) = 1.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array
from fleetgp.gp.kernels import KERNELS, PURE

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
        """Of its hyperparameters. inputs: what all inputs are called."""

    @abc.abstractmethod
    def units(self) -> tuple[int, ...]:
        """Of its hyperparameters, as in `Kernel.units`."""

    @abc.abstractmethod
    def at(self, left: Array, right: Array, p: Array) -> tuple[Array, Derivatives]:
        """phi, (.., N, N'), and d phi / d log p, one after the other, when they are asked for."""

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
        """For each input whose differences tell who is near, which of p they are to be divided by."""

    @abc.abstractmethod
    def start(self, reach: Array, span: float) -> list[float]:
        """p where a training may start, for data that reach so far, (D,). span: a length-scale as a share of it."""


def _difference(left: Array, right: Array, axis: int) -> Array:
    return np.asarray(left[..., :, None, axis] - right[..., None, :, axis])


@dataclass(frozen=True)
class Scaled(Leaf):
    """A profile of s = sum_d (x_d - x'_d)^2 / l_d^2. alike: with one length-scale for all inputs.

    named: of those that are alike the inputs that a user knows, where more make one place; none for all of them.
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
        return self.profile in KERNELS and KERNELS[self.profile].kinked

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
    if profile in KERNELS:
        return Scaled(axes, profile, alike)
    if profile == "rq":
        return RationalQuadratic(axes, alike=alike)
    made = OTHERS.get(name)
    return None if made is None else made(axes)


#: Before the name of a kernel: with one length-scale for all inputs.
ALIKE = "iso-"
OTHERS: dict[str, type[Leaf]] = {"periodic": Periodic, "linear": Linear}
#: What an expression can be made of.
LEAVES: tuple[str, ...] = (*KERNELS, "rq", *OTHERS, *(f"{ALIKE}{name}" for name in (*KERNELS, "rq")))
