"""Options: what they may be, and which method has which."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.training import TrainingOptions
from tests.training.problems import (
    THETA0,
    fleet,
)

#: Most trainings here are cut short on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning")


@pytest.mark.parametrize("method", fg.TRAINING_METHODS)
@pytest.mark.parametrize(
    ("option", "value", "having"),
    [
        ("rho", 500.0, ["c-gp", "apx-gp", "gapx-gp", "dec-c-gp", "dec-apx-gp", "dec-gapx-gp"]),
        ("kappa", 5000.0, ["dec-apx-gp", "dec-gapx-gp"]),
        ("lipschitz", 5000.0, ["apx-gp", "gapx-gp"]),
        ("nested", "gradient-descent", ["c-gp", "dec-c-gp"]),
        ("nested_iterations", 3, ["c-gp", "dec-c-gp"]),
    ],
)
def test_an_option_that_a_method_does_not_have_is_refused(
    method: str, option: str, value: Any, having: list[str]
) -> None:
    """What a method has is what changes its iterates."""
    f = fleet(45, 3)
    options: dict[str, Any] = {"theta0": THETA0, "rounds": 3, "tol": 0}
    if method in having:
        assert not np.array_equal(
            f.train(method, **options, **{option: value}).history, f.train(method, **options).history
        )
    else:
        with pytest.raises(fg.InputError) as refused:
            f.train(method, **options, **{option: value})
        assert str(refused.value) == f"{method} has no option {option}: methods with {option}: {', '.join(having)}"


def test_a_step_without_gradient_descent_is_refused() -> None:
    with pytest.raises(fg.InputError, match='step is the step size of nested "gradient-descent", and the nested solve'):
        fleet(45, 3).train("c-gp", theta0=THETA0, rounds=1, step=1e-3)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("c-gp", {"nested": "l-bfgs"}),
        ("dec-c-gp", {"nested": "gradient-descent", "step": 1e-5}),
        ("dec-c-gp", {"nested": "gradient-descent", "nested_iterations": 10}),
    ],
)
def test_a_default_that_is_given_changes_nothing(method: str, options: dict[str, Any]) -> None:
    f = fleet(45, 3)
    common: dict[str, Any] = {"theta0": THETA0, "rounds": 2, "tol": 0, "rho": 500.0}
    solver = {"nested": options["nested"]}
    assert np.array_equal(f.train(method, **common, **solver).history, f.train(method, **common, **options).history)


@pytest.mark.parametrize("option", [{"nested": "l-bfgs"}, {"step": 1e-5}, {"nested_iterations": 200}])
def test_a_default_that_is_given_counts_as_given(option: dict[str, Any]) -> None:
    with pytest.raises(fg.InputError, match=f"dec-apx-gp has no option {next(iter(option))}: methods with .*: c-gp"):
        fleet(45, 3).train("dec-apx-gp", **option)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"rounds": 0}, "rounds"),
        ({"tol": -1.0}, "tol"),
        ({"rho": 0.0}, "rho"),
        ({"kappa": np.nan}, "kappa"),
        ({"lipschitz": "5000"}, "lipschitz"),
        ({"step": -1e-5}, "step"),
        ({"nested": "adam"}, "choose one of l-bfgs, gradient-descent"),
        ({"nested_iterations": 1.5}, "nested_iterations"),
        ({"noise_floor": 1.0}, "noise_floor: expected a number of at least 0 and below 1, got 1.0"),
        ({"seed": -1}, "seed"),
        ({"normalize": "no"}, "normalize: expected True or False"),
        ({"engine": "gpu"}, "unknown engine 'gpu'"),
    ],
)
def test_wrong_values_are_one_clear_error(option: dict[str, Any], said: str) -> None:
    with pytest.raises(fg.InputError, match=said):
        TrainingOptions(**option)


def test_a_fleets_description_has_the_same_options_with_the_same_defaults() -> None:
    """fleet.toml has none for a central node."""
    parts = pytest.importorskip("fleetgp.agent.description")
    described = parts.TrainingTable().model_dump(
        exclude={"method", "theta0", "calibrate", "retrain_on_membership_change", "again_after"}
    )
    ours = {option.name: option.default for option in fields(TrainingOptions)}
    assert [described.pop(table) for table in parts.KNOWN] == [{}, {}, {}]
    assert set(ours) - set(described) == {"starts", "lipschitz", "known", "seed", "normalize", "mean", "coordinates"}
    assert described == {name: ours[name] for name in described}


def test_the_command_names_the_option_as_it_was_typed() -> None:
    pytest.importorskip("typer")
    from typer.testing import CliRunner

    from fleetgp.cli.app import app

    fit = ["fit", "nowhere.csv", "--inputs", "u", "--target", "w", "--n-agents", "2", "--out", "nowhere"]
    refused = CliRunner().invoke(app, [*fit, "--training", "full-gp", "--kappa", "5000"])
    assert refused.exit_code == 2
    said = " ".join(refused.stderr.split())
    assert "full-gp has no option --kappa: methods with --kappa: dec-apx-gp, dec-gapx-gp" in said
