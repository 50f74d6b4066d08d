"""fleetgp info: what is in a folder, for people and for programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from fleetgp.storage.folder import load_model
from tests.cli.commands import run, wrong


def test_a_trained_model_in_words(folder: Path) -> None:
    table = pd.read_csv("observations.csv").rename(columns={"sst": "Temperatur °C"})
    table.to_csv("Ostsee 1.csv", index=False)
    asked = [
        "--inputs",
        "lon",
        "lat",
        "--target",
        "Temperatur °C",
        "--agent-column",
        "boat",
        "--tol",
        "1e-2",
        "--quiet",
    ]
    told = run(
        "fit", "Ostsee 1.csv", *asked, "--coordinates", "kilometres", "--fix", "noise=0.05", "--out", "Modell Süd"
    )
    assert "fleetgp predict 'Modell Süd' points.csv" in told.stdout
    shown = " ".join(run("info", "Modell Süd").stdout.split())
    facts = json.loads(run("info", "Modell Süd", "--json").stdout)
    theta = load_model("Modell Süd").theta
    assert f"the field changes over about {theta['l_lon']:.3g} km along lon" in shown
    assert "240 observations of 3 agents: Ada " in shown
    assert "Written by fleetgp " in shown
    assert "Fixed: sigma_eps." in shown
    assert "Training: dec-fact-gp, converged after" in shown
    assert "Not calibrated" in shown
    low, high = table["lat"].min(), table["lat"].max()
    assert np.allclose([facts["inputs"]["lat"]["low"], facts["inputs"]["lat"]["high"]], [low, high])
    assert facts["agents"] == table["boat"].value_counts().sort_index().to_dict()
    assert facts["theta"]["l_lat"] == {
        "value": theta["l_lat"],
        "unit": "km",
        "meaning": f"the field changes over about {theta['l_lat']:.3g} km along lat",
    }
    size = sum(path.stat().st_size for path in (folder / "Modell Süd").rglob("*") if path.is_file())
    assert facts["bytes"] == size


def test_a_model_that_was_not_trained(modelled: Path) -> None:
    shown = " ".join(run("info", "m").stdout.split())
    assert "the hyperparameters were given, nothing was trained" in shown
    assert "1 link between agents." in shown
    run("calibrate", "m", "--method", "dec-rbcm", "--holdout", "rows")
    calibrated = run("info", "m").stdout
    assert "Calibrated for dec-rbcm" in calibrated
    assert "Not calibrated" not in calibrated


def test_what_is_no_model_is_one_line(modelled: Path) -> None:
    assert "there is no model.json" in wrong("info", ".")
    file = modelled / "m" / "model.json"
    file.write_text(
        json.dumps(json.loads(file.read_text(encoding="utf-8")) | {"version": 99, "written_by": "fleetgp 7.0"}),
        encoding="utf-8",
    )
    assert 'got format 99, written by fleetgp 7.0: pip install "fleetgp>=7.0"' in wrong("info", "m")


def test_a_reader_that_wants_no_more_is_no_error(modelled: Path) -> None:
    """As of `fleetgp info m --json | head`, where the pipe is closed before anything is written."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "fleetgp", "info", "m", "--json"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert done.stderr == ""
