"""Calibrations in model folders: what is loaded is what was saved; older folders have none; damage is noticed."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.errors import InputError
from fleetgp.storage.folder import load_model, save_model
from fleetgp.storage.model import Model
from fleetgp.storage.sections import compared_facts, read_compared
from fleetgp.training import Compared
from tests.conftest import paper_shards

#: Most trainings here are cut short on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning")

QUERIES = np.random.default_rng(0).uniform(0.0, 2.0, (7, 2))


@cache
def calibrated() -> fg.Fleet:
    fleet = fg.Fleet(list(paper_shards(120, 2)), "path", kernel=["matern32", "se"], normalize=False)
    fleet.train(tol=1e-2, rounds=5)
    fleet.calibrate("dec-rbcm")
    return fleet


def saved(folder: Path) -> tuple[fg.Fleet, Path]:
    fleet = calibrated()
    return fleet, save_model(Model(fleet, ("a", "b"), ("x", "y"), "z"), folder / "model")


def test_what_is_loaded_is_what_was_saved(tmp_path: Path) -> None:
    fleet, folder = saved(tmp_path)
    again = load_model(folder).fleet
    assert fleet.last_fit is not None
    assert again.last_fit is not None
    assert again.last_fit.compared == fleet.last_fit.compared
    assert (again.kernel.name, again.last_fit.kernel) == (fleet.kernel.name, fleet.kernel.name)
    assert again.calibration is not None
    assert fleet.calibration is not None
    for name in ("method", "eta", "n_neighbours", "holdout", "level", "cells", "knots"):
        assert getattr(again.calibration, name) == getattr(fleet.calibration, name)
    old, new = (one.predict(QUERIES, "dec-rbcm") for one in (fleet, again))
    assert np.array_equal(old.variances, new.variances)
    assert np.array_equal(old.factors, new.factors)
    assert (new.factors != 1.0).all()


def test_a_folder_without_either_is_read_as_before(tmp_path: Path) -> None:
    _, folder = saved(tmp_path)
    facts = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    del facts["calibration"], facts["training"]["compared"]
    (folder / "model.json").write_text(json.dumps(facts), encoding="utf-8")
    again = load_model(folder).fleet
    assert again.calibration is None
    assert again.last_fit is not None
    assert again.last_fit.compared == ()


@pytest.mark.parametrize(
    "change",
    [
        {"method": "guess"},
        {"holdout": "rows"},
        {"level": 2.0},
        {"eta": "some"},
        {"knots": []},
        {"knots": [{"holdout": "rows"}]},
        {"knots": "both"},
    ],
)
def test_damage_is_noticed(tmp_path: Path, change: dict[str, Any]) -> None:
    _, folder = saved(tmp_path)
    facts = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    facts["calibration"] |= change
    (folder / "model.json").write_text(json.dumps(facts), encoding="utf-8")
    with pytest.raises(InputError):
        load_model(folder)


def test_a_factor_that_is_none_is_noticed(tmp_path: Path) -> None:
    _, folder = saved(tmp_path)
    facts = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    facts["calibration"]["knots"][0]["factor"] = -1.0
    (folder / "model.json").write_text(json.dumps(facts), encoding="utf-8")
    with pytest.raises(InputError, match=r"the model is damaged.*expected positive factors"):
        load_model(folder)


def test_a_kernel_that_failed_is_kept_as_such() -> None:
    found = (Compared("se", -np.inf, 40, (np.nan, np.nan)), Compared("matern12", -0.5, 40, (1.0, 2.0)))
    again = read_compared(json.loads(json.dumps(compared_facts(found))))
    assert again[1] == found[1]
    assert again[0].density == -np.inf
    assert np.isnan(again[0].theta).all()
