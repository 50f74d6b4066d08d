"""Fleets from data frames and datasets: by name, with times, and with nothing lost silently."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import fleetgp as fg
from fleetgp.errors import InputError
from fleetgp.io import Reading, read_observations

THETA = [1.0, 1.0, 5.0, 1.0, 0.1]


def table(n: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"lat": rng.uniform(40, 42, n), "lon": rng.uniform(-2, 0, n), "boat": np.arange(n) % 3})
    frame["boat"] = frame["boat"].map({0: "Bo", 1: "Ada", 2: "Cy"})
    frame["time"] = pd.Timestamp("2021-01-01") + pd.to_timedelta(rng.uniform(0, 240, n), unit="h")
    frame["sst"] = np.sin(frame["lon"]) + 0.1 * rng.standard_normal(n)
    frame["err"] = rng.uniform(0.1, 0.2, n)
    return frame


def made(frame: Any, **options: Any) -> fg.Fleet:
    return fg.Fleet.from_frame(
        frame,
        inputs=["lon", "lat", "time"],
        target="sst",
        **{"kernel": "se", "normalize": False, "theta": THETA, **options},
    )


@pytest.mark.parametrize(("unit", "hours"), [("days", 24.0), ("hours", 1.0), ("seconds", 1 / 3600)])
def test_a_frame_is_the_fleet_of_its_rows(unit: Any, hours: float) -> None:
    frame = table()
    fleet = made(frame, agent="boat", deviation="err", time_unit=unit, graph="cycle")
    assert (fleet.labels, fleet.target, fleet.inputs) == (("Bo", "Ada", "Cy"), "sst", ("lon", "lat", "time"))
    assert fleet.units == {"time": f"{unit} since 1970-01-01"}
    ada = frame[frame["boat"] == "Ada"]
    inputs, observed, _ = fleet.shards[1]
    np.testing.assert_array_equal(inputs[:, :2], ada[["lon", "lat"]])
    elapsed = (ada["time"] - pd.Timestamp("1970-01-01")).dt.total_seconds() / 3600 / hours
    np.testing.assert_allclose(inputs[:, 2], elapsed, rtol=1e-14)
    np.testing.assert_array_equal(observed, ada["sst"])
    np.testing.assert_array_equal(fleet.shards[1][2], ada["err"])


def test_units_of_columns_are_told_by_maps_and_must_be_of_columns() -> None:
    fleet = made(table(), agent="boat", units={"sst": "°C", "time": "fortnights"})
    assert fleet.units == {"sst": "°C", "time": "days since 1970-01-01"}  # what it is counted in stays
    assert fleet.map((3, 3), at={"time": "2021-01-05"}, within=np.inf)["sst"].attrs["units"] == "°C"
    with pytest.raises(InputError, match="units: there is no column 'salt'; it has lon, lat, time, sst"):
        made(table(), units={"salt": "g/kg"})


def test_times_in_queries_new_rows_and_saved_models_are_the_same(tmp_path: Path) -> None:
    frame = table()
    fleet = made(frame, agent="boat")
    asked = frame.head(4).drop(columns="sst")
    out = fleet.predict(asked, "dec-rbcm")
    numbers = asked.assign(time=[t.timestamp() / 86400 for t in asked["time"].dt.tz_localize("UTC")])
    np.testing.assert_allclose(out.mean, fleet.predict(numbers, "dec-rbcm").mean, rtol=1e-12)
    assert (out.to_frame()["time"].to_numpy() == asked["time"].to_numpy().astype("M8[us]")).all()
    fg.save_model(fg.Model(fleet, fleet.labels, fleet.inputs or (), fleet.target), tmp_path / "m")
    again = fg.load_model(tmp_path / "m").fleet
    assert (again.labels, again.target, again.units) == (fleet.labels, fleet.target, fleet.units)
    np.testing.assert_array_equal(again.predict(asked, "dec-rbcm").mean, out.mean)
    more = frame.tail(2)
    fleet.observe(0, more[["lon", "lat", "time"]], more["sst"])
    assert len(fleet.shards[0][1]) == 22


def test_rows_are_split_or_taken_whole() -> None:
    frame = table()
    assert made(frame).agents == 1
    split = made(frame, agents=4, by="stripes", axis="lat")
    assert split.labels == ("0", "1", "2", "3")
    ends = [(x[:, 1].min(), x[:, 1].max()) for x, _ in split.shards]
    assert all(one[1] <= other[0] for one, other in pairwise(ends))
    noisy = made(frame, agent="boat", noise="agents", theta=[*THETA, 0.1, 0.1])
    assert noisy.names[-3:] == ("sigma_eps_Bo", "sigma_eps_Ada", "sigma_eps_Cy")
    indexed = made(frame.set_index(["lat", "lon"]), agent="boat")
    np.testing.assert_array_equal(indexed.shards[0][0], made(frame, agent="boat").shards[0][0])


def test_what_is_missing_is_refused_or_dropped_and_counted() -> None:
    frame = table()
    frame.loc[3, "time"] = pd.NaT
    frame.loc[5, "sst"] = np.inf
    frame.loc[8, "boat"] = None
    frame["lat"] = frame["lat"].astype("Float64").mask(np.arange(60) == 11)
    frame["lon"] = frame["lon"].mask(np.arange(60) == 20, -9999.0)
    with pytest.raises(InputError, match="the data frame: column 'lon' has the value -9999 once"):
        made(frame)
    with pytest.raises(InputError, match=r"the data frame: 5 of 60 rows have missing .*first: row 4"):
        made(frame, agent="boat", fill=[-9999])
    found = made(frame, agent="boat", fill=[-9999], missing="drop")
    assert (found.dropped, sum(len(y) for _, y in found.shards)) == (5, 55)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"frame": np.zeros((3, 2))}, "expected a data frame whose columns have names, got ndarray"),
        ({"inputs": ["lon", "depth"]}, "the data frame: there is no column 'depth'; it has lat, lon, boat"),
        ({"inputs": "lon"}, "inputs: expected a list of names"),
        ({"target": ["sst", "err"]}, "target: expected the name of one column.*see Outputs"),
        ({"target": "time"}, "column 'time' must hold numbers: expected a numeric array, got times"),
        ({"agent": "boat", "agents": 2}, "leave them out, or agent"),
        ({"agents": 2, "axis": "depth"}, "unknown axis 'depth'"),
        ({"agents": 0}, "agents must lie between 1 and"),
        ({"missing": "skip"}, "unknown missing 'skip'"),
        ({"time_unit": "weeks"}, "unknown time_unit 'weeks'"),
        ({"inputs": ["lon", "boat"]}, "column 'boat' must hold numbers: expected a number, got 'Bo'"),
    ],
)
def test_bad_frames_are_one_clear_error(options: dict[str, Any], message: str) -> None:
    given = {"frame": table(), "inputs": ["lon", "lat"], "target": "sst", **options}
    with pytest.raises(InputError, match=message):
        fg.Fleet.from_frame(given.pop("frame"), **{"kernel": "se", "normalize": False, **given})


# ---- datasets ---------------------------------------------------------------------------------------------------


def field() -> xr.Dataset:
    rng = np.random.default_rng(1)
    shape = 3, 2, 4, 5
    values = rng.standard_normal(shape)
    values[0, 0, 0, 0] = np.nan
    return xr.Dataset(
        {
            "chl": (("time", "depth", "lat", "lon"), values, {"units": "mg m-3"}),
            "quality": (("lat", "lon"), rng.integers(0, 4, shape[2:])),
        },
        coords={
            "time": pd.to_datetime(["2021-01-04T12", "2021-01-05T00", "2021-01-05T12"]),
            "depth": ("depth", [0.5, 5.2], {"units": "m"}),
            "lat": np.linspace(40, 41.5, 4),
            "lon": np.linspace(-2, 0, 5),
        },
    )


def test_a_dataset_is_the_frame_of_its_cells() -> None:
    data = field()
    rows = data["chl"].to_dataframe().reset_index().dropna()
    found = fg.Fleet.from_dataset(data["chl"], theta=[1, 1, 1, 5, 1, 0.1], kernel="se", normalize=False)
    assert (found.inputs, found.target) == (("lon", "lat", "depth", "time"), "chl")
    assert found.units == {"time": "days since 1970-01-01", "depth": "m", "chl": "mg m-3"}
    assert found.notes == ("1 cell holds nothing, and is no observation",)
    expected = fg.Fleet.from_frame(
        rows, inputs=found.inputs or (), target="chl", theta=[1, 1, 1, 5, 1, 0.1], kernel="se", normalize=False
    )
    for one, other in zip(found.shards[0], expected.shards[0], strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_part_of_a_dataset_is_chosen_by_name() -> None:
    data = field()
    found = fg.Fleet.from_dataset(
        data, target="chl", at={"depth": 5, "time": "2021-01-05T12"}, box=(-1.6, 40, 0, 41.1), agent="quality",
        theta=[1, 1, 1, 0.1], kernel="se", normalize=False
    )  # fmt: skip
    part = data["chl"].sel(depth=5.2, time="2021-01-05T12", lon=slice(-1.6, 0), lat=slice(40, 41.1))
    assert found.inputs == ("lon", "lat")
    assert sorted(np.concatenate([y for _, y in found.shards])) == sorted(part.values.ravel().tolist())
    assert found.notes[:2] == ("depth is 5.2, the nearest to 5", "time is 2021-01-05T12:00:00")
    quality = data["quality"].sel(lon=slice(-1.6, 0), lat=slice(40, 41.1)).values.ravel()
    assert set(found.labels) == {str(label) for label in quality}
    day = fg.Fleet.from_dataset(
        data["chl"].isel(depth=1),
        inputs=["lon", "lat", "time"],
        date="2021-01-05",
        theta=THETA,
        kernel="se",
        normalize=False,
    )
    assert len(day.shards[0][1]) == 40


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": None}, "target: expected one of the variables chl, quality: name it"),
        ({"target": "sst"}, "the dataset: there is no column 'sst'; it has chl, quality"),
        ({"inputs": ["lon", "lat"]}, "3 fields, of 2021-01-04T12:00, 2021-01-05T00:00.*give one as date"),
        ({"inputs": ["lon", "lat", "time"]}, r"'chl' has 2 cells along depth, which is no input.*--at depth="),
        ({"at": {"depth": 9}}, "no depth within half a cell of 9: it has from 0.5 to 5.2"),
        ({"at": {"level": 9}}, "there is no axis 'level' with coordinates; the field runs over time, depth, lat, lon"),
        ({"at": {"time": "2021-01-05"}}, "expected one time of 2021-01-05, got 2; it has 2021-01-05T00:00, "),
        ({"at": {"time": "soon"}}, "date must be like 2021-01-31"),
        ({"at": {"depth": "deep"}}, "at: depth must be a number"),
        ({"data": np.ones((2, 2))}, "expected an xarray DataArray or Dataset, got ndarray"),
        ({"data": xr.DataArray(np.ones((2, 2)))}, "inputs: expected their names, since dim_1, dim_0 has no"),
        ({"box": (10, 40, 11, 41)}, "nothing lies in the box"),
    ],
)  # fmt: skip
def test_bad_datasets_are_one_clear_error(options: dict[str, Any], message: str) -> None:
    given = {"data": field(), "target": "chl", **options}
    with pytest.raises(InputError, match=message):
        fg.Fleet.from_dataset(given.pop("data"), **{"kernel": "se", "normalize": False, **given})


@pytest.mark.parametrize("ending", ["nc", "zarr"])
def test_any_variable_of_any_file_is_the_same(ending: str, tmp_path: Path) -> None:
    data, path = field(), tmp_path / f"f.{ending}"
    if ending == "zarr":
        pytest.importorskip("zarr")
        data.to_zarr(path, consolidated=False, zarr_format=2)
    else:
        data.to_netcdf(path)
    reading = Reading(at={"depth": 5.0}, time_unit="hours", stride=2)
    inputs = ["lon", "lat", "time"]
    found = read_observations(path, inputs=inputs, target="chl", agent="quality", reading=reading)
    same: dict[str, Any] = {"at": {"depth": 5}, "time_unit": "hours", "stride": 2, "agent": "quality", "theta": THETA}
    expected = fg.Fleet.from_dataset(data, target="chl", inputs=inputs, **{"kernel": "se", "normalize": False, **same})
    assert found.units == expected.units == {"chl": "mg m-3", "time": "hours since 1970-01-01"}
    assert found.notes == expected.notes
    assert sorted(found.observations) == sorted(np.concatenate([y for _, y in expected.shards]))
    with pytest.raises(InputError, match=r"f\.\w+: there is no column 'sst'; it has"):
        read_observations(path, inputs=inputs, target="sst", reading=reading)


def test_a_table_in_netcdf_follows_the_rules_of_tables(tmp_path: Path) -> None:
    frame = table()
    xr.Dataset.from_dataframe(frame.rename_axis("obs")).to_netcdf(tmp_path / "t.nc")
    inputs = ["lon", "lat", "time"]
    found = read_observations(tmp_path / "t.nc", inputs=inputs, target="sst", agent="boat", deviation="err")
    expected = made(frame, agent="boat")
    assert found.labels == tuple(frame["boat"])
    np.testing.assert_allclose(found.inputs[frame["boat"] == "Bo"], expected.shards[0][0], rtol=1e-14)
    np.testing.assert_array_equal(found.deviations, frame["err"])
    frame.loc[7, "sst"] = np.nan
    xr.Dataset.from_dataframe(frame.rename_axis("obs")).to_netcdf(tmp_path / "u.nc")
    with pytest.raises(InputError, match=r"u\.nc: 1 of 60 rows have missing .*row 8"):
        read_observations(tmp_path / "u.nc", inputs=inputs, target="sst")


def test_agents_are_asked_by_their_names_and_scores_have_them() -> None:
    rows = np.arange(12.0)
    table = pd.DataFrame({"x": rows, "t": np.sin(rows), "boat": ["u", "v", "w"] * 4})
    fleet = fg.Fleet.from_frame(
        table, inputs=["x"], target="t", agent="boat", theta=[2.0, 1.0, 0.1], kernel="se", normalize=False
    )
    places = [[1.5], [2.5]]
    asked = fleet.predict(places, "dec-rbcm", agent="v")
    assert asked.asked == 1
    assert asked.mean.tolist() == fleet.predict(places, "dec-rbcm", agent=1).mean.tolist()
    assert fleet.suggest("w", places, method="dec-rbcm").agents.tolist() == [2]
    assert fleet.condition().gradient(places, "dec-rbcm", agent="u").status == "converged"
    assert fg.recommend(fleet, agent="v").prediction == fg.recommend(fleet, agent=1).prediction
    own = [([[0.5]], [0.4]), ([[1.5]], [0.9]), ([[2.5]], [0.6])]
    assert fleet.score(own, agent="v").to_frame().index.tolist() == ["all", "rows of u", "rows of v", "rows of w"]
    folds = fleet.cross_validate(2, method="dec-rbcm", train=False)
    assert "rows of v" in dict(folds.parts())
    wanted = r"agent: expected a name \(u, v, w\), or a number from 0 to 2, got 'z'"
    with pytest.raises(fg.InputError, match=wanted):
        fleet.observe("z", [[3.5]], [0.0])
    fleet.observe("v", [[3.5]], [0.0])
    assert [len(y) for _, y in fleet.shards] == [4, 5, 4]


def test_suggestions_and_gradients_are_data_frames_with_the_names_of_the_data() -> None:
    rows = np.arange(12)
    days = pd.Timestamp("2021-01-01") + pd.to_timedelta(rows, unit="D")
    data = pd.DataFrame({"x": rows % 5 / 2, "day": days, "t": np.sin(rows), "boat": ["u", "v", "w"] * 4})
    fleet = fg.Fleet.from_frame(
        data, inputs=["x", "day"], target="t", agent="boat", theta=[2.0, 2.0, 1.0, 0.1], kernel="se", normalize=False
    )
    places = data.loc[3:6, ["x", "day"]]
    found = fleet.suggest("w", places, 2, method="dec-rbcm")
    frame = found.to_frame()
    assert frame.columns.tolist() == ["x", "day", "agent", "gain", "candidate"]
    assert frame["agent"].tolist() == ["w", "w"]
    assert frame["day"].tolist() == places["day"].iloc[frame["candidate"]].tolist()
    assert found.of("w").shape == (2, 2)
    with pytest.raises(InputError, match="agent"):
        found.of("u")
    slope = fleet.gradient(places, "dec-full-gp")
    told = slope.to_frame()
    assert told.columns.tolist() == ["x", "day", "d_x", "d_day", "std_d_x", "std_d_day", "kink"]
    assert told["day"].tolist() == places["day"].tolist()
    assert np.array_equal(told[["d_x", "d_day"]].to_numpy(), slope.gradient)
    assert slope.std is not None
    assert np.array_equal(told[["std_d_x", "std_d_day"]].to_numpy(), slope.std)
    assert "std_d_x" not in fleet.gradient(places, "dec-rbcm").to_frame()


@pytest.mark.parametrize("day", ["2021-01-05", pd.Timestamp("2021-01-05"), np.datetime64("2021-01-05")])
def test_dates_in_an_array_are_told_that_they_need_a_data_frame(day: object) -> None:
    data = pd.DataFrame({"x": [1.0, 2.0], "day": pd.to_datetime(["2021-01-01", "2021-01-09"]), "t": [0.0, 1.0]})
    fleet = fg.Fleet.from_frame(
        data, inputs=["x", "day"], target="t", theta=[2.0, 9.0, 1.0, 0.1], kernel="se", normalize=False
    )
    wanted = "'day' is a time: dates need a data frame, with a column 'day'"
    with pytest.raises(InputError, match=wanted):
        fleet.predict([[1.5, day]])
    with pytest.raises(InputError, match=wanted):
        fleet.observe(0, [[1.5, day]], [0.5])
    asked = pd.DataFrame({"x": [1.5], "day": [day]})
    assert fleet.predict(asked).mean.tolist() == fleet.predict([[1.5, 18632.0]]).mean.tolist()


@pytest.mark.parametrize("name", ["sst", "air"])
def test_kelvin_stay_kelvin_unless_degrees_celsius_are_asked_for(name: str) -> None:
    """In memory and from a file, whatever the variable is called; the unit is in `units` and in a note."""
    values = np.array([[290.0, 291.5], [292.25, 289.0]])
    sea = xr.DataArray(values, {"lat": [40.0, 41.0], "lon": [1.0, 2.0]}, ("lat", "lon"), name, {"units": "kelvin"})
    model: dict[str, Any] = {"theta": [1.0, 1.0, 1.0, 0.1], "kernel": "se", "normalize": True}
    plain, celsius = (fg.Fleet.from_dataset(sea, celsius=wanted, **model) for wanted in (False, True))
    np.testing.assert_array_equal(np.sort(plain.shards[0][1]), np.sort(values.ravel()))
    np.testing.assert_allclose(celsius.shards[0][1], plain.shards[0][1] - 273.15, rtol=1e-14)
    assert (plain.units[name], celsius.units[name]) == ("kelvin", "degC")
    assert plain.notes == (f"{name} is in kelvin, as in the data: celsius=True (--celsius) converts it",)
    assert celsius.notes == ("temperatures converted from K to degrees Celsius",)
    frame = fg.Fleet.from_frame(sea.to_dataframe(), inputs=["lon", "lat"], target=name, **model)
    np.testing.assert_array_equal(frame.shards[0][1], plain.shards[0][1])


def days_at_sea() -> tuple[Any, fg.Fleet]:
    """Rows with timestamps, of two boats with names."""
    rng = np.random.default_rng(2)
    days = pd.to_datetime("2021-01-01") + pd.to_timedelta(rng.uniform(0.0, 9.0, 40), "D")
    rows = pd.DataFrame({"lon": rng.uniform(0.0, 2.0, 40), "day": days, "sst": rng.standard_normal(40)})
    rows["boat"] = np.where(np.arange(40) % 3, "Ada", "Di")
    model: dict[str, Any] = {"theta": [1.0, 1.0, 1.0, 0.3], "kernel": "matern32", "normalize": True}
    return rows, fg.Fleet.from_frame(rows, inputs=["lon", "day"], target="sst", agent="boat", **model)


def test_datasets_and_arrays_are_queries() -> None:
    """All cells, in the order of the data's axes; the answer as a dataset has their grid."""
    _, fleet = days_at_sea()
    lon, day = [0.5, 1.0, 1.5], pd.to_datetime(["2021-01-02", "2021-01-05"])
    cells = pd.DataFrame([(x, t) for t in day for x in lon], columns=["lon", "day"])
    expected = fleet.predict(cells).mean.reshape(2, 3)
    array = xr.DataArray(np.zeros((2, 3)), {"day": day, "lon": lon, "depth": 5.0}, ("day", "lon"))
    np.testing.assert_allclose(fleet.predict(array).mean.reshape(array.shape), expected, rtol=1e-9)
    found = fleet.predict(xr.Dataset(coords={"lon": lon, "day": day}))
    np.testing.assert_allclose(found.to_dataset()["mean"].transpose("day", "lon"), expected, rtol=1e-9)
    along = xr.Dataset({"lon": ("step", lon), "day": ("step", [*day, day[0]])})  # a way, and no grid
    np.testing.assert_allclose(fleet.predict(along).mean, expected[[0, 1, 0], [0, 1, 2]], rtol=1e-9)
    with pytest.raises(fg.InputError, match="expected a Dataset with the coordinates lon, day, got day: add 'lon'"):
        fleet.predict(xr.Dataset(coords={"day": day}))
    now = fleet.predict(cells[:3].assign(day=fleet.now)).mean
    np.testing.assert_array_equal(fleet.predict(xr.Dataset(coords={"lon": lon})).mean, now)
    unnamed = fg.Fleet([([[0.0], [1.0]], [0.0, 1.0])], theta=[1.0, 1.0, 0.1], kernel="matern32", normalize=True)
    with pytest.raises(fg.InputError, match="a Dataset needs a fleet whose inputs have names"):
        unnamed.predict(xr.Dataset(coords={"lon": lon}))


def test_scores_take_times_and_ledgers_take_names() -> None:
    rows, fleet = days_at_sea()
    numbers = rows[["lon", "day"]].assign(day=(rows["day"] - pd.Timestamp("1970-01-01")) / pd.Timedelta("1D"))
    assert fleet.score(rows, rows["sst"]).rmse == pytest.approx(fleet.score(numbers, rows["sst"]).rmse, rel=1e-9)
    answer = fleet.predict(rows[:3], "dec-rbcm")
    assert fleet.labels == ("Di", "Ada")
    others = [ask(rows[:3], method="dec-rbcm") for ask in (fleet.joint, fleet.gradient)]
    for ledger in [answer.ledger, *(other.ledger for other in others), fleet.suggest(None, rows[:3]).ledger]:
        for number, name in enumerate(fleet.labels):
            assert ledger.sent_by(name) == ledger.sent_by(number) != {}
            assert ledger.total(sender=name) == ledger.total(sender=number)
    with pytest.raises(fg.InputError, match=r"agent: expected one of Di, Ada, or a whole number .*, got 'Bo'"):
        answer.ledger.sent_by("Bo")


def test_a_model_takes_the_names_that_the_fleet_has() -> None:
    _, fleet = days_at_sea()
    model, same = fg.Model(fleet), fg.Model(fleet, fleet.labels, ("lon", "day"), "sst")
    assert (model.agents, model.inputs, model.target) == (same.agents, same.inputs, same.target)
    assert model == same
    with pytest.raises(fg.InputError, match="inputs: expected their names"):
        fg.Model(fg.Fleet([([[0.0], [1.0]], [0.0, 1.0])], theta=[1.0, 1.0, 0.1], kernel="se", normalize=True))


def test_labels_that_differ_by_blanks_are_one_agent_with_a_warning() -> None:
    rows, _ = days_at_sea()
    rows.loc[0, "boat"] = "Di "
    model: dict[str, Any] = {"theta": [1.0, 1.0, 1.0, 0.3], "kernel": "matern32", "normalize": True}
    with pytest.warns(fg.FleetGPWarning, match="'Di' and 'Di ' differ by blanks"):
        fleet = fg.Fleet.from_frame(rows, inputs=["lon", "day"], target="sst", agent="boat", **model)
    assert fleet.labels == ("Di", "Ada")
    with pytest.warns(fg.FleetGPWarning, match="'Di' and 'Di ' differ by blanks"):
        names, _ = fg.data.partition_by_label(rows[["lon"]], rows["sst"], rows["boat"])
    assert names == ["Di", "Ada"]
