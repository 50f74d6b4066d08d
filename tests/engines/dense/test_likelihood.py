"""The fast likelihood, compiled and in NumPy, against the one that reads as the formula; that one against SciPy."""

from __future__ import annotations

import math
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from fleetgp.arrays import Array
from fleetgp.engines.base import Evaluation
from fleetgp.engines.dense import compiled, likelihood, reference
from fleetgp.engines.dense.engine import DenseEngine
from fleetgp.engines.expert import Expert, evaluate
from fleetgp.errors import NumericalError
from fleetgp.kernels.composite import with_noise
from fleetgp.kernels.stationary import KERNELS, Stationary
from fleetgp.linalg.cholesky import LEAF
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.noise import NoiseModel
from fleetgp.model.observations import Observations
from tests.conftest import paper_shards

THETA = np.array([1.2, 0.3, 1.3, 0.1])
LOOPS = [compiled, None]


def evaluated(experts: list[DenseEngine], log_thetas: Array, loops: ModuleType | None) -> list[Evaluation]:
    """With the inner loops that were asked for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(likelihood, "compiled", lambda: loops)
        found = DenseEngine.evaluate_many(experts, log_thetas)
    assert not any(isinstance(one, NumericalError) for one in found)
    return [one for one in found if not isinstance(one, NumericalError)]


@pytest.fixture(params=LOOPS, ids=["compiled", "plain"])
def loops(request: pytest.FixtureRequest) -> ModuleType | None:
    chosen: ModuleType | None = request.param
    return chosen


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_reference_is_the_density_and_its_slope(kernel: str, rng: np.random.Generator) -> None:
    """By SciPy's density, and by differences of it."""
    x, y = rng.uniform(0, 2, (25, 2)), rng.standard_normal(25)

    def density(log_theta: Array) -> float:
        h = Hyperparameters.from_log(log_theta)
        covariance = KERNELS[kernel](x, None, h) + h.noise**2 * np.eye(25)
        return float(-multivariate_normal.logpdf(y, cov=covariance) - 12.5 * math.log(2 * math.pi))

    log_theta = np.log([0.8, 0.5, 1.3, 0.3])
    nll, gradient = reference.likelihood(Observations(x, y), KERNELS[kernel], log_theta)
    assert nll == pytest.approx(density(log_theta), rel=1e-11)
    steps = np.eye(4) * 1e-5
    assert np.allclose(gradient, [(density(log_theta + s) - density(log_theta - s)) / 2e-5 for s in steps], atol=1e-6)


@settings(max_examples=60)
@given(
    st.integers(0, 10**6),
    st.sampled_from(sorted(KERNELS)),
    st.integers(1, 70) | st.sampled_from([LEAF, LEAF + 1, 2 * LEAF, 2 * LEAF + 1, 3 * LEAF + 1]),
    st.integers(1, 5),
    st.sampled_from(LOOPS),
)
def test_fast_is_the_reference(seed: int, kernel: str, n: int, dimension: int, loops: ModuleType | None) -> None:
    rng = np.random.default_rng(seed)
    experts = [
        DenseEngine(Observations(rng.uniform(-1, 1, (n, dimension)), rng.standard_normal(n)), KERNELS[kernel], i)
        for i in range(2)
    ]
    log_thetas = rng.uniform(-1.5, 1.0, (2, dimension + 2))
    for expert, log_theta, found in zip(experts, log_thetas, evaluated(experts, log_thetas, loops), strict=True):
        nll, gradient = reference.likelihood(expert.data, expert.kernel, log_theta)
        assert found.jitter == 0.0
        assert found.nll == pytest.approx(nll, rel=1e-9, abs=1e-9)
        assert np.allclose(found.gradient, gradient, rtol=1e-7, atol=1e-7 * (1.0 + np.abs(gradient).max()))


@pytest.mark.parametrize("kernel", KERNELS)
def test_in_several_chunks_of_pairs_too(kernel: str, loops: ModuleType | None, rng: np.random.Generator) -> None:
    """Sizes on both sides of a chunk, a stack that is cut in the middle of an agent, and one that is spread."""
    for n in (128, 129, 300):
        experts = [
            DenseEngine(Observations(rng.uniform(0, 2, (n, 2)), rng.standard_normal(n)), KERNELS[kernel], i)
            for i in range(2)
        ]
        log_thetas = np.log(THETA) + rng.uniform(-0.2, 0.2, (2, 4))
        for expert, log_theta, found in zip(experts, log_thetas, evaluated(experts, log_thetas, loops), strict=True):
            nll, gradient = reference.likelihood(expert.data, expert.kernel, log_theta)
            assert found.nll == pytest.approx(nll, rel=1e-9)
            assert np.allclose(found.gradient, gradient, rtol=1e-6, atol=1e-6 * np.abs(gradient).max())


def test_jitter_is_that_of_the_reference(loops: ModuleType | None, rng: np.random.Generator) -> None:
    x, y = rng.uniform(0, 1, (10, 1)), rng.standard_normal(10)
    twice = DenseEngine(Observations(np.concatenate([x, x]), np.concatenate([y, y])), KERNELS["matern32"], agent=1)
    log_theta = np.log([0.5, 1.0, 1e-9])
    (found,) = evaluated([twice], log_theta[None], loops)
    assert found.jitter > 0.0
    nll, gradient = reference.likelihood(twice.data, twice.kernel, log_theta, found.jitter)
    # The condition of C is 1e13, so that few digits are left.
    assert found.nll == pytest.approx(nll, rel=1e-5)
    assert np.allclose(found.gradient, gradient, rtol=2e-3)


def test_one_failure_does_not_touch_the_others_in_a_stack(
    loops: ModuleType | None, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(likelihood, "compiled", lambda: loops)
    x = rng.uniform(0, 1, (20, 1))
    experts = [DenseEngine(Observations(x, rng.standard_normal(20)), KERNELS["se"], i) for i in range(4)]
    log_thetas = np.log(np.tile([0.3, 1.0, 0.1], (4, 1)))
    log_thetas[1, -1] = -40.0  # needs jitter
    log_thetas[2, 0] = 1e3  # out of range
    needy, wrong = (DenseEngine.evaluate_many(experts, log_thetas)[i] for i in (1, 2))
    assert isinstance(wrong, NumericalError)
    assert "agent 2" in str(wrong)
    assert not isinstance(needy, NumericalError)
    assert needy.jitter > 0.0
    for i in (0, 3):
        together = DenseEngine.evaluate_many(experts, log_thetas)[i]
        assert not isinstance(together, NumericalError)
        assert np.array_equal(together.gradient, experts[i].evaluate(log_thetas[i]).gradient)


def test_nan_in_the_data_is_a_failure_not_a_number(loops: ModuleType | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(likelihood, "compiled", lambda: loops)
    broken = DenseEngine(Observations(np.array([[0.0], [np.nan], [1.0]]), np.zeros(3)), KERNELS["se"], agent=7)
    with pytest.raises(NumericalError, match=r"agent 7.*NaN"):
        broken.evaluate(np.log([1.0, 1.0, 0.1]))


@pytest.mark.parametrize("engine", ["dense", "moments"])
def test_an_agents_bits_do_not_depend_on_its_company(engine: str) -> None:
    shards = paper_shards(1200, 12)
    log_thetas = np.log(THETA) + np.linspace(0, 0.3, 12)[:, None]
    together = evaluate(
        [Expert(Observations(x, y), KERNELS["se"], i, engine) for i, (x, y) in enumerate(shards)], log_thetas
    )
    for i, (x, y) in enumerate(shards):
        alone = Expert(Observations(x, y), KERNELS["se"], i, engine).evaluate(log_thetas[i])
        one = together[i]
        assert not isinstance(one, NumericalError)
        assert alone.nll == one.nll
        assert np.array_equal(alone.gradient, one.gradient)


@settings(max_examples=50)
@given(st.lists(st.floats(-800.0, 0.0), min_size=1, max_size=2 * 8 + 1))
def test_the_compiled_exponential(values: list[float]) -> None:
    """Within two units in the last place, zero where it is no normal number, and the same wherever in an array."""
    x = np.array(values)
    found = compiled.exp(x)
    assert np.allclose(found, np.where(x < -708.0, 0.0, np.exp(x)), rtol=4.5e-16, atol=0.0)
    assert np.array_equal(found, [compiled.exp(x[i : i + 1])[0] for i in range(len(x))])


def test_the_compiled_exponential_at_the_ends() -> None:
    ends = np.array([0.0, -0.0, -1e-320, -708.0, -1e4, -np.inf, np.nan])
    found = compiled.exp(ends)
    assert np.array_equal(found[[0, 1, 2, 4, 5]], [1.0, 1.0, 1.0, 0.0, 0.0])
    assert 0.0 < found[3] < 1e-307
    assert np.isnan(found[6])


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("size", [5, 2 * LEAF + 1])
def test_noise_that_differs_keeps_the_fast_loops(
    kernel: str, size: int, loops: ModuleType | None, rng: np.random.Generator
) -> None:
    """Known standard deviations, weights and groups, against SciPy's density and differences of it."""
    noisy = with_noise(KERNELS[kernel], NoiseModel(known=True, robust=True, groups=("a", "b", "of others")))
    assert isinstance(noisy, Stationary)
    known, weight = rng.uniform(0.1, 0.9, size), rng.uniform(1.0, 3.0, size)
    group = rng.integers(0, 2, size)
    data = Observations(rng.uniform(0, 2, (size, 2)), rng.standard_normal(size), known, group, weight)
    log_theta = np.log([0.8, 0.5, 1.3, 0.3, 0.6, 0.2])

    def density(at: Array) -> float:
        theta = np.exp(at)
        plain = Hyperparameters.from_theta([*theta[:3], 1.0])
        noise = known**2 + weight * theta[3:][group] ** 2
        c = KERNELS[kernel](data.inputs, None, plain) + np.diag(noise)
        return float(-multivariate_normal.logpdf(data.values, cov=c) - 0.5 * size * math.log(2 * math.pi))

    engines = [DenseEngine(data, noisy, agent) for agent in range(2)]
    for found in evaluated(engines, np.stack([log_theta, log_theta]), loops):
        assert found.nll == pytest.approx(density(log_theta), rel=1e-10)
        slopes = [(density(log_theta + s) - density(log_theta - s)) / 2e-5 for s in np.eye(6) * 1e-5]
        assert np.allclose(found.gradient, slopes, atol=1e-5 * size)
        assert found.gradient[-1] == 0.0, "nobody here has the noise of others"


def test_kernels_with_the_same_noise_are_the_same() -> None:
    noise = NoiseModel(known=True)
    assert with_noise(KERNELS["se"], noise) == with_noise(KERNELS["se"], noise)
    assert with_noise(KERNELS["se"], noise) != KERNELS["se"] != KERNELS["matern32"]
    assert not with_noise(KERNELS["se"], noise).has_moments
