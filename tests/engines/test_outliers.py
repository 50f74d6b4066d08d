"""Leave-one-out by brute force, and the rule for outliers that is made of it."""

from __future__ import annotations

import numpy as np
import pytest

from fleetgp.engines.dense import reference
from fleetgp.engines.dense.engine import DenseEngine
from fleetgp.engines.expert import Expert, excess, outliers, reweighed
from fleetgp.engines.vecchia.engine import LEFT_OUT, VecchiaEngine
from fleetgp.kernels.composite import with_noise
from fleetgp.kernels.stationary import KERNELS, Kernel
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.noise import NoiseModel
from fleetgp.model.observations import Observations

ALL = NoiseModel(known=True, robust=True, groups=("good", "cheap"))
THETA = np.array([0.5, 0.7, 1.3, 0.1, 0.3])


def problem(size: int, seed: int = 0) -> tuple[Kernel, Observations]:
    """Observations that differ in everything that their noise is made of."""
    rng = np.random.default_rng(seed)
    places = rng.uniform(0.0, 1.0, (size, 2))
    known, weight = rng.uniform(0.0, 0.5, size), rng.uniform(1.0, 9.0, size)
    data = Observations(places, rng.standard_normal(size), known, np.arange(size) % 2, weight)
    return with_noise(KERNELS["matern32"], ALL), data


@pytest.mark.parametrize("engine", [DenseEngine, VecchiaEngine])
def test_leave_one_out_is_leaving_one_out(engine: type[DenseEngine | VecchiaEngine]) -> None:
    kernel, data = problem(LEFT_OUT + 1)  # the Vecchia engine takes all others, too
    error, variance = engine(data, kernel, 0).condition(THETA).left_out()
    for n in range(len(data)):
        rest = np.arange(len(data)) != n
        mean, of_f = reference.posterior(data.rows(rest), kernel, THETA, data.inputs[n : n + 1])
        assert error[n] == pytest.approx(data.values[n] - mean[0], abs=1e-9)
        assert variance[n] == pytest.approx(of_f[0], abs=1e-9)


def test_the_vecchia_engine_takes_the_nearest_others() -> None:
    kernel, data = problem(80)
    error, variance = VecchiaEngine(data, kernel, 0).condition(THETA).left_out()
    for n in (0, 17, 79):
        apart = ((data.inputs - data.inputs[n]) ** 2 / THETA[:2] ** 2).sum(axis=1)
        near = np.argsort(apart)[1 : LEFT_OUT + 1]
        mean, of_f = reference.posterior(data.rows(near), kernel, THETA, data.inputs[n : n + 1])
        assert error[n] == pytest.approx(data.values[n] - mean[0], abs=1e-8)
        assert variance[n] == pytest.approx(of_f[0], abs=1e-8)


def test_an_observation_has_no_say_about_itself_among_many_at_its_place() -> None:
    kernel, data = problem(50)
    data = data.rows(np.zeros(50, dtype=int)).with_values(np.ones(50))
    data.values[5] = 9.0
    error, _ = VecchiaEngine(data, kernel, 0).condition(THETA).left_out()
    mean, _ = reference.posterior(
        data.rows(slice(LEFT_OUT)).with_values(np.ones(LEFT_OUT)), kernel, THETA, data.inputs[:1]
    )
    assert error[5] == pytest.approx(9.0 - mean[0], rel=1e-9)


@pytest.mark.parametrize("engine", ["dense", "vecchia"])
def test_a_single_observation_is_judged_by_the_prior(engine: str) -> None:
    kernel, data = problem(1)
    prior = np.sqrt(THETA[2] ** 2 + data.packed[0, 2] ** 2 + THETA[3] ** 2)
    for off, counts in ((2.0, 2.0), (5.0, 2.5), (50.0, 2.5)):
        found = reweighed(Expert(data.with_values(np.array([off * prior])), kernel, 0, engine), THETA)
        now = np.sqrt(THETA[2] ** 2 + kernel.noise(found.data, Hyperparameters.from_theta(THETA))[0])
        assert off * prior / now == pytest.approx(counts)


def test_an_inflated_noise_hides_nothing() -> None:
    """Whatever sigma is, as long as it is too large: deviations are judged by the middle one."""
    rng = np.random.default_rng(1)
    z = rng.standard_normal(2001)
    z /= 1.4826 * np.median(np.abs(z))
    z[:3] = 20.0
    one, other = (excess(z / by, np.zeros(2001, dtype=int)) for by in (2.0, 5.0))
    np.testing.assert_allclose(one, other)
    np.testing.assert_allclose(one[:3], 63.0, rtol=1e-2)
    assert 0.005 < np.mean(one > 0.0) < 0.03  # of a normal distribution 1.2 % are beyond 2.5
    # Each group by its own.
    both = excess(np.concatenate([z / 2.0, z / 5.0]), np.repeat([0, 1], 2001))
    np.testing.assert_allclose(both, np.concatenate([one, other]))
    # A noise that is too small is a matter of training, not of outliers; half of the values may even be the same.
    assert (excess(np.full(50, 5.0), np.zeros(50, dtype=int)) == 3.0).all()
    assert np.isfinite(excess(np.append(np.zeros(50), 1.0), np.zeros(51, dtype=int))).all()


@pytest.mark.parametrize("engine", ["dense", "vecchia"])
def test_outliers_are_found_and_the_rest_is_left_alone(engine: str) -> None:
    rng = np.random.default_rng(3)
    kernel = with_noise(KERNELS["matern32"], NoiseModel(robust=True))
    theta = np.array([0.8, 0.8, 1.0, 0.1])
    places = rng.uniform(0.0, 1.0, (120, 2))
    h = Hyperparameters.from_theta(theta)
    y = np.linalg.cholesky(KERNELS["matern32"](places, None, h) + 0.01 * np.eye(120)) @ rng.standard_normal(120)
    y[:6] += 2.0
    found = reweighed(Expert(Observations(places, y, weight=np.full(120, 7.0)), kernel, 0, engine), theta)
    weights = found.data.weight
    assert weights is not None
    assert (weights[:6] > 20.0).all()
    assert outliers(found) <= 6 + 6
    assert weights[6:].max() < 4.0
    assert np.array_equal(found.data.inputs, places)
