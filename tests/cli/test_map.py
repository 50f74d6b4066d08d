"""fleetgp map: what is drawn, what is left out, and an interruption."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from PIL import Image

import fleetgp as fg
from fleetgp.storage.folder import load_model, save_model
from fleetgp.storage.model import Model
from tests.cli.commands import FIT, run, said, wrong
from tests.conftest import interrupted_after


def test_an_interrupted_map_goes_on_where_it_was(folder: Path) -> None:
    run("fit", "observations.csv", *FIT, "--out", "m", "--tol", "1e-3")
    arguments = ["map", "m", "--grid", "200x100", "--out", "map.nc"]
    code, errors = interrupted_after(2, *arguments)
    assert code == 130, errors
    assert [file.name for file in sorted(folder.glob(".map.nc.parts/*/*.json"))] == ["0.json", "1.json"]
    assert "Traceback" not in errors
    assert "finished work, if any, is kept" in errors
    assert not (folder / "map.nc").exists()
    first = next(folder.glob(".map.nc.parts/*/0.json"))
    done = json.loads(first.read_text(encoding="utf-8"))
    done["mean"][0] = 1234.5  # a sign that the finished block is taken
    first.write_text(json.dumps(done), encoding="utf-8")
    run(*arguments)
    with xr.open_dataset("map.nc") as field:
        assert float(field["sst"][0, 0]) == 1234.5
    assert not list(folder.glob(".map.nc.parts"))


def colourful(picture: str) -> int:
    """Pixels that are not grey."""
    with Image.open(picture) as image:
        pixels = np.asarray(image.convert("RGB"), dtype=int)
    return int((np.ptp(pixels, axis=-1) > 12).sum())


def colourful_of_all(modelled: Path) -> int:
    run("map", "m", "--grid", "40x8", "--out", "all.nc")
    return colourful("all.png")


def test_a_map_does_not_colour_what_nobody_knows(modelled: Path) -> None:
    box = ["--box", "-76", "40", "-66", "42"]
    result = run("map", "m", "--grid", "40x8", *box, "--out", "map.nc", "--within", "inf", "--json")
    told = json.loads(result.stdout)
    with xr.open_dataset("map.nc") as field:
        coverage, mean, lon = (field[name].values for name in ("cell_status", "sst", "lon"))
        assert field["cell_status"].attrs["flag_meanings"] == "known no_better_than_the_prior left_out masked"
    assert set(np.unique(coverage)) == {0, 1}
    assert (coverage[:, (lon > -71.9) & (lon < -70.1)] == 0).all()
    assert (coverage[:, (lon < -74) | (lon > -68)] == 1).all()
    assert np.isfinite(mean).all()
    assert told["prior_only"] == (coverage == 1).sum() > 0
    assert f"{told['prior_only']} of 320 cells are no better known than the prior: hatched" in said(result)
    assert colourful("map.png") < 0.75 * colourful_of_all(modelled)


def test_cells_far_from_all_observations_are_left_out_and_counted(modelled: Path) -> None:
    box = ["--grid", "40x8", "--box", "-76", "40", "-66", "42"]
    result = run("map", "m", *box, "--out", "map.nc", "--json")
    with xr.open_dataset("map.nc") as field:
        coverage, mean, lon = (field[name].values for name in ("cell_status", "sst", "lon"))
    left = coverage == 2
    assert json.loads(result.stdout)["left_out"] == left.sum() > 0
    assert f"{left.sum()} of 320 cells are farther than 0.5 length-scales from all observations" in said(result)
    assert np.array_equal(np.isnan(mean), left)
    assert left[:, (lon < -72.4) | (lon > -69.6)].all(), "a length-scale is half a degree"
    assert left[:, (lon > -71.9) & (lon < -70.1)].mean() < 0.1
    tighter = run("map", "m", *box, "--within", "0.1", "--out", "near.nc", "--json")
    assert json.loads(tighter.stdout)["left_out"] > left.sum()
    assert "above 0" in wrong("map", "m", "--within", "-1", "--out", "n.nc")
    assert "above 0" in wrong("map", "m", "--within", "nan", "--out", "n.nc")


def test_a_map_of_another_part_of_the_world_is_refused_and_explained(modelled: Path) -> None:
    told = wrong("map", "m", "--grid", "4x4", "--box", "285", "40", "295", "42", "--out", "map.nc")
    assert "the map is empty" in told
    assert "Are these longitudes from 0 to 360? Then subtract 360 from lon" in told
    assert not (modelled / "map.nc").exists()
    assert not (modelled / "map.png").exists()


def test_a_grid_that_is_too_large_says_so(modelled: Path) -> None:
    told = wrong("map", "m", "--grid", "100000x100000", "--out", "a.nc")
    assert "10,000,000,000 points are too many: give at most 10,000,000" in told
    assert "--grid must be like" in wrong("map", "m", "--grid", "1x5", "--out", "a.nc")


def test_a_map_of_three_inputs_with_a_mask_and_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(4)
    x = np.column_stack([rng.uniform(0, 2, 80), rng.uniform(40, 42, 80), rng.uniform(18628, 18638, 80)])
    fleet = fg.Fleet(
        [(x, np.sin(x[:, 0]))],
        theta=(1.0, 1.0, 9.0, 1.0, 0.1),
        inputs=["lon", "lat", "time"],
        kernel="se",
        normalize=False,
    )
    fleet.units = {"time": "days since 1970-01-01", "chl": "mg m-3"}
    save_model(Model(fleet, ("Ada",), ("lon", "lat", "time"), "chl"), "m")
    lon, lat = np.linspace(-1, 3, 41), np.linspace(39, 43, 41)
    land = xr.Dataset({"sea": (("lat", "lon"), np.where(lon < 1.0, 1, 0) * np.ones((41, 1)))}, {"lat": lat, "lon": lon})
    land.to_netcdf("land.nc")
    asked = ["map", "m", "--grid", "5x4", "--box", "0", "40", "2", "42", "--within", "inf"]
    assert "at_time: expected a date like" in wrong(*asked, "--at-time", "noon", "--out", "a.nc")
    assert "expected a name and a value, like depth=5, got 'time'" in wrong(*asked, "--at", "time", "--out", "a.nc")
    at = [*asked, "--at-time", "2021-01-05"]
    assert "land.csv: there is no such file" in wrong(*at, "--mask", "land.csv", "--out", "a.nc")
    assert json.loads(run(*at, "--mask", "land.nc", "--out", "a.nc", "--json").stdout)["masked"] == 12
    with xr.open_dataset("a.nc") as sea, xr.open_dataset("land.nc") as given:
        expected = load_model("m").fleet.map(
            (5, 4), box=(0, 40, 2, 42), at={"time": 18632}, within=np.inf, mask=given["sea"]
        )
        xr.testing.assert_allclose(sea, expected)
        assert sea["chl"].attrs["units"] == "mg m-3"
        assert sea["time"].values == np.datetime64("2021-01-05")
    land.assign(other=land["sea"]).to_netcdf("two.nc")
    assert "expected one variable over lon and lat, got 2 (sea, other)" in wrong(
        *at, "--mask", "two.nc", "--out", "a.nc"
    )
    run(*at, "--out", "only.png")
    assert colourful("only.png") > 0
    run(*at, "--out", "only.pdf")
    assert Path("only.pdf").read_bytes().startswith(b"%PDF")
    assert not Path("only.nc").exists()
