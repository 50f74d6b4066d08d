"""Mean functions: the joint optimum of beta and theta, by other means; and what is said of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.linalg import block_diag, cho_factor, cho_solve
from scipy.optimize import minimize
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.consensus.agreements import agree_on_scaling
from fleetgp.consensus.reductions import Alone
from fleetgp.data.transforms import Scaling
from fleetgp.engines.base import Trend
from fleetgp.engines.basis import Box
from fleetgp.engines.moments.fleet import FleetMoments
from fleetgp.engines.moments.grid import without_trend
from fleetgp.engines.moments.sums import ChebyshevSums
from fleetgp.errors import FleetGPWarning, InputError
from fleetgp.kernels.stationary import KERNELS
from fleetgp.network import Network
from fleetgp.training import TrainingOptions, train, training_method
from tests.conftest import mostly_long
from tests.shared import observed

#: Most trainings here are cut short on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning")

PLACE = np.array([100.0, -40.0])
THETA = np.array([0.9, 0.4, 1.2, 0.3])


def sample(size: int = 60, seed: int = 5) -> tuple[Array, Array]:
    """A draw of a GP on a trend that is larger than it, far from the origin."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, 2.0, (size, 2)) + PLACE
    y = np.linalg.cholesky(covariance(x, THETA)) @ rng.standard_normal(size)
    return x, y + 20.0 + 3.0 * (x[:, 0] - 100.0) - 2.0 * (x[:, 1] + 40.0)


def covariance(x: Array, theta: Array) -> Array:
    z = x / theta[:-2]
    squares = ((z[:, None] - z) ** 2).sum(axis=2)
    return np.asarray(theta[-2] ** 2 * np.exp(-squares) + theta[-1] ** 2 * np.eye(len(x)))


X, Y = sample()
SHARDS = fg.partition(X, Y, agents=3)
CENTRE = X.mean(axis=0)


def reference(shards: list[Any], linear: bool, theta: Array) -> tuple[float, Array, Array]:
    """NLL with the best coefficients at theta, these about the centre, and their errors; C block-diagonal."""
    x, y = (np.concatenate(parts) for parts in zip(*shards, strict=True))
    c = block_diag(*(covariance(own, theta) for own, _ in shards))
    h = np.column_stack([np.ones(len(x)), x - CENTRE]) if linear else np.ones((len(x), 1))
    factor = cho_factor(c, lower=True)
    normal = h.T @ cho_solve(factor, h)
    beta = np.linalg.solve(normal, h.T @ cho_solve(factor, y))
    left = y - h @ beta
    nll = 0.5 * left @ cho_solve(factor, left) + np.log(np.diagonal(factor[0])).sum()
    return float(nll), beta, np.sqrt(np.diagonal(np.linalg.inv(normal)))


@pytest.mark.parametrize("mean", ["constant", "linear"])
@pytest.mark.parametrize("method", ["dec-fact-gp", "fact-gp", "full-gp", "dec-full-gp"])
def test_it_is_the_optimum_of_coefficients_and_theta_together(method: str, mean: Any) -> None:
    """Against a minimization of the profile likelihood, which knows no turns."""
    shards = [(X, Y)] if "full" in method else SHARDS
    linear = mean == "linear"
    fleet = fg.Fleet(SHARDS, mean=mean, normalize=linear, kernel="se")
    fit = fleet.train(method, theta0=THETA, tol=1e-7)
    best = minimize(
        lambda x: reference(shards, linear, np.exp(x))[0], np.log(fit.theta) + 0.05, method="BFGS", tol=1e-9
    )
    nll, beta, errors = reference(shards, linear, np.exp(best.x))
    own = reference(shards, linear, fit.theta)
    assert (fit.status, fit.mean is not None and fit.mean.settled) == ("converged", True)
    assert fit.mean is not None
    assert abs(own[0] - nll) < 1e-4
    found = np.array([fit.mean.constant, *fit.mean.slopes])
    if linear:
        found[0] += (CENTRE - fit.mean.at) @ found[1:]
        np.testing.assert_allclose(fit.mean.errors, errors, rtol=0.02)
    assert (np.abs(found - beta) < 0.02 * errors).all()
    assert abs(fit.nll + linear * len(Y) * np.log(fit.scaling.scale) - nll) < 1e-4


def test_a_trend_is_found_within_its_errors() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, (80, 2))
    y = 5.0 - 7.0 * x[:, 0] + 2.0 * x[:, 1] + 0.05 * rng.standard_normal(80) + 0.02 * np.sin(9 * x[:, 0])
    found = fg.Fleet(fg.partition(x, y, agents=2), mean="linear", kernel="se", normalize=False).train().mean
    assert found is not None
    assert (np.abs(np.array(found.slopes) - [-7.0, 2.0]) < 4.0 * np.array(found.errors[1:])).all()
    assert list(found.named(["a", "b"])) == ["constant", "per a", "per b"]


def test_predictions_are_those_of_a_gp_on_the_residuals() -> None:
    """Against scikit-learn's, with the coefficients of least squares weighed by the inverse covariance."""
    _, beta, _ = reference([(X, Y)], True, THETA)
    length = THETA[:-2] / np.sqrt(2.0)  # exp(-r^2), not exp(-r^2 / 2)
    kernel = sk.ConstantKernel(THETA[-2] ** 2) * sk.RBF(length)
    gp = GaussianProcessRegressor(kernel, alpha=THETA[-1] ** 2, optimizer=None)
    gp.fit(X, Y - beta[0] - (X - CENTRE) @ beta[1:])
    queries = np.random.default_rng(1).uniform(0, 2, (20, 2)) + PLACE
    mean, deviation = gp.predict(queries, return_std=True)
    for method in ("full-gp", "dec-full-gp"):
        found = fg.Fleet([(X, Y)], mean="linear", theta=THETA, kernel="se", normalize=False).predict(queries, method)
        np.testing.assert_allclose(found.mean, mean + beta[0] + (queries - CENTRE) @ beta[1:], rtol=1e-7)
        np.testing.assert_allclose(np.sqrt(found.variance), deviation, rtol=1e-6)


def test_far_from_all_data_an_answer_is_the_mean_function() -> None:
    fleet = fg.Fleet(SHARDS, mean="linear", normalize=True, kernel="se")
    found = fleet.train().mean
    assert found is not None
    far = np.array([[300.0, 10.0], [-200.0, 0.0]])
    expected = found.constant + (far - found.at) @ found.slopes
    with pytest.warns(FleetGPWarning, match="no better known than the prior"):
        answers = [fleet.predict(far, method).mean for method in ("dec-nn-grbcm", "dec-npae", "dec-nearest")]
    for answer in answers:
        np.testing.assert_allclose(answer, expected, rtol=1e-9)


def test_without_correlation_a_constant_is_the_fleets_mean() -> None:
    """Generalized least squares is then what centring is."""
    fleet = fg.Fleet(SHARDS, mean="constant", theta=[1e-4, 1e-4, 1.0, 0.5], kernel="se", normalize=False)
    with pytest.warns(FleetGPWarning):
        assert fleet.predict([[0.0, 0.0]]).mean[0] == pytest.approx(Y.mean(), rel=1e-12)


def test_least_squares_over_the_fleet_is_that_of_all_rows() -> None:
    slope, _, rank, _ = np.linalg.lstsq(np.column_stack([np.ones(len(X)), X - CENTRE]), Y, rcond=None)
    found = agree_on_scaling(Alone(), observed(SHARDS), "linear")
    assert rank == 3
    np.testing.assert_allclose([found.offset, *found.slope], slope, rtol=1e-10)
    np.testing.assert_allclose(found.centre, CENTRE, rtol=1e-12)
    assert found.scale == pytest.approx((Y - found.mean(X)).std(), rel=1e-10)


def test_moments_of_residuals_follow_from_those_of_the_observations() -> None:
    box, sizes, trend = Box(CENTRE + 0.1, np.array([1.3, 1.4])), (17, 13), Trend(CENTRE, True)
    own = FleetMoments.of(ChebyshevSums(X, Y, box), sizes)
    left = Y - trend.columns(X) @ [20.0, 3.0, -2.0]
    expected = FleetMoments.of(ChebyshevSums(X, left, box), sizes)
    found = without_trend(own, trend, [20.0, 3.0, -2.0])
    np.testing.assert_allclose(found.packed, expected.packed, rtol=0, atol=1e-10)
    constant = without_trend(own, Trend(CENTRE, False), [20.0])
    np.testing.assert_allclose(
        constant.packed, FleetMoments.of(ChebyshevSums(X, Y - 20.0, box), sizes).packed, rtol=0, atol=1e-10
    )


def test_files_are_as_rows_in_memory(tmp_path: Path) -> None:
    for number, (x, y) in enumerate(SHARDS):
        pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": y}).to_parquet(tmp_path / f"{number}.parquet")
    model: dict[str, Any] = {"mean": "linear", "normalize": True}
    files = fg.Fleet.from_files(
        str(tmp_path / "*.parquet"),
        inputs=["a", "b"],
        target="y",
        rows=11,
        **{"kernel": "se", "normalize": False, **model},
    )
    memory = fg.Fleet(SHARDS, **{"kernel": "se", "normalize": False, **model})
    one, other = (fleet.train("dec-full-gp", theta0=THETA) for fleet in (files, memory))
    np.testing.assert_allclose(one.theta, other.theta, rtol=1e-4)
    np.testing.assert_allclose(one.scaling.slope, other.scaling.slope, rtol=1e-6)
    queries = X[:5] + 0.05
    np.testing.assert_allclose(
        files.predict(queries, "dec-full-gp").mean, memory.predict(queries, "dec-full-gp").mean, rtol=1e-6
    )
    scaling = Scaling(1.0, 2.0, (3.0, -1.0), (100.0, -40.0))
    assert not files.data.in_memory
    for summary, (x, y) in zip(files.data.rescaled(scaling).summaries, SHARDS, strict=True):
        left = (y - 1.0 - (x - [100.0, -40.0]) @ [3.0, -1.0]) / 2.0
        np.testing.assert_allclose([summary.mean, summary.squares], [left.mean(), left.var() * len(y)], rtol=1e-9)
        np.testing.assert_allclose(summary.cross, (x - x.mean(axis=0)).T @ (left - left.mean()), atol=1e-9)


@pytest.mark.parametrize(
    "method", mostly_long(["dec-fact-gp", "dec-g-fact-gp", "dec-apx-gp", "dec-full-gp"], "dec-fact-gp", "dec-full-gp")
)
def test_the_same_bits_however_the_agents_are_hosted(method: str) -> None:
    options = TrainingOptions(starts=np.log([THETA]), mean="linear", normalize=True, tol=1e-3)

    def work(network: Network) -> fg.Fit:
        mine = [SHARDS[i] for i in network.hosted]
        return train(training_method(method), observed(mine), network, KERNELS["se"], options)

    whole = work(fg.InProcess(fg.Graph.path(3)))
    for hosting in ([[0, 1], [2]], [[0], [1], [2]]):
        loopback = fg.Loopback(fg.Graph.path(3), hosting)
        for group, fit in zip(hosting, loopback.run(work), strict=True):
            assert np.array_equal(fit.history, whole.history[:, group])
            assert (fit.mean, fit.scaling, fit.status) == (whole.mean, whole.scaling, whole.status)
        assert loopback.ledger.as_dict() == whole.ledger.as_dict()


def test_what_has_not_settled_says_so() -> None:
    fleet = fg.Fleet(SHARDS, mean="linear", kernel="se", normalize=False)
    with pytest.warns(FleetGPWarning, match="the mean function has not settled: theta was trained once"):
        fit = fleet.train("dec-apx-gp", theta0=[0.2, 0.2, 1.0, 1.0], rounds=3, tol=0)
    assert fit.mean is not None
    assert (fit.mean.settled, fit.mean.turns, fit.rounds, fit.status) == (False, 1, 3, "round limit")
    with pytest.warns(FleetGPWarning, match="far from zero"):
        assert fg.Fleet(SHARDS, kernel="se", normalize=False).train(theta0=THETA, rounds=3).mean is None


def test_one_clear_error() -> None:
    with pytest.raises(InputError, match="mean"):
        fg.Fleet(SHARDS, mean="cubic", kernel="se", normalize=False)  # type: ignore[arg-type]
    twice = [(np.column_stack([x[:, 0], 2 * x[:, 0]]), y) for x, y in SHARDS]
    with pytest.raises(InputError, match="vary independently"):
        fg.Fleet(twice, mean="linear", kernel="se", normalize=False).train()
