"""Bounds on x = log theta, the same at every agent: a lower and an upper one for each coordinate.

A bound may be a user's, the floor under sigma_eps (data without noise have no best sigma_eps above zero), or both ends
of a fixed value. With them every trainer solves the same problem in a box. Means of points in a box are in it, so the
agents' agreement does not have to know of it: only local steps and the test of stationarity do.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray

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
        """The same in other units."""
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
