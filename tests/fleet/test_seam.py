"""Data on both sides of 180 degrees: the same answers and the same map as anywhere else."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.data import Shard
from fleetgp.data.transforms import shortest_arc
from fleetgp.errors import FleetGPWarning
from fleetgp.plot.maps import map_

NAMES = ["lon", "lat"]
MODELS: dict[str, dict[str, Any]] = {
    "kilometres": {"kernel": "matern32", "theta": (300.0, 300.0, 1.0, 0.1)},
    "sphere": {"kernel": "iso-matern32(lon, lat)", "theta": (300.0, 1.0, 0.1)},
}


def wrapped(longitudes: Array) -> Array:
    return np.asarray((longitudes + 180.0) % 360.0 - 180.0)


def shards(centre: float) -> list[Shard]:
    """Four agents side by side about a longitude, from -180 to 180. About 180 degrees some of them cross."""
    rng, found = np.random.default_rng(0), []
    for agent in range(4):
        x = rng.uniform([-9.5 + 4.0 * agent, -5.0], [-3.0 + 4.0 * agent, 5.0], (25, 2))
        y = np.sin(x[:, 0] / 2.0) + np.cos(x[:, 1] / 2.0) + 0.05 * rng.standard_normal(25)
        found.append((np.column_stack([wrapped(x[:, 0] + centre), x[:, 1]]), y))
    return found


def fleet(centre: float, coordinates: Any) -> fg.Fleet:
    model = MODELS[coordinates]
    return fg.Fleet(shards(centre), "places", coordinates=coordinates, inputs=NAMES, normalize=False, **model)


@pytest.mark.filterwarnings("ignore:distances in kilometres")
# grBCM draws its samples by the rows' places in the model's coordinates, which turn with the longitude on the sphere.
@pytest.mark.parametrize(("coordinates", "method"), [("kilometres", "dec-nn-grbcm"), ("sphere", "dec-nearest")])
def test_at_180_degrees_answers_and_maps_are_as_anywhere_else(coordinates: str, method: str) -> None:
    assert any(np.ptp(x[:, 0]) > 180.0 for x, _ in shards(180.0)), "an agent crosses"
    there, here = fleet(180.0, coordinates), fleet(20.0, coordinates)
    assert there.graph.union.edges.tolist() == here.graph.union.edges.tolist()
    queries = np.random.default_rng(1).uniform([-8.0, -4.0], [8.0, 4.0], (9, 2))
    expected = here.predict(queries + np.array([20.0, 0.0]), method)
    for turn in (-360.0, 0.0, 360.0):
        found = there.predict(queries + np.array([180.0 + turn, 0.0]), method)
        np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(found.variance, expected.variance, rtol=1e-6)
    one, other = there.map((9, 7), method=method), here.map((9, 7), method=method)
    np.testing.assert_allclose(one.lon, other.lon + 160.0, atol=1e-9)
    np.testing.assert_allclose(one.y, other.y, rtol=1e-6, atol=1e-8)
    boxed = there.map((5, 4), box=(172.0, -4.0, -172.0, 4.0))
    np.testing.assert_allclose(boxed.lon, [172.0, 176.0, 180.0, 184.0, 188.0])


def test_dots_and_masks_go_across_180_degrees() -> None:
    import xarray as xr

    globe = fleet(180.0, "sphere")
    ax, _ = map_(globe, grid=(6, 5))
    dots = ax.lines[0].get_xdata()
    assert len(dots) == 100
    assert (np.abs(dots - 180.0) < 11.0).all()
    longitudes, latitudes = np.arange(-179.5, 180.0), np.arange(-9.5, 10.0)
    east = np.tile(longitudes < 0.0, (len(latitudes), 1))  # of 180 degrees
    mask = xr.DataArray(east, {"lat": latitudes, "lon": longitudes}, ("lat", "lon"))
    found = globe.map((7, 5), mask=mask)
    assert ((found.cell_status == 3).all("lat").values == (found.lon.values < 180.0)).all()


@pytest.mark.parametrize("coordinates", ["as-given", "scaled"])
def test_longitudes_as_numbers_warn_once_of_180_degrees(coordinates: Any) -> None:
    model: dict[str, Any] = {"coordinates": coordinates, "kernel": "matern32", "normalize": False}
    with pytest.warns(FleetGPWarning) as told:
        fg.Fleet(shards(180.0), inputs=NAMES, **model)
    assert len(told) == 1
    assert 'Give coordinates="kilometres"' in str(told[0].message)
    from_0_to_360 = [(np.column_stack([x[:, 0] % 360.0, x[:, 1]]), y) for x, y in shards(180.0)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fg.Fleet(shards(20.0), inputs=NAMES, **model)
        fg.Fleet(shards(180.0), inputs=["x", "y"], **model)
        fg.Fleet(from_0_to_360, inputs=NAMES, **model)


def test_the_shortest_arc_is_that_of_a_search() -> None:
    """Against all arcs that start at a point; data around the whole globe stay as they are."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        points = wrapped(rng.uniform(0.0, 360.0) + rng.uniform(0.0, 250.0, 12))
        west, east = shortest_arc(points, points)
        assert east - west == pytest.approx(min(np.max((points - start) % 360.0) for start in points))
        assert np.isclose((points - west) % 360.0, 0.0).any()
    everywhere = np.arange(-180.0, 180.0)
    assert shortest_arc(everywhere, everywhere) == (-180.0, 179.0)
