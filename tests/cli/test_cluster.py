"""fleetgp fit --cluster: the same model, computed elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from fleetgp.io import file_shards
from tests.cli.commands import FIT, QUICK, SST, run, wrong

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


def test_files_are_read_by_the_workers(folder: Path, cluster: None, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pd.read_csv("observations.csv")
    for name, own in table.groupby("boat"):
        own.to_csv(f"{name}.csv", index=False)
    fit = ["fit", "Ada.csv", "Bo.csv", "Cy.csv", *SST, "--kernel", "se", "--json", "--out"]
    whole = ["--training", "dec-full-gp"]
    here = json.loads(run(*fit, "a", *whole).stdout)
    for name in ("survey", "rows_of"):
        monkeypatch.setattr(file_shards, name, None)
    there = json.loads(run(*fit, "b", *whole, "--cluster", "--workers", "2").stdout)
    assert {**there, "model": ""} == {**here, "model": ""}
    assert "dec-fact-gp needs rows" in wrong(*fit, "c", "--cluster", "--workers", "2")


def test_what_does_not_fit_is_refused(folder: Path, cluster: None) -> None:
    fit = ["fit", "observations.csv", *FIT, "--out", "m"]
    assert "--workers is for --cluster" in wrong(*fit, "--workers", "2")
    assert "expected at most one worker for each of the 3 agents, got 4" in wrong(*fit, "--cluster", "--workers", "4")
