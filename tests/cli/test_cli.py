"""The command line as people use it: files in, files out, exit codes, and one line for whatever is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from PIL import Image
from typer.testing import CliRunner

import fleetgp as fg
from fleetgp.cli.app import app
from fleetgp.progress import Progress, Remembering
from fleetgp.storage.model import load_model
from tests.conftest import interrupted_after

FIT = ["--inputs", "lon", "lat", "--target", "sst", "--agent", "boat"]


def truth(lon: Any, lat: Any) -> Any:
    return 15.0 + np.sin(2 * np.asarray(lon)) + np.cos(3 * np.asarray(lat))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    lon, lat = rng.uniform(0, 2, 240), rng.uniform(40, 42, 240)
    boat = np.array(["Ada", "Bo", "Cy"])[np.minimum((lon * 1.5).astype(int), 2)]
    table = pd.DataFrame(
        {"boat": boat, "lat": lat, "lon": lon, "sst": truth(lon, lat) + 0.05 * rng.standard_normal(240)}
    )
    table.to_csv("observations.csv", index=False)
    pd.DataFrame({"lat": [40.5, 41.5], "lon": [0.5, 1.5], "name": ["p", "q"]}).to_csv("points.csv", index=False)
    return tmp_path


def run(*arguments: str, code: int = 0) -> Any:
    """The command in this process; stdout and stderr apart."""
    found = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert found.exit_code == code, found.output
    return found


def wrong(*arguments: str) -> Any:
    """What a refused command says: one line, and no traceback."""
    found = run(*arguments, code=2)
    assert "Traceback" not in found.output
    lines = [line for line in found.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, found.stderr
    return lines[0]


def test_from_a_table_to_a_map_in_three_commands(folder: Path) -> None:
    fit = run("fit", "observations.csv", *FIT, "--graph", "path", "--training", "dec-gapx-gp", "--out", "model/")
    assert "converged" in fit.stdout
    assert "fleetgp map model" in fit.stdout
    run("predict", "model/", "points.csv", "--method", "dec-nn-grbcm", "--out", "answer.csv")
    answer = pd.read_csv("answer.csv")
    assert list(answer.columns) == ["lat", "lon", "name", "mean", "standard_deviation", "agents"]
    np.testing.assert_allclose(answer["mean"], truth(answer["lon"], answer["lat"]), atol=0.15)
    run("map", "model/", "--grid", "20x30", "--out", "map.nc", "--units", "degC")
    with xr.open_dataset("map.nc") as field:
        assert field["sst"].dims == ("lat", "lon")
        assert field["sst"].shape == (30, 20)
        assert field["lon"].attrs["units"] == "degrees_east"
        assert field["sst"].attrs["units"] == "degC"
        assert float(field["sst_standard_deviation"].min()) > 0.0
        lon, lat = np.meshgrid(field["lon"], field["lat"])
        assert np.sqrt(np.mean((field["sst"].values - truth(lon, lat)) ** 2)) < 0.1
        model = load_model("model")
        queries = np.column_stack([lon.ravel(), lat.ravel()])
        expected = model.fleet.predict(queries, "dec-nn-grbcm")
        np.testing.assert_allclose(field["sst"].values.ravel(), expected.mean, rtol=1e-9)
        np.testing.assert_array_equal(field["participants"].values.ravel(), expected.participants.sum(axis=0))
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
    names = [command.name or command.callback.__name__ for command in app.registered_commands]  # type: ignore[union-attr]
    assert set(names) >= {"fit", "predict", "map", "methods", "demo", "download", "reproduce"}
    for name in names:
        assert f"fleetgp {name}" in run(name, "--help").stdout, name


def test_graphs_from_files_partitions_and_units(folder: Path) -> None:
    (folder / "links.csv").write_text("Cy,Ada\nAda,Bo\n")
    run("fit", "observations.csv", *FIT, "--graph", "links.csv", "--out", "a", "--tol", "1e-3")
    model = load_model("a")
    index = {name: number for number, name in enumerate(model.agents)}
    assert model.fleet.graph.union.edges.tolist() == sorted(
        [sorted([index["Cy"], index["Ada"]]), sorted([index["Ada"], index["Bo"]])]
    )
    columns = ["--inputs", "lon,lat", "--target", "sst"]
    run(
        "fit",
        "observations.csv",
        *columns,
        "--agents",
        "4",
        "--axis",
        "lat",
        "--out",
        "b",
        "--tol",
        "1e-3",
        "--no-normalize",
    )
    split = load_model("b")
    assert split.agents == ("0", "1", "2", "3")
    assert not split.fleet.normalize
    ends = [(x[:, 1].min(), x[:, 1].max()) for x, _ in split.fleet.shards]
    assert all(ends[i][1] <= ends[i + 1][0] for i in range(3))


def test_the_model_needs_nothing_of_its_source(folder: Path) -> None:
    run("fit", "observations.csv", *FIT, "--out", "m", "--tol", "1e-3")
    (folder / "observations.csv").unlink()
    (folder / "m").rename(folder / "elsewhere")
    run("predict", "elsewhere", "points.csv", "--out", "a.parquet")
    assert len(pd.read_parquet("a.parquet")) == 2


def test_rows_with_gaps_are_refused_or_dropped_with_a_count(folder: Path) -> None:
    table = pd.read_csv("observations.csv")
    table.loc[[3, 8], "sst"] = np.nan
    table.to_csv("gaps.csv", index=False)
    assert "2 of 240 rows" in wrong("fit", "gaps.csv", *FIT, "--out", "m")
    found = run("fit", "gaps.csv", *FIT, "--out", "m", "--missing", "drop", "--tol", "1e-3")
    assert "2 rows with missing values dropped" in found.stdout
    table.loc[table["boat"] == "Bo", "sst"] = np.nan
    table.to_csv("gaps.csv", index=False)
    assert "agent 'Bo' has no row" in wrong("fit", "gaps.csv", *FIT, "--out", "n", "--missing", "drop")


def test_whatever_is_wrong_is_one_line_and_exit_code_2(folder: Path) -> None:
    (folder / "broken.parquet").write_bytes(b"PAR1 no")
    (folder / "links.txt").write_text("Ada Bo\nBo Zoe\n")
    (folder / "few.txt").write_text("Ada Bo\n")
    fit = ["fit", "observations.csv"]
    assert "observations.csv: there is no column 'SST'; it has boat, lat, lon, sst" in wrong(
        *fit, "--inputs", "lon", "lat", "--target", "SST", "--agent", "boat", "--out", "m"
    )
    assert "cannot be read as PARQUET" in wrong("fit", "broken.parquet", *FIT, "--out", "m")
    assert "no such file" in wrong("fit", "nowhere.csv", *FIT, "--out", "m")
    assert "'Zoe' is not in the data, which have" in wrong(*fit, *FIT, "--graph", "links.txt", "--out", "m")
    assert "no edge for Cy of the data" in wrong(*fit, *FIT, "--graph", "few.txt", "--out", "m")
    assert "unknown graph 'ring'" in wrong(*fit, *FIT, "--graph", "ring", "--out", "m")
    assert "unknown training method" in wrong(*fit, *FIT, "--training", "magic", "--out", "m")
    assert "either --agent" in wrong(*fit, "--inputs", "lon", "--target", "sst", "--out", "m")
    assert "between 1 and the 240" in wrong(*fit, "--inputs", "lon", "--target", "sst", "--agents", "999", "--out", "m")
    assert "column 'boat' must hold numbers" in wrong(
        *fit, "--inputs", "boat", "--target", "sst", "--agents", "2", "--out", "m"
    )
    assert "no model.json" in wrong("predict", "nowhere", "points.csv", "--out", "a.csv")
    assert not (folder / "m").exists()
    run(*fit, *FIT, "--out", "m", "--tol", "1e-3")
    assert "overwrite" in wrong(*fit, *FIT, "--out", "m")
    (folder / "bad.csv").write_text("x,lat\n1,2\n")
    assert "column 'lon'" in wrong("predict", "m", "bad.csv", "--out", "a.csv")
    assert "unknown agent 'Zoe'" in wrong("predict", "m", "points.csv", "--agent", "Zoe", "--out", "a.csv")
    assert "unknown prediction method" in wrong("predict", "m", "points.csv", "--method", "magic", "--out", "a.csv")
    assert "ends in .csv" in wrong("predict", "m", "points.csv", "--out", "a.xlsx")
    assert "--grid must be like" in wrong("map", "m", "--grid", "200", "--out", "a.nc")
    assert "ends in .nc" in wrong("map", "m", "--out", "a.png")
    assert not list(folder.glob("a.*"))


def test_not_converged_is_said_and_kept(folder: Path) -> None:
    found = run("fit", "observations.csv", *FIT, "--out", "m", "--rounds", "3")
    assert "warning: training ended by round limit after 3 rounds" in " ".join(found.stderr.split())
    later = run("predict", "m", "points.csv", "--out", "a.csv", "--rounds", "2", "--method", "dec-rbcm")
    text = " ".join(later.stderr.split())
    assert "did not converge (round limit)" in text
    assert "dec-rbcm: round limit" in text


# ---- Ctrl-C, in a process of its own -----------------------------------------------------------------------


def test_an_interrupted_map_goes_on_where_it_was(folder: Path) -> None:
    run("fit", "observations.csv", *FIT, "--out", "m", "--tol", "1e-3")
    arguments = ["map", "m", "--grid", "200x100", "--out", "map.nc"]
    code, errors = interrupted_after(2, *arguments)
    assert code == 130, errors
    assert [file.name for file in sorted(folder.glob(".map.nc.parts/*/*.json"))] == ["0.json", "1.json"]
    assert "Traceback" not in errors
    assert "finished pieces, if there are any, are kept" in errors
    assert not (folder / "map.nc").exists()
    first = next(folder.glob(".map.nc.parts/*/0.json"))
    done = json.loads(first.read_text())
    done["mean"][0] = 1234.5  # a sign that the finished block is taken
    first.write_text(json.dumps(done))
    run(*arguments)
    with xr.open_dataset("map.nc") as field:
        assert float(field["sst"][0, 0]) == 1234.5
    assert not list(folder.glob(".map.nc.parts"))


def test_an_interrupted_fit_leaves_its_estimates(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pd.read_csv("observations.csv")
    table["sst"] *= 1000.0  # units that a normalized model does not have
    table.to_csv("observations.csv", index=False)
    hear = Remembering.__call__

    def hear_and_stop(self: Remembering, progress: Progress) -> None:
        hear(self, progress)
        if progress.round == 40:
            raise KeyboardInterrupt

    monkeypatch.setattr(Remembering, "__call__", hear_and_stop)
    arguments = ["fit", "observations.csv", *FIT, "--out", "m", "--tol", "0", "--rounds", "1000000"]
    found = run(*arguments, code=130)
    assert "holds the estimates so far" in " ".join(found.stderr.split())
    before = (folder / "m" / "model.json").read_bytes()
    run(*arguments, "--overwrite", code=130)
    assert (folder / "m" / "model.json").read_bytes() == before, "a model that is there is worth more"
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    model = load_model("m")
    assert model.status == "interrupted"
    assert "interrupted after" in model.note
    assert 5.0 < model.theta["sigma_eps"] < 500.0, "the noise is 50, in the units of the data"
    later = run("predict", "m", "points.csv", "--out", "a.csv")
    assert "did not converge (interrupted after" in " ".join(later.stderr.split())
    run("fit", "observations.csv", *FIT, "--out", "m", "--from", "m", "--overwrite", "--tol", "1e-3")
    assert load_model("m").status == "converged"


def test_what_cannot_be_is_refused_before_any_work(folder: Path) -> None:
    fit = ["fit", "observations.csv"]
    assert "different columns" in wrong(
        *fit, "--inputs", "lon", "lon", "--target", "sst", "--agents", "2", "--out", "m"
    )
    assert "between 1 and" in wrong(*fit, "--inputs", "lon", "lat", "--target", "sst", "--agents", "0", "--out", "m")
    run(*fit, *FIT, "--out", "[bold]m", "--tol", "1e-3")
    run("predict", "[bold]m", "points.csv", "--out", "A.NPZ")
    assert "[bold]m" in run(*fit, *FIT, "--out", "[bold]m", "--overwrite", "--tol", "1e-3").stdout
    with np.load("A.NPZ") as answer:
        assert len(answer["mean"]) == 2
    (folder / "none.csv").write_text("lon,lat\n")
    assert "without rows" in wrong("predict", "[bold]m", "none.csv", "--out", "n.csv")
    assert sorted(p.name for p in folder.iterdir()) == [
        "A.NPZ", "[bold]m", "none.csv", "observations.csv", "points.csv",
    ]  # fmt: skip


def test_a_resumed_answer_is_of_the_same_model(folder: Path) -> None:
    """Blocks of another kernel, seed or graph are not taken."""
    from fleetgp.storage.answers import ask

    run("fit", "observations.csv", *FIT, "--out", "m", "--tol", "1e-3")
    model, queries = load_model("m"), np.array([[0.5, 40.5]])
    keys = {ask(model, queries, "dec-rbcm", None, {}, folder / "a.csv", True).kept.folder}
    model.fleet.seed = 5
    keys.add(ask(model, queries, "dec-rbcm", None, {}, folder / "a.csv", True).kept.folder)
    model.fleet.graph = fg.Graph.complete(3)
    keys.add(ask(model, queries, "dec-rbcm", None, {}, folder / "a.csv", True).kept.folder)
    assert len(keys) == 3


def test_what_a_first_user_stumbled_over(folder: Path) -> None:
    table = pd.read_csv("observations.csv")
    table["boat"] = table["boat"].map({"Ada": "NA", "Bo": "007", "Cy": "None"})
    table.to_csv("odd.csv", index=False)
    told = json.loads(run("fit", "odd.csv", *FIT, "--out", "m", "--tol", "1e-3", "--json").stdout)
    assert sorted(told["agents"]) == ["007", "NA", "None"]
    run("predict", "m", "points.csv", "--agent", "007", "--out", "a.csv")
    assert "replace the points" in wrong("predict", "m", "points.csv", "--out", "points.csv")
    assert "names 240 agents in 240 rows" in wrong(
        "fit", "odd.csv", "--inputs", "lat", "--target", "sst", "--agent", "lon", "--out", "n"
    )
    turned = ["fit", "odd.csv", "--inputs", "lat", "lon", "--target", "sst", "--agent", "boat", "--from", "m"]
    run(*turned, "--out", "turned", "--tol", "1e-3")
    fit, model = load_model("turned").fleet.fit, load_model("m")
    assert fit is not None
    assert fit.starts[0].theta0[0] == pytest.approx(model.theta["l_lat"])
    assert "not lon" in wrong("fit", "odd.csv", "--inputs", "lon", "--target", "sst", "--agents", "2", "--from", "m",
                              "--out", "n")  # fmt: skip
    table["sst"] = 3.0
    table.to_csv("flat.csv", index=False)
    assert "nothing to learn" in wrong("fit", "flat.csv", *FIT, "--out", "n")
    (folder / "m" / "notes.txt").write_text("mine")
    assert "notes.txt" in wrong("fit", "odd.csv", *FIT, "--out", "m", "--overwrite")
    (folder / "here.csv").mkdir()
    assert "expected a file, got a folder" in wrong("fit", "here.csv", *FIT, "--out", "n")
    assert "expected a file, got a folder" in wrong("predict", "m", "points.csv", "--out", "here.csv")
    (folder / "map.png").mkdir()
    assert "expected a file, got a folder" in wrong("map", "m", "--out", "map.nc")
    assert not (folder / "map.nc").exists()
    (folder / "semi.csv").write_text("lon;lat\n1;2\n")
    assert "by commas" in wrong("predict", "m", "semi.csv", "--out", "b.csv")
    assert "seed must be" in wrong("demo", "--seed", "-1")
