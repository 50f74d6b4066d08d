"""fleetgp fit --private rows: stored with the model, and obeyed by the commands after it."""

from __future__ import annotations

import json
from pathlib import Path

from fleetgp.storage.folder import load_model
from tests.cli.commands import FIT, run, wrong

HOW = ["--kernel", "se", "--tol", "1e-2", "--rounds", "3", "--quiet"]
REVEALING = {"inputs", "observations", "moments"}


def test_a_model_with_private_rows_keeps_them(folder: Path) -> None:
    made = json.loads(
        run(
            "fit", "observations.csv", *FIT, "--out", "m", *HOW, "--private", "rows", "--calibrate", "rows", "--json"
        ).stdout
    )
    assert load_model("m").fleet.private == "rows"
    assert made["calibration"]["method"] == "dec-summary"
    told = [made["sent"], made["calibration"]["sent"]]
    asked = ["m", "points.csv", "--quiet"]
    predicted = json.loads(run("predict", *asked, "--out", "answer.csv", "--json").stdout)
    assert predicted["method"] == "dec-summary"
    told += [predicted["sent"]]
    told += [json.loads(run("calibrate", "m", "--holdout", "blocks", "--json").stdout)["sent"]]
    for sent in told:
        assert sent
        assert not set(sent) & REVEALING
    Path("elsewhere.csv").write_text("lon,lat,sst\n0.31,40.52,0.5\n0.71,41.23,0.1\n", encoding="utf-8")
    assert json.loads(run("score", "m", "elsewhere.csv", "--json").stdout)["method"] == "dec-summary"
    assert "Rows are private" in run("info", "m").stdout
    refused = 'refused by private="rows"'
    for command in (
        ["predict", *asked, "--method", "dec-nn-grbcm", "--out", "other.csv"],
        ["predict", *asked, "--min-rows", "4", "--out", "other.csv"],
        ["calibrate", "m", "--min-rows", "4"],
        ["map", "m", "--grid", "5x5", "--method", "dec-nearest", "--out", "map.nc"],
        ["calibrate", "m", "--method", "dec-grbcm"],
        ["suggest", "m", "points.csv", "--agent", "Ada", "--method", "dec-full-gp", "--out", "s.csv"],
        ["sample", "m", "points.csv", "--method", "full-gp", "--out", "draws.csv"],
        ["score", "m", "--folds", "3"],
        ["score", "m", "observations.csv"],
        ["score", "m", "observations.csv", "--agent-column", "boat"],
        ["verify", "m", "--method", "dec-nearest"],
        ["fit", "observations.csv", *FIT, "--out", "n", *HOW, "--private", "rows", "--training", "dec-gapx-gp"],
    ):
        assert refused in wrong(*command), command


def test_info_says_whose_rows_are_in_the_folder(modelled: Path) -> None:
    shown = " ".join(run("info", "m").stdout.split())
    assert "The folder holds the rows of all agents: whoever has it can read them." in shown
    assert "Rows are private" not in shown


def test_what_else_may_be_private_is_refused(folder: Path) -> None:
    assert "unknown --private 'sums': choose one of rows" in wrong(
        "fit", "none.csv", *FIT, "--out", "m", "--private", "sums"
    )
