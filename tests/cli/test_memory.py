"""fleetgp remove and forget on a model folder, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fleetgp.cli.memory import receipt_lines
from fleetgp.storage.folder import load_model
from tests.cli.commands import QUICK, run, truth, wrong


@pytest.fixture
def model(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    lines = ["lon,lat,day,sst,boat"]
    for boat in ("Ada", "Bo"):
        for number in range(30):
            lon, lat = rng.uniform(0, 1, 2)
            lines.append(f"{lon},{lat},2021-01-{1 + number // 2:02d},{truth(lon, lat)},{boat}")
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    fit = "--inputs", "lon", "lat", "day", "--target", "sst", "--agent-column", "boat"
    run("fit", str(tmp_path / "a.csv"), *fit, *QUICK, "--out", str(tmp_path / "model"))
    return tmp_path / "model"


def test_rows_leave_a_model_folder(model: Path) -> None:
    result = json.loads(
        run("remove", str(model), "--agent", "Ada", "--between", "2021-01-03", "2021-01-04", "--json").stdout
    )
    assert (result["rows"], result["remaining"]) == (4, 26)
    assert list(map(len, load_model(model).fleet.data)) == [26, 30]
    result = run("forget", str(model), "--before", "2021-01-06")
    assert "Ada" in result.stdout
    assert max(map(len, load_model(model).fleet.data)) < 26


def test_what_remove_and_forget_refuse(model: Path) -> None:
    place = str(model)
    assert "expected one of --request, --where, --between and --receipt, got none" in wrong(
        "remove", place, "--agent", "Ada"
    )
    assert "got 2" in wrong("remove", place, "--agent", "Ada", "--where", "sst > 4", "--request", "a")
    assert "--between: expected two times, got 1" in wrong("remove", place, "--agent", "Ada", "--between", "3")
    assert "a model has no receipts" in wrong("remove", place, "--agent", "Ada", "--receipt", "a")
    assert "a model forgets rows of all agents" in wrong("forget", place, "--agent", "Ada", "--before", "3")
    assert "expected one of the columns" in wrong("remove", place, "--agent", "Ada", "--where", "depth > 4")


def test_a_receipt_for_people() -> None:
    receipt = {"name": "abc", "removed": 3, "in_all": 40, "groups": 1, "waiting": 5, "kept_groups": 2, "kept_rows": 41}
    assert receipt_lines("boat3", {**receipt, "ended": ["moments", "calibration"]}) == [
        "boat3: 3 rows removed, 40 remain. Receipt abc.",
        "Withdrawn from the other agents: 1 group; 5 rows of them wait to make new groups.",
        "Removed whole, because they may contain such rows: 2 kept groups, made of 41 forgotten rows.",
        "No longer valid: moments, calibration.",
    ]


def test_fit_forgets_before_it_trains(tmp_path: Path) -> None:
    """By --window; the model forgets by it from then on, and info says so."""
    rng = np.random.default_rng(0)
    day = np.sort(rng.uniform(0.0, 8.0, 200))
    dates = np.datetime64("2021-01-01T00:00") + (day * 1440).astype("timedelta64[m]")
    rows = [f"{x:.3f},{when},{np.sin(2 * x):.3f}" for x, when in zip(rng.uniform(0.0, 3.0, 200), dates, strict=True)]
    (tmp_path / "week.csv").write_text("\n".join(["lon,when,sst", *rows]), encoding="utf-8")
    how = "--inputs", "lon", "when", "--target", "sst", "--window", "3 days"
    out = run("fit", str(tmp_path / "week.csv"), *how, *QUICK, "--out", str(tmp_path / "now")).stdout
    fleet = load_model(tmp_path / "now").fleet
    expected = int((day >= day[-1] - 3.0).sum())
    assert abs(fleet.data.counts[0] - expected) <= 20
    assert f"{200 - fleet.data.counts[0]} rows removed" in out
    assert fleet.memory.window == "3 days"
    assert fleet.last_fit is not None
    assert fleet.kept_rows[0] == 200 - fleet.data.counts[0]
    shown = run("info", str(tmp_path / "now")).stdout
    assert "The agents forget rows older than 3 days." in shown
    assert f"of {fleet.kept_rows[0]} forgotten rows" in shown


def test_a_window_needs_one_target_and_a_time(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,t,s\n0,1,2\n1,2,3\n2,3,5\n3,4,4\n", encoding="utf-8")
    how = "fit", str(tmp_path / "a.csv"), "--inputs", "x", "--out", str(tmp_path / "m"), "--window", "3 days"
    assert "expected one file and one target, got several targets" in run(*how, "--target", "t", "s", code=2).stderr
    assert "name the input by time" in run(*how, "--target", "t", code=2).stderr
