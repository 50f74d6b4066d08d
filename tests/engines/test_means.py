"""Observations that are means of the field over a few points, in every engine, against the matrices written out.

With A the matrix of the means and K the covariance between all points, C = A K A' + noise.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fleetgp.arrays import Array
from fleetgp.engines import covariances
from fleetgp.engines.base import Evaluation, Trend
from fleetgp.engines.basis import Basis, Box
from fleetgp.engines.dense.engine import DenseEngine
from fleetgp.engines.expert import Expert, condition, evaluate, reweighed
from fleetgp.engines.moments.engine import MomentsEngine
from fleetgp.engines.vecchia import likelihood
from fleetgp.engines.vecchia.engine import VecchiaEngine
from fleetgp.errors import InputError
from fleetgp.kernels.composite import with_noise
from fleetgp.kernels.expression import as_kernel
from fleetgp.kernels.stationary import KERNELS, Kernel
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.noise import NoiseModel
from fleetgp.model.observations import Observations, Points

NAMES = ["se", "matern12", "matern32", "matern52", "se + linear", "matern32(1) * periodic(2) + rq(2)", "iso-matern52"]
ENGINES = ["dense", "vecchia"]
QUERIES = np.random.default_rng(5).uniform(-0.2, 2.2, (7, 2))


def kernel_of(name: str, noise: NoiseModel | None = None) -> Kernel:
    kernel = as_kernel(name, 2)
    return kernel if noise is None else with_noise(kernel, noise)


def theta_of(kernel: Kernel) -> Array:
    return np.linspace(0.6, 1.1, kernel.count(2)) * np.where(np.arange(kernel.count(2)) < kernel.count(2) - 1, 1.0, 0.4)


def problem(size: int = 30, *, singles: int = 10) -> Observations:
    """Means over 1 to 5 points of 1 to 9 rows, after some single rows."""
    rng = np.random.default_rng(3)
    centres, counts = rng.uniform(0.0, 2.0, (size, 2)), rng.integers(1, 6, size)
    points = [c + 0.2 * rng.standard_normal((count, 2)) for c, count in zip(centres, counts, strict=True)]
    means = Observations.of_means(points, rng.standard_normal(size), rng.integers(1, 10, size))
    single = Observations(rng.uniform(0.0, 2.0, (singles, 2)), rng.standard_normal(singles))
    return Observations.joined([single, means])


def averages(data: Observations) -> Array:
    """A, (N, P)."""
    assert data.points is not None
    result = np.zeros((len(data), len(data.places)))
    for row, begin, end in zip(result, data.points.starts, data.points.starts[1:], strict=False):
        row[begin:end] = 1.0 / (end - begin)
    return result


def engine_of(name: str, data: Observations, kernel: Kernel) -> DenseEngine | VecchiaEngine:
    return DenseEngine(data, kernel, 0) if name == "dense" else VecchiaEngine(data, kernel, 0, len(data))


def written_out(data: Observations, kernel: Kernel, theta: Array) -> tuple[Array, Array, Array]:
    """C, the covariances with f at the queries, and the covariance of f there."""
    h, a = Hyperparameters.from_theta(theta), averages(data)
    c = a @ kernel(data.places, None, h) @ a.T + np.diag(kernel.noise(data, h))
    return c, a @ kernel(data.places, QUERIES, h), kernel(QUERIES, None, h)


@pytest.fixture(params=[likelihood.compiled(), None], ids=["compiled", "plain"])
def _loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(likelihood, "compiled", lambda: request.param)


@pytest.mark.parametrize("name", NAMES)
def test_covariances_are_those_of_a_linear_functional(name: str) -> None:
    data, kernel = problem(), kernel_of(name)
    h, a = Hyperparameters.from_theta(theta_of(kernel)), averages(data)
    expected = a @ kernel(data.places, None, h) @ a.T
    found = covariances.covariance_of(kernel, data, h)
    assert np.allclose(found, expected, rtol=1e-12, atol=1e-13)
    assert np.allclose(covariances.variance_of(kernel, data, h), np.diagonal(expected), rtol=1e-12)
    assert np.linalg.eigvalsh(found).min() > -1e-12
    cross = covariances.cross_of(kernel, data, QUERIES, h)
    assert np.allclose(cross, a @ kernel(data.places, QUERIES, h), rtol=1e-12, atol=1e-13)
    assert cross.flags.f_contiguous
    some, others = data.rows(slice(15)), data.rows(slice(15, None))
    assert np.allclose(covariances.between(kernel, some, others, h), expected[:15, 15:], rtol=1e-12, atol=1e-13)


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    data, kernel = problem(), kernel_of("matern32")
    h = Hyperparameters.from_theta(theta_of(kernel))
    whole = covariances.covariance_of(kernel, data, h), covariances.variance_of(kernel, data, h)
    monkeypatch.setattr(covariances, "BLOCK", 1)
    parts = covariances.covariance_of(kernel, data, h), covariances.variance_of(kernel, data, h)
    for one, other in zip(whole, parts, strict=True):
        assert np.allclose(one, other, rtol=1e-13, atol=1e-14)


@pytest.mark.usefixtures("_loops")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("engine", ENGINES)
class TestEngine:
    def test_likelihood_and_gradient(self, engine: str, name: str) -> None:
        data, kernel = problem(), kernel_of(name)
        theta = theta_of(kernel)
        one, (c, _, _) = engine_of(engine, data, kernel), written_out(data, kernel, theta)
        found = one.evaluate(np.log(theta))
        nll = 0.5 * (data.values @ np.linalg.solve(c, data.values) + np.linalg.slogdet(c).logabsdet)
        assert found.nll == pytest.approx(nll, rel=1e-10)
        assert found.jitter == 0.0
        for slope, step in zip(found.gradient, 1e-5 * np.eye(len(theta)), strict=True):
            difference = one.evaluate(np.log(theta) + step).nll - one.evaluate(np.log(theta) - step).nll
            assert slope == pytest.approx(difference / 2e-5, rel=1e-6, abs=1e-6)

    def test_posterior(self, engine: str, name: str) -> None:
        data, kernel = problem(), kernel_of(name)
        theta = theta_of(kernel)
        posterior = engine_of(engine, data, kernel).condition(theta)
        c, cross, prior = written_out(data, kernel, theta)
        mean, explained = cross.T @ np.linalg.solve(c, data.values), cross.T @ np.linalg.solve(c, cross)
        found = posterior.mean_and_variance(QUERIES)
        assert np.allclose(found[0], mean, rtol=1e-9, atol=1e-10)
        assert np.allclose(found[1], np.diagonal(prior - explained), rtol=1e-9, atol=1e-10)
        assert np.allclose(posterior.explained_variance(QUERIES), np.diagonal(explained), rtol=1e-9, atol=1e-10)
        found = posterior.mean_and_covariance(QUERIES)
        assert np.allclose(found[0], mean, rtol=1e-9, atol=1e-10)
        assert np.allclose(found[1], prior - explained, rtol=1e-9, atol=1e-10)
        used, weights = posterior.weighted(QUERIES)
        assert np.allclose(used.values @ weights, mean, rtol=1e-9, atol=1e-10)
        error, variance = posterior.left_out()
        precision = np.linalg.inv(c)
        if engine == "dense":
            assert np.allclose(error, precision @ data.values / np.diagonal(precision))
            noise = kernel.noise(data, Hyperparameters.from_theta(theta))
            assert np.allclose(variance, 1.0 / np.diagonal(precision) - noise)

    def test_slopes(self, engine: str, name: str) -> None:
        data, kernel = problem(), kernel_of(name.replace("matern12", "matern32"))
        posterior = engine_of(engine, data, kernel).condition(theta_of(kernel))
        found = posterior.slopes(QUERIES)
        for d, step in enumerate(1e-5 * np.eye(2)):
            after, before = posterior.mean_and_variance(QUERIES + step), posterior.mean_and_variance(QUERIES - step)
            assert np.allclose(found.mean[:, d], (after[0] - before[0]) / 2e-5, rtol=1e-5, atol=1e-6)
            assert np.allclose(found.variance[:, d], (after[1] - before[1]) / 2e-5, rtol=1e-5, atol=1e-6)

    def test_products_of_a_mean_function(self, engine: str, name: str) -> None:
        data, kernel = problem(), kernel_of(name)
        theta, trend = theta_of(kernel), Trend(np.array([0.7, -0.2]), linear=True)
        z = np.column_stack([np.ones(len(data)), averages(data) @ data.places - [0.7, -0.2], data.values])
        expected = z.T @ np.linalg.solve(written_out(data, kernel, theta)[0], z)
        found = engine_of(engine, data, kernel).products(theta, trend)
        assert np.allclose(found, expected, rtol=1e-8)


@pytest.mark.usefixtures("_loops")
@pytest.mark.parametrize("name", ["se", "matern32", "se + linear"])
def test_few_neighbours_are_the_exact_answer_of_those(name: str) -> None:
    data, kernel = problem(60, singles=40), kernel_of(name)
    theta = theta_of(kernel)
    posterior = VecchiaEngine(data, kernel, 0, 5).condition(theta)
    mean, variance = posterior.mean_and_variance(QUERIES)
    scales, _ = kernel.scales(Hyperparameters.from_theta(theta), 2)
    for t, query in enumerate(QUERIES):
        near = np.argsort(np.linalg.norm((data.inputs - query) / scales, axis=1))[:20]
        c, cross, prior = written_out(data.rows(near), kernel, theta)
        assert mean[t] == pytest.approx(cross[:, t] @ np.linalg.solve(c, data.values[near]), rel=1e-9)
        explained = cross[:, t] @ np.linalg.solve(c, cross[:, t])
        assert variance[t] == pytest.approx(prior[t, t] - explained, rel=1e-8, abs=1e-10)


@pytest.mark.usefixtures("_loops")
@pytest.mark.parametrize("name", ["matern32", "se + linear"])
def test_the_gradient_with_few_neighbours(name: str) -> None:
    data, kernel = problem(60, singles=40), kernel_of(name)
    engine, log_theta = VecchiaEngine(data, kernel, 0, 6), np.log(theta_of(kernel))
    steps = np.eye(len(log_theta)) * 1e-5
    slopes = [(engine.evaluate(log_theta + s).nll - engine.evaluate(log_theta - s).nll) / 2e-5 for s in steps]
    assert np.allclose(engine.evaluate(log_theta).gradient, slopes, rtol=1e-6, atol=1e-5)
    assert engine.error_estimate(log_theta) > 0.0


@pytest.mark.parametrize("name", ["se", "matern12", "matern32", "se * linear"])
def test_compiled_and_plain_loops_agree(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data, kernel = problem(200, singles=100), kernel_of(name)
    queries = np.random.default_rng(1).uniform(0.0, 2.0, (41, 2))

    def answers() -> tuple[Array, Array, Array]:
        posterior = VecchiaEngine(data, kernel, 0, 5).condition(theta_of(kernel))
        return (*posterior.mean_and_variance(queries), posterior.weighted(queries)[1])

    fast = answers()
    monkeypatch.setattr(likelihood, "compiled", lambda: None)
    for one, other in zip(fast, answers(), strict=True):
        assert np.allclose(one, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.usefixtures("_loops")
def test_one_point_each_is_an_ordinary_row(engine: str, name: str) -> None:
    kernel, rows = kernel_of(name), problem().rows(slice(20))
    plain = Observations(rows.inputs, rows.values)
    pointed = replace(plain, points=Points.single(plain.inputs))
    theta = theta_of(kernel)
    one, other = (engine_of(engine, data, kernel).evaluate(np.log(theta)) for data in (plain, pointed))
    assert one.nll == pytest.approx(other.nll, rel=1e-12)
    assert np.allclose(one.gradient, other.gradient, rtol=1e-10, atol=1e-10)
    posteriors = [engine_of(engine, data, kernel).condition(theta) for data in (plain, pointed)]
    for ours, its in zip(*(each.mean_and_variance(QUERIES) for each in posteriors), strict=True):
        assert np.allclose(ours, its, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", ["se", "matern32", "se + linear"])
@pytest.mark.parametrize("noise", [NoiseModel(), NoiseModel(known=True), NoiseModel(groups=("a", "b"))])
def test_averages_of_rows_are_inferred_from_exactly(name: str, noise: NoiseModel) -> None:
    """The likelihood of averages of observed rows, and what follows from them: the rows' GP, averaged."""
    rng = np.random.default_rng(2)
    rows, kernel = rng.uniform(0.0, 2.0, (60, 2)), kernel_of(name, noise)
    std = np.repeat(rng.uniform(0.1, 0.3, 12), 5) if noise.known else None
    group = np.repeat(rng.integers(0, 2, 12), 5) if noise.groups else None
    single = Observations(rows, rng.standard_normal(60), std, group)
    data = Observations.of_means(
        rows.reshape(12, 5, 2),
        single.values.reshape(12, 5).mean(axis=1),
        np.full(12, 5),
        None if std is None else std[::5] / np.sqrt(5.0),
        None if group is None else group[::5],
    )
    theta = theta_of(kernel)
    h, a = Hyperparameters.from_theta(theta), averages(data)
    c = a @ (kernel(rows, None, h) + np.diag(kernel.noise(single, h))) @ a.T
    nll = 0.5 * (data.values @ np.linalg.solve(c, data.values) + np.linalg.slogdet(c).logabsdet)
    for engine in ENGINES:
        one = engine_of(engine, data, kernel)
        assert one.evaluate(np.log(theta)).nll == pytest.approx(nll, rel=1e-10)
        steps = 1e-5 * np.eye(len(theta))
        slopes = [(one.evaluate(np.log(theta) + s).nll - one.evaluate(np.log(theta) - s).nll) / 2e-5 for s in steps]
        assert np.allclose(one.evaluate(np.log(theta)).gradient, slopes, rtol=1e-6, atol=1e-6)
        mean, _ = one.condition(theta).mean_and_variance(QUERIES)
        assert np.allclose(mean, (a @ kernel(rows, QUERIES, h)).T @ np.linalg.solve(c, data.values), atol=1e-10)


@pytest.mark.parametrize("name", ["se", "matern32"])
def test_weights_alone_change_the_noise_without_another_kernel(name: str) -> None:
    data, kernel = problem(20, singles=0), kernel_of(name)
    single = Observations(data.inputs, data.values, weight=data.weight)
    theta = theta_of(kernel)
    robust = with_noise(kernel, NoiseModel(robust=True))
    for engine in ENGINES:
        one, other = (engine_of(engine, single, each).evaluate(np.log(theta)) for each in (kernel, robust))
        assert one.nll == other.nll
        assert np.array_equal(one.gradient, other.gradient)


def test_a_posterior_that_grows_is_one_from_the_start() -> None:
    data, kernel = problem(), kernel_of("matern32")
    theta = theta_of(kernel)
    first = DenseEngine(data.rows(slice(25)), kernel, 0).condition(theta)
    engine = DenseEngine(data.rows(slice(25)), kernel, 0)
    engine.grow(data)
    grown, fresh = engine.condition(theta, first), DenseEngine(data, kernel, 0).condition(theta)
    for one, other in zip(grown.mean_and_variance(QUERIES), fresh.mean_and_variance(QUERIES), strict=True):
        assert np.allclose(one, other, rtol=1e-11, atol=1e-12)
    vecchia = VecchiaEngine(data.rows(slice(25)), kernel, 0, 40)
    vecchia.evaluate(np.log(theta))
    vecchia.grow(data)
    assert vecchia.evaluate(np.log(theta)).nll == pytest.approx(
        DenseEngine(data, kernel, 0).evaluate(np.log(theta)).nll
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_projections_on_a_basis(engine: str) -> None:
    data, kernel = problem(), kernel_of("se")
    theta = theta_of(kernel)
    basis = Basis(Hyperparameters.from_theta(theta), Box.around(data.places), (20, 20), 1e-12)
    c, cross, _ = written_out(data, kernel, theta)
    found = engine_of(engine, data, kernel).condition(theta).projected(basis, QUERIES)
    expected = (averages(data) @ basis.at(data.places)).T @ np.linalg.solve(c, cross)
    assert np.allclose(found, expected, rtol=1e-8, atol=1e-9)


def test_an_expert_chooses_an_engine_that_knows_points() -> None:
    data, kernel = problem(300), kernel_of("se")
    theta = theta_of(kernel)
    expert = Expert(data, kernel, 0)
    assert [engine.name for engine in expert.preferred(theta)] == ["dense"]
    (one,) = evaluate([expert], np.log(theta)[None])
    assert isinstance(one, Evaluation)
    assert one.engine == "dense"
    (found,) = condition([expert], theta[None], lambda posterior: posterior.mean_and_variance(QUERIES)[0])
    assert np.allclose(found, DenseEngine(data, kernel, 0).condition(theta).mean_and_variance(QUERIES)[0])
    assert Expert(problem(600), kernel, 0).large, "some 1,800 points"
    grown = Expert(data.rows(slice(10)).at(data.inputs[:10], data.places[:10]), kernel, 0)
    plain = Expert(Observations(data.inputs[:10], data.values[:10]), kernel, 0)
    for each in (grown, plain):
        each.grow(data)
        assert each.evaluate(np.log(theta)).nll == pytest.approx(one.nll, rel=1e-12)


def test_what_cannot_have_points_says_so() -> None:
    data = problem()
    with pytest.raises(InputError, match="moments engine needs observations at single places"):
        Expert(data, KERNELS["se"], 0, engine="moments")
    with pytest.raises(ValueError, match="single places"):
        MomentsEngine(data, 0)
    robust = kernel_of("matern32", NoiseModel(robust=True))
    with pytest.raises(InputError, match="outliers"):
        reweighed(Expert(data, robust, 0), theta_of(robust))
