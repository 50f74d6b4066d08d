"""Coordinates of the inputs: right on the Earth, agreed by the fleet, and the same model where they are but units."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.consensus.agreements import agree_on_coordinates
from fleetgp.consensus.reductions import Alone
from fleetgp.data import Shard
from fleetgp.data.transforms import CoordinateRule, chords, coordinate_rule, great_circle
from fleetgp.errors import FleetGPWarning, InputError
from fleetgp.kernels.stationary import KERNELS
from fleetgp.network import Network
from fleetgp.training import TrainingOptions, train, training_method
from tests.conftest import paper_shards
from tests.shared import observed

START = [60.0, 20.0, 1.0, 0.3]
NAMES = ["lon", "lat"]


def at_sea(longitude: float = 10.0, latitude: float = 40.0, width: float = 0.5) -> list[Shard]:
    """The paper's field on a small box, in degrees from -180 to 180."""
    shards = []
    for x, y in paper_shards(90, 3):
        place = x * width + [longitude, latitude]
        place[:, 0] = (place[:, 0] + 180.0) % 360.0 - 180.0
        shards.append((place, y))
    return shards


def kilometres(shards: list[Shard]) -> Any:
    return agree_on_coordinates(Alone(), observed(shards), coordinate_rule("kilometres", NAMES))


@given(st.floats(-180, 180), st.floats(-60, 60), st.integers(0, 9))
@settings(max_examples=30)
def test_distances_in_kilometres_are_those_on_the_earth(longitude: float, latitude: float, seed: int) -> None:
    """Against the haversine formula, in a box of a third of a degree, across any meridian."""
    rng = np.random.default_rng(seed)
    centre = np.array([longitude, latitude])
    places = rng.uniform(-1 / 6, 1 / 6, (2, 40, 2)) + centre
    found = kilometres([(places.reshape(-1, 2), np.zeros(80))])
    plane = found.places(places)
    true = great_circle(places[0], places[1])
    np.testing.assert_allclose(np.hypot(*(plane[0] - plane[1]).T), true, rtol=0.011, atol=1e-9)
    apart = np.linalg.norm(chords(*places[0].T) - chords(*places[1].T), axis=1)
    np.testing.assert_allclose(apart, true, rtol=1e-5, atol=1e-8)


def test_haversine_is_the_angle_between_directions() -> None:
    one, other = np.random.default_rng(0).uniform([-180, -90], [180, 90], (2, 50, 2))
    u, v = (chords(*place.T) / 6371.0088 for place in (one, other))
    angle = np.arctan2(np.linalg.norm(np.cross(u, v), axis=1), (u * v).sum(axis=1))
    np.testing.assert_allclose(great_circle(one, other), 6371.0088 * angle, rtol=1e-9)


@pytest.mark.parametrize(("south", "north", "large"), [(39.9, 40.1, False), (35.0, 45.0, True), (75.0, 76.0, True)])
def test_what_a_plane_cannot_show_is_told(south: float, north: float, large: bool) -> None:
    places = np.array([[10.0, south], [10.5, north], [10.2, south]])
    found = kilometres([(places, np.zeros(3))])
    plane, pairs = found.places(places), [(0, 1), (1, 2), (0, 2)]
    wrong = [abs(np.hypot(*(plane[i] - plane[j])) / great_circle(places[i], places[j]) - 1.0) for i, j in pairs]
    assert found.distortion >= 0.99 * max(wrong)
    assert (found.distortion > 0.01) == large


def test_a_fleet_in_kilometres_is_one_of_projected_inputs() -> None:
    """Across 180 degrees: the same theta and the same answers as with kilometres of one's own."""
    border = paper_shards(90, 3)[0][0][:, 0].max() + 1e-9
    shards = at_sea(180.0 - 0.5 * border)  # between the first agent and the others
    assert [x[0, 0] > 0.0 for x, _ in shards] == [True, False, False]
    centre = (np.concatenate([x for x, _ in shards]) % [360.0, 1e9]).mean(axis=0)

    def plane(x: Array) -> Array:
        apart = x - centre
        apart[:, 0] = (apart[:, 0] + 180.0) % 360.0 - 180.0
        return np.asarray(apart * 6371.0088 * np.pi / 180.0 * [np.cos(np.radians(centre[1])), 1.0])

    with_names = fg.Fleet(shards, coordinates="kilometres", inputs=NAMES, kernel="se", normalize=False)
    by_hand = fg.Fleet([(plane(x), y) for x, y in shards], kernel="se", normalize=False)
    one, other = with_names.train(theta0=START), by_hand.train(theta0=START)
    np.testing.assert_allclose(one.theta, other.theta, rtol=1e-5)
    queries = shards[1][0][:5] + 0.01
    for method in ("dec-nn-rbcm", "dec-nearest", "full-gp"):  # grBCM draws its samples by what is in the rows
        found, expected = with_names.predict(queries, method), by_hand.predict(plane(queries), method)
        np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found.variance, expected.variance, rtol=1e-3)
    given = fg.Fleet(
        shards, coordinates="kilometres", inputs=NAMES, theta=one.theta, kernel="se", normalize=False
    ).predict(queries)
    np.testing.assert_allclose(given.mean, with_names.predict(queries).mean, rtol=1e-10)
    assert given.ledger.by_kind()["statistics"].scalars > 0


def test_slopes_of_a_mean_are_per_kilometre_east_and_north() -> None:
    shards = at_sea()
    fleet = fg.Fleet(shards, coordinates="kilometres", mean="linear", inputs=NAMES, kernel="se", normalize=False)
    mean = fleet.train(theta0=START).mean
    assert mean is not None
    places, values = (np.concatenate(parts) for parts in zip(*shards, strict=True))
    apart = (places - mean.at) * 6371.0088 * np.pi / 180.0 * [np.cos(np.radians(places[:, 1].mean())), 1.0]
    theta = fleet.theta
    assert theta is not None
    blocks = [
        theta[2] ** 2 * np.exp(-(((part[:, None] - part) / theta[:2]) ** 2).sum(axis=2))
        + theta[3] ** 2 * np.eye(len(part))
        for part in np.split(apart, 3)
    ]
    design = np.column_stack([np.ones(len(apart)), apart])
    weighted = np.concatenate([np.linalg.solve(a, b) for a, b in zip(blocks, np.split(design, 3), strict=True)])
    covariance = np.linalg.inv(weighted.T @ design)
    expected, errors = covariance @ weighted.T @ values, np.sqrt(np.diagonal(covariance))
    np.testing.assert_allclose(mean.errors, errors, rtol=1e-2)
    # The turns end where the next one would change nothing by more than a thousandth of its standard error.
    np.testing.assert_array_less(np.abs([mean.constant, *mean.slopes] - expected), 5e-3 * errors)


def test_scaled_inputs_are_the_same_model_in_the_same_units() -> None:
    shards = [(x * [1000.0, 0.01] + [0.0, 7.0], y) for x, y in paper_shards(90, 3)]
    start = [600.0, 0.004, 1.0, 0.3]
    plain, scaled = (
        fg.Fleet(shards, coordinates=name, mean="linear", kernel="se", normalize=False)
        for name in ("as-given", "scaled")
    )
    one, other = (fleet.train(theta0=start) for fleet in (plain, scaled))
    np.testing.assert_allclose(one.theta, other.theta, rtol=1e-4)
    np.testing.assert_allclose(other.history[0, 0], start, rtol=1e-12)
    assert one.mean is not None
    assert other.mean is not None
    np.testing.assert_allclose(one.mean.slopes, other.mean.slopes, rtol=1e-4)
    np.testing.assert_allclose([*one.mean.at, *one.mean.errors], [*other.mean.at, *other.mean.errors], rtol=1e-3)
    inputs = np.concatenate([x for x, _ in shards])
    np.testing.assert_allclose(other.coordinates.unit, inputs.std(axis=0), rtol=1e-12)
    queries = inputs[:5] * 1.001
    means = [fleet.predict(queries, "dec-nearest").mean for fleet in (plain, scaled)]
    np.testing.assert_allclose(means[0], means[1], rtol=1e-4, atol=1e-5)
    variances = [fleet.predict(queries, "dec-nearest", theta=start).variance for fleet in (plain, scaled)]
    np.testing.assert_allclose(variances[0], variances[1], rtol=1e-6)


def test_files_are_as_rows_in_memory(tmp_path: Path) -> None:
    shards = at_sea()
    for number, (x, y) in enumerate(shards):
        pd.DataFrame({"lon": x[:, 0], "lat": x[:, 1], "y": y}).to_parquet(tmp_path / f"{number}.parquet")
    files = fg.Fleet.from_files(
        str(tmp_path / "*.parquet"),
        inputs=NAMES,
        target="y",
        rows=7,
        coordinates="kilometres",
        mean="constant",
        kernel="se",
        normalize=False,
    )
    memory = fg.Fleet(shards, coordinates="kilometres", inputs=NAMES, mean="constant", kernel="se", normalize=False)
    one, other = (fleet.train("dec-full-gp", theta0=START) for fleet in (files, memory))
    np.testing.assert_allclose(one.theta, other.theta, rtol=1e-4)
    queries = shards[0][0][:4] + 0.003
    expected = memory.predict(queries, "full-gp", theta=one.theta, engine="dense").mean
    np.testing.assert_allclose(files.predict(queries, "dec-full-gp").mean, expected, rtol=1e-4, atol=1e-4)


def test_the_same_bits_however_the_agents_are_hosted() -> None:
    shards = at_sea()
    rule = CoordinateRule("kilometres", 0, 1)
    options = TrainingOptions(starts=np.log([START]), tol=1e-3, coordinates=rule, mean="constant")

    def work(network: Network) -> fg.Fit:
        mine = [shards[i] for i in network.hosted]
        return train(training_method("dec-fact-gp"), observed(mine), network, KERNELS["se"], options)

    whole = work(fg.InProcess(fg.Graph.path(3)))
    assert whole.ledger.by_kind()["statistics"].scalars > 0
    loopback = fg.Loopback(fg.Graph.path(3), [[0, 1], [2]])
    for group, fit in zip([[0, 1], [2]], loopback.run(work), strict=True):
        assert np.array_equal(fit.history, whole.history[:, group])
        assert (fit.coordinates, fit.mean) == (whole.coordinates, whole.mean)
    assert loopback.ledger.as_dict() == whole.ledger.as_dict()


def test_far_places_are_told_of_or_refused() -> None:
    with pytest.warns(FleetGPWarning, match=r"wrong by up to \d+% where the data are"):
        fg.Fleet(at_sea(width=5.0), coordinates="kilometres", inputs=NAMES, kernel="se", normalize=False).train(
            theta0=[600, 200, 1, 0.3]
        )
    wide = fg.Fleet(
        at_sea(width=5.0),
        coordinates="kilometres",
        inputs=NAMES,
        theta=[600, 200, 1, 0.3],
        kernel="se",
        normalize=False,
    )
    with pytest.warns(FleetGPWarning, match="where the data are"):
        wide.predict([[12.0, 42.0]])
    refused = {
        "of each agent within 180 degrees": [
            (np.column_stack([np.linspace(-150, 150, 30), x[:, 1]]), y) for x, y in at_sea()
        ],
        "from -90 to 90": [(x[:, ::-1] + [0.0, 100.0], y) for x, y in at_sea()],
        "no map of them": [*at_sea(0.0), *at_sea(120.0), *at_sea(240.0)],
    }
    for told, shards in refused.items():
        with pytest.raises(InputError, match=told):
            fg.Fleet(shards, coordinates="kilometres", inputs=NAMES, kernel="se", normalize=False).train()


@pytest.mark.parametrize(
    ("name", "inputs", "told"),
    [
        ("miles", NAMES, "coordinates"),
        ("sphere", NAMES, "expected one length-scale for lon, lat wherever a kernel looks at them"),
        ("kilometres", None, "inputs without names"),
        ("kilometres", ["x", "lat"], "got x, lat"),
        ("kilometres", ["lon", "longitude"], "got lon, longitude"),
    ],
)
def test_one_clear_error(name: Any, inputs: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        fg.Fleet(at_sea(), coordinates=name, inputs=inputs, kernel="se", normalize=False)


def test_single_steps_are_for_inputs_as_given() -> None:
    with pytest.raises(InputError, match="as-given"):
        fg.Fleet(at_sea(), coordinates="scaled", kernel="se", normalize=False).trainer()
