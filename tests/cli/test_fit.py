"""fleetgp fit: tables, days, graphs and partitions in, a model out, whatever interrupts it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fleetgp.storage.folder import load_model
from tests.cli.commands import FIT, QUICK, SST, interrupted_at, run, said, wrong
from tests.io.sources import packed


def test_graphs_from_files_partitions_and_units(folder: Path) -> None:
    (folder / "links.csv").write_text("Cy,Ada\nAda,Bo\n", encoding="utf-8")
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
        "--n-agents",
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


def test_without_agents_one_has_all_rows_and_a_rough_kernel(folder: Path) -> None:
    found = run("fit", "observations.csv", *FIT[:-2], "--out", "m", "--tol", "1e-3")
    assert "240 observations of 1 agent." in found.stdout
    model = load_model("m")
    assert model.agents == ("0",)
    assert model.fleet.kernel.name == "matern32"


def test_a_time_limit_is_said_and_kept(folder: Path) -> None:
    found = run("fit", "observations.csv", *FIT, "--out", "m", "--seconds", "0.001")
    assert "training ended by time limit" in said(found)
    assert load_model("m").status == "time limit"
    assert "did not converge (time limit)" in said(run("predict", "m", "points.csv", "--out", "a.csv"))


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


def test_not_converged_is_said_and_kept(folder: Path) -> None:
    found = run("fit", "observations.csv", *FIT, "--out", "m", "--rounds", "3")
    assert "warning: dec-fact-gp reached its limit of 3 rounds before it converged" in " ".join(found.stderr.split())
    capped = ("--method", "dec-rbcm", "--consensus", "average", "--rounds", "2")
    later = run("predict", "m", "points.csv", "--out", "a.csv", *capped)
    text = " ".join(later.stderr.split())
    assert "did not converge (round limit)" in text
    assert "dec-rbcm: round limit" in text


def test_an_interrupted_fit_leaves_its_estimates(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pd.read_csv("observations.csv")
    table["sst"] *= 1000.0  # units that a normalized model does not have
    table.to_csv("observations.csv", index=False)
    interrupted_at(monkeypatch, 40)
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


def test_a_day_must_be_chosen_and_kelvin_are_told_of(modelled: Path) -> None:
    packed(modelled / "f.nc")
    fit = ["fit", "f.nc", *SST, "--n-agents", "2", "--out", "n", "--celsius", *QUICK]
    assert "2 fields, of 2021-01-01, 2021-01-02: give one as date (--date)" in wrong(*fit)
    found = run(*fit, "--date", "2021-01-02", "--stride", "2", "--box", "-74.8", "30.2", "-74.2", "30.8")
    assert "28 observations of 2 agents" in found.stdout
    assert "Temperatures converted from K to degrees Celsius." in found.stdout
    model = load_model("n")
    assert 10.0 < np.concatenate([y for _, y in model.fleet.shards]).mean() < 30.0
    told = json.loads(run(*fit, "--date", "2021-01-02", "--stride", "2", "--overwrite", "--json").stdout)
    assert told["notes"] == [
        "temperatures converted from K to degrees Celsius",
        "1 cell holds nothing, and is no observation",
    ]


def test_fill_values_are_refused_named_or_insisted_on(modelled: Path) -> None:
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


def test_copied_rows_are_told_of_once(modelled: Path) -> None:
    table = pd.read_csv("observations.csv")
    pd.concat([table, table]).to_csv("twice.csv", index=False)
    result = run("fit", "twice.csv", *FIT, "--out", "n", *QUICK)
    assert said(result).count("120 of 240 rows are exact copies of others") == 1
    assert "FleetGPWarning" not in result.stderr
    later = run("predict", "n", "points.csv", "--out", "a.csv")
    assert "copies" not in later.stderr


def test_european_tables(modelled: Path) -> None:
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


def test_an_interrupted_overwrite_keeps_both(modelled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (modelled / "m" / "model.json").read_bytes()
    interrupted_at(monkeypatch, 4)
    fit = ["fit", "observations.csv", *FIT, "--training", "dec-apx-gp", "--tol", "0", "--rounds", "100"]
    for _ in range(2):  # the second time there is an interrupted model already
        text = said(run(*fit, "--out", "m", "--overwrite", code=130))
        assert "interrupted; m.interrupted holds the estimates so far" in text
        assert "--from m.interrupted continues from them; m is as it was" in text
    assert (modelled / "m" / "model.json").read_bytes() == before
    kept = load_model("m.interrupted")
    assert kept.status == "interrupted"
    assert "interrupted after 4 rounds of dec-apx-gp" in kept.note
    (modelled / "m.interrupted" / "thesis.txt").write_text("mine", encoding="utf-8")
    assert "other files too (thesis.txt)" in wrong(*fit, "--out", "m", "--overwrite")


def test_an_interruption_before_the_first_estimate_says_that_nothing_was_written(
    modelled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted_at(monkeypatch, 0)
    fit = ["fit", "observations.csv", *FIT, "--training", "dec-apx-gp"]
    assert "no estimates yet, and nothing was written; m is as it was" in said(
        run(*fit, "--out", "m", "--overwrite", code=130)
    )
    assert "no estimates yet, and nothing was written" in said(run(*fit, "--out", "n", code=130))
    assert sorted(path.name for path in modelled.iterdir()) == ["m", "observations.csv", "points.csv"]


def test_on_the_sphere_there_is_one_length_scale_in_kilometres(folder: Path) -> None:
    how = ["--coordinates", "sphere", "--tol", "1e-3"]
    said_so = "write iso-matern32(lon, lat)"
    assert said_so in wrong("fit", "nothing.csv", *FIT, *how, "--kernel", "se", "--out", "m"), "before anything is read"
    found = " ".join(run("fit", "observations.csv", *FIT, *how, "--bound", "l=1:900", "--out", "m").stdout.split())
    assert "km in all directions" in found
    assert list(load_model("m").theta) == ["l", "sigma_f", "sigma_eps"]
    run("predict", "m", "points.csv", "--out", "a.csv")
    run("map", "m", "--grid", "5x5", "--out", "m.nc")


def test_a_mean_function_and_kilometres_are_told_with_their_units(folder: Path) -> None:
    how = ["--mean", "linear", "--coordinates", "kilometres", "--tol", "1e-3", "--out", "m"]
    found = " ".join(run("fit", "observations.csv", *FIT, *how).stdout.split())
    assert "km along lon" in found
    assert "sst per km" in found
    assert "The constant is the mean at lon" in found
    facts = json.loads(run("fit", "observations.csv", *FIT, *how, "--overwrite", "--json").stdout)
    assert facts["mean"]["settled"]
    assert facts["coordinates"]["name"] == "kilometres"
    run("predict", "m", "points.csv", "--out", "a.csv")
    run("map", "m", "--grid", "5x5", "--out", "m.nc")
    assert "unknown --mean 'cubic'" in wrong("fit", "observations.csv", *FIT, "--mean", "cubic", "--out", "n")


def test_what_comes_next_is_asked_as_it_was_trained(folder: Path) -> None:
    """dec-full-gp has made moments that answer for all data: no other method shall be the one that is shown."""
    how = ["--training", "dec-full-gp", "--kernel", "se", "--tol", "1e-2", "--rounds", "3"]
    shown = " ".join(run("fit", "observations.csv", *FIT, *how, "--out", "m").stdout.split())
    assert "fleetgp predict m points.csv --method dec-full-gp --out answer.csv" in shown
    assert "fleetgp map m --grid 200x200 --method dec-full-gp --out map.nc" in shown
    run("map", "m", "--grid", "5x5", "--method", "dec-full-gp", "--out", "map.nc")


def test_an_approximation_and_an_input_without_a_bend_are_told(folder: Path) -> None:
    told = ["--training", "dec-fact-gp", "--tol", "1e-2", "--kernel", "matern32", "--fix", "l_lat=1e5"]
    lines = run("fit", "observations.csv", *FIT, *told, "--engine", "vecchia", "--out", "m").stdout
    assert "The likelihood of 3 of 3 agents is approximate (vecchia): twice as many neighbours" in lines
    assert "no bend along lat" in lines
    assert "no bend along lon" not in lines
    assert "no bend along lat: it is far beyond the data" in " ".join(run("info", "m").stdout.split())
