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
from fleetgp.kernels.stationary import KERNELS
from fleetgp.training import TrainingOptions, train, training_method
from fleetgp.training.methods import METHODS
from tests.shared import observed

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
@pytest.mark.parametrize(
    ("method", "kernel", "seed", "width", "flat"),
    [(method, "se" if method == "dec-full-gp" else "matern32", 3, 2, "l_day") for method in METHODS]
    + [
        pytest.param(
            method, "rq", 0, 1, "alpha", marks=[] if method in ("full-gp", "dec-fact-gp") else [pytest.mark.long]
        )
        for method in METHODS
        if method != "dec-full-gp"
    ],
)
def test_every_trainer_stops_at_a_flat_direction_and_names_it(
    method: str, kernel: str, seed: int, width: int, flat: str
) -> None:
    f = fleet(seed, kernel, width)
    # From one start where an agent minimizes in every round, which takes long.
    start = [0.3, 1.0 if width == 1 else 0.5, 0.7, 0.2] if "nested" in METHODS[method].options else None
    with pytest.warns(fg.FleetGPWarning, match=f"the likelihood does not depend on {flat} "):
        fit = f.train(method, theta0=start, tol=1e-4)
    assert fit.status == "converged"
    assert fit.flat == (flat,)
    assert f.theta is not None
    assert np.isfinite(f.predict([[0.5] * width], "dec-rbcm", observed=True).std).all()
    if not METHODS[method].augmented:
        expected = best(kernel, seed, METHODS[method].one_expert, width)
        assert fit.nll == pytest.approx(expected, abs=5e-3)


def test_starts_that_were_given_have_limits_too() -> None:
    """They are known to all, so that nothing has to be agreed on."""
    f = fleet(3, "matern32")
    with pytest.warns(fg.FleetGPWarning, match="the likelihood does not depend on l_day"):
        fit = f.train("dec-fact-gp", theta0=[0.3, 0.5, 0.7, 0.2])
    assert (fit.status, fit.flat) == ("converged", ("l_day",))
    assert set(fit.ledger.rounds_by_phase) == {"normalize", "training", "flat"}


def test_bounds_and_priors_take_the_place_of_limits() -> None:
    f = fleet(3, "matern32")
    with pytest.warns(fg.FleetGPWarning, match="l_day stands at its upper bound, 50"):
        fit = f.train("dec-fact-gp", bounds={"l_day": (None, 50.0)})
    assert (fit.flat, fit.at_bounds) == ((), ("l_day",))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit = f.train("dec-fact-gp", priors={"l_day": (5.0, 2.0)})
    assert (fit.status, fit.flat) == ("converged", ())


def test_nothing_is_sent_where_nothing_is_flat() -> None:
    field = fg.synthetic_field(60, seed=1)
    shards = fg.partition(field.inputs, field.observations, agents=3)
    fit = fg.Fleet(shards, "path", kernel="se", normalize=True).train("dec-fact-gp")
    assert (fit.status, fit.flat) == ("converged", ())
    assert "flat" not in fit.ledger.rounds_by_phase


@pytest.mark.parametrize("method", METHODS)
def test_a_round_limit_warns_and_says_what_to_do(method: str) -> None:
    kernel = "se" if method == "dec-full-gp" else "matern32"
    with pytest.warns(fg.NotConvergedWarning, match=rf"{method} reached its limit of 2 rounds .*Give more rounds"):
        fit = fleet(3, kernel).train(method, theta0=[0.3, 0.5, 0.7, 0.2], rounds=2)
    assert (fit.status, fit.rounds) == ("round limit", 2)


def test_so_many_rounds_as_were_asked_for_are_no_round_limit() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fleet(3, "matern32").train("dec-apx-gp", theta0=[0.3, 0.5, 0.7, 0.2], rounds=2, tol=0.0)


def test_several_outputs_warn_for_each() -> None:
    inputs, observations = data(3)
    shards = [(inputs[k::2], np.stack([observations, 2.0 + observations], axis=1)[k::2]) for k in range(2)]
    outputs = fg.Outputs(shards, "path", targets=["t", "s"], kernel="matern32", normalize=True)
    with pytest.warns(fg.NotConvergedWarning) as heard:
        outputs.train("dec-fact-gp", rounds=1)
    assert [str(each.message)[:3] for each in heard] == ["t: ", "s: "]


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("method", ["dec-fact-gp", "full-gp", "dec-full-gp", "dec-apx-gp"])
def test_a_constant_target_is_refused(method: str, normalize: bool) -> None:
    inputs, _ = data(0)
    shards = [(inputs[k::2], np.full(ROWS // 2, 0.1)) for k in range(2)]
    f = fg.Fleet(shards, "path", kernel="se", normalize=normalize)
    with pytest.raises(NothingToLearnError, match="the target 'y' has one value only: there is nothing to learn"):
        f.train(method)


@pytest.mark.parametrize("method", ["dec-fact-gp", "dec-apx-gp", "fact-gp", "dec-full-gp"])
def test_agents_find_out_from_their_sums_that_a_target_is_constant(method: str) -> None:
    """An agent of its own sees its own rows alone: all conclude it from what is agreed for the scaling."""
    inputs, _ = data(0)
    shards = [(inputs[k::2], np.full(ROWS // 2, 0.1)) for k in range(2)]
    network, options = fg.InProcess(fg.Graph.path(2)), TrainingOptions(normalize=True)
    with pytest.raises(NothingToLearnError, match="has one value only"):
        train(training_method(method), observed(shards), network, KERNELS["se"], options)
    assert len(network.ledger.rounds_by_phase) == 1


@pytest.mark.parametrize("method", ["dec-fact-gp", "full-gp"])
def test_observations_far_from_zero_are_named_and_do_not_take_long(method: str) -> None:
    inputs, observations = data(3)
    shards = [(inputs[k::2], 1e6 + observations[k::2]) for k in range(2)]
    with pytest.warns(fg.FleetGPWarning) as heard:
        fit = fg.Fleet(shards, "path", kernel="se", normalize=False).train(method)
    said = " ".join(str(each.message) for each in heard)
    assert "the observations are far from zero" in said
    assert "Use normalize=True" in said
    assert sum(start.rounds for start in fit.starts) < 500


@pytest.mark.parametrize("change", [{"normalize": True}, {"normalize": False, "mean": "constant"}])
def test_observations_far_from_zero_are_no_matter_with_a_mean(change: dict[str, Any]) -> None:
    inputs, observations = data(0)
    shards = [(inputs[k::2], 1e4 + observations[k::2]) for k in range(2)]
    fit = fg.Fleet(shards, "path", kernel="se", **change).train("dec-fact-gp", tol=1e-3)
    assert fit.offset < 16.0
