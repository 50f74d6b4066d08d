"""The options that stand in several places have one default."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any

import pytest

import fleetgp as fg
from fleetgp.cli import options
from fleetgp.prediction import PredictionOptions
from fleetgp.training import TrainingOptions


def defaults(thing: Any) -> dict[str, Any]:
    """Of a dataclass, or of a function."""
    if inspect.isfunction(thing):
        return {name: p.default for name, p in inspect.signature(thing).parameters.items()}
    return {field.name: field.default for field in fields(thing)}


@pytest.mark.parametrize("place", [fg.Fleet.train, options.Training])
def test_training_has_one_default_everywhere(place: Any) -> None:
    known = defaults(TrainingOptions)
    shared = {name: value for name, value in defaults(place).items() if name in known and name != "seed"}
    assert len(shared) >= 10
    assert shared == {name: known[name] for name in shared}


@pytest.mark.parametrize("place", [fg.Fleet.predict, fg.ConditionedFleet.predict, options.Asking])
def test_predictions_leave_their_defaults_to_one_place(place: Any) -> None:
    """None means not given; the engine is the only one that is asked for by name."""
    shared = {name: value for name, value in defaults(place).items() if name in defaults(PredictionOptions)}
    assert {"consensus", "rounds", "tol", "eta", "neighbours"} <= set(shared)
    assert shared.pop("engine", "auto") == PredictionOptions().engine
    assert set(shared.values()) == {None}


def test_the_method_is_the_same_from_the_terminal() -> None:
    assert options.Asking().method == defaults(fg.Fleet.predict)["method"]
