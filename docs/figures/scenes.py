"""Fields with known hyperparameters, on a map and at observed places; and how good a map is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from fleetgp.arrays import Array, BoolArray
from fleetgp.kernels.expression import as_kernel
from fleetgp.metrics import coverage, rmse
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.prediction import Prediction

#: Added to variances of drawn values, so that their covariance has a root; far below all noise.
JITTER = 1e-8
BOX = (0.0, 2.0)


@dataclass(frozen=True)
class Size:
    """side: points of a map along each axis.  share: of the observations that a section has.

    most_draws: of fields for a median.
    """

    side: int = 60
    share: float = 1.0
    most_draws: int = 100

    def of(self, count: int) -> int:
        """So many observations."""
        return max(8, round(self.share * count))

    def draws(self, count: int) -> range:
        """The seeds of so many draws of a field."""
        return range(min(count, self.most_draws))


@dataclass(frozen=True)
class Drawn:
    """A section's figure. facts: the numbers that the page tells."""

    figure: Figure
    facts: dict[str, Any]


@dataclass(frozen=True)
class Scene:
    """A field on a map, (side, side) points in rows, and at places that are observed.

    grid: (T, D) the points of the map.  truth: (T,).  places: (N, D).  observations: (N,), with noise.
    """

    grid: Array
    truth: Array
    places: Array
    observations: Array

    def kept(self, rows: BoolArray) -> Scene:
        """With some of the observations only."""
        return Scene(self.grid, self.truth, self.places[rows], self.observations[rows])


def draw(kernel: str, theta: Sequence[float], places: Array, seed: int) -> Array:
    """f at the places (N, D), a draw of the Gaussian process without noise."""
    covariance = as_kernel(kernel, places.shape[1])(places, None, Hyperparameters.from_theta(theta))
    covariance.flat[:: len(covariance) + 1] += JITTER * covariance.diagonal().mean()
    return np.asarray(np.linalg.cholesky(covariance) @ np.random.default_rng([seed, 1]).standard_normal(len(places)))


def map_points(side: int, low: Sequence[float] = (BOX[0],) * 2, high: Sequence[float] = (BOX[1],) * 2) -> Array:
    """(side^2, 2) the middles of the cells of a map, the first input along the columns."""
    steps = (np.arange(side) + 0.5) / side
    x, y = np.meshgrid(*(a + steps * (b - a) for a, b in zip(low, high, strict=True)))
    return np.stack([x.ravel(), y.ravel()], axis=1)


def scene(kernel: str, theta: Sequence[float], grid: Array, places: Array, seed: int) -> Scene:
    """A draw at observed places and on a map together; theta's last is the standard deviation of the noise.

    The places come first: what is observed there is the same on every map.
    """
    field = draw(kernel, theta, np.concatenate([places, grid]), seed)
    noise = theta[-1] * np.random.default_rng([seed, 2]).standard_normal(len(places))
    return Scene(grid, field[len(places) :], places, field[: len(places)] + noise)


def anywhere(count: int, seed: int) -> Array:
    """(count, 2) places in the box."""
    return np.random.default_rng([seed, 0]).uniform(*BOX, (count, 2))


def scores(answer: Prediction, truth: Array, where: BoolArray | None = None) -> dict[str, float]:
    """RMSE of the mean, and the share of f inside of 95% intervals, on all of a map or a part of it."""
    part = np.ones(len(truth), dtype=bool) if where is None else where
    return {
        "rmse": rounded(rmse(answer.mean[part], truth[part])),
        "covered": rounded(coverage(answer.mean[part], answer.variance[part], truth[part])),
    }


def rounded(value: float) -> float:
    return float(f"{value:.3g}")


def named_theta(names: Sequence[str], theta: Array) -> dict[str, float]:
    return {name: rounded(value) for name, value in zip(names, theta.tolist(), strict=True)}
