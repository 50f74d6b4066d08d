"""fleetgp suggest, sample and predict --gradient: what the library says, as files."""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray

from fleetgp.storage.folder import load_model
from tests.cli.commands import run, wrong


@pytest.fixture
def candidates(modelled: Path) -> pd.DataFrame:
    places = np.array(list(product(np.linspace(-72.2, -69.8, 4), np.linspace(39.8, 42.2, 4))))
    table = pd.DataFrame({"lat": places[:, 1], "lon": places[:, 0], "name": [f"p{k:02}" for k in range(16)]})
    table.to_csv("candidates.csv", index=False)
    return table


def test_suggestions_are_those_of_the_library(candidates: pd.DataFrame) -> None:
    run("suggest", "m", "candidates.csv", "--n", "3", "--agent", "Bo", "--out", "next.csv")
    found = load_model("m").fleet.suggest(1, candidates[["lon", "lat"]].to_numpy(), 3)
    table = pd.read_csv("next.csv")
    assert table.columns.tolist() == ["lat", "lon", "name", "agent", "gain"]
    assert table["name"].tolist() == candidates["name"].iloc[found.indices].tolist()
    assert set(table["agent"]) == {"Bo"}
    np.testing.assert_allclose(table["gain"], found.gains)
    told = run(
        "suggest",
        "m",
        "candidates.csv",
        "--n",
        "2",
        "--criterion",
        "mutual-information",
        "--all",
        "--out",
        "n.csv",
        "--json",
    )
    facts = json.loads(told.stdout)
    assert facts["agents"] == ["Ada", "Bo", "Bo", "Ada"]
    assert 0 < sum(one["bytes"] for one in facts["sent"].values()) < facts["bytes"], "which have the headers too"
    assert len(set(facts["candidates"])) == 4
    assert pd.read_csv("n.csv")["agent"].tolist() == facts["agents"]


def test_draws_are_those_of_the_library(candidates: pd.DataFrame) -> None:
    draws = load_model("m").fleet.sample(candidates[["lon", "lat"]].to_numpy(), 4, "dec-rbcm", seed=3)
    how = ["--n", "4", "--seed", "3", "--method", "dec-rbcm"]
    told = run("sample", "m", "candidates.csv", *how, "--out", "draws.csv").stdout
    assert re.search(r"Sent between agents, in numbers: .*predictions [\d,]+", told)
    table = pd.read_csv("draws.csv")
    np.testing.assert_allclose(table[[f"draw_{k}" for k in range(1, 5)]].to_numpy().T, draws)
    assert table["name"].tolist() == candidates["name"].tolist()
    run("sample", "m", "candidates.csv", *how, "--out", "draws.nc")
    with xarray.open_dataset("draws.nc") as data:
        assert data["sst"].dims == ("draw", "point")
        np.testing.assert_allclose(data["sst"].to_numpy(), draws)
        np.testing.assert_allclose(data["lon"], candidates["lon"])


def test_gradients_stand_beside_the_mean(modelled: Path) -> None:
    run("predict", "m", "points.csv", "--method", "dec-rbcm", "--gradient", "--out", "a.csv")
    table = pd.read_csv("a.csv")
    found = load_model("m").fleet.gradient(table[["lon", "lat"]].to_numpy(), "dec-rbcm")
    np.testing.assert_allclose(table[["d_mean/d_lon", "d_mean/d_lat"]], found.gradient)
    assert "mean" in table.columns


@pytest.mark.filterwarnings("ignore::fleetgp.errors.FleetGPWarning")
def test_wrong_calls_have_one_clear_error(candidates: pd.DataFrame) -> None:
    ask = ["m", "candidates.csv", "--out", "x.csv"]
    assert "give one of them" in wrong("suggest", *ask, "--all", "--agent", "Ada")
    assert "Cy" in wrong("suggest", *ask, "--agent", "Cy")
    assert "mutual-information" in wrong("suggest", *ask, "--criterion", "entropy")
    assert "at least 17 different candidates" in wrong("suggest", *ask, "--n", "17")
    assert "dec-npae has no joint covariance" in wrong("sample", *ask, "--method", "dec-npae")
    assert "has no option --eta" in wrong("sample", *ask, "--method", "dec-poe", "--eta", "0.1")
    assert "leave out --consensus average" in wrong("predict", *ask, "--gradient", "--consensus", "average")
    candidates.assign(gain=1.0, draw_1=2.0).to_csv("clash.csv", index=False)
    assert "a column 'gain' too" in wrong("suggest", "m", "clash.csv", "--out", "x.csv")
    assert "a column 'draw_1' too" in wrong("sample", "m", "clash.csv", "--out", "x.csv")
    assert not Path("x.csv").exists()
