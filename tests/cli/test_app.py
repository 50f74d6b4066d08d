"""The command line as people use it: files in, files out, exit codes, and one line for whatever is wrong."""

from __future__ import annotations

import json
from functools import wraps
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from PIL import Image

import fleetgp as fg
from fleetgp.cli.app import COMMANDS
from fleetgp.errors import InputError
from fleetgp.storage.folder import load_model
from tests.cli.commands import FIT, SST, run, said, truth, wrong


def test_from_a_table_to_a_map_in_three_commands(folder: Path) -> None:
    fit = run("fit", "observations.csv", *FIT, "--graph", "path", "--out", "model/")
    assert "converged" in fit.stdout
    assert "fleetgp map model" in fit.stdout
    run("predict", "model/", "points.csv", "--method", "dec-summary", "--out", "answer.csv")
    answer = pd.read_csv("answer.csv")
    assert list(answer.columns) == ["lat", "lon", "name", "mean", "std", "std_observed", "n_agents", "prior_only"]
    np.testing.assert_allclose(answer["mean"], truth(answer["lon"], answer["lat"]), atol=0.15)
    run("map", "model/", "--grid", "20x30", "--out", "map.nc", "--units", "degC")
    with xr.open_dataset("map.nc") as field:
        assert field["sst"].dims == ("lat", "lon")
        assert field["sst"].shape == (30, 20)
        assert field["lon"].attrs["units"] == "degrees_east"
        assert field["sst"].attrs["units"] == "degC"
        assert float(field["sst_std"].min()) > 0.0
        lon, lat = np.meshgrid(field["lon"], field["lat"])
        assert np.sqrt(np.mean((field["sst"].values - truth(lon, lat)) ** 2)) < 0.1
        model = load_model("model")
        queries = np.column_stack([lon.ravel(), lat.ravel()])
        expected = model.fleet.predict(queries, "dec-summary")
        np.testing.assert_allclose(field["sst"].values.ravel(), expected.mean, rtol=1e-9)
        np.testing.assert_array_equal(field["n_agents"].values.ravel(), expected.participants.sum(axis=0))
    with Image.open("map.png") as picture:
        assert picture.size[0] > 900
        assert len(picture.convert("RGB").resize((200, 120)).getcolors(24_000) or []) > 200, "an empty picture"
    assert sorted(p.name for p in folder.iterdir()) == [
        "answer.csv", "map.nc", "map.png", "model", "observations.csv", "points.csv",
    ]  # fmt: skip


def test_json_is_one_document_and_says_what_happened(folder: Path) -> None:
    fit = json.loads(run("fit", "observations.csv", *FIT, "--out", "m", "--json").stdout)
    assert fit["status"] == "converged"
    assert sorted(fit["agents"]) == ["Ada", "Bo", "Cy"]
    assert sum(fit["observations"]) == 240
    assert fit["theta"] == load_model("m").theta
    out = json.loads(run("predict", "m", "points.csv", "--agent", "Cy", "--out", "a.npz", "--json").stdout)
    assert (out["agent"], out["points"], out["status"]) == ("Cy", 2, "converged")
    assert set(out["took_part"]) == {"Ada", "Bo", "Cy"}
    asked = load_model("m").fleet.predict([[0.5, 40.5], [1.5, 41.5]], agent=fit["agents"].index("Cy"))
    with np.load("a.npz") as answer:
        np.testing.assert_array_equal(answer["mean"], asked.mean)
    listed = json.loads(run("methods", "--json").stdout)
    assert [row["method"] for row in listed["training"]] == list(fg.TRAINING_METHODS)
    assert [row["method"] for row in listed["prediction"]] == list(fg.PREDICTION_METHODS)
    assert all(row["graph"] and row["sends"] and row["use"] for rows in listed.values() for row in rows)


def test_every_command_explains_itself_with_an_example() -> None:
    assert set(COMMANDS) >= {"fit", "predict", "map", "methods", "demo", "download", "reproduce"}
    for name in COMMANDS:
        assert f"fleetgp {name}" in run(name, "--help").stdout, name


def test_whatever_is_wrong_is_one_line_and_exit_code_2(folder: Path) -> None:
    (folder / "broken.parquet").write_bytes(b"PAR1 no")
    (folder / "links.txt").write_text("Ada Bo\nBo Zoe\n", encoding="utf-8")
    (folder / "few.txt").write_text("Ada Bo\n", encoding="utf-8")
    fit = ["fit", "observations.csv"]
    assert "observations.csv: there is no column 'SST'; it has boat, lat, lon, sst" in wrong(
        *fit, "--inputs", "lon", "lat", "--target", "SST", "--agent-column", "boat", "--out", "m"
    )
    assert "cannot be read as PARQUET" in wrong("fit", "broken.parquet", *FIT, "--out", "m")
    assert "no such file" in wrong("fit", "nowhere.csv", *FIT, "--out", "m")
    assert "'Zoe' is not in the data, which have" in wrong(*fit, *FIT, "--graph", "links.txt", "--out", "m")
    assert "no edge for Cy of the data" in wrong(*fit, *FIT, "--graph", "few.txt", "--out", "m")
    assert "unknown graph 'ring'" in wrong(*fit, *FIT, "--graph", "ring", "--out", "m")
    assert "unknown training method" in wrong(*fit, *FIT, "--training", "magic", "--out", "m")
    assert "either --agent-column" in wrong(*fit, *FIT, "--n-agents", "2", "--out", "m")
    assert "between 1 and the 240" in wrong(
        *fit, "--inputs", "lon", "--target", "sst", "--n-agents", "999", "--out", "m"
    )
    assert "column 'boat' must hold numbers" in wrong(
        *fit, "--inputs", "boat", "--target", "sst", "--n-agents", "2", "--out", "m"
    )
    assert "no model.json" in wrong("predict", "nowhere", "points.csv", "--out", "a.csv")
    assert not (folder / "m").exists()
    run(*fit, *FIT, "--out", "m", "--tol", "1e-3")
    assert "overwrite" in wrong(*fit, *FIT, "--out", "m")
    (folder / "bad.csv").write_text("x,lat\n1,2\n", encoding="utf-8")
    assert "column 'lon'" in wrong("predict", "m", "bad.csv", "--out", "a.csv")
    assert "unknown agent 'Zoe'" in wrong("predict", "m", "points.csv", "--agent", "Zoe", "--out", "a.csv")
    assert "unknown prediction method" in wrong("predict", "m", "points.csv", "--method", "magic", "--out", "a.csv")
    assert "ends in .csv" in wrong("predict", "m", "points.csv", "--out", "a.xlsx")
    assert "--grid must be like" in wrong("map", "m", "--grid", "200", "--out", "a.nc")
    assert "ends in .nc" in wrong("map", "m", "--out", "a.docx")
    assert not list(folder.glob("a.*"))


def test_what_cannot_be_is_refused_before_any_work(folder: Path) -> None:
    fit = ["fit", "observations.csv"]
    assert "different columns" in wrong(
        *fit, "--inputs", "lon", "lon", "--target", "sst", "--n-agents", "2", "--out", "m"
    )
    assert "between 1 and" in wrong(*fit, "--inputs", "lon", "lat", "--target", "sst", "--n-agents", "0", "--out", "m")
    run(*fit, *FIT, "--out", "[bold]m", "--tol", "1e-3")
    run("predict", "[bold]m", "points.csv", "--out", "A.NPZ")
    assert "[bold]m" in run(*fit, *FIT, "--out", "[bold]m", "--overwrite", "--tol", "1e-3").stdout
    with np.load("A.NPZ") as answer:
        assert len(answer["mean"]) == 2
    (folder / "none.csv").write_text("lon,lat\n", encoding="utf-8")
    assert "without rows" in wrong("predict", "[bold]m", "none.csv", "--out", "n.csv")
    assert sorted(p.name for p in folder.iterdir()) == [
        "A.NPZ", "[bold]m", "none.csv", "observations.csv", "points.csv",
    ]  # fmt: skip


def test_what_a_first_user_stumbled_over(folder: Path) -> None:
    table = pd.read_csv("observations.csv")
    table["boat"] = table["boat"].map({"Ada": "NA", "Bo": "007", "Cy": "None"})
    table.to_csv("odd.csv", index=False)
    told = json.loads(run("fit", "odd.csv", *FIT, "--out", "m", "--tol", "1e-3", "--json").stdout)
    assert sorted(told["agents"]) == ["007", "NA", "None"]
    run("predict", "m", "points.csv", "--agent", "007", "--out", "a.csv")
    assert "replace the points" in wrong("predict", "m", "points.csv", "--out", "points.csv")
    assert "names 240 agents in 240 rows" in wrong(
        "fit", "odd.csv", "--inputs", "lat", "--target", "sst", "--agent-column", "lon", "--out", "n"
    )
    turned = ["fit", "odd.csv", "--inputs", "lat", "lon", "--target", "sst", "--agent-column", "boat", "--from", "m"]
    run(*turned, "--out", "turned", "--tol", "1e-3")
    fit, model = load_model("turned").fleet.last_fit, load_model("m")
    assert fit is not None
    assert fit.starts[0].theta0[0] == pytest.approx(model.theta["l_lat"])
    assert "not lon" in wrong("fit", "odd.csv", "--inputs", "lon", "--target", "sst", "--n-agents", "2", "--from", "m",
                              "--out", "n")  # fmt: skip
    table["sst"] = 3.0
    table.to_csv("flat.csv", index=False)
    assert "nothing to learn" in wrong("fit", "flat.csv", *FIT, "--out", "n")
    (folder / "m" / "notes.txt").write_text("mine", encoding="utf-8")
    assert "notes.txt" in wrong("fit", "odd.csv", *FIT, "--out", "m", "--overwrite")
    (folder / "here.csv").mkdir()
    assert "expected a file, got a folder" in wrong("fit", "here.csv", *FIT, "--out", "n")
    assert "expected a file, got a folder" in wrong("predict", "m", "points.csv", "--out", "here.csv")
    (folder / "map.png").mkdir()
    assert "expected a file, got a folder" in wrong("map", "m", "--out", "map.nc")
    assert not (folder / "map.nc").exists()
    (folder / "semi.csv").write_text("lon;lat\n1;2\n", encoding="utf-8")
    assert "by commas" in wrong("predict", "m", "semi.csv", "--out", "b.csv")
    assert "seed must be" in wrong("demo", "--seed", "-1")


def test_options_for_another_kind_of_file_are_refused(modelled: Path) -> None:
    fit = ["fit", "observations.csv", *FIT, "--out", "n"]
    assert "date (--date) is for files that end in .nc" in wrong(*fit, "--date", "2021-01-02")
    assert "stride (--stride) is for" in wrong("predict", "m", "points.csv", "--out", "a.csv", "--stride", "2")
    assert "--box: expected four numbers (west south east north), got 3: 1 2 3" in wrong(*fit, "--box", "1", "2", "3")
    assert "got 3: 1 2 3" in wrong("map", "m", "--box", "1", "2", "3", "--out", "a.nc")
    assert "got 2: -73 36" in wrong("download", "--box", "-73", "36", "--date", "2021-01-03")
    assert not (modelled / "n").exists()


def test_options_that_would_be_ignored_are_refused(modelled: Path) -> None:
    fit = ["fit", "observations.csv", "--out", "n", *SST]
    assert "are for --n-agents" in wrong(*fit, "--agent-column", "boat", "--partition", "kmeans")
    assert "are for --n-agents" in wrong(*fit, "--agent-column", "boat", "--axis", "lat")
    assert "--axis is for stripes" in wrong(*fit, "--n-agents", "2", "--partition", "random", "--axis", "lat")
    with pytest.raises(InputError, match="axis is for stripes, got by='grid'"):
        fg.partition(np.zeros((4, 2)), np.zeros(4), agents=2, by="grid", axis=1)
    predict = ["predict", "m", "points.csv", "--eta", "0.2"]
    told = wrong(*predict, "--method", "rbcm", "--out", "a.csv")
    assert "rbcm has no option --eta: expected one of --engine, --n-neighbours; methods with --eta: dec-nn-poe" in told
    assert not Path("a.csv").exists()
    run(*predict, "--method", "dec-nn-grbcm", "--out", "a.csv")
    np.savez("p.npz", lon=[-71.0, -71.5], lat=[41.0, 41.5], levels=[1, 2, 3])
    assert "levels have another length than the points: left out" in said(
        run("predict", "m", "p.npz", "--out", "b.csv")
    )


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
    modelled: Path, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unused(original: Any) -> Any:
        @wraps(original)
        def work(*_: Any, **__: Any) -> None:
            raise AssertionError("the work began")

        return work

    for name in ("fleetgp.fleet.Fleet.train", "fleetgp.fleet.Fleet.predict", "fleetgp.cli.examples.download_mur",
                 "reproduction.reproduce", "fleetgp.demo.run"):  # fmt: skip
        monkeypatch.setattr(name, unused(resolve_name(name)))
    assert "/proc/x" in wrong(*command)
