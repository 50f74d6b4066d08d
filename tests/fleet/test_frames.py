"""Data frames: columns go by name, rows by label, and what is probably not meant is told of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import fleetgp as fg
from fleetgp.data import partition, partition_by_label
from fleetgp.errors import FleetGPWarning, InputError


def frames(n: int = 90) -> tuple[pd.DataFrame, Any]:
    """A field that is not the same with its inputs exchanged."""
    rng = np.random.default_rng(8)
    table = pd.DataFrame({"lon": rng.uniform(0, 2, n), "lat": rng.uniform(0, 2, n)})
    return table, np.sin(3 * table["lon"].to_numpy()) + 0.1 * table["lat"].to_numpy()


def named_fleet(**options: Any) -> fg.Fleet:
    x, y = frames()
    return fg.Fleet(
        fg.partition(x, y, agents=3), theta=fg.PAPER_THETA, **{"kernel": "se", "normalize": False, **options}
    )


def test_queries_are_taken_by_name_in_any_order_and_with_more_columns() -> None:
    x, _ = frames()
    fleet = named_fleet()
    assert fleet.inputs == ("lon", "lat")
    expected = fleet.predict(x.to_numpy()[:9], "rbcm").mean
    turned = x[["lat", "lon"]].iloc[:9]
    assert np.array_equal(fleet.predict(turned, "rbcm").mean, expected)
    assert np.array_equal(fleet.predict(turned.assign(depth=5.0, boat="Ada"), "rbcm").mean, expected)
    with pytest.raises(InputError, match="queries: expected the columns lon, lat, got lat, x: add 'lon'"):
        fleet.predict(turned.rename(columns={"lon": "x"}))


def test_shards_are_put_in_order_by_name_or_refused() -> None:
    x, y = frames()
    left, right = x.iloc[:45], x.iloc[45:]
    fleet = fg.Fleet([(left, y[:45]), (right[["lat", "lon"]], y[45:])], kernel="se", normalize=False)
    assert np.array_equal(fleet.shards[1][0], right.to_numpy())
    with pytest.raises(InputError, match="agent 1: X has the columns lon, depth, but agent 0 has lon, lat"):
        fg.Fleet([(left, y[:45]), (right.rename(columns={"lat": "depth"}), y[45:])], kernel="se", normalize=False)
    with pytest.raises(InputError, match="agent 1: X has no column names, but agent 0 has lon, lat"):
        fg.Fleet([(left, y[:45]), (right.to_numpy(), y[45:])], kernel="se", normalize=False)
    with pytest.raises(InputError, match="different names, got lon, lon"):
        fg.Fleet([(x.set_axis(["lon", "lon"], axis=1), y)], kernel="se", normalize=False)
    with pytest.raises(InputError, match="rename the numbered ones"):
        fg.Fleet([(x.set_axis(["lon", 1], axis=1), y)], kernel="se", normalize=False)
    chosen = fg.Fleet([(x, y)], inputs=["lat", "lon"], kernel="se", normalize=False)
    assert np.array_equal(chosen.shards[0][0], x[["lat", "lon"]].to_numpy())
    with pytest.raises(InputError, match="a name for each of the 2 inputs"):
        fg.Fleet([(x.to_numpy(), y)], inputs=["lat"], kernel="se", normalize=False)
    with pytest.raises(InputError, match="expected a list of names"):
        fg.Fleet([(x.to_numpy(), y)], inputs="xy", kernel="se", normalize=False)


def test_names_that_the_fleet_does_not_know_are_told_of() -> None:
    x, y = frames()
    fleet = fg.Fleet(fg.partition(x.to_numpy(), y, agents=3), theta=fg.PAPER_THETA, kernel="se", normalize=False)
    assert fleet.inputs is None
    with pytest.warns(FleetGPWarning, match="the columns lat, lon are taken in this order"):
        fleet.predict(x[["lat", "lon"]].iloc[:3])
    numbered = pd.DataFrame(x.to_numpy()[:3])
    assert np.array_equal(fleet.predict(numbered).mean, fleet.predict(x.to_numpy()[:3]).mean)


@pytest.mark.parametrize("by", ["stripes", "grid", "kmeans", "random"])
def test_partitions_keep_the_names(by: Any) -> None:
    x, y = frames()
    plain = fg.partition(x.to_numpy(), y, agents=4, by=by)
    for (part, values), (expected, told) in zip(fg.partition(x, y, agents=4, by=by), plain, strict=True):
        assert list(part.columns) == ["lon", "lat"]  # type: ignore[attr-defined]
        assert np.array_equal(part, expected)
        assert np.array_equal(values, told)
    _, labelled = partition_by_label(x, y, np.arange(90) % 2)
    assert fg.Fleet(labelled, kernel="se", normalize=False).inputs == ("lon", "lat")


def test_fill_values_copies_and_mixed_longitudes_in_a_fleet_are_told_of() -> None:
    x, y = frames()
    spoilt = y.copy()
    spoilt[[4, 9]] = -9999.0
    with pytest.warns(FleetGPWarning, match="y has the value -9999 2 times, far from all others"):
        fg.Fleet([(x, spoilt)], kernel="se", normalize=False)
    table = x.assign(lon=x["lon"] * 180 - 170)
    with pytest.warns(FleetGPWarning, match="'lon' mixes two conventions of longitude"):
        fg.Fleet([(table, y)], kernel="se", normalize=False)
    fg.Fleet([(table.rename(columns={"lon": "x"}), y)], kernel="se", normalize=False)
    with pytest.warns(FleetGPWarning, match="90 of 180 rows are exact copies"):
        fg.Fleet([(x, y), (x, y)], kernel="se", normalize=False)
    fg.Fleet([(x, y), (x, y + 1e-9)], kernel="se", normalize=False)


def test_rows_labelled_alike_in_another_order_are_refused_not_matched_by_position() -> None:
    x, y = frames()
    series = pd.Series(np.asarray(y))
    fg.Fleet([(x, series)], kernel="se", normalize=False)
    turned = x.iloc[::-1]
    fg.Fleet([(turned, series.loc[turned.index])], kernel="se", normalize=False)
    fg.Fleet([(turned, series.to_numpy())], kernel="se", normalize=False)  # without labels there is nothing to go by
    labels = pd.Series(["a"] * len(x))
    alike = "are labelled alike but in another order: align them"
    with pytest.raises(InputError, match=rf"agent 1: the rows of X and y {alike}, e.g. y.loc\[X.index\]"):
        fg.Fleet([(x, series), (turned, series)], kernel="se", normalize=False)
    with pytest.raises(InputError, match=f"the rows of X and y {alike}"):
        partition(turned, series, agents=2)
    with pytest.raises(InputError, match=f"the rows of X and y {alike}"):
        partition_by_label(turned, series, labels)
    with pytest.raises(InputError, match=f"the rows of X and labels {alike}"):
        partition_by_label(turned, series.iloc[::-1], labels)
    with pytest.raises(InputError, match=f"the rows of y and labels {alike}"):
        partition_by_label(x.to_numpy(), series.iloc[::-1], labels)


def test_rows_labelled_differently_are_matched_by_position_with_a_warning() -> None:
    x, y = frames()
    other = pd.Series(np.asarray(y), index=np.arange(len(x)) + 1000)
    with pytest.warns(FleetGPWarning, match=r"X and y are labelled differently \(first: 0 and 1000\)") as told:
        fg.Fleet([(x, other)], kernel="se", normalize=False)
    assert told[0].filename == __file__
    with pytest.warns(FleetGPWarning, match="labelled differently") as told:
        partition(x, other, agents=2)
    assert told[0].filename == __file__


def test_a_constant_input_and_dates_as_numbers_are_told_of() -> None:
    x, y = frames()
    with pytest.warns(FleetGPWarning, match="input 'lat' has one value only: its length-scale cannot be learned"):
        fg.Fleet([(x.assign(lat=41.0), y)], kernel="se", normalize=False)
    days = pd.date_range("2024-01-20", periods=len(x)).strftime("%Y%m%d").astype(float)
    with pytest.warns(FleetGPWarning, match="input 'lat' looks like dates, YYYYMMDD"):
        fg.Fleet([(x.assign(lat=days), y)], kernel="se", normalize=False)
    fg.Fleet([(x.assign(lat=days + 0.5), y)], kernel="se", normalize=False)
    fg.Fleet(
        [(x.assign(lat=20240101.0 + np.arange(len(x))), y)], kernel="se", normalize=False
    )  # the 32nd of January is no day
    fg.Fleet([(x.iloc[:1], y[:1])], kernel="se", normalize=False)  # of one row nothing can be said
