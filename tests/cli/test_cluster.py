"""--cluster: the same models, answers and maps, computed elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from fleetgp.errors import WorkerLostError
from fleetgp.files import ResumableCache
from fleetgp.fleet import backends
from fleetgp.fleet import cluster as on_cluster
from fleetgp.io import file_dataset
from tests.cli.commands import FIT, QUICK, SST, run, said, wrong

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install fleetgp[cluster]")
pytestmark = pytest.mark.usefixtures("uncompiled")


def test_a_model_from_a_cluster_is_the_model(folder: Path, cluster: None) -> None:
    address = ray.get_runtime_context().gcs_address
    here, there = (
        json.loads(run("fit", "observations.csv", *FIT, *QUICK, "--json", "--out", out, *where).stdout)
        for out, where in (("a", []), ("b", ["--cluster", address, "--workers", "2"]))
    )
    assert {**there, "model": ""} == {**here, "model": ""}
    assert ray.is_initialized()


@pytest.mark.long
def test_files_are_read_by_the_workers(folder: Path, cluster: None, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pd.read_csv("observations.csv")
    for name, own in table.groupby("boat"):
        own.to_csv(f"{name}.csv", index=False)
    fit = ["fit", "Ada.csv", "Bo.csv", "Cy.csv", *SST, "--kernel", "se", "--json", "--out"]
    whole = ["--training", "dec-full-gp"]
    here = json.loads(run(*fit, "a", *whole).stdout)
    for name in ("survey", "rows_of"):
        monkeypatch.setattr(file_dataset, name, None)
    there = json.loads(run(*fit, "b", *whole, "--cluster", "--workers", "2").stdout)
    assert {**there, "model": ""} == {**here, "model": ""}
    answered = run("predict", "b", "points.csv", "--method", "dec-full-gp", "--out", "a.csv", "--cluster")
    assert "any agent answers from the moments alone: no cluster is used" in said(answered)
    assert "dec-fact-gp needs rows" in wrong(*fit, "c", "--cluster", "--workers", "2")


TWO = ["--cluster", "--workers", "2"]


@pytest.fixture
def many_points(modelled: Path) -> int:
    """Points for three blocks; how many there are."""
    rng = np.random.default_rng(0)
    points = pd.DataFrame({"lon": rng.uniform(-72, -70, 4500), "lat": rng.uniform(40, 42, 4500)})
    points.to_csv("points.csv", index=False)
    return len(points)


@pytest.mark.parametrize(
    ("end", "command"),
    [
        pytest.param("csv", ["predict", "m", "points.csv"], marks=pytest.mark.long),
        ("nc", ["map", "m", "--grid", "9x8", "--method", "dec-rbcm"]),
    ],
    ids=["answers", "map"],
)
def test_what_a_cluster_answers_is_the_same(
    modelled: Path, cluster: None, monkeypatch: pytest.MonkeyPatch, end: str, command: list[str]
) -> None:
    here = json.loads(run(*command, "--json", "--out", f"a.{end}").stdout)
    monkeypatch.setattr(backends, "Predictor", None)  # agents in this process answer nothing
    there = json.loads(run(*command, *TWO, "--json", "--out", f"b.{end}").stdout)
    assert {**there, "out": "", "picture": ""} == {**here, "out": "", "picture": ""}
    if end == "csv":
        assert Path("a.csv").read_bytes() == Path("b.csv").read_bytes()
    else:
        with xr.open_dataset("a.nc") as one, xr.open_dataset("b.nc") as other:
            assert one.identical(other)


@pytest.mark.long
def test_ctrl_c_keeps_blocks_and_either_goes_on_from_them(
    many_points: int, cluster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    predict = ["predict", "m", "points.csv", "--method", "dec-rbcm", "--out"]
    run(*predict, "a.csv")
    put = ResumableCache.put

    def put_and_stop(self: ResumableCache, name: str, piece: object) -> None:
        put(self, name, piece)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ResumableCache, "put", put_and_stop)
        assert "are kept" in said(run(*predict, "b.csv", *TWO, code=130))
    assert len(list(Path().glob(".b.csv.parts/*/*.json"))) == 1
    first = json.loads(next(Path().glob(".b.csv.parts/*/0.json")).read_text(encoding="utf-8"))
    first["mean"][0] = 99.5  # so that it can be seen whose block is in the answer
    next(Path().glob(".b.csv.parts/*/0.json")).write_text(json.dumps(first), encoding="utf-8")
    run(*predict, "b.csv")
    here, there = (pd.read_csv(file)["mean"].to_numpy() for file in ("a.csv", "b.csv"))
    assert there[0] == 99.5
    assert np.array_equal(here[1:], there[1:])
    assert len(there) == many_points


def test_lost_workers_are_told_with_what_to_do(modelled: Path, cluster: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object) -> None:
        raise WorkerLostError("more than 5 workers were lost")

    monkeypatch.setattr(on_cluster.ClusterPredictor, "predict_in_blocks", lost)
    found = run("predict", "m", "points.csv", *TWO, "--out", "a.csv", code=1)
    assert "5 workers were lost; finished work is kept, and the same command continues from it" in said(found)


def test_what_does_not_fit_is_refused(folder: Path, cluster: None) -> None:
    fit = ["fit", "observations.csv", *FIT, "--out", "m"]
    assert "--workers is for --cluster" in wrong(*fit, "--workers", "2")
    assert "expected at most one worker for each of the 3 agents, got 4" in wrong(*fit, "--cluster", "--workers", "4")


def test_a_model_is_not_asked_in_impossible_places(modelled: Path, cluster: None) -> None:
    predict = ["predict", "m", "points.csv", "--out", "a.csv"]
    assert "--workers is for --cluster" in wrong(*predict, "--workers", "2")
    assert "at most one worker for each of the 2 agents, got 3" in wrong(*predict, "--cluster", "--workers", "3")
