"""Gradients of predictions: against differences of predictions, for every method, kernel and hosting."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.kernels.stationary import KERNELS
from fleetgp.network import Network
from fleetgp.prediction import Conditioned, Gradient, PredictionOptions, Question, gradient, prediction_method
from tests.conftest import every_graph
from tests.shared import observed

THETA = (0.6, 0.5, 1.3, 0.2)
AGENTS = 4
ALL = [m for m in fg.PREDICTION_METHODS if "npae" not in m]
STEP = 1e-5


@cache
def shards(n: int = 60, agents: int = AGENTS) -> tuple[tuple[Array, Array], ...]:
    field = fg.synthetic_field(n, THETA, seed=0)
    return tuple(fg.partition(field.inputs, field.observations, agents=agents))


def queries(count: int = 5) -> Array:
    return np.random.default_rng(3).uniform(0.1, 1.9, (count, 2))


def differences(f: fg.Fleet, points: Array, method: str, steps: Array | None = None, **options: Any) -> Array:
    """Of the mean by the inputs; no selection changes within so small steps, but by chance."""
    steps = np.full(points.shape[1], STEP) if steps is None else steps
    moved = [points + sign * step for step in np.diag(steps) for sign in (1.0, -1.0)]
    means = f.predict(np.concatenate(moved), method, **options).mean.reshape(len(steps), 2, len(points))
    return np.asarray(((means[:, 0] - means[:, 1]) / (2.0 * steps[:, None])).T)


def options_of(method: str) -> dict[str, Any]:
    return {"eta": 0.2} if "-nn-" in method else {"n_nearest": 8} if method == "dec-nearest" else {}


@pytest.mark.parametrize("method", ALL)
def test_gradients_are_limits_of_differences_by_every_method(method: str) -> None:
    f = fg.Fleet(
        shards(), "cycle", theta=THETA, kernel="se" if method == "dec-full-gp" else "matern32", normalize=False
    )
    found = f.gradient(queries(), method, **options_of(method))
    expected = differences(f, queries(), method, **options_of(method))
    np.testing.assert_allclose(found.gradient, expected, atol=1e-6 if method != "dec-full-gp" else 1e-4)
    answer = f.predict(queries(), method, **options_of(method))
    np.testing.assert_array_equal(found.participants, answer.participants)
    assert (found.status, found.kinks.any()) == ("converged", np.False_)
    assert (found.covariance is not None) == (method in ("full-gp", "dec-full-gp", "dec-nearest"))
    if "-nn-" in method:
        assert not found.participants.all()


@pytest.mark.parametrize("method", ["dec-gpoe", "dec-rbcm", "dec-nn-grbcm", "dec-nearest", "full-gp"])
@pytest.mark.parametrize(
    "kernel", ["se", "matern12", "rq", "se(1) * periodic(2) + linear(1)", "matern52(1) + linear(2)"]
)
def test_gradients_are_limits_of_differences_with_every_kernel(kernel: str, method: str) -> None:
    """With linear kernels the prior variance has a slope, too."""
    names = fg.Fleet(shards(), kernel=kernel, normalize=False).names
    theta = [*np.linspace(0.6, 1.3, len(names) - 1), 0.2]
    f = fg.Fleet(shards(), "star", theta=theta, kernel=kernel, normalize=False)
    found = f.gradient(queries(), method)
    np.testing.assert_allclose(found.gradient, differences(f, queries(), method), atol=2e-5)
    assert not found.kinks.any()


@pytest.mark.parametrize("engine", ["dense", "moments", "vecchia"])
def test_gradients_are_limits_of_differences_with_every_engine(engine: str) -> None:
    f = fg.Fleet(shards(200, 2), theta=(1.0, 0.8, 1.3, 0.3), kernel="se", normalize=False)
    for method in ("dec-rbcm", "dec-grbcm"):
        found = f.gradient(queries(), method, engine=engine, n_neighbours=6)
        np.testing.assert_allclose(
            found.gradient, differences(f, queries(), method, engine=engine, n_neighbours=6), atol=2e-4
        )
        assert set(found.engine) == {engine}


@pytest.mark.parametrize("coordinates", ["as-given", "scaled", "kilometres", "sphere"])
def test_gradients_are_by_the_inputs_and_in_the_units_that_were_given(coordinates: Any) -> None:
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.uniform(10, 11, 60), rng.uniform(10, 11, 60), rng.uniform(0, 5, 60)])
    y = 300.0 + 8.0 * np.sin(3.0 * x[:, 0]) + 2.0 * x[:, 1] + x[:, 2]
    planar = coordinates in ("kilometres", "sphere")
    length = [40.0] if planar else [0.5, 0.5]
    kernel = "iso-matern52(lon, lat) * se(day)" if planar else "matern52(lon, lat) * se(day)"
    f = fg.Fleet(
        fg.partition(x, y, agents=3),
        theta=[*length, 3.0, 8.0, 0.5],
        inputs=["lon", "lat", "day"],
        kernel=kernel,
        normalize=True,
        mean="linear" if coordinates != "sphere" else "constant",
        coordinates=coordinates,
    )
    points = np.array([[10.4, 10.6, 2.0], [10.8, 10.2, 4.0]])
    for method in ("dec-rbcm", "full-gp"):
        found = f.gradient(points, method)
        assert found.gradient.shape == (2, 3)
        np.testing.assert_allclose(found.gradient, differences(f, points, method), rtol=1e-4, atol=1e-4)
    # how well the gradient of f is known, against that of differences of f
    step = 1e-3
    around = points[0] + step * np.array([[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1]])
    apart = np.kron(np.eye(3), [1.0, -1.0]) / (2.0 * step)
    expected = apart @ f.joint(around, "full-gp").covariance @ apart.T
    assert found.covariance is not None
    assert found.std is not None
    np.testing.assert_allclose(found.covariance[0], expected, rtol=0.02, atol=0.01 * np.abs(expected).max())
    np.testing.assert_allclose(found.std[0], np.sqrt(np.diagonal(expected)), rtol=0.01)


def test_noises_that_differ_change_nothing_about_the_inputs() -> None:
    parts = [(x, y, np.full(len(y), 0.1 * (i + 1))) for i, (x, y) in enumerate(shards())]
    f = fg.Fleet(parts, theta=(0.6, 0.5, 1.3, 0.1, 0.2, 0.3, 0.4), noise="agents", kernel="matern32", normalize=False)
    for method in ("dec-rbcm", "dec-nearest"):
        found = f.gradient(queries(), method)
        assert found.gradient.shape == (5, 2)
        np.testing.assert_allclose(found.gradient, differences(f, queries(), method), atol=1e-6)


def test_at_a_kink_it_is_the_mean_of_both_sides_and_says_so() -> None:
    f = fg.Fleet(shards(), theta=THETA, kernel="matern12", normalize=False)
    points = np.concatenate([shards()[2][0][:1], queries(1)])
    for method in ("dec-rbcm", "dec-grbcm", "dec-nearest", "full-gp"):
        found = f.gradient(points, method)
        assert found.kinks.tolist() == [[True, True], [False, False]]
        assert found.covariance is None
        np.testing.assert_allclose(found.gradient, differences(f, points, method), atol=1e-3)
        sides = f.predict(points[0] + STEP * np.array([[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0]]), method).mean
        assert abs(sides[0] - 2.0 * sides[1] + sides[2]) / STEP > 0.05, "there is a kink"
    one = fg.Fleet(shards(), theta=(0.6, 0.5, 1.3, 0.2), kernel="matern12(1) * se(2)", normalize=False).gradient(
        points, "dec-poe"
    )
    assert one.kinks.tolist() == [[True, False], [False, False]]


# ---- hosting, and the price --------------------------------------------------------------------------------------


def work(network: Network, method: str, to: int | None = None) -> Gradient:
    row, options = prediction_method(method), PredictionOptions(eta=0.2 if "-nn-" in method else 1e-3)
    mine = [shards()[i] for i in network.hosted]
    kernel = KERNELS["se" if method == "dec-full-gp" else "matern32"]
    conditioned = Conditioned(observed(mine), kernel, np.tile(THETA, (len(mine), 1)))
    agreed = row.agree(network, conditioned, options)
    return gradient(conditioned, network, Question(row, queries(), options, to=to), agreed)


@pytest.mark.parametrize("method", [m for m in ALL if m.startswith("dec-")])
def test_the_same_bits_rounds_and_messages_however_agents_are_hosted(method: str) -> None:
    graph = every_graph(AGENTS)["alternating"]
    whole = work(fg.InProcess(graph), method)
    for hosting in ([[0, 1], [2, 3]], [[i] for i in range(AGENTS)]):
        loopback = fg.Loopback(graph, hosting)
        for found in loopback.run(lambda network: work(network, method)):
            np.testing.assert_array_equal(found.gradient, whole.gradient)
            np.testing.assert_array_equal(found.participants, whole.participants)
            assert found.rounds == whole.rounds
        assert loopback.ledger.as_dict() == whole.ledger.as_dict()


def test_only_who_asks_is_told() -> None:
    hosting = [[i] for i in range(AGENTS)]
    told = fg.Loopback(fg.Graph.path(AGENTS), hosting).run(lambda network: work(network, "dec-nn-rbcm", to=0))
    assert [bool(np.isnan(found.gradient).all()) for found in told] == [False, True, True, True]


def test_sums_go_once_with_their_slopes() -> None:
    """rBCM has three sums; with two inputs nine numbers and two marks of kinks go up, the gradient and these down."""
    found = fg.Fleet(shards(), theta=THETA, kernel="se", normalize=False).gradient(queries(), "dec-rbcm")
    sent = found.ledger.total(phase="aggregate", kind="predictions").scalars
    assert sent == (AGENTS - 1) * len(queries()) * (3 * 3 + 2 + 4)


def test_more_queries_than_a_block_are_answered_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    f = fg.Fleet(shards(), theta=THETA, kernel="se", normalize=False)
    whole = f.gradient(queries(7), "dec-rbcm")
    monkeypatch.setattr("fleetgp.prediction.answer.block_size", lambda *_: 3)
    parts = f.gradient(queries(7), "dec-rbcm")
    np.testing.assert_allclose(parts.gradient, whole.gradient, rtol=1e-12, atol=1e-12)
    assert parts.rounds == whole.rounds
    assert f.gradient(np.zeros((0, 2))).gradient.shape == (0, 2)


def test_what_has_no_gradient_is_refused() -> None:
    f = fg.Fleet(shards(), theta=THETA, kernel="se", normalize=False)
    with pytest.raises(fg.InputError, match=r"dec-npae has no gradients: .*: use dec-summary or dec-nearest"):
        f.gradient(queries(), "dec-npae")
    with pytest.raises(fg.InputError, match="expected shape"):
        f.gradient([[1.0]])
    one = fg.Fleet(shards(40, 1), theta=THETA, kernel="se", normalize=False)
    np.testing.assert_allclose(
        one.gradient(queries(), "dec-npae").gradient, one.gradient(queries(), "full-gp").gradient
    )
    elsewhere = fg.Fleet(shards(), theta=THETA, backend="ray", workers=2, kernel="se", normalize=False)
    with pytest.raises(fg.InputError, match="a gradient needs all agents in this process"):
        elsewhere.gradient(queries())
