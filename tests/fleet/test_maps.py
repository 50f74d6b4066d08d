"""Fleet.map: cells, values of other inputs, masks, and what a map tells of itself."""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import fleetgp as fg
from fleetgp.errors import InputError
from fleetgp.io.fields import nearest_cells

THETA = [0.8, 20.0, 0.8, 1.0, 0.1]


def fleet(**units: str) -> fg.Fleet:
    """Over lon, day (since 1970) and lat."""
    rng = np.random.default_rng(5)
    x = np.column_stack([rng.uniform(-3, 0, 90), rng.uniform(18628, 18658, 90), rng.uniform(40, 42, 90)])
    y = np.sin(x[:, 0]) + 0.05 * (x[:, 1] - 18640) + 0.1 * rng.standard_normal(90)
    found = fg.Fleet(
        fg.partition(x, y, agents=3), theta=THETA, inputs=["lon", "day", "lat"], kernel="se", normalize=False
    )
    found.set_metadata(("Ada", "Bo", "Cy"), "sst", {"day": "days since 1970-01-01", "sst": "degC", **units})
    return found


def test_a_map_is_what_predict_says_at_its_cells() -> None:
    found = fleet()
    sea = found.map((4, 3), box=(-3, 40, 0, 42), at={"day": "2021-01-15"}, within=np.inf, method="dec-rbcm")
    assert sea["sst"].dims == ("lat", "lon")
    assert {name: str(values.attrs.get("units", "")) for name, values in sea.data_vars.items()} == {
        "sst": "degC", "sst_std": "degC", "sst_std_observed": "degC", "n_agents": "", "cell_status": "",
    }  # fmt: skip
    assert (sea["lon"].attrs["units"], sea["lat"].attrs["units"]) == ("degrees_east", "degrees_north")
    assert sea["day"].values == np.datetime64("2021-01-15")
    assert sea.attrs["asked_agent"] == "Ada"
    lon, lat = np.meshgrid(sea["lon"], sea["lat"])
    expected = found.predict(np.column_stack([lon.ravel(), np.full(12, 18642.0), lat.ravel()]), "dec-rbcm")
    for name, values in (
        ("sst", expected.mean),
        ("sst_std", expected.std),
        ("sst_std_observed", expected.std_observed),
    ):
        np.testing.assert_allclose(sea[name].values.ravel(), values, rtol=1e-9)
    np.testing.assert_array_equal(sea["n_agents"].values.ravel(), expected.participants.sum(axis=0))


@pytest.mark.parametrize("day", [18642, 18642.0, "2021-01-15T00:00", date(2021, 1, 15), np.datetime64("2021-01-15")])
def test_dates_are_numbers_and_dates(day: Any) -> None:
    sea = fleet().map((3, 3), at={"day": day}, within=np.inf)
    assert sea["day"].values == np.datetime64("2021-01-15")


def test_masks_of_every_kind_leave_out_the_same_cells() -> None:
    found = fleet()
    how: dict[str, Any] = {"box": (-3, 40, 0, 42), "at": {"day": 18640}, "within": np.inf}
    lon, lat = np.linspace(-3, 0, 4), np.linspace(40, 42, 3)
    kept = np.array([[1, 1, 0, 1], [0, 1, 1, 1], [1, 0, 1, 1]], dtype=bool)
    by_array = found.map((4, 3), mask=kept, **how)
    np.testing.assert_array_equal(by_array["cell_status"] == 3, ~kept)
    np.testing.assert_array_equal(np.isnan(by_array["sst"]), ~kept)
    assert (by_array["n_agents"].values[~kept] == 0).all()
    away = {(lon[j], lat[i]) for i, j in zip(*np.nonzero(~kept), strict=True)}
    by_function = found.map((4, 3), mask=lambda p: [(x, y) not in away for x, _, y in p.tolist()], **how)
    # Finer than the map, from the north to the south, 0 and NaN, other names.
    fine_lon, fine_lat = np.linspace(-3.2, 0.2, 35), np.linspace(42.2, 39.8, 25)
    nearest = [np.abs(axis[:, None] - fine).argmin(axis=0) for axis, fine in ((lat, fine_lat), (lon, fine_lon))]
    values = np.where(kept[np.ix_(*nearest)], 7.0, np.nan)
    field = xr.DataArray(values, {"latitude": fine_lat, "longitude": fine_lon}, ("latitude", "longitude"))
    for same in (by_function, found.map((4, 3), mask=field, **how), found.map((4, 3), mask=field.fillna(0.0), **how)):
        xr.testing.assert_identical(by_array, same)
    part = found.map((4, 3), mask=field.sel(longitude=slice(-3.5, -1.4)).fillna(1.0), **how)
    assert (part["cell_status"].values[:, 2:] == 3).all(), "nothing is known of these"
    assert (part["cell_status"].values[:, :2] != 3).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"at_time": 5}, "at_time: 'day' has a value in at already"),
        ({"at": {"day": 18000}}, "the map is empty, .*12 of 12 .*day 2019-04-14.*data cover .*day 2021-01-01 .* to 20"),
        ({"at": {"day": 1, "lat": 2}}, r"expected two inputs without a value, got 1 \(lon\)"),
        ({"at": {"depth": 1}}, "unknown input in at 'depth': choose one of lon, day, lat|depth"),
        ({"at": {"day": "5th"}}, "at: day: expected a date like 2021-01-31"),
        ({"at": {"lat": "2021-01-05"}}, "expected a number for lat, which is no time"),
        ({"at": {"day": None}}, "at: day: expected a date or a number, got None"),
        ({"grid": 5}, "grid: expected two numbers"),
        ({"grid": (1, 5)}, "grid must be a whole number of at least 2, got 1"),
        ({"grid": (10**5, 10**5)}, "too many"),
        ({"box": (0, 1)}, "box: expected four numbers"),
        ({"box": (0, 40, 0, 42)}, "a width and a height"),
        ({"within": -1}, "within must be a number of length-scales above 0"),
        ({"mask": np.ones((4, 3))}, r"mask: expected the shape \(3, 4\), lat and lon, got \(4, 3\)"),
        ({"mask": lambda p: p}, r"mask: expected a value for each of 12 points, got the shape \(12, 3\)"),
        ({"mask": np.zeros((3, 4))}, "mask: it leaves out all cells"),
        ({"mask": np.full((3, 4), "a")}, "mask: expected true and false, or numbers"),
        ({"mask": xr.DataArray(np.ones((3, 4)), dims=("a", "b"))}, "a field over lon and lat.*got one over a, b"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_one_clear_error(options: dict[str, Any], message: str) -> None:
    given = {"grid": (4, 3), "at": {"day": 18640}, **options}
    with pytest.raises(InputError, match=message):
        fleet().map(given.pop("grid", (4, 3)), **given)


def test_inputs_that_are_no_times_need_a_value() -> None:
    found = fleet()
    found.set_metadata(found.labels, "sst", {})
    with pytest.raises(InputError, match=r"without a value, got 3 \(lon, day, lat\): give the others a value"):
        found.map((4, 3))
    assert (found.time, found.now) == (None, None)


def test_names_that_clash_and_axes_that_are_times() -> None:
    found = fleet()
    across = found.map((3, 4), at={"lat": 41.0}, within=np.inf)
    assert across["sst"].dims == ("day", "lon")
    assert across["day"].dtype.kind == "M"
    found.set_metadata(("Ada", "Bo", "Cy"), "lon", {})
    with pytest.raises(InputError, match="would be called 'lon'"):
        found.map((3, 3), at={"day": 1})
    unfit = fg.Fleet(found.shards, kernel="se", normalize=False)
    with pytest.raises(InputError, match="no hyperparameters"):
        unfit.map((3, 3), at={"x2": 18640})


@given(
    arrays(float, st.integers(2, 12), elements=st.floats(-50, 50), unique=True),
    arrays(float, st.integers(1, 20), elements=st.floats(-60, 60)),
)
def test_the_nearest_cell_is_the_nearest(have: Any, wanted: Any) -> None:
    found = nearest_cells(have, wanted)
    near = np.abs(wanted[:, None] - have).min(axis=1)
    inside = found >= 0
    np.testing.assert_allclose(np.abs(wanted - have[found])[inside], near[inside], atol=1e-9)
    ordered = np.sort(have)
    low, high = ordered[0] - (ordered[1] - ordered[0]) / 2, ordered[-1] + (ordered[-1] - ordered[-2]) / 2
    assert inside[(wanted > low + 1e-3) & (wanted < high - 1e-3)].all()
    assert not inside[(wanted < low - 1e-3) | (wanted > high + 1e-3)].any()
