"""Errors about hyperparameters: in the units of the data, by name, and with advice that helps."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.data import Shard
from fleetgp.engines.expert import Expert
from fleetgp.errors import NumericalError
from fleetgp.kernels.stationary import KERNELS, Exponential, Stationary
from fleetgp.model.observations import Observations

THETA = [1.5, 0.25, 4.125, 2.5e-14]
TOLD = r"theta = \(l_lon = 1.5, l_lat = 0.25, sigma_f = 4.125, sigma_eps = 2.5e-14\)"


def warm_sea(agents: int = 2, points: int = 60) -> list[Shard]:
    """Observations of mean 290 and deviation 4."""
    rng = np.random.default_rng(1)
    x = rng.uniform(0, 2, (points, 2))
    y = np.sin(x[:, 0]) + rng.standard_normal(points)
    return fg.partition(x, 290.0 + 4.0 * (y - y.mean()) / y.std(), agents=agents)


class Broken(Stationary):
    """A kernel that is no covariance: jitter does not help."""

    name = "broken"

    def profile_and_slope(self, s: Array, exp: Exponential = np.exp) -> tuple[Array, Array]:
        return np.where(s > 0.0, 2.0, 1.0), np.zeros_like(s)


def sea(**options: Any) -> fg.Fleet:
    return fg.Fleet(warm_sea(), theta=THETA, normalize=True, kernel=Broken(), inputs=["lon", "lat"], **options)


@pytest.mark.parametrize(
    ("method", "options", "whose"),
    [
        ("dec-rbcm", {"engine": "dense"}, "agent [01]"),
        ("dec-nn-grbcm", {"engine": "dense"}, "(agent [01]|the fleet)"),
        ("dec-rbcm", {"engine": "vecchia", "n_neighbours": 8}, "agent [01]"),
        ("full-gp", {"engine": "dense"}, "the fleet"),
        ("full-gp", {"engine": "vecchia", "n_neighbours": 8}, "the fleet"),
        ("dec-nearest", {"n_nearest": 8}, "agent [01]"),
        ("dec-nearest", {"n_nearest": 800}, "agent [01]"),
    ],
)
def test_a_failure_tells_the_theta_that_was_given(method: str, options: dict[str, Any], whose: str) -> None:
    """The model is of scaled observations, and says so to nobody."""
    with pytest.raises(NumericalError) as caught:
        sea().predict([[1.0, 1.0]], method, **options)
    said = str(caught.value)
    assert re.match(f"{whose}: .* not positive definite, even with jitter, at {TOLD}: give a theta with a larger", said)
    assert "larger noise_floor" in said


@pytest.mark.parametrize(
    ("theta", "why"),
    [([1e-3, 1e-3, 4.0, 1.0], "more moments than can be sent"), ([1.2, 0.3, 4.0, 1e-9], "not precise enough")],
)
def test_moments_that_are_not_enough_tell_it_too(theta: list[float], why: str) -> None:
    fleet = fg.Fleet(warm_sea(), normalize=True, inputs=["lon", "lat"], kernel="se")
    told = f"l_lon = {theta[0]:g}, l_lat = {theta[1]:g}, sigma_f = 4, sigma_eps = {theta[3]:g}"
    with pytest.raises(NumericalError) as caught:
        fleet.predict([[1.0, 1.0]], "dec-full-gp", theta=theta)
    assert re.search(f"{why}.* at theta = .{told}.: predict with dec-summary", str(caught.value))


def test_a_training_that_moments_do_not_follow_tells_where_it_came_to() -> None:
    """sigma_eps falls for ever: the message's is in kelvin, and a floor is what helps."""
    x = np.random.default_rng(2).uniform(0, 2, (90, 2))
    data = fg.partition(x, 290.0 + 4.0 * np.sin(x[:, 0] + x[:, 1]), agents=3)
    fleet = fg.Fleet(data, normalize=True, inputs=["lon", "lat"], kernel="se")
    start = [1.0, 1.0, 4.0, 1e-8]
    with pytest.raises(NumericalError) as caught:
        fleet.train("dec-full-gp", theta0=start, noise_floor=0.0)
    said = str(caught.value)
    assert "where training has come to, at theta = (l_lon = 1, l_lat = 1, sigma_f = 4, sigma_eps = 1e-08)" in said
    assert "give a larger noise_floor, or train with" in said


def test_pooled_data_are_not_told_to_be_given_to_more_agents() -> None:
    x = np.broadcast_to(np.zeros(2), (3_000_000, 2))
    expert = Expert(Observations(x, np.broadcast_to(0.0, 3_000_000)), KERNELS["matern32"], None, "dense")
    with pytest.raises(fg.InputError, match=r'^the fleet: .*engine="auto"') as caught:
        expert.evaluate(np.zeros(4))
    assert "agents" not in str(caught.value)
