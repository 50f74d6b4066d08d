"""The options that stand in several places have one default."""

from __future__ import annotations

import inspect
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from typer.main import get_command

import fleetgp as fg
from fleetgp.cli.app import app
from fleetgp.cli.options import Asking
from fleetgp.declarations import options_in
from fleetgp.estimator import FleetGPRegressor
from fleetgp.options import ModelOptions, PredictionOptions, RowOptions, TrainerOptions


def defaults(thing: Any) -> dict[str, Any]:
    """Of a dataclass, a function or the constructor of another class."""
    if not is_dataclass(thing):
        return {name: p.default for name, p in inspect.signature(thing).parameters.items()}
    return {field.name: field.default for field in fields(thing)}


@pytest.mark.parametrize(
    ("place", "family", "shared"),
    [(fg.Fleet, ModelOptions, 7), (FleetGPRegressor, ModelOptions, 3), (FleetGPRegressor, TrainerOptions, 2)],
)
def test_signatures_have_the_declared_defaults(place: Any, family: type, shared: int) -> None:
    known = defaults(family)
    found = {name: value for name, value in defaults(place).items() if name in known}
    assert len(found) == shared
    assert found == {name: known[name] for name in found}


@pytest.mark.parametrize(
    ("command", "family"),
    [
        ("fit", ModelOptions),
        ("fit", TrainerOptions),
        ("predict", PredictionOptions),
        ("score", PredictionOptions),
        ("fit", RowOptions),
        ("fit", fg.io.Reading),
        ("score", RowOptions),
    ],
)
def test_a_command_has_every_option_that_can_be_typed(command: str, family: type) -> None:
    group: Any = get_command(app)
    parameters = group.get_command(group.make_context("fleetgp", [], resilient_parsing=True), command).params
    typed = {option: one for one in parameters for option in one.opts}
    for one in options_in(family).values():
        assert (one.flag in typed) == one.cli
        if one.cli:
            assert typed[one.flag].default is None
            assert typed[one.flag].help.startswith(one.help)


def test_training_leaves_its_defaults_to_one_place() -> None:
    shared = {name: value for name, value in defaults(fg.Fleet.train).items() if name in defaults(TrainerOptions)}
    assert list(shared) == list(defaults(TrainerOptions))
    assert set(shared.values()) == {None}


@pytest.mark.parametrize("place", [fg.Fleet.predict, fg.ConditionedFleet.predict])
def test_predictions_leave_their_defaults_to_one_place(place: Any) -> None:
    """None means not given; the engine is the only one that is asked for by name."""
    shared = {name: value for name, value in defaults(place).items() if name in defaults(PredictionOptions)}
    assert {"consensus", "rounds", "tol", "eta", "n_neighbours"} <= set(shared)
    assert shared.pop("engine", "auto") == PredictionOptions().engine
    assert set(shared.values()) == {None}


def test_the_method_is_the_same_from_the_terminal() -> None:
    assert Asking().method == defaults(fg.Fleet.predict)["method"]
