"""The command line and what people give it: days, boxes, fill values, unwritable places, points far away."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from PIL import Image

import fleetgp as fg
from fleetgp.errors import InputError
from fleetgp.files import check_folder, check_writable
from fleetgp.operator.example import write_example
from fleetgp.progress import Progress, Remembering
from fleetgp.storage.model import Model, load_model, save_model
from tests.cli.test_cli import FIT, run, wrong
from tests.io.sources import packed

QUICK = ["--tol", "1e-2", "--rounds", "3", "--training", "dec-apx-gp"]
SST = ["--inputs", "lon", "lat", "--target", "sst"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table, points, and a model of it that nobody had to train."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    table = pd.DataFrame({"lon": rng.uniform(-72, -70, 120), "lat": rng.uniform(40, 42, 120)})
    table["sst"] = 15 + np.sin(2 * table["lon"]) + np.cos(3 * table["lat"])
    table["boat"] = np.where(table["lon"] < -71, "Ada", "Bo")
    table.to_csv("observations.csv", index=False)
    pd.DataFrame({"lat": [40.5, 41.5], "lon": [-71.5, -70.5]}).to_csv("points.csv", index=False)
    shards = [(part[["lon", "lat"]], part["sst"]) for _, part in table.groupby("boat")]
    fleet = fg.Fleet(shards, theta=(0.5, 0.5, 1.0, 0.05), normalize=True)
    save_model(Model(fleet, ("Ada", "Bo"), ("lon", "lat"), "sst"), "m")
    return tmp_path


def said(result: Any) -> str:
    """What went to stderr, whatever the terminal's width."""
    return " ".join(result.stderr.split())


# ---- NetCDF ----------------------------------------------------------------------------------------------------


def test_a_day_must_be_chosen_and_kelvin_are_told_of(folder: Path) -> None:
    packed(folder / "f.nc")
    fit = ["fit", "f.nc", *SST, "--agents", "2", "--out", "n", *QUICK]
    assert "2 fields, of 2021-01-01, 2021-01-02: give one as date (--date)" in wrong(*fit)
    found = run(*fit, "--date", "2021-01-02", "--stride", "2", "--box", "-74.8", "30.2", "-74.2", "30.8")
    assert "28 observations of 2 agents" in found.stdout
    assert "Temperatures converted from K to degrees Celsius." in found.stdout
    model = load_model("n")
    assert 10.0 < np.concatenate([y for _, y in model.fleet.shards]).mean() < 30.0
    told = json.loads(run(*fit, "--date", "2021-01-02", "--stride", "2", "--overwrite", "--json").stdout)
    assert told["notes"] == ["temperatures converted from K to degrees Celsius"]


def test_points_from_netcdf_follow_the_same_rules(folder: Path) -> None:
    packed(folder / "f.nc")
    assert "give one as date" in wrong("predict", "m", "f.nc", "--out", "a.csv")
    result = run("predict", "m", "f.nc", "--date", "2021-01-01", "--stride", "5", "--out", "a.csv")
    assert "temperatures converted from K" in said(result)
    assert len(pd.read_csv("a.csv")) == 14


def test_options_for_another_kind_of_file_are_refused(folder: Path) -> None:
    fit = ["fit", "observations.csv", *FIT, "--out", "n"]
    assert "date (--date) is for files that end in .nc" in wrong(*fit, "--date", "2021-01-02")
    assert "stride (--stride) is for" in wrong("predict", "m", "points.csv", "--out", "a.csv", "--stride", "2")
    assert "--box: expected four numbers (west south east north), got 3: 1 2 3" in wrong(*fit, "--box", "1", "2", "3")
    assert "got 3: 1 2 3" in wrong("map", "m", "--box", "1", "2", "3", "--out", "a.nc")
    assert "got 2: -73 36" in wrong("download", "--box", "-73", "36", "--date", "2021-01-03")
    assert not (folder / "n").exists()


# ---- tables ----------------------------------------------------------------------------------------------------


def test_fill_values_are_refused_named_or_insisted_on(folder: Path) -> None:
    table = pd.read_csv("observations.csv")
    table.loc[[3, 8], "sst"] = -9999.0
    table.to_csv("fill.csv", index=False)
    fit = ["fit", "fill.csv", *FIT, "--out", "n", *QUICK]
    assert "column 'sst' has the value -9999 2 times" in wrong(*fit)
    assert "2 of 120 rows have missing" in wrong(*fit, "--fill", "-9999")
    assert "--fill: expected numbers, or none, got x" in wrong(*fit, "--fill", "x")
    told = json.loads(run(*fit, "--fill", "-9999", "--missing", "drop", "--json").stdout)
    assert (told["dropped"], sum(told["observations"])) == (2, 118)
    insisted = run(*fit, "--fill", "none", "--overwrite")
    assert "120 observations" in insisted.stdout
    assert "warning: y has the value -9999 2 times" in said(insisted)


def test_copied_rows_are_told_of_once(folder: Path) -> None:
    table = pd.read_csv("observations.csv")
    pd.concat([table, table]).to_csv("twice.csv", index=False)
    result = run("fit", "twice.csv", *FIT, "--out", "n", *QUICK)
    assert said(result).count("120 of 240 rows are exact copies of others") == 1
    assert "FleetGPWarning" not in result.stderr
    later = run("predict", "n", "points.csv", "--out", "a.csv")
    assert "copies" not in later.stderr


def test_european_tables(folder: Path) -> None:
    pd.read_csv("observations.csv").replace({"boat": {"Bo": "J\xf6rg B"}}).to_csv(
        "eu.csv", index=False, sep=";", decimal=",", encoding="latin-1"
    )
    fit = ["fit", "eu.csv", *FIT, "--out", "n", *QUICK]
    assert "--encoding latin-1" in wrong(*fit)
    assert "--sep ';'" in wrong(*fit, "--encoding", "latin-1")
    assert "--decimal ," in wrong(*fit, "--encoding", "latin-1", "--sep", ";")
    run(*fit, "--encoding", "latin-1", "--sep", ";", "--decimal", ",")
    assert set(load_model("n").agents) == {"Ada", "J\xf6rg B"}
    run("predict", "n", "points.csv", "--agent", "J\xf6rg B", "--out", "a.csv")


# ---- answers ---------------------------------------------------------------------------------------------------


def test_the_answer_says_whose_deviation_it_has(folder: Path) -> None:
    quiet = run("predict", "m", "points.csv", "--out", "a.csv")
    noisy = run("predict", "m", "points.csv", "--noisy", "--out", "b.csv")
    assert "The standard deviation is that of the field; --noisy gives that of an observation" in quiet.stdout
    assert "The standard deviation is that of an observation (sigma_eps = 0.05 is in it)" in noisy.stdout
    field, observation = (pd.read_csv(name)["standard_deviation"] for name in ("a.csv", "b.csv"))
    np.testing.assert_allclose(observation**2 - field**2, 0.05**2, rtol=1e-6)
    told = json.loads(run("predict", "m", "points.csv", "--noisy", "--out", "b.csv", "--json").stdout)
    assert (told["standard_deviation_of"], told["uninformed"]) == ("observation", 0)


def test_points_that_nobody_knows_anything_about_are_told_of(folder: Path) -> None:
    pd.DataFrame({"lat": [40.5, 41.5], "lon": [288.5, 289.5]}).to_csv("east.csv", index=False)
    result = run("predict", "m", "east.csv", "--out", "a.csv")
    text = said(result)
    assert "warning: 2 of 2 points are no better known than the prior" in text
    assert "Are these longitudes from 0 to 360? Then subtract 360 from lon" in text
    assert "FleetGPWarning" not in text
    assert "no better known" not in said(run("predict", "m", "points.csv", "--out", "b.csv"))


def test_many_blocks_tell_of_points_outside_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetgp.storage.answers.BLOCK", 2)
    pd.DataFrame({"lat": [41.0] * 5, "lon": [-71.0, 20.0, -71.1, 20.0, 21.0]}).to_csv("p.csv", index=False)
    told = said(run("predict", "m", "p.csv", "--out", "a.csv"))
    assert told.count("3 of 5 points are no better known") == 1
    assert "first: number 2, at lon 20, lat 41" in told


def test_a_map_does_not_colour_what_nobody_knows(folder: Path) -> None:
    box = ["--box", "-76", "40", "-66", "42"]
    result = run("map", "m", "--grid", "40x8", *box, "--out", "map.nc", "--within", "inf", "--json")
    told = json.loads(result.stdout)
    with xr.open_dataset("map.nc") as field:
        coverage, mean, lon = (field[name].values for name in ("coverage", "sst", "lon"))
        assert field["coverage"].attrs["flag_meanings"] == "known no_better_than_the_prior left_out"
    assert set(np.unique(coverage)) == {0, 1}
    assert (coverage[:, (lon > -71.9) & (lon < -70.1)] == 0).all()
    assert (coverage[:, (lon < -74) | (lon > -68)] == 1).all()
    assert np.isfinite(mean).all()
    assert told["uninformed"] == (coverage == 1).sum() > 0
    assert f"{told['uninformed']} of 320 cells are no better known than the prior: hatched" in said(result)
    assert colourful("map.png") < 0.75 * colourful_of_all(folder)


def colourful(picture: str) -> int:
    """Pixels that are not grey."""
    with Image.open(picture) as image:
        pixels = np.asarray(image.convert("RGB"), dtype=int)
    return int((np.ptp(pixels, axis=-1) > 12).sum())


def colourful_of_all(folder: Path) -> int:
    run("map", "m", "--grid", "40x8", "--out", "all.nc")
    return colourful("all.png")


def test_cells_far_from_all_observations_are_left_out_and_counted(folder: Path) -> None:
    box = ["--grid", "40x8", "--box", "-76", "40", "-66", "42"]
    result = run("map", "m", *box, "--out", "map.nc", "--json")
    with xr.open_dataset("map.nc") as field:
        coverage, mean, lon = (field[name].values for name in ("coverage", "sst", "lon"))
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


def test_a_map_of_another_part_of_the_world_is_drawn_and_explained(folder: Path) -> None:
    result = run("map", "m", "--grid", "4x4", "--box", "285", "40", "295", "42", "--out", "map.nc")
    assert "Are these longitudes from 0 to 360? Then subtract 360 from lon" in said(result)
    with xr.open_dataset("map.nc") as field:
        assert (field["coverage"].values == 2).all()
    assert (folder / "map.png").exists()


def test_a_grid_that_is_too_large_says_so(folder: Path) -> None:
    told = wrong("map", "m", "--grid", "100000x100000", "--out", "a.nc")
    assert "10,000,000,000 points are too many: give at most 10,000,000" in told
    assert "--grid must be like" in wrong("map", "m", "--grid", "1x5", "--out", "a.nc")


def test_options_that_would_be_ignored_are_refused_or_told_of(folder: Path) -> None:
    fit = ["fit", "observations.csv", "--out", "n", *SST]
    assert "are for --agents" in wrong(*fit, "--agent", "boat", "--partition", "kmeans")
    assert "are for --agents" in wrong(*fit, "--agent", "boat", "--axis", "lat")
    assert "--axis is for stripes" in wrong(*fit, "--agents", "2", "--partition", "random", "--axis", "lat")
    with pytest.raises(InputError, match="axis is for stripes, but by='grid'"):
        fg.partition(np.zeros((4, 2)), np.zeros(4), agents=2, by="grid", axis=1)
    predict = ["predict", "m", "points.csv", "--eta", "0.2"]
    assert "rbcm does not have it" in said(run(*predict, "--method", "rbcm", "--out", "a.csv"))
    assert "does not have it" not in said(run(*predict, "--out", "a.csv"))
    np.savez("p.npz", lon=[-71.0, -71.5], lat=[41.0, 41.5], levels=[1, 2, 3])
    assert "levels have another length than the points: left out" in said(
        run("predict", "m", "p.npz", "--out", "b.csv")
    )


# ---- places that cannot be written -----------------------------------------------------------------------------

NOWHERE = pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc")


@NOWHERE
@pytest.mark.parametrize(
    "command",
    [
        ["fit", "observations.csv", *FIT, "--out", "/proc/x"],
        ["predict", "m", "points.csv", "--out", "/proc/x.csv"],
        ["map", "m", "--out", "/proc/x.nc"],
        ["download", "--box", "-73", "36", "-72", "37", "--date", "2021-01-03", "--out", "/proc/x.nc"],
        ["reproduce", "training", "--quick", "--out", "/proc/x"],
        ["demo", "--out", "/proc/x"],
    ],
)
def test_what_cannot_be_written_is_found_before_the_work(
    folder: Path, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*_: Any, **__: Any) -> None:
        raise AssertionError("the work began")

    for name in ("fleetgp.fleet.Fleet.train", "fleetgp.fleet.Fleet.predict", "fleetgp.cli.download.download_mur",
                 "fleetgp.experiments.reproduce.reproduce", "fleetgp.experiments.demo.run"):  # fmt: skip
        monkeypatch.setattr(name, work)
    assert "/proc/x" in wrong(*command)


@NOWHERE
def test_probes_are_real_and_leave_nothing(tmp_path: Path) -> None:
    check_writable(tmp_path / "a" / "b" / "c.csv")
    check_folder(tmp_path / "a" / "b")
    (tmp_path / "old.csv").write_text("old")
    check_writable(tmp_path / "old.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["old.csv"]
    assert (tmp_path / "old.csv").read_text() == "old"
    for place in ("/proc/x.csv", tmp_path / "old.csv" / "x.csv", tmp_path / ("x" * 300 + ".csv")):
        with pytest.raises(InputError, match=r"cannot be written|expected a folder, got a file"):
            check_writable(place)
    with pytest.raises(InputError, match="expected a folder, got a file"):
        check_folder(tmp_path / "old.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["old.csv"]


def test_probes_that_run_together_do_not_disturb_each_other(tmp_path: Path) -> None:
    """Agents that start at once have their folders in one that is not there yet."""
    places = [tmp_path / "state" / "deep" / f"boat{number % 3}" for number in range(120)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(check_folder, places))
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_folders_without_permission_are_found(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(InputError, match="cannot be written"):
            check_writable(tmp_path / "x.csv")
    finally:
        tmp_path.chmod(0o700)


# ---- interrupted ---------------------------------------------------------------------------------------------


def interrupted_at(monkeypatch: pytest.MonkeyPatch, round_: int) -> None:
    hear = Remembering.__call__

    def hear_and_stop(self: Remembering, progress: Progress) -> None:
        hear(self, progress)
        if progress.round == round_:
            raise KeyboardInterrupt

    monkeypatch.setattr(Remembering, "__call__", hear_and_stop)


def test_an_interrupted_overwrite_keeps_both(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (folder / "m" / "model.json").read_bytes()
    interrupted_at(monkeypatch, 4)
    fit = ["fit", "observations.csv", *FIT, "--training", "dec-apx-gp", "--tol", "0", "--rounds", "100"]
    for _ in range(2):  # the second time there is an interrupted model already
        text = said(run(*fit, "--out", "m", "--overwrite", code=130))
        assert "interrupted; m.interrupted holds the estimates so far" in text
        assert "--from m.interrupted goes on from them; m is as it was" in text
    assert (folder / "m" / "model.json").read_bytes() == before
    kept = load_model("m.interrupted")
    assert kept.status == "interrupted"
    assert "interrupted after 4 rounds of dec-apx-gp" in kept.note
    (folder / "m.interrupted" / "thesis.txt").write_text("mine")
    assert "other files too (thesis.txt)" in wrong(*fit, "--out", "m", "--overwrite")


def test_an_interruption_before_the_first_estimate_says_that_nothing_was_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted_at(monkeypatch, 0)
    fit = ["fit", "observations.csv", *FIT, "--training", "dec-apx-gp"]
    assert "no estimates yet, and nothing was written; m is as it was" in said(
        run(*fit, "--out", "m", "--overwrite", code=130)
    )
    assert "no estimates yet, and nothing was written" in said(run(*fit, "--out", "n", code=130))
    assert sorted(path.name for path in folder.iterdir()) == ["m", "observations.csv", "points.csv"]


def test_columns_that_are_only_passed_on_stay_as_they_are_written(folder: Path) -> None:
    lines = ["id,lon,note,lat,n", "00,-71.5,NA,40.5,1.50", '07,-70.5,"a, b",41.5,', "1e3,-71.2,,41.2,None"]
    Path("some.csv").write_text("\n".join(lines))
    run("predict", "m", "some.csv", "--out", "a.csv")
    found = pd.read_csv("a.csv", dtype=str, keep_default_na=False)
    assert found["id"].tolist() == ["00", "07", "1e3"]
    assert found["note"].tolist() == ["NA", "a, b", ""]
    assert found["n"].tolist() == ["1.50", "", "None"]
    assert list(found)[:5] == ["id", "lon", "note", "lat", "n"]
    run("predict", "m", "some.csv", "--out", "a.parquet")
    assert pd.read_parquet("a.parquet")["id"].tolist() == [0, 7, 1000]  # which knows numbers


def test_no_points_a_share_above_one_and_a_model_that_is_there(folder: Path) -> None:
    Path("none.csv").write_text("lon,lat\n")
    assert "none.csv: expected points, got a file without rows" in wrong("predict", "m", "none.csv", "--out", "a.csv")
    assert "eta must be" in wrong("predict", "m", "points.csv", "--out", "a.csv", "--eta", "1.5")
    assert not Path("a.csv").exists()
    assert "overwrite=True, on the command line --overwrite" in wrong("fit", "observations.csv", *FIT, "--out", "m")


# ---- a fleet that does not run -------------------------------------------------------------------------------


def test_rows_for_an_agent_are_judged_before_they_are_sent_and_advice_names_what_there_is(folder: Path) -> None:
    (folder / "points.csv").unlink()
    write_example(folder / "fleet.toml")
    rows = pd.read_csv("data/boat1.csv").head(9)
    rows.loc[4, rows.columns[-1]] = -9999.0
    rows.to_csv("rows.csv", index=False)
    told = wrong("observe", "fleet.toml", "rows.csv", "--agent", "boat1")
    assert "-9999 once" in told
    assert "fill = [-9999.0] in the agent's table of fleet.toml" in told
    assert "--fill" not in told
    rows.to_csv("rows.csv", index=False, sep=";")
    assert "(--sep ';')" in wrong("observe", "fleet.toml", "rows.csv", "--agent", "boat1")
    assert "-9999 once" in wrong("observe", "fleet.toml", "rows.csv", "--agent", "boat1", "--sep", ";")
    assert "(--sep ';')" in wrong("ask", "fleet.toml", "rows.csv", "--agent", "boat1", "--out", "a.csv")
