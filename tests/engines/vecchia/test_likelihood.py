"""The likelihood by Vecchia: exact with all earlier points, a derivative of itself with few, better with more."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from fleetgp.arrays import Array
from fleetgp.engines.dense import reference
from fleetgp.engines.vecchia import compiled, likelihood
from fleetgp.engines.vecchia.engine import VecchiaEngine
from fleetgp.engines.vecchia.likelihood import StationaryData
from fleetgp.errors import NumericalError
from fleetgp.kernels.stationary import KERNELS, Kernel, Matern32
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations

SCALES = [0.7, 0.4, 1.1]


def problem(rng: np.random.Generator, size: int, dimension: int = 2) -> tuple[Array, Array, Array]:
    """inputs, observations, log theta."""
    inputs = rng.uniform(0, 2, (size, dimension))
    return inputs, rng.standard_normal(size), np.log([*SCALES[:dimension], 1.3, 0.4])


@pytest.fixture(params=[compiled, None], ids=["compiled", "plain"])
def _loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(likelihood, "compiled", lambda: request.param)


@pytest.mark.usefixtures("_loops")
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dimension", [1, 2, 3])
class TestLikelihood:
    def test_given_all_earlier_points_it_is_exact(self, kernel: str, dimension: int, rng: np.random.Generator) -> None:
        """One conditional density after the other, each with as many neighbours as there are."""
        inputs, y, log_theta = problem(rng, 25, dimension)
        h = Hyperparameters.from_log(log_theta)
        data = StationaryData(KERNELS[kernel], Observations(inputs, y), h)
        total = np.zeros(dimension + 3)
        for row in range(1, 25):
            total += likelihood.conditionals(data, np.array([row]), np.arange(row, dtype=np.int32)[None])[0][0]
        first, _ = reference.likelihood(Observations(inputs[:1], y[:1]), KERNELS[kernel], log_theta)
        nll, gradient = reference.likelihood(Observations(inputs, y), KERNELS[kernel], log_theta)
        assert total[0] + 24 * np.log(h.signal) + first == pytest.approx(nll, rel=1e-10)
        assert np.allclose(total[1:-2], gradient[:-2], rtol=1e-8, atol=1e-9)

    @pytest.mark.parametrize("neighbours", [39, 40, 100])
    def test_an_engine_with_all_neighbours_is_exact(
        self, kernel: str, dimension: int, neighbours: int, rng: np.random.Generator
    ) -> None:
        inputs, y, log_theta = problem(rng, 40, dimension)
        found = VecchiaEngine(Observations(inputs, y), KERNELS[kernel], 0, neighbours).evaluate(log_theta)
        nll, gradient = reference.likelihood(Observations(inputs, y), KERNELS[kernel], log_theta)
        assert found.nll == pytest.approx(nll, rel=1e-10)
        assert np.allclose(found.gradient, gradient, rtol=1e-8, atol=1e-8)

    def test_its_gradient_with_few_neighbours(self, kernel: str, dimension: int, rng: np.random.Generator) -> None:
        inputs, y, log_theta = problem(rng, 60, dimension)
        engine = VecchiaEngine(Observations(inputs, y), KERNELS[kernel], 0, 6)
        steps = np.eye(dimension + 2) * 1e-5
        slopes = [(engine.evaluate(log_theta + s).nll - engine.evaluate(log_theta - s).nll) / 2e-5 for s in steps]
        assert np.allclose(engine.evaluate(log_theta).gradient, slopes, rtol=1e-6, atol=1e-5)


def test_from_some_neighbours_to_others_it_goes_smoothly(rng: np.random.Generator) -> None:
    """Along the ratio of the length-scales: no step is larger than what the slopes at its ends say."""
    inputs, y, _ = problem(rng, 400)
    engine = VecchiaEngine(Observations(inputs, y), KERNELS["matern32"], 0, 6)
    steps = np.linspace(0.0, np.log(2.0), 400)
    found = [engine.evaluate(np.log([0.4, 0.4, 1.3, 0.4]) + np.array([0.0, step, 0.0, 0.0])) for step in steps]
    nll, slope = np.array([f.nll for f in found]), np.array([f.gradient[1] for f in found])
    expected = 0.5 * (slope[1:] + slope[:-1]) * np.diff(steps)
    assert np.abs(np.diff(nll) - expected).max() < 1e-4 * np.ptp(nll)
    assert len(engine.evaluate(np.log([0.4, 0.4 * 2.0**0.45, 1.3, 0.4])).gradient) == 4


@pytest.mark.parametrize("kernel", KERNELS)
def test_both_loops_say_the_same(kernel: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, y, log_theta = problem(rng, 3000)
    fast = VecchiaEngine(Observations(inputs, y), KERNELS[kernel], 0, 8).evaluate(log_theta)
    monkeypatch.setattr(likelihood, "compiled", lambda: None)
    slow = VecchiaEngine(Observations(inputs, y), KERNELS[kernel], 0, 8).evaluate(log_theta)
    assert fast.nll == pytest.approx(slow.nll, rel=1e-10)
    assert np.allclose(fast.gradient, slow.gradient, rtol=1e-8, atol=1e-6)


def test_a_kernel_of_ones_own_needs_no_loops_of_its_own(rng: np.random.Generator) -> None:
    class Mine(Matern32):
        name = "mine"

    inputs, y, log_theta = problem(rng, 50)
    mine, known = (
        VecchiaEngine(Observations(inputs, y), k, 0, 8).evaluate(log_theta) for k in (Mine(), KERNELS["matern32"])
    )
    assert mine.nll == pytest.approx(known.nll, rel=1e-10)


def excess(kernel: Kernel, engine: VecchiaEngine, inputs: Array, theta: Array) -> float:
    """How much larger the likelihood is on average over data from the model: sum log v / 2 - log|C| / 2."""
    log_theta = np.log(theta)
    nothing = engine.evaluate(log_theta).nll  # of observations that are zero
    c = reference.covariance(Observations(inputs, inputs[:, 0]), kernel, Hyperparameters.from_theta(theta))
    return nothing - 0.5 * float(np.linalg.slogdet(c).logabsdet)


@pytest.mark.parametrize("kernel", ["matern12", "matern32", "matern52"])
def test_the_error_falls_with_the_neighbours_and_is_estimated(kernel: str, rng: np.random.Generator) -> None:
    inputs, theta = rng.uniform(0, 1, (700, 2)), np.array([0.2, 0.1, 1.0, 0.1])
    engines = [VecchiaEngine(Observations(inputs, np.zeros(700)), KERNELS[kernel], 0, m) for m in (5, 10, 20, 40)]
    errors = [excess(KERNELS[kernel], engine, inputs, theta) for engine in engines]
    assert errors[0] > 2.0 * errors[1] > 4.0 * errors[2] > 8.0 * errors[3] > 0.0
    for engine, error in zip(engines, errors, strict=True):
        assert 0.3 * error < engine.error_estimate(np.log(theta)) < 1.5 * error


def test_the_estimate_where_there_are_few_points(rng: np.random.Generator) -> None:
    inputs, theta = rng.uniform(0, 1, (50, 2)), np.array([0.2, 0.1, 1.0, 0.1])
    for neighbours in (30, 49, 50, 80):
        engine = VecchiaEngine(Observations(inputs, np.zeros(50)), KERNELS["matern32"], 0, neighbours)
        error = excess(KERNELS["matern32"], engine, inputs, theta)
        assert engine.error_estimate(np.log(theta)) == pytest.approx(error, rel=1e-6, abs=1e-9)


@pytest.mark.usefixtures("_loops")
def test_duplicates_without_noise_need_jitter_and_say_so(rng: np.random.Generator) -> None:
    inputs = rng.uniform(0, 1, (60, 2))
    twice = VecchiaEngine(
        Observations(np.concatenate([inputs, inputs]), rng.standard_normal(120)), KERNELS["matern32"], 3, 10
    )
    tiny = np.array([0.5, 0.5, 1.0, 1e-12])
    found = twice.evaluate(np.log(tiny))
    assert 0.0 < found.jitter < 1e-5
    assert np.isfinite(found.gradient).all()
    assert twice.evaluate(np.log([0.5, 0.5, 1.0, 0.1])).jitter == 0.0
    mean, variance = twice.condition(tiny).mean_and_variance(inputs[:5])
    assert np.isfinite(mean).all()
    assert (variance >= 0.0).all()


def test_final_failures_name_the_agent_and_the_reason(rng: np.random.Generator) -> None:
    inputs, y, log_theta = problem(rng, 30)
    inputs[3] = np.nan
    broken = VecchiaEngine(Observations(inputs, y), KERNELS["se"], 7, 5)
    with pytest.raises(NumericalError, match=r"agent 7.*NaN"):
        broken.evaluate(log_theta)
    with pytest.raises(NumericalError, match=r"agent 7.*NaN"):
        broken.condition(np.exp(log_theta))
    with pytest.raises(NumericalError, match=r"agent 7.*out of range"):
        broken.evaluate(log_theta + 400.0)
    with pytest.raises(NumericalError, match=r"agent 8.*not positive definite"):
        VecchiaEngine(Observations(inputs[:3], 1e300 * y[:3]), KERNELS["se"], 8, 5).evaluate(log_theta)


def test_a_theta_has_the_same_bits_whatever_was_before(rng: np.random.Generator) -> None:
    inputs, y, log_theta = problem(rng, 5000)
    engine = VecchiaEngine(Observations(inputs, y), KERNELS["matern32"], 0, 8)
    there = engine.evaluate(log_theta)
    for wide in (0.2, 5.0, 30.0):
        engine.evaluate(log_theta + np.log([wide, 1.0, 1.0, 1.0]))
    again, fresh = (
        engine.evaluate(log_theta),
        VecchiaEngine(Observations(inputs, y), KERNELS["matern32"], 0, 8).evaluate(log_theta),
    )
    assert there.nll == again.nll == fresh.nll
    assert np.array_equal(there.gradient, again.gradient)
    assert np.array_equal(there.gradient, fresh.gradient)


def test_who_computes_what_changes_no_bit(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks in turn, in the opposite order, and by threads."""
    inputs, y, log_theta = problem(rng, 9000)

    def backwards(work: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        return [work(item) for item in items[::-1]][::-1]

    def threads(work: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        with ThreadPoolExecutor(3) as pool:
            return list(pool.map(work, items))

    found = []
    for spread in (backwards, threads, lambda work, items: [work(item) for item in items]):
        monkeypatch.setattr(likelihood, "spread", spread)
        found.append(VecchiaEngine(Observations(inputs, y), KERNELS["matern32"], 0, 8).evaluate(log_theta))
    assert found[0].nll == found[1].nll == found[2].nll
    assert np.array_equal(found[0].gradient, found[1].gradient)
    assert np.array_equal(found[0].gradient, found[2].gradient)
