"""Answers do not depend on the order of agents and rows, on the agents' names, nor on the digits after the sixth."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.data import Shard
from fleetgp.prediction import prediction_method

THETA = (0.5, 0.4, 1.3, 0.2)
AGENTS, ROWS = 4, 30
#: Agent turned[i] of a fleet is agent i of the other.
TURNED = np.array([2, 0, 3, 1])
#: A path with a branch: its centre, and so the root of the tree, is not in the middle of the order.
EDGES = ((0, 1), (1, 2), (1, 3))
SMOOTH_ONLY = ("dec-full-gp",)


def shards() -> list[Shard]:
    """Four areas of one field that overlap a little, each with its own number of rows."""
    field = fg.synthetic_field(AGENTS * ROWS, THETA, seed=4)
    parts = fg.partition(field.inputs, field.observations, agents=AGENTS)
    return [(x[i:], y[i:]) for i, (x, y) in enumerate(parts)]


def queries() -> Array:
    return np.random.default_rng(3).uniform(0.1, 1.9, (12, 2))


def kernel_for(method: str) -> str:
    return "se" if method in SMOOTH_ONLY else "matern32"


def fleet(parts: list[Shard], **given: Any) -> fg.Fleet:
    return fg.Fleet(parts, fg.Graph(AGENTS, EDGES), **given)


def turned(parts: list[Shard], **given: Any) -> fg.Fleet:
    """The same fleet: agents in another order, with other names, rows backwards, the graph along with them."""
    place = np.argsort(TURNED)
    mine = [(parts[k][0][::-1], parts[k][1][::-1]) for k in TURNED]
    graph = fg.Graph(AGENTS, [tuple(sorted((int(place[i]), int(place[j])))) for i, j in EDGES])
    return fg.Fleet(mine, graph, **given)


def rounded(parts: list[Shard]) -> list[Shard]:
    """As a table with six digits has them."""
    return [tuple(np.vectorize(lambda v: float(f"{v:.6g}"))(part) for part in shard) for shard in parts]


def same(one: fg.Prediction, other: fg.Prediction, rtol: float) -> None:
    scale = one.std.max()
    np.testing.assert_allclose(other.mean, one.mean, rtol=0.0, atol=rtol * scale)
    np.testing.assert_allclose(other.std, one.std, rtol=0.0, atol=rtol * scale)


@pytest.mark.parametrize("method", fg.PREDICTION_METHODS)
def test_predictions_do_not_depend_on_the_order_of_agents(method: str) -> None:
    given: dict[str, Any] = {"theta": THETA, "kernel": kernel_for(method), "normalize": False}
    one, other = fleet(shards(), **given), turned(shards(), **given)
    how = prediction_method(method).those_of(eta=0.05)
    found, again = one.predict(queries(), method, **how), other.predict(queries(), method, **how)
    same(found, again, 1e-6)
    np.testing.assert_array_equal(again.participants, found.participants[TURNED])
    asked = other.predict(queries(), method, agent=1, **how)
    same(found, asked, 1e-6)


@pytest.mark.parametrize("method", [m for m in fg.PREDICTION_METHODS if "rbcm" in m])
def test_nor_do_averages_joint_answers_and_gradients(method: str) -> None:
    given: dict[str, Any] = {"theta": THETA, "kernel": "matern32", "normalize": False}
    one, other = fleet(shards(), **given), turned(shards(), **given)
    joint, again = one.joint(queries(), method), other.joint(queries(), method)
    np.testing.assert_allclose(again.mean, joint.mean, atol=1e-6)
    np.testing.assert_allclose(again.covariance, joint.covariance, atol=1e-6)
    steep, steeper = one.gradient(queries(), method), other.gradient(queries(), method)
    np.testing.assert_allclose(steeper.gradient, steep.gradient, atol=1e-5)
    if prediction_method(method).decentralized:
        averaged = [f.predict(queries(), method, consensus="average", tol=1e-9) for f in (one, other)]
        same(averaged[0], averaged[1], rtol=1e-6)


@pytest.mark.parametrize("method", fg.PREDICTION_METHODS)
def test_six_digits_of_the_data_are_enough(method: str) -> None:
    given: dict[str, Any] = {"theta": THETA, "kernel": kernel_for(method), "normalize": True}
    one, other = fleet(shards(), **given), fleet(rounded(shards()), **given)
    same(one.predict(queries(), method), other.predict(queries(), method), 0.01)


@pytest.mark.parametrize(
    ("coordinates", "kernel", "theta"),
    [("kilometres", "matern32", (20.0, 18.0, 1.3, 0.2)), ("sphere", "iso-matern32(lon, lat)", (20.0, 1.3, 0.2))],
)
def test_six_digits_are_enough_where_coordinates_are_computed(
    coordinates: str, kernel: str, theta: tuple[float, ...]
) -> None:
    corner, scale = np.array([-70.0, 36.0]), 0.4
    parts, where = [(corner + scale * x, y) for x, y in shards()], corner + scale * queries()
    given: dict[str, Any] = {"theta": theta, "kernel": kernel, "normalize": True, "coordinates": coordinates}
    given["inputs"] = ["lon", "lat"]
    one, other, again = fleet(parts, **given), fleet(rounded(parts), **given), turned(parts, **given)
    same(one.predict(where), other.predict(where), 0.01)
    same(one.predict(where), again.predict(where), 1e-6)


@pytest.mark.filterwarnings("ignore::fleetgp.FleetGPWarning")  # of so few rounds
@pytest.mark.parametrize("method", fg.TRAINING_METHODS)
def test_trained_hyperparameters_do_not_depend_on_the_order_of_agents(method: str) -> None:
    """After the same number of rounds from the same start."""
    given: dict[str, Any] = {"kernel": kernel_for(method), "normalize": True}
    how: dict[str, Any] = {"theta0": (0.8, 0.8, 1.0, 0.3), "tol": 0.0, "rounds": 3}
    one, other, few = fleet(shards(), **given), turned(shards(), **given), fleet(rounded(shards()), **given)
    thetas = [np.log(f.train(method, **how).theta) for f in (one, other, few)]
    np.testing.assert_allclose(thetas[1], thetas[0], atol=1e-5)
    np.testing.assert_allclose(thetas[2], thetas[0], atol=1e-3)


@pytest.mark.parametrize("method", ["dec-fact-gp", "full-gp"])
def test_nor_do_they_to_convergence_with_approximate_likelihoods(method: str) -> None:
    given: dict[str, Any] = {"kernel": "matern32", "normalize": True}
    one, other, few = fleet(shards(), **given), turned(shards(), **given), fleet(rounded(shards()), **given)
    fits = [f.train(method, engine="vecchia", n_neighbours=10) for f in (one, other, few)]
    assert [(fit.status, set(fit.engine)) for fit in fits] == [("converged", {"vecchia"})] * 3
    np.testing.assert_allclose(np.log(fits[1].theta), np.log(fits[0].theta), atol=1e-5)
    same(one.predict(queries(), "dec-rbcm"), other.predict(queries(), "dec-rbcm"), 1e-5)
    same(one.predict(queries(), "dec-rbcm"), few.predict(queries(), "dec-rbcm"), 0.01)


@pytest.mark.filterwarnings("ignore::fleetgp.FleetGPWarning")  # of so few rounds
@pytest.mark.parametrize("given", [{"kernel": ["se", "matern32"]}, {"kernel": "matern32", "mean": "linear"}])
def test_starts_kernels_and_means_do_not_depend_on_the_order_of_agents(given: dict[str, Any]) -> None:
    """With the default starts, to convergence, or for a few rounds where kernels are compared."""
    how: dict[str, Any] = {"rounds": 8} if isinstance(given["kernel"], list) else {}
    parts = shards()
    makers = partial(fleet, parts), partial(turned, parts), partial(fleet, rounded(parts))
    one, other, few = (make(normalize=True, **given) for make in makers)
    kernels = [f.train("dec-fact-gp", **how).kernel for f in (one, other, few)]
    assert len(set(kernels)) == 1
    same(one.predict(queries()), other.predict(queries()), 1e-3)
    same(one.predict(queries()), few.predict(queries()), 0.01)


@pytest.mark.parametrize("by", ["random", "block", "agent"])
def test_nor_do_the_scores_of_a_cross_validation(by: Any) -> None:
    given: dict[str, Any] = {"theta": THETA, "kernel": "matern32", "normalize": False}
    found, again = (
        f.cross_validate(3, split=by, method="dec-rbcm", train=False)
        for f in (fleet(shards(), **given), turned(shards(), **given))
    )
    assert again.scores.rmse == pytest.approx(found.scores.rmse, rel=1e-9)
    assert again.scores.crps == pytest.approx(found.scores.crps, rel=1e-9)


def test_the_papers_weights_depend_on_the_first_agent_alone() -> None:
    given: dict[str, Any] = {"theta": THETA, "kernel": "matern32", "normalize": False}
    one, other = fleet(shards(), **given), turned(shards(), **given)
    for method in ("grbcm", "dec-grbcm", "dec-nn-grbcm"):
        first, again = (f.predict(queries(), method, beta="paper") for f in (one, other))
        assert np.abs(first.std - again.std).max() > 0.01 * first.std.max()
    averaged = one.predict(queries(), "dec-nn-grbcm", beta="paper", consensus="average", tol=1e-9)
    same(one.predict(queries(), "dec-nn-grbcm", beta="paper"), averaged, 1e-6)


@pytest.mark.parametrize("method", fg.PREDICTION_METHODS)
def test_a_fleet_of_one_agent_answers_with_its_posterior(method: str) -> None:
    x, y = (np.concatenate(part) for part in zip(*shards(), strict=True))
    alone = fg.Fleet([(x, y)], theta=THETA, kernel="se", normalize=False)
    # Length-scales here are sqrt(2) times scikit-learn's.
    kernel = ConstantKernel(THETA[2] ** 2) * RBF(np.array(THETA[:2]) / np.sqrt(2.0))
    exact = GaussianProcessRegressor(kernel, alpha=THETA[3] ** 2, optimizer=None).fit(x, y)
    mean, std = exact.predict(queries(), return_std=True)
    how: dict[str, Any] = {"n_nearest": len(y)} if method == "dec-nearest" else {}
    found, joint = alone.predict(queries(), method, **how), alone.joint(queries(), method, **how)
    np.testing.assert_allclose(found.mean, mean, atol=1e-5)
    np.testing.assert_allclose(found.std, std, atol=1e-5)
    np.testing.assert_allclose(joint.mean, mean, atol=1e-5)
    np.testing.assert_allclose(joint.covariance, exact.predict(queries(), return_cov=True)[1], atol=1e-5)
