"""Posteriors from the nearest observations: exact with all of them, and close with few."""

from __future__ import annotations

import numpy as np
import pytest

from fleetgp.arrays import Array
from fleetgp.engines.basis import Basis, Box
from fleetgp.engines.dense.engine import DenseEngine
from fleetgp.engines.vecchia import compiled, likelihood
from fleetgp.engines.vecchia import engine as vecchia
from fleetgp.engines.vecchia.engine import AROUND, VecchiaEngine
from fleetgp.errors import InputError
from fleetgp.kernels.stationary import KERNELS
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations

THETA = np.array([0.7, 0.4, 1.3, 0.2])


@pytest.fixture(params=[compiled, None], ids=["compiled", "plain"], autouse=True)
def _loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(likelihood, "compiled", lambda: request.param)


def data(rng: np.random.Generator, size: int) -> tuple[Array, Array]:
    return rng.uniform(0, 2, (size, 2)), rng.standard_normal(size)


@pytest.mark.parametrize("kernel", KERNELS)
def test_from_all_observations_it_is_exact(kernel: str, rng: np.random.Generator) -> None:
    inputs, y = data(rng, 50)
    queries = np.concatenate([rng.uniform(-0.5, 2.5, (30, 2)), inputs[:3], np.full((2, 2), 1e4)])
    found = VecchiaEngine(Observations(inputs, y), KERNELS[kernel], 0, 50).condition(THETA)
    exact = DenseEngine(Observations(inputs, y), KERNELS[kernel], 0).condition(THETA)
    for one, other in zip(found.mean_and_variance(queries), exact.mean_and_variance(queries), strict=True):
        assert np.allclose(one, other, atol=1e-10)
    assert np.allclose(found.explained_variance(queries), exact.explained_variance(queries), atol=1e-10)
    used, weights = found.weighted(queries)
    expected = exact.weighted(queries)[1]
    place = [int(np.flatnonzero((inputs == point).all(axis=1))[0]) for point in used.inputs]
    assert np.allclose(weights, expected[place], atol=1e-9)
    assert found.mean_and_variance(queries[:0])[0].shape == (0,)


def test_jointly_it_is_the_gp_of_all_that_are_near_any_query(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, y = data(rng, 80)
    queries = rng.uniform(0, 2, (5, 2))
    near = {int(n) for q in queries for n in np.argsort((((inputs - q) / THETA[:2]) ** 2).sum(axis=1))[: 3 * AROUND]}
    some = sorted(near)
    found = VecchiaEngine(Observations(inputs, y), KERNELS["matern32"], 0, 3).condition(THETA)
    exact = DenseEngine(Observations(inputs[some], y[some]), KERNELS["matern32"], 0).condition(THETA)
    for one, other in zip(found.mean_and_covariance(queries), exact.mean_and_covariance(queries), strict=True):
        assert np.allclose(one, other, atol=1e-10)
    monkeypatch.setattr(vecchia, "MOST_TOGETHER", 7)
    with pytest.raises(
        InputError, match=rf"agent 0: .* at most 7 observations nearest .*, got {len(some)}: give fewer"
    ):
        found.mean_and_covariance(queries)


def test_vectors_in_a_basis_are_those_of_its_weights(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vecchia, "WORK", 5000)  # in several parts
    inputs, y = data(rng, 50)
    queries = rng.uniform(0, 2, (30, 2))
    basis = Basis(Hyperparameters.from_theta(THETA), Box.around(inputs), (20, 30), 1e-14)
    for neighbours in (4, 50):
        found = VecchiaEngine(Observations(inputs, y), KERNELS["se"], 0, neighbours).condition(THETA)
        used, weights = found.weighted(queries)
        assert len(used) <= 50
        assert np.allclose(found.projected(basis, queries), basis.at(used.inputs).T @ weights, atol=1e-10)
    exact = DenseEngine(Observations(inputs, y), KERNELS["se"], 0).condition(THETA)
    assert np.allclose(found.projected(basis, queries), exact.projected(basis, queries), atol=1e-8)


def test_more_neighbours_are_closer_to_the_exact_posterior(rng: np.random.Generator) -> None:
    inputs, y = data(rng, 600)
    queries = rng.uniform(0, 2, (100, 2))
    exact, _ = DenseEngine(Observations(inputs, y), KERNELS["matern32"], 0).condition(THETA).mean_and_variance(queries)
    errors = []
    for neighbours in (5, 15, 45):
        mean, _ = (
            VecchiaEngine(Observations(inputs, y), KERNELS["matern32"], 0, neighbours)
            .condition(THETA)
            .mean_and_variance(queries)
        )
        errors.append(float(np.sqrt(np.mean((mean - exact) ** 2))))
    assert errors[0] > 1.5 * errors[1] > 2.25 * errors[2]


def test_more_observations_enter_where_they_are_and_nothing_else_changes(rng: np.random.Generator) -> None:
    inputs, y = data(rng, 400)
    kernel, queries = KERNELS["matern32"], rng.uniform(0, 2, (20, 2))
    grown = VecchiaEngine(Observations(inputs[:250], y[:250]), kernel, 0, 10)
    lazy = VecchiaEngine(Observations(inputs[:250], y[:250]), kernel, 0, 10)
    before = grown.evaluate(np.log(THETA))
    for end in (251, 300, 400):
        grown.grow(Observations(inputs[:end], y[:end]))
        grown.evaluate(np.log(THETA))
        lazy.grow(Observations(inputs[:end], y[:end]))
    after, at_once = grown.evaluate(np.log(THETA)), lazy.evaluate(np.log(THETA))
    assert after.nll == at_once.nll
    assert after.nll != before.nll
    assert np.array_equal(after.gradient, at_once.gradient)
    fresh = VecchiaEngine(Observations(inputs, y), kernel, 0, 10)
    for one, other in zip(
        grown.condition(THETA).mean_and_variance(queries),
        fresh.condition(THETA).mean_and_variance(queries),
        strict=True,
    ):
        assert np.array_equal(one, other)


def test_fewer_points_than_neighbours_grow_into_more(rng: np.random.Generator) -> None:
    inputs, y = data(rng, 60)
    grown = VecchiaEngine(Observations(inputs[:5], y[:5]), KERNELS["matern52"], 0, 20)
    grown.evaluate(np.log(THETA))
    for start in range(5, 60, 5):
        grown.grow(Observations(inputs[: start + 5], y[: start + 5]))
        found = grown.evaluate(np.log(THETA))
        if start + 5 <= 21:
            exact = DenseEngine(Observations(inputs[: start + 5], y[: start + 5]), KERNELS["matern52"], 0).evaluate(
                np.log(THETA)
            )
            assert found.nll == pytest.approx(exact.nll, rel=1e-10)
    assert grown.size == 60
