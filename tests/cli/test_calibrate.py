"""fleetgp fit --kernel auto --calibrate, fleetgp calibrate, and what predict says of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd

from tests.cli.commands import FIT, run, said, wrong


def test_a_model_with_a_chosen_kernel_and_calibrated(folder: Path) -> None:
    how = ["--kernel", "auto", "--calibrate", "rows", "--tol", "1e-2", "--rounds", "3", "--quiet"]
    facts = json.loads(run("fit", "observations.csv", *FIT, "--out", "model", *how, "--json").stdout)
    assert [one["kernel"] for one in facts["compared"]] == ["se", "matern52", "matern32", "matern12"]
    best = max(facts["compared"], key=lambda one: one["density"])
    assert facts["kernel"] == best["kernel"]
    (knot,) = facts["calibration"]["knots"]
    assert (knot["holdout"], knot["rows"]) == ("rows", 240)
    asked = ["predict", "model", "points.csv", "--quiet"]
    told = json.loads(run(*asked, "--out", "answer.csv", "--json").stdout)
    assert told["factors"] == [knot["factor"]] * 2
    other = run(*asked, "--method", "dec-rbcm", "--out", "other.csv")
    assert "the fleet is calibrated for dec-summary" in said(other)

    plain = pd.read_csv("other.csv")["std_observed"]
    found = run("calibrate", "model", "--method", "dec-rbcm", "--holdout", "both")
    assert "Calibrated for dec-rbcm" in found.stdout
    assert "Sent between agents, in numbers: " in found.stdout
    assert " inputs " in found.stdout, "those of hidden rows"
    again = run(*asked, "--method", "dec-rbcm", "--out", "again.csv")
    assert "Calibrated: standard deviations times" in again.stdout
    scaled = pd.read_csv("again.csv")["std_observed"]
    factors = [
        knot["factor"]
        for knot in json.loads(Path("model/model.json").read_text(encoding="utf-8"))["calibration"]["knots"]
    ]
    assert ((scaled / plain) >= min(factors) * (1 - 1e-9)).all()
    assert ((scaled / plain) <= max(factors) * (1 + 1e-9)).all()
    assert not np.allclose(scaled, plain, rtol=1e-6)


def test_fit_shows_what_was_compared(folder: Path) -> None:
    how = ["--kernel", "auto", "--tol", "1e-2", "--rounds", "2", "--quiet", "--overwrite"]
    shown = run("fit", "observations.csv", *FIT, "--out", "model", *how).stdout
    assert "240 rows that the agents held out in blocks" in " ".join(shown.split())
    assert shown.count("chosen") == 1


def test_what_cannot_be_is_refused_before_anything_is_read(folder: Path) -> None:
    assert "unknown --calibrate 'cells'" in wrong("fit", "none.csv", *FIT, "--out", "model", "--calibrate", "cells")
    assert "there is no model.json" in wrong("calibrate", ".")
