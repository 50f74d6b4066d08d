"""What is known of the hyperparameters before training: bounds, log-normal priors and fixed values.

`Bounds` and `Prior` are of x = log theta, the same at every agent; `ParameterConstraints` are what a user gives.

A bound may be a user's, the floor under sigma_eps (data without noise have no best sigma_eps above zero), or both ends
of a fixed value. With them every trainer solves the same problem in a box. Means of points in a box are in it, so the
agents' agreement does not have to know of it: only local steps and the test of stationarity do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.errors import InputError, shortened, unknown_name
from fleetgp.validation import LARGEST, check_number

#: A slope below this share of the system's largest numbers is rounding.
ROUNDING = 1e-13


@dataclass(frozen=True, eq=False)
class Bounds:
    """lower, upper: (P,) bounds on log theta, infinite where there is none; as many as there are, if there are none."""

    lower: Array = field(default_factory=lambda: np.full(1, -np.inf))
    upper: Array = field(default_factory=lambda: np.full(1, np.inf))

    @property
    def fixed(self) -> BoolArray:
        """(P,) which coordinates cannot move."""
        return np.asarray(self.lower == self.upper)

    @property
    def given(self) -> BoolArray:
        """(P,) which coordinates have a bound."""
        return np.asarray((self.lower > -np.inf) | (self.upper < np.inf))

    def above(self, lower: Array) -> Bounds:
        """The same with higher lower bounds, but none above the upper ones."""
        return Bounds(np.maximum(self.lower, np.minimum(lower, self.upper)), self.upper)

    def floored(self, log_noise: float, count: int = 1) -> Bounds:
        """The same with a floor under the last coordinates, so many log sigma_eps.

        Its own lower bound takes the place of the floor, and so does an upper bound that is not above it.

        >>> Bounds(np.full(2, -np.inf), np.array([1.0, 2.0])).floored(-3.0).lower.tolist()
        [-inf, -3.0]
        >>> Bounds(np.full(2, -5.0), np.full(2, 2.0)).floored(-3.0).lower.tolist()
        [-5.0, -5.0]
        """
        under = (self.lower == -np.inf) & (self.upper > log_noise)
        under[:-count] = False
        return Bounds(np.where(under, log_noise, self.lower), self.upper) if under.any() else self

    def pinned(self, numbers: IntArray, values: Array) -> Bounds:
        """The same with some coordinates fixed."""
        lower, upper = self.lower.copy(), self.upper.copy()
        lower[numbers] = upper[numbers] = values
        return Bounds(lower, upper)

    def shifted(self, by: Array) -> Bounds:
        return Bounds(self.lower + by, self.upper + by)

    def part(self, which: BoolArray) -> Bounds:
        """Of some of the coordinates."""
        return Bounds(*(np.broadcast_to(end, which.shape)[which] for end in (self.lower, self.upper)))

    def within(self, x: Array, reach: float) -> Bounds:
        """The same, and no farther than so far from x where there is none.

        >>> box = Bounds(np.array([-np.inf, -30.0]), np.full(2, np.inf)).within(np.zeros(2), 12.0)
        >>> box.lower.tolist(), box.upper.tolist()
        ([-12.0, -30.0], [12.0, 12.0])
        """
        lower = np.where(self.lower > -np.inf, self.lower, x - reach)
        return Bounds(lower, np.where(self.upper < np.inf, self.upper, x + reach))

    def clipped(self, x: Array) -> Array:
        """x (.., P) with each coordinate that was beyond a bound at it.

        >>> box = Bounds(np.array([-np.inf, -3.0]), np.array([0.0, 4.0]))
        >>> box.clipped(np.array([[1.0, -5.0], [-5.0, 1.0]])).tolist()
        [[0.0, -3.0], [-5.0, 1.0]]
        """
        return np.clip(x, self.lower, self.upper) if self.given.any() else x

    def cut(self, x: Array, step: Array) -> Array:
        """As much of a step down, x - step, as the bounds allow.

        With a gradient over its curvature for the step it is how far x is from a stationary point: zero if and only
        if no gradient is left but where x stands at a bound and the gradient only pushes against it.

        >>> box = Bounds(np.array([-np.inf, -3.0]), np.array([1.5, 0.0]))
        >>> box.cut(np.array([1.0, -2.5]), np.array([-4.0, 4.0])).tolist()
        [-0.5, 0.5]
        """
        if not self.given.any():
            return step
        with np.errstate(invalid="ignore"):  # where x has diverged
            low, high = x - self.upper, x - self.lower
        return np.where(self.given, np.clip(step, low, high), step)

    def held(self, x: Array, gradient: Array) -> BoolArray:
        """(P,) which coordinates of x stand at a bound that the gradient pushes against, or cannot move at all."""
        pushed = ((x <= self.lower) & (gradient > 0.0)) | ((x >= self.upper) & (gradient < 0.0))
        return np.asarray(pushed | self.fixed)

    def best_move(self, x: Array, system: Array, gradient: Array) -> Array:
        """The minimizer over m of gradient'm + m'system m / 2 with x + m within the bounds, (.., P).

        x is within the bounds, and the system positive definite.

        >>> box = Bounds(np.array([-9.0, -3.0]), np.full(2, 9.0))
        >>> box.best_move(np.array([1.0, -2.5]), np.eye(2), np.array([0.5, 4.0])).tolist()
        [-0.5, -0.5]
        """
        move = np.asarray(-np.linalg.solve(system, gradient[..., None])[..., 0], dtype=float)
        if not self.given.any():
            return move
        low, high = np.minimum(self.lower - x, 0.0), np.maximum(self.upper - x, 0.0)
        beyond = ((move < low) | (move > high)).any(axis=-1)
        for row in map(tuple, np.argwhere(beyond).tolist()):
            move[row] = minimize_in_box(system[row], gradient[row], low[row], high[row])
        return move


def minimize_in_box(system: Array, gradient: Array, low: Array, high: Array) -> Array:
    """The minimizer of gradient'm + m'system m / 2 over low <= m <= high, all (P,): an active-set method.

    Some coordinates are at an end, the others free. On the way to the minimum over the free ones, the first that meets
    an end stays there; at that minimum, the one that is pushed away from its end most is set free. The value never
    rises and no set comes twice, but for rounding: the number of steps is limited, and any of them is a way down.
    """
    move = np.clip(-np.linalg.solve(system, gradient), low, high)
    free = (low < move) & (move < high)
    for _ in range(20 * len(move)):
        best = move.copy()
        rest = gradient[free] + system[np.ix_(free, ~free)] @ move[~free]
        best[free] = -np.linalg.solve(system[np.ix_(free, free)], rest)
        outside = free & ((best < low) | (best > high))
        if outside.any():
            end = np.where(best > high, high, low)
            away = np.where(outside, best - move, 1.0)
            share = np.where(outside, (end - move) / away, np.inf)
            first = int(np.argmin(share))
            move = np.clip(np.where(free, move + share[first] * (best - move), move), low, high)
            move[first], free[first] = end[first], False
            continue
        move = best
        slope = gradient + system @ move
        size = np.abs(gradient) + np.abs(system) @ np.abs(move)
        push = np.where(move == low, -slope, slope) - ROUNDING * size
        push[free | (low == high)] = -np.inf
        if push.max() <= 0.0:
            break
        free[int(np.argmax(push))] = True
    return np.asarray(move)


@dataclass(frozen=True, eq=False)
class Prior:
    """log theta is normal. centre: (P,) its mean, the logarithm of the median.  precision: (P,), 0 where there is none.

    The penalty is the sum of precision (x - centre)^2 / 2, the negative logarithm of the density of log theta but for a
    constant: its minimum is 0.
    """

    centre: Array = field(default_factory=lambda: np.zeros(1))
    precision: Array = field(default_factory=lambda: np.zeros(1))

    @property
    def given(self) -> bool:
        return bool(self.precision.any())

    def shifted(self, by: Array) -> Prior:
        return Prior(self.centre + by, self.precision)

    def penalty(self, x: Array) -> Array:
        """At log theta, (.., P) -> (..).

        >>> Prior(np.zeros(2), np.array([4.0, 0.0])).penalty(np.array([0.5, 9.0])).tolist()
        0.5
        """
        return np.asarray(0.5 * (self.precision * (x - self.centre) ** 2).sum(axis=-1))

    def gradient(self, x: Array) -> Array:
        return np.asarray(self.precision * (x - self.centre))


#: Plain words for hyperparameters, and how the names begin that they stand for.
WORDS = {"length": "l", "signal": "sigma_f", "noise": "sigma_eps"}
#: As close to a bound as this, in log theta, is at it, or as close as this share of the way between two: agents agree
#: to a tolerance, not to the last bit.
AT = 0.01

#: The lowest and the highest value; None, 0 and infinity are open.
Ends = tuple[float | None, float | None]
#: The median, and the factor that is one standard deviation of the logarithm.
MedianAndFactor = tuple[float, float]


@dataclass(frozen=True)
class ParameterConstraints:
    """In the units of the data, P of each.

    lower, upper: the bounds, 0 and infinity for none; the same for a fixed value.
    median, factor: of the priors; a factor of infinity for none.
    """

    names: tuple[str, ...] = ()
    lower: tuple[float, ...] = ()
    upper: tuple[float, ...] = ()
    median: tuple[float, ...] = ()
    factor: tuple[float, ...] = ()

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        bounds: Mapping[str, Any] | None = None,
        priors: Mapping[str, Any] | None = None,
        fixed: Mapping[str, Any] | None = None,
    ) -> ParameterConstraints:
        """What a user says: under the hyperparameters' names, or the words length, signal and noise.

        A name of its own goes before a word that it is meant by too: "length" is for the other length-scales then.

        >>> names = ("l_lon", "l_lat", "sigma_f", "sigma_eps")
        >>> known = ParameterConstraints.of(names, {"length": (0.1, 5), "l_lat": (1, None)})
        >>> known.lower, known.upper
        ((0.1, 1.0, 0.0, 0.0), (5.0, inf, inf, inf))
        >>> ParameterConstraints.of(("l_1", "sigma_f", "sigma_eps"), fixed={"l_2": 1.0})
        Traceback (most recent call last):
        fleetgp.errors.InputError: unknown hyperparameter in fixed 'l_2': choose one of l_1, sigma_f, sigma_eps, ...
        """
        width = len(names)
        lower, upper, median, factor = [0.0] * width, [np.inf] * width, [1.0] * width, [np.inf] * width
        for number, (name, value) in _by_number("bounds", bounds, names).items():
            lower[number], upper[number] = _checked_ends(name, value)
        for number, (name, value) in _by_number("fixed", fixed, names).items():
            constant = _checked_value(f"fixed: {name}", value)
            if not lower[number] <= constant <= upper[number]:
                raise InputError(
                    f"fixed: {names[number]} = {constant:g} is outside of its bounds, {lower[number]:g} to "
                    f"{upper[number]:g}: leave one of them out"
                )
            lower[number] = upper[number] = constant
        for number, (name, value) in _by_number("priors", priors, names).items():
            if lower[number] == upper[number] and len(meant(name, names)) == 1:
                raise InputError(f"priors: {name} has a fixed value, of which no prior tells more: leave one out")
            if lower[number] < upper[number]:
                median[number], factor[number] = _checked_prior(name, value)
        return cls(tuple(names), tuple(lower), tuple(upper), tuple(median), tuple(factor))

    def rescaled(self, by: Array) -> ParameterConstraints:
        """The same for hyperparameters in other units, (P,): these are the factors."""
        if not self.names:
            return self
        lower, upper, median = (
            tuple((np.array(values) * by).tolist()) for values in (self.lower, self.upper, self.median)
        )
        return replace(self, lower=lower, upper=upper, median=median)

    def part(self, numbers: Sequence[int], names: Sequence[str]) -> ParameterConstraints:
        """Of some of the hyperparameters, under these names."""
        rows = (self.lower, self.upper, self.median, self.factor)
        return ParameterConstraints(tuple(names), *(tuple(row[number] for number in numbers) for row in rows))

    @property
    def bounds(self) -> Bounds:
        with np.errstate(divide="ignore"):
            return Bounds(np.log(self.lower), np.log(self.upper))

    @property
    def prior(self) -> Prior:
        return Prior(np.log(self.median), 1.0 / np.log(self.factor) ** 2)

    def touched(self, thetas: Array) -> tuple[BoolArray, BoolArray]:
        """(P,) each: which of them stand at their lower, and at their upper bound, in any row of (A, P).

        Fixed values do not count.
        """
        if not self.names:
            return np.zeros(0, dtype=bool), np.zeros(0, dtype=bool)
        box = self.bounds
        free = ~box.fixed
        with np.errstate(divide="ignore", invalid="ignore"):
            x = np.log(thetas)
            near = np.minimum(AT, AT * np.where(free, box.upper - box.lower, 1.0))
            return free & (x <= box.lower + near).any(axis=0), free & (x >= box.upper - near).any(axis=0)

    def as_dict(self) -> dict[str, dict[str, Any]]:
        """The arguments of `of`, for a file.

        >>> names = ("l_1", "sigma_f", "sigma_eps")
        >>> ParameterConstraints.of(names, {"l_1": (None, 2)}, {"signal": (1, 3)}, {"noise": 0.1}).as_dict()
        {'bounds': {'l_1': [None, 2.0]}, 'priors': {'sigma_f': [1.0, 3.0]}, 'fixed': {'sigma_eps': 0.1}}
        """
        rows = list(zip(self.names, self.lower, self.upper, self.median, self.factor, strict=True))
        box = {n: [low or None, high if high < np.inf else None] for n, low, high, *_ in rows if low < high}
        return {
            "bounds": {name: ends for name, ends in box.items() if ends != [None, None]},
            "priors": {name: [median, factor] for name, *_, median, factor in rows if factor < np.inf},
            "fixed": {name: low for name, low, high, *_ in rows if low == high},
        }


def meant(name: str, names: Sequence[str]) -> list[int]:
    """The numbers of the hyperparameters that a name or a word stands for; none if it is neither.

    >>> meant("length", ("l_1", "l_2", "sigma_f", "sigma_eps")), meant("l_2", ("l_1", "l_2", "sigma_f", "sigma_eps"))
    ([0, 1], [1])
    """
    if name in names:
        return [list(names).index(name)]
    # Names of kernels that are composed may say which part they are of: rq.l_day.
    begin = WORDS.get(name)
    return [number for number, own in enumerate(names) if begin and own.rpartition(".")[2].startswith(begin)]


def known_names(names: Sequence[str]) -> tuple[str, ...]:
    return (*names, *(word for word in WORDS if meant(word, names)))


def _by_number(what: str, given: Mapping[str, Any] | None, names: Sequence[str]) -> dict[int, tuple[str, Any]]:
    """What was given, by the hyperparameters' numbers: the name that it was given under, and its value."""
    if given is not None and not isinstance(given, Mapping):
        raise InputError(f"{what}: expected a dictionary with the names of hyperparameters, got {shortened(given)}")
    values: dict[int, tuple[str, Any]] = {}
    for name, value in sorted((given or {}).items(), key=lambda item: item[0] in names):
        numbers = meant(name, names) if isinstance(name, str) else []
        if not numbers:
            raise unknown_name(f"hyperparameter in {what}", name, known_names(names))
        for number in numbers:
            if number in values and len(meant(values[number][0], names)) == len(numbers):
                raise InputError(f"{what}: {values[number][0]} and {name} are the same hyperparameter: leave out one")
            values[number] = name, value
    return values


def _checked_value(what: str, value: object) -> float:
    check_number(what, value, least=1.0 / LARGEST, most=LARGEST)
    return float(value)  # type: ignore[arg-type]


def _pair(what: str, value: object, expected: str) -> tuple[Any, Any]:
    if isinstance(value, str) or not isinstance(value, Sequence | np.ndarray) or len(value) != 2:
        raise InputError(f"{what}: expected {expected}, got {shortened(value)}")
    return value[0], value[1]


def _checked_ends(name: str, value: object) -> tuple[float, float]:
    what = f"bounds: {name}"
    low, high = _pair(what, value, "two numbers, the lowest and the highest value (None: open)")
    lower = 0.0 if low is None or low == 0.0 else _checked_value(what, low)
    upper = np.inf if high is None or high == np.inf else _checked_value(what, high)
    if lower == upper:
        raise InputError(f"{what}: expected two different numbers, got {lower:g} twice: use fixed for one value")
    if lower > upper:
        raise InputError(f"{what}: expected the lowest value first, got {lower:g} and {upper:g}")
    return lower, upper


def _checked_prior(name: str, value: object) -> tuple[float, float]:
    what = f"priors: {name}"
    middle, times = _pair(what, value, "two numbers, the median and a factor (one standard deviation of the logarithm)")
    check_number(f"{what}: the factor", times, above=1.0, most=LARGEST)
    return _checked_value(what, middle), float(times)
