"""The scores of Gaussian predictions, each averaged over the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from fleetgp.arrays import Array
from fleetgp.errors import InputError
from fleetgp.given import as_numbers, check_finite, check_number

#: The share of truths that central intervals shall hold, where nothing else is said.
LEVEL = 0.95


@dataclass(frozen=True)
class Trivial:
    """The model that says the same everywhere: mean and variance of the observations that were trained on.

    >>> Trivial.of([1.0, 3.0])
    Trivial(mean=2.0, variance=1.0)
    """

    mean: float
    variance: float

    def __post_init__(self) -> None:
        check_number("mean", self.mean)
        check_number("variance", self.variance)
        if not self.variance > 0.0:
            raise InputError(
                f"MSLL: expected training observations that differ, got a variance of {self.variance:g}: leave them out"
            )

    @classmethod
    def of(cls, trained: Any) -> Trivial:
        """trained: (N,) observations."""
        values = checked_row(trained, "trained")
        return cls(float(values.mean()), float(values.var()))


def rmse(mean: ArrayLike, truth: ArrayLike) -> float:
    """Root mean square error. mean, truth: (T,).

    >>> round(rmse(np.array([1.0, 2.0]), np.array([1.0, 4.0])), 6)
    1.414214
    """
    return float(np.sqrt(np.mean(_errors(mean, truth) ** 2)))


def mae(mean: ArrayLike, truth: ArrayLike) -> float:
    """Mean absolute error. mean, truth: (T,).

    >>> mae(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
    1.0
    """
    return float(np.mean(np.abs(_errors(mean, truth))))


def log_density(mean: ArrayLike, variance: ArrayLike, truth: ArrayLike) -> Array:
    """The logarithm of the Gaussian predictive density at each truth, (T,). What is NaN stays NaN.

    mean, variance, truth: (T,).

    >>> log_density(np.zeros(1), np.ones(1), np.zeros(1)).round(6).tolist()
    [-0.918939]
    """
    told, spread, seen = as_numbers(mean, "mean"), as_numbers(variance, "variance"), as_numbers(truth, "truth")
    if not told.shape == spread.shape == seen.shape:
        raise InputError(f"expected mean, variance and truth (T,), got {told.shape}, {spread.shape} and {seen.shape}")
    return np.asarray(-0.5 * (np.log(2.0 * np.pi * spread) + (seen - told) ** 2 / spread))


def nlpd(mean: ArrayLike, variance: ArrayLike, truth: ArrayLike) -> float:
    """Negative log predictive density, averaged. mean, variance, truth: (T,).

    >>> round(nlpd(np.zeros(1), np.ones(1), np.zeros(1)), 6)
    0.918939
    """
    error, deviation = _errors(mean, truth), _deviations(variance, truth)
    return -float(np.mean(log_density(np.zeros_like(error), deviation**2, error)))


def msll(mean: ArrayLike, variance: ArrayLike, truth: ArrayLike, trained: ArrayLike | Trivial) -> float:
    """Mean standardized log loss (Rasmussen and Williams, 2006): the NLPD, less that of a trivial model.

    The trivial model says the same everywhere: mean and variance of the observations that were trained on. 0 is no
    better than that, below 0 is better.

    mean, variance, truth: (T,).  trained: (N,) these observations, or the `Trivial` of them.

    >>> round(msll(np.zeros(1), np.ones(1), np.zeros(1), trained=np.array([-1.0, 1.0])), 6)
    0.0
    """
    trivial = trained if isinstance(trained, Trivial) else Trivial.of(trained)
    same = np.ones(len(checked_row(truth, "truth")))
    return nlpd(mean, variance, truth) - nlpd(trivial.mean * same, trivial.variance * same, truth)


def crps(mean: ArrayLike, variance: ArrayLike, truth: ArrayLike) -> float:
    """Continuous ranked probability score, averaged: the integral of (F(t) - 1[t >= y])^2 over t, in units of the data.

    In closed form sigma (z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt(pi)) with z = (y - mean) / sigma. Of a prediction
    without a deviation it would be the absolute error.

    mean, variance, truth: (T,).

    >>> round(crps(np.zeros(1), np.ones(1), np.zeros(1)), 6)
    0.233695
    """
    deviation = _deviations(variance, truth)
    z = _errors(mean, truth) / deviation
    density = np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)
    return float(np.mean(deviation * (z * (2.0 * ndtr(z) - 1.0) + 2.0 * density - 1.0 / np.sqrt(np.pi))))


def interval_score(mean: ArrayLike, variance: ArrayLike, truth: ArrayLike, level: float = LEVEL) -> float:
    """Of central intervals, averaged: their width, and 2 / (1 - level) times by how much a truth misses them.

    mean, variance, truth: (T,).  level: the share of truths that they shall hold.

    >>> round(interval_score(np.zeros(1), np.ones(1), np.array([3.0])), 3)
    45.521
    """
    half = half_width(level) * _deviations(variance, truth)
    missed = np.maximum(np.abs(_errors(mean, truth)) - half, 0.0)
    return float(np.mean(2.0 * half + 2.0 / (1.0 - level) * missed))


def coverage(mean: ArrayLike, variance: ArrayLike, truth: ArrayLike, level: float = LEVEL) -> float:
    """The share of truths inside their central interval, which shall be `level`.

    mean, variance, truth: (T,).

    >>> coverage(np.zeros(4), np.ones(4), np.array([0.0, 1.0, -1.9, 5.0]))
    0.75
    """
    return float(np.mean(np.abs(_errors(mean, truth)) <= half_width(level) * _deviations(variance, truth)))


def half_width(level: float) -> float:
    """Of a central interval of a Gaussian, in standard deviations.

    >>> round(half_width(0.95), 3)
    1.96
    """
    check_number("level", level, above=0.0)
    if not level < 1.0:
        raise InputError(f"level must lie between 0 and 1, got {level!r}")
    return float(ndtri(0.5 + 0.5 * level))


# ---- what callers give ------------------------------------------------------------------------------------------


def checked_row(values: Any, what: str) -> Array:
    """Finite numbers (N,), at least one; or one clear error."""
    row = as_numbers(values, what)
    if row.ndim != 1 or not len(row):
        raise InputError(f"{what}: expected an array (N,) with at least one number, got the shape {row.shape}")
    check_finite(row, what)
    return row


def _errors(mean: Any, truth: Any) -> Array:
    """(T,) by how much truths lie above the mean."""
    told, seen = checked_row(mean, "mean"), checked_row(truth, "truth")
    if told.shape != seen.shape:
        raise InputError(f"expected a truth for each of {len(told)} predictions, got {len(seen)}")
    return seen - told


def _deviations(variance: Any, truth: Any) -> Array:
    """(T,) the square roots."""
    values, seen = checked_row(variance, "variance"), checked_row(truth, "truth")
    if values.shape != seen.shape:
        raise InputError(f"expected a variance for each of {len(seen)} truths, got {len(values)}")
    if not (values > 0.0).all():
        bad = int(np.flatnonzero(values <= 0.0)[0])
        raise InputError(
            f"variance: expected positive numbers, got {values[bad]:g} (first: row {bad}): a truth has a variance of "
            "its own, ask with noisy=True"
        )
    return np.sqrt(values)
