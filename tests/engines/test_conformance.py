"""What every engine must do: one suite that each passes. A new engine is added to `Problem.engine`."""

from __future__ import annotations

import numpy as np
import pytest

from fleetgp.engines.base import Engine, Trend
from fleetgp.engines.dense import reference
from fleetgp.engines.dense.engine import DenseEngine
from fleetgp.engines.expert import ENGINES, tolerance
from fleetgp.engines.moments.engine import MomentsEngine
from fleetgp.engines.vecchia.engine import VecchiaEngine
from fleetgp.errors import NumericalError
from fleetgp.kernels.stationary import KERNELS
from fleetgp.linalg.threads import blas_threads
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations
from tests.conftest import paper_shards

SE = KERNELS["se"]


class Problem:
    """Data that all engines can answer for, and an engine of them."""

    queries = np.random.default_rng(1).uniform(-0.2, 2.2, (30, 2))

    def __init__(self, rows: int = 150) -> None:
        self.inputs, self.observations = paper_shards(rows, 1)[0]

    def engine(self, name: str, rows: slice = slice(None)) -> Engine:
        x, y = self.inputs[rows], self.observations[rows]
        if name == "vecchia":
            return VecchiaEngine(Observations(x, y), SE, 0, n_neighbours=150)  # then it is exact
        return DenseEngine(Observations(x, y), SE, 0) if name == "dense" else MomentsEngine(Observations(x, y), 0)


@pytest.mark.parametrize("theta", [[1.2, 0.3, 1.3, 0.3], [0.8, 0.8, 2.0, 0.5]])
@pytest.mark.parametrize("name", [name for name in ENGINES if name != "auto"])
class TestConformance:
    """What every engine must do."""

    def test_its_evaluation_is_the_reference(self, name: str, theta: list[float]) -> None:
        problem = Problem()
        found = problem.engine(name).evaluate(np.log(theta))
        assert found is not None
        assert (found.engine, found.jitter) == (name, 0.0)
        assert 0.0 <= found.error <= tolerance(150)
        nll, gradient = reference.likelihood(Observations(problem.inputs, problem.observations), SE, np.log(theta))
        assert abs(found.nll - nll) <= found.error + 1e-10 * abs(nll)
        assert np.allclose(found.gradient, gradient, rtol=1e-5, atol=1e-5)

    @pytest.mark.parametrize("linear", [False, True])
    def test_its_products_are_those_with_the_inverse_covariance(
        self, name: str, theta: list[float], linear: bool
    ) -> None:
        problem = Problem()
        trend = Trend(np.array([0.7, -0.2]), linear)
        found = problem.engine(name).products(np.array(theta), trend)
        h = Hyperparameters.from_theta(np.array(theta))
        c = SE(problem.inputs, None, h) + h.noise**2 * np.eye(150)
        ones = np.ones((150, 1))
        functions = np.hstack([ones, problem.inputs - [0.7, -0.2]]) if linear else ones
        z = np.hstack([functions, problem.observations[:, None]])
        expected = z.T @ np.linalg.solve(c, z)
        assert found is not None
        assert np.allclose(found, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())

    def test_its_gradient_is_the_slope_of_its_likelihood(self, name: str, theta: list[float]) -> None:
        engine, log_theta = Problem().engine(name), np.log(theta)
        found = engine.evaluate(log_theta)
        assert found is not None
        for slope, step in zip(found.gradient, np.eye(4) * 1e-3, strict=True):
            after, before = engine.evaluate(log_theta + step), engine.evaluate(log_theta - step)
            assert after is not None
            assert before is not None
            assert slope == pytest.approx((after.nll - before.nll) / 2e-3, rel=1e-4, abs=1e-2)

    def test_its_posterior_is_the_reference(self, name: str, theta: list[float]) -> None:
        problem = Problem()
        posterior = problem.engine(name).condition(np.array(theta))
        assert posterior is not None
        assert posterior.engine == name
        mean, variance = reference.posterior(
            Observations(problem.inputs, problem.observations), SE, np.array(theta), problem.queries
        )
        found = posterior.mean_and_variance(problem.queries)
        assert np.allclose(found[0], mean, atol=1e-6)
        assert np.allclose(found[1], variance, atol=1e-6)
        assert np.allclose(posterior.explained_variance(problem.queries), theta[-2] ** 2 - variance, atol=1e-6)

    def test_its_joint_posterior_is_the_one_with_plain_inverses(self, name: str, theta: list[float]) -> None:
        """Outside the data, too."""
        problem = Problem()
        posterior = problem.engine(name).condition(np.array(theta))
        assert posterior is not None
        h = Hyperparameters.from_theta(np.array(theta))
        inverse = np.linalg.inv(SE(problem.inputs, None, h) + h.noise**2 * np.eye(150))
        cross = SE(problem.inputs, problem.queries, h)
        mean, covariance = posterior.mean_and_covariance(problem.queries)
        assert np.allclose(mean, cross.T @ inverse @ problem.observations, atol=1e-6)
        assert np.allclose(covariance, SE(problem.queries, None, h) - cross.T @ inverse @ cross, atol=1e-6)
        assert (covariance == covariance.T).all()

    def test_more_data_are_as_if_there_from_the_start(self, name: str, theta: list[float]) -> None:
        problem = Problem()
        grown, fresh = problem.engine(name, slice(90)), problem.engine(name)
        grown.evaluate(np.log(theta))
        grown.grow(Observations(problem.inputs, problem.observations))
        assert grown.size == fresh.size == 150
        one, other = grown.evaluate(np.log(theta)), fresh.evaluate(np.log(theta))
        assert one is not None
        assert other is not None
        assert abs(one.nll - other.nll) <= one.error + other.error + 1e-10 * abs(other.nll)
        assert np.allclose(one.gradient, other.gradient, atol=1e-5)

    def test_many_at_once_are_each_alone(self, name: str, theta: list[float]) -> None:
        engines = [Problem().engine(name, slice(start, start + 60)) for start in (0, 30, 90)]
        log_thetas = np.log(theta) + np.linspace(0.0, 0.1, 3)[:, None]
        for engine, log_theta, found in zip(
            engines, log_thetas, type(engines[0]).evaluate_many(engines, log_thetas), strict=True
        ):
            with blas_threads(1):  # as many threads: then the same bits
                alone = engine.evaluate(log_theta)
            assert alone is not None
            assert not isinstance(found, NumericalError)
            assert found is not None
            assert found.nll == alone.nll
            assert np.array_equal(found.gradient, alone.gradient)

    def test_its_cost_is_a_finite_time_and_grows_with_nothing_but_the_problem(
        self, name: str, theta: list[float]
    ) -> None:
        engine = Problem().engine(name)
        before = engine.cost(np.array(theta))
        assert 0.0 < before < 1.0
        engine.evaluate(np.log(theta))
        assert engine.cost(np.array(theta)) == before

    def test_what_is_out_of_range_has_no_answer(self, name: str, theta: list[float]) -> None:
        engine, far = Problem().engine(name), np.array([*np.log(theta[:3]), 400.0])
        (found,) = type(engine).evaluate_many([engine], far[None])
        assert found is None or (isinstance(found, NumericalError) and "agent 0" in str(found))
