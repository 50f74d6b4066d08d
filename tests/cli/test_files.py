"""fleetgp fit of several files: read in chunks, a model of moments or of a sample, and errors that go on from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fleetgp.cli import fit
from fleetgp.io import file_dataset
from fleetgp.storage.folder import load_model
from tests.cli.commands import SST, run, wrong
from tests.io.sources import packed

WHOLE = [*SST, "--training", "dec-full-gp", "--kernel", "se"]


@pytest.fixture
def boats(folder: Path) -> Path:
    """The table of three boats, a file each."""
    for name, own in pd.read_csv("observations.csv").groupby("boat"):
        own.to_csv(f"{name}.csv", index=False)
    return folder


BOATS = ("Ada.csv", "Bo.csv", "Cy.csv")


def test_several_files_are_several_agents_of_a_model_without_rows(boats: Path) -> None:
    found = json.loads(run("fit", *BOATS, *WHOLE, "--memory", "100", "--out", "m", "--json").stdout)
    assert found["agents"] == ["Ada", "Bo", "Cy"]
    assert sum(found["observations"]) == 240
    run("fit", "observations.csv", *WHOLE, "--agent-column", "boat", "--out", "rows")
    theta = load_model("rows").theta
    assert found["theta"] == pytest.approx({name: theta[name] for name in found["theta"]}, rel=1e-6)
    for model in ("m", "rows"):
        run("predict", model, "points.csv", "--method", "dec-full-gp", "--out", f"{model}.csv")
    np.testing.assert_allclose(pd.read_csv("m.csv")["mean"], pd.read_csv("rows.csv")["mean"], rtol=1e-6)
    run("map", "m", "--grid", "5x5", "--method", "dec-full-gp", "--within", "inf", "--out", "m.nc")
    assert "--within inf" in wrong("map", "m", "--grid", "5x5", "--method", "dec-full-gp", "--out", "n.nc")
    assert "--method dec-full-gp" in wrong("predict", "m", "points.csv", "--out", "n.csv")
    assert not list(boats.glob(".*.reading"))


def test_one_large_file_is_read_in_chunks(boats: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "LARGE", 1000)
    found = run("fit", "observations.csv", *WHOLE, "--agent-column", "boat", "--out", "m")
    assert "240 observations of 3 agents" in found.stdout
    assert "--method dec-full-gp --within inf" in " ".join(found.stdout.split())
    run("fit", "observations.csv", *SST, "--n-agents", "2", "--rounds", "2", "--out", "split")
    assert len(load_model("split").agents) == 2


def test_beyond_memory_a_sample_is_taken_and_said(boats: Path) -> None:
    told = wrong("fit", *BOATS, *SST, "--memory", "1000", "--out", "m")
    assert "got 240 rows, 5,760 bytes" in told
    assert "--sample 100000" in told
    found = run("fit", *BOATS, *SST, "--sample", "30", "--memory", "2500", "--rounds", "3", "--out", "m")
    assert "Trained on a random sample only: 90 of the 240 observations in the files." in " ".join(found.stdout.split())
    assert [len(y) for _, y in load_model("m").fleet.shards] == [30, 30, 30]
    asked = run("predict", "m", "points.csv", "--method", "dec-poe", "--out", "a.csv")
    assert "Answered from a random sample only: 90 of the 240 observations in the files." in " ".join(
        asked.stdout.split()
    )


def test_a_broken_file_is_one_line_and_the_same_command_goes_on(boats: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = Path("Bo.csv").read_text(encoding="utf-8")
    lines = sound.splitlines()
    lines[5] = "Bo,north,1.0,15.0"
    Path("Bo.csv").write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.setattr(file_dataset, "cores", lambda: 1)
    told = wrong("fit", *BOATS, *WHOLE, "--out", "m")
    assert "Bo.csv: column 'lat' must hold numbers" in told
    assert "(first: row 5)" in told
    assert "the same command continues from what was read" in told
    Path("Bo.csv").write_text(sound, encoding="utf-8")
    read: list[str] = []
    survey = file_dataset.__dict__["survey"]

    def heard(file: Path, *more: Any) -> Any:
        read.append(file.name)
        return survey(file, *more)

    monkeypatch.setattr(file_dataset, "survey", heard)
    run("fit", *BOATS, *WHOLE, "--out", "m")
    assert read == ["Bo.csv", "Cy.csv"]


def test_what_is_for_one_file_is_refused_for_several(boats: Path) -> None:
    assert "--n-agents splits the rows of one file" in wrong("fit", *BOATS, *SST, "--n-agents", "2", "--out", "m")
    assert "stride (--stride) is for files that end in .nc or .zarr" in wrong(
        "fit", *BOATS, *SST, "--stride", "2", "--out", "m"
    )
    Path("Bo.csv").write_text("boat,lat,lon,sst\n" + "Bo,40.0,1.0,15.0\n" * 3, encoding="utf-8")
    assert "nothing to learn" in wrong("fit", "Bo.csv", *SST, "--memory", "1e6", "--out", "m")


def test_fields_of_several_files_take_date_box_and_stride_and_kelvin_are_told(folder: Path) -> None:
    for name in "ab":
        packed(Path(f"{name}.nc"))
    part = ["--date", "2021-01-01", "--box", "-74.8", "30.2", "-74.2", "30.8", "--stride", "2"]
    found = run("fit", "a.nc", "b.nc", *SST, *part, "--rounds", "2", "--celsius", "--out", "m")
    said = " ".join(found.stdout.split())
    assert "56 observations of 2 agents" in said
    assert "Temperatures converted from K to degrees Celsius." in said
    assert load_model("m").fleet.shards[0][1].max() < 40.0
