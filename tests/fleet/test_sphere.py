"""coordinates="sphere": kernels of chords on the whole globe, without seams at 180 degrees and the poles."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.agent.agenda import Change
from fleetgp.arrays import Array
from fleetgp.consensus.agreements import agree_on_coordinates
from fleetgp.consensus.reductions import Alone
from fleetgp.data import Shard
from fleetgp.data.dataset import InMemory
from fleetgp.data.transforms import Coordinates, Scaling, coordinate_rule, great_circle, kernels_in_coordinates
from fleetgp.engines.expert import Expert
from fleetgp.fleet.maps import cells_within
from fleetgp.kernels.expression import as_kernels
from fleetgp.kernels.stationary import KERNELS, Kernel
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations
from fleetgp.network import Network
from fleetgp.training import TrainingOptions, train, training_method
from tests.shared import observed

NAMES = ("lon", "lat")
ISO = "iso-matern32(lon, lat)"
RADIUS = 6371.0088
#: The length-scale in kilometres, sigma_f, sigma_eps.
THETA = (2500.0, 2.0, 0.1)


def on_globe(expression: str = ISO, names: tuple[str, ...] = NAMES) -> tuple[Kernel, Coordinates]:
    rule = coordinate_rule("sphere", names)
    (kernel,) = kernels_in_coordinates(rule, as_kernels(expression, names), names)
    return kernel, agree_on_coordinates(Alone(), InMemory([Observations(np.zeros((1, len(names))), np.zeros(1))]), rule)


def covariance(one: Array, other: Array, theta: tuple[float, ...] = THETA) -> Array:
    """Independently: Matern 3/2 of 2 R sin(angle / 2), the angle by the haversine formula."""
    chord = 2.0 * RADIUS * np.sin(great_circle(one[:, None], other[None]) / (2.0 * RADIUS))
    r = np.sqrt(3.0) * chord / theta[0]
    return np.asarray(theta[1] ** 2 * (1.0 + r) * np.exp(-r))


def everywhere(n: int, seed: int = 0) -> Array:
    """Places on the globe, of which some are in the midst of the Pacific, at both of its ends, and at the poles."""
    rng = np.random.default_rng(seed)
    places = np.column_stack([rng.uniform(-180, 180, n), np.degrees(np.arcsin(rng.uniform(-1, 1, n)))])
    places[: n // 3, 0] = (180.0 + rng.normal(scale=20.0, size=n // 3)) % 360.0 - 180.0
    places[: n // 3, 1] = rng.normal(scale=15.0, size=n // 3)
    places[-4:] = [[180.0, 10.0], [0.0, 90.0], [30.0, -90.0], [-179.999, 10.0]]
    return places


@cache
def shards() -> tuple[Shard, ...]:
    places = everywhere(150)
    noisy = covariance(places, places) + THETA[2] ** 2 * np.eye(len(places))
    y = np.linalg.cholesky(noisy) @ np.random.default_rng(1).normal(size=len(places))
    order = np.argsort(places[:, 0] % 360.0)  # the border of two agents is not at 180 degrees
    return tuple((places[part], y[part]) for part in np.array_split(order, 3))


def test_a_kernel_is_that_of_chords_and_near_by_of_great_circles() -> None:
    kernel, coordinates = on_globe()
    h, places = Hyperparameters.from_theta(THETA), everywhere(60)
    found = kernel(coordinates.places(places), None, h)
    np.testing.assert_allclose(found, covariance(places, places), atol=1e-10)
    near = places + np.random.default_rng(2).uniform(-0.2, 0.2, places.shape)
    near[:, 1] = np.clip(near[:, 1], -90.0, 90.0)
    distance = great_circle(places, near)
    assert 1.0 < distance.max() < 35.0
    short = Hyperparameters.from_theta((20.0, 1.0, 0.1))
    close = np.diagonal(kernel(coordinates.places(places), coordinates.places(near), short))
    expected = KERNELS["matern32"].profile_and_slope((distance / 20.0) ** 2)[0]
    np.testing.assert_allclose(close, expected, atol=1e-5)


@pytest.mark.parametrize("name", ["se", "matern12", "matern32", "matern52", "rq"])
def test_positive_definite_on_the_whole_globe(name: str) -> None:
    kernel, coordinates = on_globe(f"iso-{name}(lon, lat)")
    theta = [9000.0, *([1.0] if name == "rq" else []), 1.0, 0.1]
    matrix = kernel(coordinates.places(everywhere(200)), None, Hyperparameters.from_theta(theta))
    assert np.linalg.eigvalsh(matrix).min() > -1e-12 * len(matrix)


def test_no_seam_at_180_degrees_and_the_poles() -> None:
    _, coordinates = on_globe()
    pairs = [((180.0, 20.0), (-180.0, 20.0)), ((0.0, 90.0), (77.0, 90.0)), ((350.0, -5.0), (-10.0, -5.0))]
    for one, other in pairs:
        np.testing.assert_allclose(coordinates.places(np.array(one)), coordinates.places(np.array(other)), atol=1e-9)


def test_with_other_inputs_and_the_names_a_user_knows() -> None:
    names = ("day", "lon", "lat")
    kernel, coordinates = on_globe(f"{ISO} * matern12(day) + iso-se(lon, lat)", names)
    told = ("matern32.l_lon_lat", "l_day", "se.l_lon_lat", "sigma_f1", "sigma_f2", "sigma_eps")
    assert kernel.names(names) == told
    assert on_globe()[0].names(NAMES) == ("l", "sigma_f", "sigma_eps")
    places = np.column_stack([np.arange(5.0), everywhere(5)])
    found = kernel(coordinates.places(places), None, Hyperparameters.from_theta([2500.0, 3.0, 900.0, 2.0, 0.5, 0.1]))
    days = np.exp(-np.abs(places[:, None, 0] - places[:, 0]) / 3.0)
    chord = 2.0 * RADIUS * np.sin(great_circle(places[:, None, 1:], places[:, 1:]) / (2.0 * RADIUS))
    other = 0.25 * np.exp(-((chord / 900.0) ** 2))
    np.testing.assert_allclose(found, covariance(places[:, 1:], places[:, 1:]) * days + other, atol=1e-9)
    assert kernels_in_coordinates(coordinate_rule("sphere", names), (kernel,), names) == (kernel,), "once is enough"


def test_a_field_on_the_globe_is_learned_and_predicted_across_180_degrees(tmp_path: Path) -> None:
    fleet = fg.Fleet(list(shards()), inputs=NAMES, coordinates="sphere", kernel=ISO, graph="places", normalize=False)
    fit = fleet.train("dec-fact-gp")
    assert fit.status == "converged"
    assert fleet.names == ("l", "sigma_f", "sigma_eps")
    assert 0.6 < fit.theta[0] / THETA[0] < 1.6
    assert 0.5 < fit.theta[2] / THETA[2] < 2.0
    rng = np.random.default_rng(3)
    queries = np.column_stack([180.0 + rng.uniform(-15, 15, 30), rng.uniform(-15, 15, 30)])
    x, y = (np.concatenate(parts) for parts in zip(*shards(), strict=True))
    theta = tuple(fit.theta.tolist())
    solved = np.linalg.solve(covariance(x, x, theta) + theta[2] ** 2 * np.eye(len(y)), y)
    found = fleet.predict(queries, "full-gp")
    np.testing.assert_allclose(found.mean, covariance(queries, x, theta) @ solved, atol=1e-7)
    turned = queries - [360.0, 0.0]
    np.testing.assert_allclose(fleet.predict(turned, "full-gp").mean, found.mean, atol=1e-8)
    near = fleet.predict(queries, "dec-nearest")
    assert np.abs(near.mean - found.mean).max() < 0.1 * THETA[1]
    fg.save_model(fg.Model(fleet, ("a", "b", "c"), NAMES, "t"), tmp_path / "m")
    again = fg.load_model(tmp_path / "m")
    assert again.fleet.last_fit is not None
    assert again.fleet.last_fit.coordinates == fit.coordinates
    assert np.array_equal(again.fleet.predict(queries).mean, fleet.predict(queries).mean)
    cells = np.array([[-179.99, 10.0], [179.99, 10.0], [45.0, 0.0]])
    assert cells_within(again.fleet.snapshot(), cells, 0.01)[:2].all(), "the nearest observation is beyond 180 degrees"
    calibration = again.fleet.calibrate("dec-rbcm")
    assert len(calibration.knots) == 2
    assert (again.fleet.predict(queries, "dec-rbcm").factors > 0.0).all()


@pytest.mark.parametrize("engine", ["dense", "vecchia"])
def test_likelihood_and_gradient_against_the_formula(engine: str) -> None:
    """Of the engine that knows nearest neighbours, with as many as there are."""
    kernel, coordinates = on_globe()
    x, y = shards()[0]
    expert = Expert(Observations(coordinates.places(x), y), kernel, 0, engine, len(y))
    log_theta = np.log(THETA)

    def nll(at: Array) -> float:
        theta = tuple(np.exp(at).tolist())
        matrix = covariance(x, x, theta) + theta[2] ** 2 * np.eye(len(y))
        return 0.5 * float(y @ np.linalg.solve(matrix, y) + np.linalg.slogdet(matrix)[1])

    found = expert.evaluate(log_theta)
    assert found.engine == engine
    assert found.nll == pytest.approx(nll(log_theta), abs=1e-6)
    slopes = [(nll(log_theta + move) - nll(log_theta - move)) / 2e-5 for move in 1e-5 * np.eye(3)]
    assert found.gradient == pytest.approx(slopes, rel=1e-5, abs=1e-5)


def test_neighbours_by_places_on_the_sphere() -> None:
    data = [(np.array([[lon, 0.0], [lon + 1.0, 1.0]]), np.array([0.0, 1.0])) for lon in (170.0, 0.0, -172.0, 60.0)]
    model: dict[str, Any] = {"inputs": NAMES, "graph": "places"}
    sphere = fg.Fleet(data, coordinates="sphere", kernel=ISO, **{"normalize": False, **model})
    assert [0, 2] in sphere.graph.union.edges.tolist()
    with pytest.warns(fg.FleetGPWarning, match="the two ends are 343 degrees apart"):
        plane = fg.Fleet(data, **{"kernel": "se", "normalize": False, **model})
    assert [0, 2] not in plane.graph.union.edges.tolist()


def test_the_same_bits_however_the_agents_are_hosted() -> None:
    rule = coordinate_rule("sphere", NAMES)
    kernel, graph = on_globe()[0], fg.Graph.path(3)

    def work(network: Network) -> fg.Fit:
        mine = [shards()[i] for i in network.hosted]
        options = TrainingOptions(coordinates=rule, rounds=4, mean="constant")
        return train(training_method("dec-fact-gp"), observed(mine), network, kernel, options)

    whole = work(fg.InProcess(graph))
    for group, fit in zip([[0, 1], [2]], fg.Loopback(graph, [[0, 1], [2]]).run(work), strict=True):
        assert np.array_equal(fit.history, whole.history[:, group])
        assert fit.coordinates == whole.coordinates


def test_outputs_on_the_sphere() -> None:
    both = [(x, np.column_stack([y, np.where(x[:, 1] > 0.0, 3.0 * y, np.nan)])) for x, y in shards()]
    outputs = fg.Outputs(both, targets=["t", "s"], inputs=NAMES, coordinates="sphere", kernel=ISO, normalize=False)
    fits = outputs.train("dec-fact-gp", tol=1e-3)
    assert outputs.names == ("l", "t.sigma_f", "t.sigma_eps", "s.sigma_f", "s.sigma_eps")
    assert fits["t"].theta[0] == fits["s"].theta[0]


def test_agents_tell_each_other_of_it() -> None:
    _, coordinates = on_globe()
    change = Change.of(Scaling(), coordinates)
    change.check(2)
    assert change.places == coordinates
    with pytest.raises(ValueError, match="coordinates of 2 inputs"):
        Change(coordinates="sphere", origin=(0.0, 0.0), unit=(1.0, 1.0), longitude=0, latitude=2).check(2)
    with pytest.raises(ValueError, match="coordinates of 2 inputs"):
        Change(coordinates="sphere", origin=(0.0, 0.0), unit=(1.0, 1.0), longitude=0).check(2)


ASKED = "expected one length-scale for lon, lat wherever a kernel looks at them, got"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"kernel": "matern32"}, f"{ASKED} 'matern32': write iso-matern32(lon, lat)"),
        ({"kernel": "matern32(lon) * matern12(lat)"}, ASKED),
        ({"kernel": "iso-se(lon)"}, ASKED),
        ({"kernel": f"{ISO} + linear(lat)"}, ASKED),
        ({"kernel": f"{ISO} * periodic(lon)"}, ASKED),
        ({"kernel": "auto"}, ASKED),
        ({"mean": "linear"}, 'expected mean="zero" or "constant"'),
        ({"inputs": ["x", "y"], "kernel": "iso-se"}, "one input called lon or longitude"),
        ({"inputs": ["lat", "lon"]}, "expected latitudes from -90 to 90, got 1"),
    ],
)
def test_one_clear_error(options: dict[str, Any], told: str) -> None:
    with pytest.raises(fg.InputError, match=re.escape(told)):
        fg.Fleet(
            list(shards()), **{"normalize": False, "coordinates": "sphere", "inputs": NAMES, "kernel": ISO, **options}
        )


def test_noise_that_differs_on_the_sphere() -> None:
    """Known standard deviations, a noise of each agent, and the third coordinate of a place, against NumPy."""
    rng = np.random.default_rng(5)
    given = [(x, y, rng.choice([0.0, 0.5], len(y))) for x, y in shards()]
    theta, sigmas = THETA[:2], (0.1, 0.2, 0.4)
    model: dict[str, Any] = {"inputs": NAMES, "coordinates": "sphere", "kernel": ISO, "normalize": False}
    fleet = fg.Fleet(given, theta=[*theta, *sigmas], noise="agents", **model)
    assert fleet.names == ("l", "sigma_f", "sigma_eps_0", "sigma_eps_1", "sigma_eps_2")
    x, y, s = (np.concatenate(parts) for parts in zip(*given, strict=True))
    noise = s**2 + np.repeat(np.square(sigmas), [len(own) for _, own, _ in given])
    queries = everywhere(12, seed=6)
    solved = np.linalg.solve(covariance(x, x) + np.diag(noise), np.column_stack([y, covariance(x, queries)]))
    expected = covariance(queries, x) @ solved[:, 0]
    spread = THETA[1] ** 2 - np.einsum("tn,nt->t", covariance(queries, x), solved[:, 1:])
    for found in (fleet.predict(queries, "full-gp"), fleet.predict(queries, "dec-nearest", n_nearest=len(y))):
        np.testing.assert_allclose(found.mean, expected, atol=1e-7)
        np.testing.assert_allclose(found.variance, spread, atol=1e-7)
    start = [*theta, *sigmas]
    fit = fg.Fleet(given, noise="agents", robust=True, **model).train("dec-fact-gp", theta0=start, tol=1e-3)
    assert fit.status == "converged"
