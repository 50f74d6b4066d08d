"""How good Gaussian predictions of observations are: in the unit of the data, but for the coverage; small is good."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from fleetgp.arrays import Array
from fleetgp.metrics import coverage, rmse

#: Half the width of a central interval of 95 % in standard deviations, and what lies outside of it.
DEVIATIONS = 1.959963984540054
OUTSIDE = 0.05


def scores(mean: Array, deviation: Array, seen: Array) -> dict[str, float]:
    """Of predictions (T,) with the standard deviation of an observation, against observations that they did not see."""
    return {
        "rmse": rmse(mean, seen),
        "mae": float(np.mean(np.abs(seen - mean))),
        "crps": crps(mean, deviation, seen),
        "interval": interval_score(mean, deviation, seen),
        "coverage": coverage(mean, deviation**2, seen, DEVIATIONS),
    }


def crps(mean: Array, deviation: Array, seen: Array) -> float:
    """Continuous ranked probability score, averaged: the integral of (F(t) - 1[t >= y])^2 over t."""
    z = (seen - mean) / deviation
    density = np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)
    return float(np.mean(deviation * (z * (2.0 * ndtr(z) - 1.0) + 2.0 * density - 1.0 / np.sqrt(np.pi))))


def interval_score(mean: Array, deviation: Array, seen: Array) -> float:
    """Of the central interval of 95 %, averaged: its width, and 2 / 0.05 times by how much an observation misses it."""
    half = DEVIATIONS * deviation
    missed = np.maximum(np.abs(seen - mean) - half, 0.0)
    return float(np.mean(2.0 * half + 2.0 / OUTSIDE * missed))
