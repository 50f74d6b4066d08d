"""fleetgp fit --target a b: several targets, fitted together, and a model for each."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fleetgp as fg
from fleetgp.storage.folder import load_model
from tests.cli.commands import interrupted_at, run, said, wrong

BOTH = ["--inputs", "lon", "lat", "--target", "t", "s", "--agent-column", "boat"]


@pytest.fixture
def sea(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three boats; salinity is missing in some rows, and one row has nothing."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    lon, lat = rng.uniform(0.0, 2.0, (2, 60))
    t = 15.0 + np.sin(2 * lon) + np.cos(3 * lat) + 0.1 * rng.normal(size=60)
    s = 35.0 - 0.2 * np.cos(2 * lon) + 0.02 * rng.normal(size=60)
    s[::4], t[8], s[8] = np.nan, np.nan, np.nan
    boats = np.array(["Ada", "Bo", "Cy"])[np.arange(60) % 3]
    pd.DataFrame({"lon": lon, "lat": lat, "t": t, "s": s, "boat": boats}).to_csv("sea.csv", index=False)
    pd.DataFrame({"lon": lon[:5], "lat": lat[:5]}).to_csv("points.csv", index=False)
    return tmp_path


def test_a_folder_with_an_ordinary_model_for_each_target(sea: Path) -> None:
    assert "15 of 60 rows have missing" in wrong("fit", "sea.csv", *BOTH, "--out", "m")
    found = run("fit", "sea.csv", *BOTH, "--out", "m", "--missing", "drop", "--tol", "1e-3", "--json")
    told = json.loads(found.stdout)["targets"]
    assert [told[target]["model"] for target in ("t", "s")] == ["m/t", "m/s"]
    assert [sum(told[target]["observations"]) for target in ("t", "s")] == [59, 45]
    assert told["t"]["dropped"] == 1
    assert told["t"]["notes"] == ["s is missing in 14 rows, which do not count for it"]
    models = {target: load_model(Path("m") / target) for target in ("t", "s")}
    assert {target: model.target for target, model in models.items()} == {"t": "t", "s": "s"}
    assert np.array_equal(models["t"].fleet.theta[:2], models["s"].fleet.theta[:2])  # type: ignore[index]
    table = pd.read_csv("sea.csv").dropna(subset=["t", "s"], how="all")
    shards = [(own[["lon", "lat"]], own[["t", "s"]]) for _, own in table.groupby("boat", sort=False)]
    same = fg.Outputs(shards, normalize=True, kernel="matern32").train(tol=1e-3)
    for target, fit in same.items():
        assert np.array_equal(fit.thetas, models[target].fleet.last_fit.thetas)  # type: ignore[union-attr]
    run("predict", "m/s", "points.csv", "--out", "answer.csv")
    assert pd.read_csv("answer.csv").shape[0] == 5


def test_all_or_nothing_and_from_there(sea: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = ["--missing", "drop", "--tol", "1e-2"]
    with monkeypatch.context() as patch:
        interrupted_at(patch, 2)
        found = run("fit", "sea.csv", *BOTH, "--out", "m", *quick, code=130)
    assert "m holds the estimates so far" in said(found)
    assert load_model("m/s").status == "interrupted"
    assert "the folder exists" in wrong("fit", "sea.csv", *BOTH, "--out", "m", *quick)
    shown = run(
        "fit", "sea.csv", *BOTH, "--out", "m", *quick, "--from", "m", "--overwrite", "--fix", "s.sigma_eps=0.03"
    )
    assert shown.stdout.index("The model is in m/t") < shown.stdout.index("The model is in m/s")
    assert load_model("m/s").theta["sigma_eps"] == pytest.approx(0.03)
    Path("m/notes.txt").write_text("mine", encoding="utf-8")
    assert "it holds other things than models (notes.txt)" in wrong(
        "fit", "sea.csv", *BOTH, "--out", "m", "--overwrite"
    )
    assert Path("m/s/model.json").exists()


def test_what_is_refused(sea: Path) -> None:
    assert "must be different columns" in wrong(
        "fit", "sea.csv", "--inputs", "lon", "lat", "--target", "t", "lat", "--out", "m"
    )
    files = ["fit", "sea.csv", "sea.csv", "--inputs", "lon", "lat", "--target", "t", "s", "--out", "m"]
    assert "several targets (t, s) are read from one file as a whole" in wrong(*files)
    odd = ["--inputs", "lon", "lat", "--target", "t", "a/b", "--out", "m"]
    assert "names can be those of folders, got 'a/b'" in wrong("fit", "sea.csv", *odd)
    assert "dec-full-gp trains one output" in wrong(
        "fit", "sea.csv", *BOTH, "--missing", "drop", "--training", "dec-full-gp", "--kernel", "se", "--out", "m"
    )
    assert not Path("m").exists()
