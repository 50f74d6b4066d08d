"""Directions in which the likelihood is flat: every trainer stops there, keeps theta, and names them alike."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.errors import NothingToLearnError
from fleetgp.training.methods import METHODS

#: How many rows, of two agents.
ROWS = 50


def data(seed: int, width: int = 2) -> tuple[Array, Array]:
    """Observations that depend on the first input alone."""
    rng = np.random.default_rng(seed)
    inputs = rng.uniform(0.0, 1.0, (ROWS, width))
    return inputs, np.sin(6.0 * inputs[:, 0]) + 0.1 * rng.standard_normal(ROWS)


def fleet(seed: int, kernel: str, width: int = 2) -> fg.Fleet:
    inputs, observations = data(seed, width)
    shards = [(inputs[k::2], observations[k::2]) for k in range(2)]
    names = ["lon", "day"][:width]
    return fg.Fleet(shards, "path", kernel=kernel, normalize=True, inputs=names)


def covariance(kernel: str, x: Array, log_theta: Array) -> Array:
    """As the formulas read, without an input of no effect: its length-scale is infinite, and alpha too."""
    length, signal, noise = np.exp(log_theta)
    distance = np.abs(x[:, None, 0] - x[None, :, 0]) / length
    profile = (
        (1.0 + np.sqrt(3.0) * distance) * np.exp(-np.sqrt(3.0) * distance)
        if kernel == "matern32"
        else np.exp(-(distance**2))
    )
    return np.asarray(signal**2 * profile + noise**2 * np.eye(len(x)))


@cache
def best(kernel: str, seed: int, pooled: bool, width: int) -> float:
    """The smallest likelihood at infinity, by SciPy, of the scaled observations: dense, without a gradient."""
    inputs, observations = data(seed, width)
    scaled = (observations - observations.mean()) / observations.std()
    parts = [slice(None)] if pooled else [slice(0, None, 2), slice(1, None, 2)]

    def nll(log_theta: Array) -> float:
        total = 0.0
        for part in parts:
            matrix = covariance(kernel, inputs[part], log_theta)
            total += 0.5 * (scaled[part] @ np.linalg.solve(matrix, scaled[part]) + np.linalg.slogdet(matrix)[1])
        return float(total)

    starts = ([np.log(0.3), 0.0, np.log(0.1)], [np.log(0.6), 0.5, np.log(0.2)])
    options = {"xatol": 1e-6, "fatol": 1e-9, "maxiter": 2000}
    return min(float(minimize(nll, x, method="Nelder-Mead", options=options).fun) for x in starts)


#: A seed for which each problem has no minimum at finite values, for all data together and for the agents' own.
@pytest.mark.parametrize(("kernel", "seed", "width", "flat"), [("matern32", 3, 2, "l_day"), ("rq", 0, 1, "alpha")])
@pytest.mark.parametrize("method", METHODS)
def test_every_trainer_stops_at_a_flat_direction_and_names_it(
    method: str, kernel: str, seed: int, width: int, flat: str
) -> None:
    if method == "dec-full-gp":
        if kernel == "rq":
            pytest.skip("dec-full-gp has the kernel se alone")
        kernel = "se"
    f = fleet(seed, kernel, width)
    with pytest.warns(fg.FleetGPWarning, match=f"the likelihood does not depend on {flat} "):
        fit = f.train(method)
    assert fit.status == "converged"
    assert fit.flat == (flat,)
    assert f.theta is not None
    assert np.isfinite(f.predict([[0.5] * width], "dec-rbcm", noisy=True).std).all()
    if not METHODS[method].augmented:
        expected = best(kernel, seed, METHODS[method].meet in ("pool", "moments"), width)
        assert fit.nll == pytest.approx(expected, abs=5e-3)
