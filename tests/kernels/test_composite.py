"""Kernels that are sums and products: against scikit-learn and finite differences, in every engine that takes them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import sklearn.gaussian_process.kernels as sk
from hypothesis import given
from hypothesis import strategies as st

from fleetgp.engines.dense import reference
from fleetgp.engines.dense.engine import DenseEngine
from fleetgp.engines.vecchia.engine import VecchiaEngine
from fleetgp.engines.vecchia.likelihood import CompositeData, layout
from fleetgp.errors import InputError
from fleetgp.kernels.composite import Composite, leaf_names
from fleetgp.kernels.expression import as_kernel
from fleetgp.kernels.stationary import KERNELS
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.noise import NoiseModel
from fleetgp.model.observations import Observations

INPUTS = ["lon", "lat", "day"]
EXPRESSIONS = [
    "matern32(lon, lat) * matern12(day)",
    "rq",
    "iso-matern52(lon, lat) * (rq(day) + periodic(day)) + linear(lon, day)",
    "se + matern12(day) * linear(lat)",
    "iso-rq + periodic(lon, lat)",
    "se(lon) * se(lon) + matern12(1)",
]


def problem(expression: str, size: int = 30, seed: int = 0) -> tuple[Composite, np.ndarray, np.ndarray, np.ndarray]:
    """The kernel, inputs, observations and log theta."""
    rng = np.random.default_rng(seed)
    kernel = as_kernel(expression, INPUTS)
    assert isinstance(kernel, Composite)
    log_theta = 0.3 * rng.standard_normal(kernel.count(3))
    return kernel, rng.uniform(-1.0, 1.0, (size, 3)), rng.standard_normal(size), log_theta


@pytest.mark.parametrize("expression", EXPRESSIONS)
class TestEveryComposite:
    def test_its_gradient_is_its_slope(self, expression: str) -> None:
        kernel, x, _, log_theta = problem(expression)
        analytic = kernel.log_gradient(x, x[:7], Hyperparameters.from_log(log_theta))
        assert len(analytic) == len(log_theta) - 1 == len(kernel.names(INPUTS)) - 1 == len(kernel.units(3)) - 1
        for slope, step in zip(analytic, 1e-5 * np.eye(len(log_theta)), strict=False):
            after, before = (kernel(x, x[:7], Hyperparameters.from_log(log_theta + s)) for s in (step, -step))
            assert np.allclose(slope, (after - before) / 2e-5, atol=1e-8)

    def test_it_is_a_covariance_with_its_variance_on_the_diagonal(self, expression: str) -> None:
        kernel, x, _, log_theta = problem(expression)
        h = Hyperparameters.from_log(log_theta)
        value = kernel(x, None, h)
        assert np.allclose(value, value.T, atol=1e-14)
        assert np.linalg.eigvalsh(value).min() > -1e-10
        assert np.allclose(np.diagonal(value), kernel.variance(x, h))

    def test_stacks_are_as_one_by_one(self, expression: str) -> None:
        kernel, x, _, log_theta = problem(expression)
        h, stacked, weights = Hyperparameters.from_log(log_theta), x.reshape(5, 6, 3), np.ones((5, 6, 6))
        together = kernel.at(stacked, None, h)
        for points, matrix, slopes in zip(stacked, together.matrix, together.contract(weights), strict=True):
            assert np.allclose(matrix, kernel(points, None, h), atol=1e-14)
            assert np.allclose(slopes, kernel.log_gradient(points, None, h).sum(axis=(1, 2)), atol=1e-10)

    def test_the_dense_engine_is_the_reference(self, expression: str) -> None:
        kernel, x, y, log_theta = problem(expression)
        found = DenseEngine(Observations(x, y), kernel, 0).evaluate(log_theta)
        nll, gradient = reference.likelihood(Observations(x, y), kernel, log_theta)
        assert found.nll == pytest.approx(nll, rel=1e-10)
        assert np.allclose(found.gradient, gradient, rtol=1e-8, atol=1e-8)
        queries = np.random.default_rng(1).uniform(-1.2, 1.2, (9, 3))
        mean, variance = reference.posterior(Observations(x, y), kernel, np.exp(log_theta), queries)
        told = DenseEngine(Observations(x, y), kernel, 0).condition(np.exp(log_theta)).mean_and_variance(queries)
        assert np.allclose(told, [mean, variance], atol=1e-9)

    def test_the_vecchia_engine_with_all_neighbours_is_the_reference(self, expression: str) -> None:
        kernel, x, y, log_theta = problem(expression)
        engine = VecchiaEngine(Observations(x, y), kernel, 0, 30)
        found = engine.evaluate(log_theta)
        nll, gradient = reference.likelihood(Observations(x, y), kernel, log_theta)
        assert found.nll == pytest.approx(nll, rel=1e-10)
        assert np.allclose(found.gradient, gradient, rtol=1e-8, atol=1e-8)
        queries = np.random.default_rng(1).uniform(-1.2, 1.2, (9, 3))
        told = engine.condition(np.exp(log_theta)).mean_and_variance(queries)
        assert np.allclose(told, reference.posterior(Observations(x, y), kernel, np.exp(log_theta), queries), atol=1e-8)

    def test_compiled_loops_are_the_formulas(self, expression: str) -> None:
        loops = pytest.importorskip("fleetgp.engines.vecchia.compiled")
        kernel, x, y, log_theta = problem(expression, 40)
        data = CompositeData(kernel, Observations(x, y), Hyperparameters.from_log(log_theta))
        rows, near = np.arange(6, 40), np.stack([np.arange(row - 6, row) for row in range(6, 40)]).astype(np.int32)
        found, means, weights = np.empty((34, data.width)), np.empty((34, 2)), np.empty((34, 6))
        made, own = layout(kernel, data.h), (data.inputs, data.values, data.noise)
        loops.general_conditionals(made, *own, data.slopes, rows, near, found)
        assert np.allclose(found, data.conditionals(rows, near)[0], rtol=1e-9, atol=1e-9)
        loops.general_means(made, *own, x[6:], near, means, weights)
        slow = data.means(x[6:], near)
        assert np.allclose(means, slow[0], rtol=1e-9, atol=1e-9)
        assert np.allclose(weights, slow[1], rtol=1e-7, atol=1e-9)

    @pytest.mark.parametrize("neighbours", [3, 8])
    def test_the_gradient_of_the_vecchia_engine_is_its_slope(self, expression: str, neighbours: int) -> None:
        kernel, x, y, log_theta = problem(expression, 60)
        engine = VecchiaEngine(Observations(x, y), kernel, 0, neighbours)
        found = engine.evaluate(log_theta)
        for slope, step in zip(found.gradient, 1e-5 * np.eye(len(log_theta)), strict=True):
            rise = engine.evaluate(log_theta + step).nll - engine.evaluate(log_theta - step).nll
            assert slope == pytest.approx(rise / 2e-5, rel=1e-5, abs=1e-5)


ROOT = math.sqrt(2.0)


@pytest.mark.parametrize(
    ("expression", "theta", "theirs"),
    [
        ("rq", [0.7, 0.7, 0.7, 1.4, 1.3], 1.69 * sk.RationalQuadratic(0.7 / ROOT, 1.4)),
        ("iso-rq", [0.7, 1.4, 1.3], 1.69 * sk.RationalQuadratic(0.7 / ROOT, 1.4)),
        ("iso-matern32 + linear", [0.6, 1.3, 0.5], 1.69 * sk.Matern(0.6, nu=1.5) + 0.25 * sk.DotProduct(0.0)),
        ("iso-matern52 * iso-matern12", [0.6, 0.9, 1.3], 1.69 * sk.Matern(0.6, nu=2.5) * sk.Matern(0.9, nu=0.5)),
        ("iso-se * linear", [0.6, 1.3], 1.69 * sk.RBF(0.6 / ROOT) * sk.DotProduct(0.0)),
    ],
)
def test_they_are_those_of_scikit_learn(expression: str, theta: list[float], theirs: Any) -> None:
    x = np.random.default_rng(2).uniform(-1.0, 1.0, (12, 3))
    ours = as_kernel(expression, INPUTS)(x, x[:5], Hyperparameters.from_theta([*theta, 0.1]))
    assert np.allclose(ours, theirs(x, x[:5]), atol=1e-12)


def test_the_periodic_kernel_is_that_of_scikit_learn() -> None:
    x = np.random.default_rng(2).uniform(-1.0, 1.0, (12, 1))
    ours = as_kernel("periodic", 1)(x, None, Hyperparameters.from_theta([0.8, 0.6, 1.3, 0.1]))
    assert np.allclose(ours, 1.69 * sk.ExpSineSquared(0.8, 0.6)(x), atol=1e-12)


def test_a_leaf_in_brackets_is_shared() -> None:
    kernel = as_kernel("matern32(lon) * (se(day) + matern12(day))", INPUTS)
    assert kernel.names(INPUTS) == ("l_lon", "se.l_day", "matern12.l_day", "sigma_f1", "sigma_f2", "sigma_eps")
    x, h = np.random.default_rng(0).uniform(size=(5, 3)), Hyperparameters.from_theta([0.5, 0.6, 0.7, 1.1, 1.2, 0.1])
    lon, se, rough = (np.abs(x[:, None, d] - x[:, d]) for d in (0, 2, 2))
    outer = (1.0 + math.sqrt(3.0) * lon / 0.5) * np.exp(-math.sqrt(3.0) * lon / 0.5)
    expected = outer * (1.21 * np.exp(-((se / 0.6) ** 2)) + 1.44 * np.exp(-rough / 0.7))
    assert np.allclose(kernel(x, None, h), expected)


@pytest.mark.parametrize(
    ("expression", "same"),
    [
        ("matern32", "matern32"),
        ("matern32(lat, day, lon)", "matern32"),
        ("se(lat) * se(day, lon)", "se"),
        (" ( se ) ", "se"),
    ],
)
def test_what_is_a_plain_kernel_is_one(expression: str, same: str) -> None:
    assert as_kernel(expression, INPUTS) is KERNELS[same]


def test_names_and_units_tell_all_hyperparameters_apart() -> None:
    kernel = as_kernel("iso-matern32(lon, lat) * (rq(day) + periodic(day)) + linear(lon)", INPUTS)
    names = ("l_lon_lat", "rq.l_day", "alpha", "periodic.l_day", "period_day", "sigma_f1", "sigma_f2", "sigma_f3")
    assert kernel.names(INPUTS) == (*names, "sigma_eps")
    assert kernel.units(3).tolist() == [-2, 2, -2, -2, 2, -1, -1, -1, -1]
    assert as_kernel("se + se", 1).names(1) == ("se1.l_1", "se2.l_1", "sigma_f1", "sigma_f2", "sigma_eps")


@pytest.mark.parametrize(
    ("expression", "message", "place"),
    [
        ("se(lon", "expected a comma or a closing bracket", 6),
        ("cosine(lon)", "unknown kernel 'cosine'", 0),
        ("se(lon) + ", "expected a kernel here", 10),
        ("se(lon) matern12(day)", r"expected \+ or \*", 8),
        ("se(lon) * (matern12(day)", "expected a closing bracket", 24),
        ("se(lon, lon)", "every input once", 0),
        ("se(depth)", "unknown input 'depth': choose one of lon, lat, day", 3),
        ("se(4)", "unknown input '4'", 3),
        ("se(lon) % 2", "expected a kernel, an input", 8),
        ("", "expected a kernel here", 0),
        ("se()", "expected an input here", 3),
    ],
)
def test_an_error_points_at_the_character_that_is_wrong(expression: str, message: str, place: int) -> None:
    with pytest.raises(InputError, match=message) as caught:
        as_kernel(expression, INPUTS)
    *_, text, mark = str(caught.value).split("\n")
    assert text == f"  {expression.rstrip()}"
    assert mark == "  " + " " * place + "^"


def test_inputs_go_by_quoted_names_and_numbers() -> None:
    inputs = ["sea level", "x"]
    assert as_kernel("se('sea level') + se(2)", inputs).names(inputs)[:2] == ("l_sea level", "l_x")


@given(st.text(alphabet="se rq(),+*londay12'-", max_size=40))
def test_whatever_is_written_is_a_kernel_or_an_input_error(text: str) -> None:
    try:
        kernel = as_kernel(text, INPUTS)
    except InputError:
        return
    again = as_kernel(kernel.name, INPUTS)
    assert again.names(INPUTS) == kernel.names(INPUTS)


@pytest.mark.parametrize("name", leaf_names())
def test_every_leaf_can_start_a_training(name: str) -> None:
    kernel = as_kernel(name, INPUTS)
    start = kernel.start(np.array([2.0, 3.0, 4.0]), 0.5, 1.5)
    assert len(start) == kernel.count(3) - 1
    assert (start > 0.0).all()
    with pytest.raises(InputError, match="expected the name of a kernel"):
        as_kernel(3)  # type: ignore[arg-type]


NOISE = NoiseModel(known=True, robust=True, groups=("a", "b"))


@pytest.mark.parametrize("expression", ["matern32(lon, lat) * matern12(day)", "iso-rq + linear"])
@pytest.mark.parametrize("engine", ["dense", "vecchia"])
def test_every_observation_may_have_its_own_noise(expression: str, engine: str) -> None:
    plain, x, y, _ = problem(expression, 40)
    rng = np.random.default_rng(3)
    kernel = replace(plain, noise_model=NOISE)
    known, weight, group = rng.uniform(0.1, 0.9, 40), rng.uniform(1.0, 3.0, 40), rng.integers(0, 2, 40)
    data = Observations(x, y, known, group, weight)
    log_theta = 0.3 * rng.standard_normal(kernel.count(3))
    h = Hyperparameters.from_log(log_theta)
    own = plain(x, None, Hyperparameters.from_theta([*h.theta[:-2], 1.0]))
    variances = known**2 + weight * h.theta[-2:][group] ** 2
    c = own + np.diag(variances)
    nll = 0.5 * (y @ np.linalg.solve(c, y) + np.linalg.slogdet(c).logabsdet)
    made = DenseEngine(data, kernel, 0) if engine == "dense" else VecchiaEngine(data, kernel, 0, 40)
    assert made.evaluate(log_theta).nll == pytest.approx(nll, rel=1e-10)
    few = made if engine == "dense" else VecchiaEngine(data, kernel, 0, 6)
    for slope, step in zip(few.evaluate(log_theta).gradient, 1e-5 * np.eye(len(log_theta)), strict=True):
        rise = few.evaluate(log_theta + step).nll - few.evaluate(log_theta - step).nll
        assert slope == pytest.approx(rise / 2e-5, rel=1e-5, abs=1e-5)
    cross = plain(x, x[:5] + 0.1, Hyperparameters.from_theta([*h.theta[:-2], 1.0]))
    mean = cross.T @ np.linalg.solve(c, y)
    told, _ = made.condition(h.theta).mean_and_variance(x[:5] + 0.1)
    assert np.allclose(told, mean, atol=1e-8)
    assert kernel.names(INPUTS)[-2:] == ("sigma_eps_a", "sigma_eps_b")
