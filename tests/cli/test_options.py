"""The options that stand in several places have one default."""

from __future__ import annotations

import inspect
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints

import pytest
from typer.main import get_command

import fleetgp as fg
import fleetgp.options
from fleetgp.cli.app import app
from fleetgp.cli.options import Asking
from fleetgp.declarations import options_in
from fleetgp.estimator import FleetGPRegressor
from fleetgp.options import (
    MemoryOptions,
    ModelOptions,
    PredictionOptions,
    QueryOptions,
    RowOptions,
    ThetaOptions,
    TrainerOptions,
)


def defaults(thing: Any) -> dict[str, Any]:
    """Of a dataclass, a function or the constructor of another class."""
    if not is_dataclass(thing):
        return {name: p.default for name, p in inspect.signature(thing).parameters.items()}
    return {field.name: field.default for field in fields(thing)}


@pytest.mark.parametrize(
    ("place", "family", "shared"),
    [(fg.Fleet, ModelOptions, 8), (FleetGPRegressor, ModelOptions, 3), (FleetGPRegressor, TrainerOptions, 2)],
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
        ("fit", MemoryOptions),
        ("predict", PredictionOptions),
        ("predict", QueryOptions),
        ("map", QueryOptions),
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


@pytest.mark.parametrize(
    ("method", "family", "shared"),
    [
        (fg.Fleet.train, TrainerOptions, 12),
        (fg.Fleet.predict, PredictionOptions, 12),
        (fg.Fleet.calibrate, PredictionOptions, 10),
        (fg.ConditionedFleet.predict, PredictionOptions, 10),
    ],
)
def test_a_method_shows_the_declared_options_with_their_defaults_and_explains_them(
    method: Any, family: type, shared: int
) -> None:
    """None where the method, the data or the fleet decide."""
    known = options_in(family)
    shown = {name: value for name, value in defaults(method).items() if name in known}
    assert len(shown) == shared
    assert shown == {name: None if known[name].otherwise else known[name].default for name in shown}
    told = " ".join(method.__doc__.split())
    assert all(f"{name}: {known[name].help}" in told for name in shown if name != "seed")


@pytest.mark.parametrize("name", [name for name in vars(fleetgp.options) if name.endswith("Keywords")])
def test_keywords_are_declared_options_of_their_types(name: str) -> None:
    families = [TrainerOptions if name == "TrainKeywords" else PredictionOptions, ThetaOptions, QueryOptions]
    types = {option: kind for family in reversed(families) for option, kind in get_type_hints(family).items()}
    for option, kind in get_type_hints(getattr(fleetgp.options, name)).items():
        assert kind in (types[option], types[option] | None)


def test_the_method_is_the_same_from_the_terminal() -> None:
    assert Asking().method == defaults(fg.Fleet.predict)["method"]
