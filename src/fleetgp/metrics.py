"""How good a prediction is, against values that it did not see."""

from __future__ import annotations

import numpy as np

from fleetgp.arrays import Array


def rmse(mean: Array, truth: Array) -> float:
    """Root mean square error.

    >>> round(rmse(np.array([1.0, 2.0]), np.array([1.0, 4.0])), 6)
    1.414214
    """
    return float(np.sqrt(np.mean((mean - truth) ** 2)))


def log_density(mean: Array, variance: Array, truth: Array) -> Array:
    """The logarithm of the Gaussian predictive density at each truth; the variance must be that of `truth`.

    >>> log_density(np.zeros(1), np.ones(1), np.zeros(1)).round(6).tolist()
    [-0.918939]
    """
    return np.asarray(-0.5 * (np.log(2.0 * np.pi * variance) + (truth - mean) ** 2 / variance))


def nlpd(mean: Array, variance: Array, truth: Array) -> float:
    """Negative log predictive density, averaged; the variance must be that of `truth` (noisy for observations).

    >>> round(nlpd(np.zeros(1), np.ones(1), np.zeros(1)), 6)
    0.918939
    """
    return -float(np.mean(log_density(mean, variance, truth)))


def coverage(mean: Array, variance: Array, truth: Array, deviations: float = 1.959964) -> float:
    """The share of truths inside the central interval; 95 % by default.

    >>> coverage(np.zeros(4), np.ones(4), np.array([0.0, 1.0, -1.9, 5.0]))
    0.75
    """
    return float(np.mean(np.abs(truth - mean) <= deviations * np.sqrt(variance)))
