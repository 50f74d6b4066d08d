"""fleetgp fit, predict and map from any variable of a file, with dates as inputs, and units that are kept."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from fleetgp.storage.folder import load_model
from tests.cli.commands import QUICK, run, wrong

INPUTS = ["--inputs", "lon", "lat", "time", "--target", "chl"]


@pytest.fixture
def field(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> xr.Dataset:
    monkeypatch.chdir(tmp_path)
    time = pd.date_range("2021-01-04", periods=3)
    axes = {"time": time, "depth": [0.5, 5.2], "lat": np.linspace(40, 42, 5), "lon": np.linspace(-2, 0, 6)}
    rng = np.random.default_rng(2)
    values = np.sin(axes["lon"]) + 0.1 * rng.standard_normal((3, 2, 5, 6))
    values[:, :, 0, 0] = np.nan
    data = xr.Dataset({"chl": (tuple(axes), values, {"units": "mg m-3"})}, axes)
    data.to_netcdf("f.nc")
    return data


def test_from_any_variable_to_a_map_of_a_day(field: xr.Dataset) -> None:
    fit = ["fit", "f.nc", *INPUTS, *QUICK, "--n-agents", "2", "--quiet"]
    assert "'chl' has 2 cells along depth, which is no input" in wrong(*fit, "--out", "m")
    assert "no depth within half a cell of 50" in wrong(*fit, "--at", "depth=50", "--out", "m")
    told = json.loads(run(*fit, "--at", "depth=5", "--out", "m", "--json").stdout)
    assert sum(told["observations"]) == 87
    assert told["notes"] == ["depth is 5.2, the nearest to 5", "3 cells hold nothing, and are no observations"]
    shown = run(*fit, "--at", "depth=5", "--out", "shown")
    assert "fleetgp map shown --grid 200x200 --out map.nc" in shown.stdout
    assert " days along time" in " ".join(shown.stdout.split())
    assert "time 2021-01-04 to 2021-01-06." in run("info", "m").stdout
    fleet = load_model("m").fleet
    assert fleet.units == {"time": "days since 1970-01-01", "chl": "mg m-3"}
    assert (fleet.time, fleet.kernel.name) == ("time", "matern32(lon, lat) * matern12(time)")
    run("map", "m", "--grid", "4x3", "--within", "inf", "--at", "time=2021-01-05", "--out", "map.nc", "--quiet")
    with xr.open_dataset("map.nc") as sea:
        assert sea["chl_std_observed"].attrs["units"] == "mg m-3"
        assert sea["time"].values == np.datetime64("2021-01-05")
    for day, ending in (("2021-01-05", "csv"), ("2021-01-05T00:00", "csv"), (pd.Timestamp("2021-01-05"), "parquet")):
        points = pd.DataFrame({"lon": [-1.0], "lat": [41.0], "time": [day]})
        points.to_csv("p.csv", index=False) if ending == "csv" else points.to_parquet("p.parquet")
        run("predict", "m", f"p.{ending}", "--out", "a.csv", "--quiet")
        expected = fleet.predict([[-1.0, 41.0, 18632.0]])
        answer = pd.read_csv("a.csv")
        np.testing.assert_allclose(answer[["mean", "std"]], [[expected.mean[0], expected.std[0]]], rtol=1e-6)
    assert answer["time"].tolist() == ["2021-01-05"]
    pd.DataFrame({"lon": [-1.0], "lat": [41.0]}).to_csv("place.csv", index=False)
    for chosen, day in (([], "2021-01-06"), (["--at-time", "2021-01-07"], "2021-01-07")):
        run("predict", "m", "place.csv", *chosen, "--out", "now.csv", "--quiet")
        told = pd.read_csv("now.csv")
        assert told["time"].tolist() == [day]
        assert told["mean"][0] == pytest.approx(fleet.predict([[-1.0, 41.0]], at_time=day).mean[0], rel=1e-6)
    for command in ("sample", "suggest"):
        run(command, "m", "place.csv", "--n", "1", "--at-time", "2021-01-07", "--out", "now.csv")
        assert pd.read_csv("now.csv")["time"].tolist() == ["2021-01-07"]
    refused = wrong("predict", "m", "p.parquet", "--at-time", "5", "--out", "b.csv")
    assert "p.parquet has a column 'time': leave one" in refused
    pd.DataFrame({"lon": [-1.0], "lat": [41.0], "time": ["04/06/2023 19:23"]}).to_csv("p.csv", index=False)
    told = wrong("predict", "m", "p.csv", "--out", "c.csv")
    assert "got '04/06/2023 19:23' (first: row 1). Are these dates? Then write them like 2023-06-04 19:23" in told
    points = field["chl"].isel(depth=0, drop=True).to_dataset(name="other")
    points.to_netcdf("p.nc")
    told = json.loads(run("predict", "m", "p.nc", "--date", "2021-01-05", "--out", "b.csv", "--json", "--quiet").stdout)
    assert told["points"] == 30, "all cells of that day"


def test_several_files_take_values_of_axes_and_units_of_times(field: xr.Dataset) -> None:
    field.to_netcdf("g.nc")
    chosen = ["--at", "depth=0.5", "--time-unit", "hours"]
    run("fit", "f.nc", "g.nc", *INPUTS, *QUICK, *chosen, "--out", "m", "--quiet")
    model = load_model("m")
    assert model.agents == ("f", "g")
    assert model.fleet.units["time"] == "hours since 1970-01-01"
    assert model.fleet.shards[0][0][:, 2].max() == 24 * 18633
    assert "time_unit" in wrong("fit", "f.nc", *INPUTS, "--time-unit", "weeks", "--out", "n").replace("-", "_")


def test_dates_in_a_table_are_days_and_dates_of_another_model_are_refused(modelled: Path) -> None:
    table = pd.read_csv("observations.csv")
    table["day"] = pd.date_range("2021-01-01", periods=len(table), freq="h").strftime("%Y-%m-%d %H:%M")
    table.to_csv("dated.csv", index=False)
    fit = ["fit", "dated.csv", "--inputs", "lon", "day", "--target", "sst", "--out", "n", *QUICK]
    run(*fit)
    inputs = load_model("n").fleet.shards[0][0]
    np.testing.assert_allclose(np.sort(inputs[:, 1]), 18628 + np.arange(len(table)) / 24)
    assert "column 'day' must hold numbers" in wrong(*fit[:4], "--target", "day", "--out", "o")
    table.assign(day="soon").to_csv("dated.csv", index=False)
    assert "got 'soon'" in wrong(*fit, "--overwrite")
    pd.DataFrame({"lon": ["2021-01-05"], "lat": [41.0]}).to_csv("p.csv", index=False)
    assert "column 'lon' has dates, but in the model it is no time" in wrong("predict", "m", "p.csv", "--out", "a.csv")
    assert "at (--at) is for files that end in .nc or .zarr" in wrong(*fit, "--at", "x=1", "--overwrite")
    run("map", "n", "--grid", "3x4", "--within", "inf", "--out", "time.nc", "--quiet")
    with xr.open_dataset("time.nc") as across:
        assert across["day"].dtype.kind == "M"
