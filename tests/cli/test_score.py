"""fleetgp score: with a table, and by hiding rows of the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fleetgp as fg
from fleetgp.fleet import cross_validation
from fleetgp.fleet.cross_validation import Fold
from fleetgp.metrics import score
from fleetgp.storage.folder import load_model, save_model
from tests.cli.commands import run, said, truth, wrong


@pytest.fixture
def tested(modelled: Path) -> Path:
    """A model, and observations that it has not seen."""
    rng = np.random.default_rng(8)
    table = pd.DataFrame({"lon": rng.uniform(-72, -70, 40), "lat": rng.uniform(40, 42, 40)})
    table["sst"] = truth(table["lon"], table["lat"])
    table["boat"] = np.where(table["lon"] < -71.5, "Ada", "Bo")
    table["error"] = 0.1
    table.to_csv("truth.csv", index=False)
    return modelled


def test_a_table_is_scored_as_in_python(tested: Path) -> None:
    facts = json.loads(run("score", "m", "truth.csv", "--method", "dec-rbcm", "--json").stdout)
    table, fleet = pd.read_csv("truth.csv"), load_model("m").fleet
    told = fleet.predict(table[["lon", "lat"]], "dec-rbcm", observed=True)
    seen = np.concatenate([y for _, y in fleet.shards])
    expected = score((told.mean, told.variance), table["sst"].to_numpy(), trained=seen)
    assert facts["scores"]["all"] == pytest.approx(expected.numbers, rel=1e-9)
    assert set(facts["scores"]) == {"all", "answer of Ada", "answer of Bo"}


def test_whose_rows_and_known_deviations(tested: Path) -> None:
    asked = ["score", "m", "truth.csv", "--method", "dec-rbcm", "--agent-column", "boat", "--deviation", "error"]
    facts = json.loads(run(*asked, "--json").stdout)
    table, fleet = pd.read_csv("truth.csv"), load_model("m").fleet
    mine = table[table["boat"] == "Bo"]
    told = fleet.predict(mine[["lon", "lat"]], "dec-rbcm", observed=True)
    expected = score((told.mean, told.variance + 0.01), mine["sst"].to_numpy())
    assert facts["scores"]["rows of Bo"]["crps"] == pytest.approx(expected.crps, rel=1e-9)
    shown = run(*asked, "--each-agent").stdout
    assert "rows of Ada" in shown
    assert "answer of" not in shown, "they are all the same"
    assert "Every agent gives the same answer." in shown
    assert "rows of" not in run(*asked).stdout
    assert "unknown agent (--agent-column) 'Cy'" in _with_other_boat(table)


def _with_other_boat(table: pd.DataFrame) -> Any:
    table.assign(boat="Cy").to_csv("other.csv", index=False)
    return wrong("score", "m", "other.csv", "--agent-column", "boat")


def test_rows_of_the_model_are_hidden(tested: Path) -> None:
    asked = ["score", "m", "--folds", "3", "--split", "block", "--method", "dec-rbcm", "--quiet"]
    facts = json.loads(run(*asked, "--json").stdout)
    found = load_model("m").fleet.cross_validate(3, "block", "dec-rbcm", train=False)
    assert facts["scores"]["all"] == pytest.approx(found.scores.numbers, rel=1e-9)
    assert set(facts["scores"]) == {"all", "fold 0", "fold 1", "fold 2", "rows of Ada", "rows of Bo"}
    shown = run(*asked, "--each-agent").stdout
    assert "blocks hidden that nobody observes, 3 folds, with the model's hyperparameters" in shown
    assert "% of the observations lie in their 95% intervals" in shown
    assert [path.name for path in tested.iterdir() if path.name.startswith(".")] == []


def test_an_interrupted_cross_validation_goes_on(tested: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ["score", "m", "--folds", "3", "--method", "dec-rbcm", "--quiet"]
    real, computed = cross_validation.predict_fold, list[int]()

    def interrupted(fleet: fg.Fleet, data: Any, fold_of: Any, number: int, *how: Any) -> Fold:
        if number == 2 and len(computed) == 2:
            computed.append(-1)
            raise KeyboardInterrupt
        computed.append(number)
        return real(fleet, data, fold_of, number, *how)

    monkeypatch.setattr(cross_validation, "predict_fold", interrupted)
    assert "interrupted; finished work" in said(run(*asked, code=130))
    run(*asked)
    assert computed == [0, 1, -1, 2]


def test_folds_that_are_trained_anew(tested: Path) -> None:
    asked = ["score", "m", "--folds", "2", "--train", "--method", "dec-rbcm", "--quiet", "--json"]
    facts = json.loads(run(*asked).stdout)
    assert facts["trained"] is True
    assert facts["theta"][0] != facts["theta"][1]


def test_what_cannot_be_is_one_line(tested: Path) -> None:
    assert "got neither" in wrong("score", "m")
    assert "got both" in wrong("score", "m", "truth.csv", "--folds", "3")
    assert "unknown --split 'rows': choose one of random, agent, block" in wrong("score", "m", "--split", "rows")
    assert "are for a table of observations" in wrong("score", "m", "--split", "block", "--fill", "-9")
    assert "'sst'" in wrong("score", "m", "points.csv")
    assert "unknown agent (--agent) 'Cy'" in wrong("score", "m", "truth.csv", "--agent", "Cy")
    assert "level must lie between 0 and 1" in wrong("score", "m", "truth.csv", "--level", "95")
    assert "there is no model.json" in wrong("score", ".", "truth.csv")


def test_times_are_counted_as_the_model_counts_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    days = pd.date_range("2021-01-01", periods=40, freq="6h")
    table = pd.DataFrame({"depth": np.linspace(0.0, 1.0, 40), "time": days, "chl": np.sin(np.arange(40.0))})
    hours = (days - pd.Timestamp("1970-01-01")) / pd.Timedelta("1h")
    fleet = fg.Fleet([(np.column_stack([table["depth"], hours]), table["chl"])], theta=(1.0, 9.0, 1.0, 0.1),
                     inputs=["depth", "time"], kernel="se", normalize=False)  # fmt: skip
    fleet.units = {"time": "hours since 1970-01-01"}
    save_model(fg.Model(fleet, ("Ada",), ("depth", "time"), "chl"), "m")
    table.to_csv("truth.csv", index=False)
    facts = json.loads(run("score", "m", "truth.csv", "--method", "dec-rbcm", "--json").stdout)
    assert facts["scores"]["all"]["rmse"] < 0.2
    table.rename(columns={"time": "depth", "depth": "time"}).to_csv("turned.csv", index=False)
    assert "column 'depth' has dates, but in the model it is no time" in wrong("score", "m", "turned.csv")


def test_rows_that_the_model_has_seen_are_told_of(tested: Path) -> None:
    result = run("score", "m", "observations.csv", "--method", "dec-rbcm")
    assert "warning: 120 of 120 rows are the model's own, which it has seen: use --folds" in said(result)
    assert "has not seen" not in result.stdout
    both = pd.concat([pd.read_csv("truth.csv"), pd.read_csv("observations.csv").iloc[:7]])
    both.to_csv("both.csv", index=False)
    result = run("score", "m", "both.csv", "--method", "dec-rbcm", "--json")
    assert "warning: 7 of 47 rows are the model's own" in said(result)
    assert json.loads(result.stdout)["own_rows"] == 7
    result = run("score", "m", "truth.csv", "--method", "dec-rbcm")
    assert "the model's own" not in said(result)
    assert "40 observations of sst that the model has not seen" in result.stdout
