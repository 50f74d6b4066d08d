"""fleetgp predict: points in, answers out, and what is known of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fleetgp as fg
from fleetgp.storage.folder import load_model
from tests.cli.commands import FIT, run, said, wrong
from tests.io.sources import packed


def test_the_model_needs_nothing_of_its_source(folder: Path) -> None:
    run("fit", "observations.csv", *FIT, "--out", "m", "--tol", "1e-3")
    (folder / "observations.csv").unlink()
    (folder / "m").rename(folder / "elsewhere")
    run("predict", "elsewhere", "points.csv", "--out", "a.parquet")
    assert len(pd.read_parquet("a.parquet")) == 2


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


def test_points_from_netcdf_follow_the_same_rules(modelled: Path) -> None:
    packed(modelled / "f.nc")
    assert "give one as date" in wrong("predict", "m", "f.nc", "--out", "a.csv")
    result = run("predict", "m", "f.nc", "--date", "2021-01-01", "--stride", "5", "--out", "a.csv")
    assert "sst is in kelvin, as in the data" in said(result)
    assert len(pd.read_csv("a.csv")) == 14


def test_the_answer_has_both_deviations(modelled: Path) -> None:
    told = run("predict", "m", "points.csv", "--out", "a.csv").stdout
    assert "std is the standard deviation of the field, std_observed that of an observation" in told
    assert "which includes sigma_eps = 0.05" in told
    answer = pd.read_csv("a.csv")
    np.testing.assert_allclose(answer["std_observed"] ** 2 - answer["std"] ** 2, 0.05**2, rtol=1e-6)
    expected = load_model("m").fleet.predict(pd.read_csv("points.csv")).to_frame()
    for name in ("mean", "std", "std_observed", "n_agents"):
        np.testing.assert_allclose(answer[name], expected[name], rtol=1e-9)
    assert json.loads(run("predict", "m", "points.csv", "--out", "b.csv", "--json").stdout)["prior_only"] == 0


def test_options_from_the_terminal_are_those_of_the_library(modelled: Path) -> None:
    points = pd.read_csv("points.csv")[["lon", "lat"]].to_numpy()
    for asked, options in (
        (("--method", "dec-nearest", "--n-nearest", "3"), {"method": "dec-nearest", "n_nearest": 3}),
        (("--method", "dec-nn-grbcm", "--eta", "auto"), {"method": "dec-nn-grbcm", "eta": "auto"}),
        (("--method", "dec-nn-grbcm", "--eta", "0.5"), {"method": "dec-nn-grbcm", "eta": 0.5}),
        (("--min-rows", "20"), {"min_rows": 20}),
        (("--budget", "900"), {"budget": 900.0}),
        (("--local",), {"local": True}),
    ):
        run("predict", "m", "points.csv", "--out", "a.csv", *asked)
        expected = load_model("m").fleet.predict(points, **options)
        np.testing.assert_allclose(pd.read_csv("a.csv")["mean"], expected.mean, rtol=1e-6)


def test_points_that_nobody_knows_anything_about_are_told_of(modelled: Path) -> None:
    pd.DataFrame({"lat": [40.5, 41.5], "lon": [288.5, 289.5]}).to_csv("east.csv", index=False)
    result = run("predict", "m", "east.csv", "--out", "a.csv")
    text = said(result)
    assert "warning: 2 of 2 points are no better known than the prior" in text
    assert "Are these longitudes from 0 to 360? Then subtract 360 from lon" in text
    assert "FleetGPWarning" not in text
    assert "no better known" not in said(run("predict", "m", "points.csv", "--out", "b.csv"))


def test_many_blocks_tell_of_points_outside_once(modelled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetgp.prediction.methods.BLOCK", 2)
    pd.DataFrame({"lat": [41.0] * 5, "lon": [-71.0, 20.0, -71.1, 20.0, 21.0]}).to_csv("p.csv", index=False)
    told = said(run("predict", "m", "p.csv", "--out", "a.csv"))
    assert told.count("3 of 5 points are no better known") == 1
    assert "first: number 2, at lon 20, lat 41" in told


def test_columns_that_are_only_passed_on_stay_as_they_are_written(modelled: Path) -> None:
    lines = ["id,lon,note,lat,n", "00,-71.5,NA,40.5,1.50", '07,-70.5,"a, b",41.5,', "1e3,-71.2,,41.2,None"]
    Path("some.csv").write_text("\n".join(lines), encoding="utf-8")
    run("predict", "m", "some.csv", "--out", "a.csv")
    found = pd.read_csv("a.csv", dtype=str, keep_default_na=False)
    assert found["id"].tolist() == ["00", "07", "1e3"]
    assert found["note"].tolist() == ["NA", "a, b", ""]
    assert found["n"].tolist() == ["1.50", "", "None"]
    assert list(found)[:5] == ["id", "lon", "note", "lat", "n"]
    run("predict", "m", "some.csv", "--out", "a.parquet")
    assert pd.read_parquet("a.parquet")["id"].tolist() == [0, 7, 1000]  # which knows numbers


def test_no_points_a_share_above_one_and_a_model_that_is_there(modelled: Path) -> None:
    Path("none.csv").write_text("lon,lat\n", encoding="utf-8")
    assert "none.csv: expected points, got a file without rows" in wrong("predict", "m", "none.csv", "--out", "a.csv")
    assert "eta must be" in wrong("predict", "m", "points.csv", "--out", "a.csv", "--eta", "1.5")
    assert "or \"auto\", got 'some'" in wrong("predict", "m", "points.csv", "--out", "a.csv", "--eta", "some")
    nearest = ("predict", "m", "points.csv", "--out", "a.csv", "--method", "dec-nearest")
    assert "--n-neighbours must be a whole number of at least 1, got 0" in wrong(*nearest, "--n-neighbours", "0")
    assert "dec-nearest has no option --engine: expected one of --n-nearest" in wrong(*nearest, "--engine", "dense")
    assert not Path("a.csv").exists()
    assert "overwrite=True, on the command line --overwrite" in wrong("fit", "observations.csv", *FIT, "--out", "m")


@pytest.mark.parametrize("block", [2, 1000])
def test_an_answer_tells_what_kinds_of_content_it_took(
    modelled: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    """In one block or several: each kind is what the ledger of the library has."""
    monkeypatch.setattr("fleetgp.prediction.methods.BLOCK", block)
    pd.DataFrame({"lat": np.linspace(40.2, 41.8, 5), "lon": np.linspace(-71.8, -70.2, 5)}).to_csv("p.csv", index=False)
    queries = pd.read_csv("p.csv")[["lon", "lat"]]
    ledger = load_model("m").fleet.condition().predict(queries, "dec-nearest", agent=0).ledger
    result = json.loads(run("predict", "m", "p.csv", "--method", "dec-nearest", "--out", "a.csv", "--json").stdout)
    assert "observations" in result["sent"]
    assert result["sent"] == {kind: vars(one) for kind, one in ledger.by_kind().items() if kind != "framing"}
    assert result["bytes"] == ledger.bytes
    told = run("predict", "m", "p.csv", "--method", "dec-nearest", "--out", "a.csv").stdout
    assert f"observations {ledger.total(kind='observations').scalars:,}" in told


def test_intervals_and_points_that_nobody_knows_are_in_the_answer(modelled: Path) -> None:
    pd.DataFrame({"lat": [40.5, 41.5], "lon": [-71.5, 20.0]}).to_csv("p.csv", index=False)
    run("predict", "m", "p.csv", "--level", "0.8", "--out", "a.csv")
    answer, expected = pd.read_csv("a.csv"), load_model("m").fleet.condition().predict([[-71.5, 40.5]])
    low, high = expected.interval(0.8)
    np.testing.assert_allclose([answer["low"][0], answer["high"][0]], [low[0], high[0]], rtol=1e-9)
    assert answer["prior_only"].tolist() == [False, True]
    run("predict", "m", "p.csv", "--out", "b.csv")
    assert not {"low", "high"} & set(pd.read_csv("b.csv"))


def test_intervals_that_cannot_be(modelled: Path) -> None:
    asked = ["predict", "m", "points.csv", "--out", "a.csv", "--level"]
    assert "level must lie between 0 and 1, got 1.0" in wrong(*asked, "1")
    assert "level must be" in wrong(*asked, "-0.5")
    pd.read_csv("points.csv").assign(low=1.0).to_csv("points.csv", index=False)
    assert "the answer has a column 'low' too" in wrong(*asked, "0.9")
    assert not Path("a.csv").exists()
    run(*asked[:-1])
