"""Python, the command line, fleet.toml and the estimator have the same defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import fleetgp as fg
from fleetgp.agent.description import read_description
from fleetgp.cli.app import app
from fleetgp.errors import FleetGPWarning
from fleetgp.estimator import FleetGPRegressor
from fleetgp.storage.folder import load_model

EXPECTED = {"kernel": "matern32", "normalize": True, "mean": "zero", "coordinates": "as-given"}
METHODS = ("dec-fact-gp", "dec-summary")
TOML = """
name = "bay"
inputs = ["x"]
target = "y"
{}
[[agent]]
name = "ada"
endpoint = "tcp/127.0.0.1:7401"
data = "ada.csv"
"""


def rows() -> tuple[Any, Any]:
    x = np.linspace(0.0, 3.0, 50)[:, None]
    return x, 300.0 + np.sin(3.0 * x[:, 0]) + 0.3 * np.random.default_rng(1).standard_normal(50)


def of_fleet(fleet: fg.Fleet | fg.Outputs) -> dict[str, Any]:
    if isinstance(fleet, fg.Outputs):
        fleet = next(iter(fleet.fleets.values()))
    (kernel,) = fleet.kernels
    settings = fleet.normalize, fleet.mean, fleet.coordinates.name
    return dict(zip(EXPECTED, (kernel.name, *settings), strict=True))


def test_python() -> None:
    x, y = rows()
    fleet = fg.Fleet([(x, y)])
    assert of_fleet(fleet) == EXPECTED
    assert of_fleet(fg.Outputs([(x, np.column_stack([y, y]))], targets=["a", "b"])) == EXPECTED
    assert (fleet.train().method, fleet.predict(x[:1]).method) == METHODS


def test_the_estimator() -> None:
    fitted = FleetGPRegressor().fit(*rows())
    assert of_fleet(fitted.fleet_) == EXPECTED
    assert (fitted.trainer, fitted.predictor) == METHODS


def test_fleet_toml(tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text(TOML.format(""), encoding="utf-8")
    found = read_description(tmp_path / "fleet.toml")
    (kernel,) = found.kernels
    assert (kernel.name, found.normalize, found.mean, found.coordinates.name) == tuple(EXPECTED.values())
    assert (found.training.method, found.prediction.method) == METHODS
    (tmp_path / "fleet.toml").write_text(TOML.format('[training]\nmethod = "dec-full-gp"'), encoding="utf-8")
    assert [one.name for one in read_description(tmp_path / "fleet.toml").kernels] == ["se"]


@pytest.mark.parametrize(("method", "kernel"), [("dec-fact-gp", "matern32"), ("dec-full-gp", "se")])
def test_the_command_line(method: str, kernel: str, tmp_path: Path) -> None:
    x, y = rows()
    table = "\n".join(["x,y", *(f"{a},{b}" for a, b in zip(x[:, 0].tolist(), y.tolist(), strict=True))])
    (tmp_path / "rows.csv").write_text(table, encoding="utf-8")
    words = ["fit", str(tmp_path / "rows.csv"), "--inputs", "x", "--target", "y", "--out", str(tmp_path / "model")]
    words += ["--quiet", *([] if method == METHODS[0] else ["--training", method])]
    assert CliRunner().invoke(app, words).exit_code == 0
    fleet = load_model(tmp_path / "model").fleet
    assert of_fleet(fleet) == {**EXPECTED, "kernel": kernel}
    assert fleet.last_fit is not None
    assert fleet.last_fit.method == method


def test_dec_full_gp_takes_the_kernel_that_it_needs_unless_one_was_chosen() -> None:
    shards = [rows()]
    fleet = fg.Fleet(shards)
    with pytest.warns(FleetGPWarning, match='dec-full-gp needs kernel="se"'):
        fit = fleet.train("dec-full-gp")
    stated = fg.Fleet(shards, kernel="se", normalize=True).train("dec-full-gp")
    np.testing.assert_array_equal(fit.theta, stated.theta)
    with pytest.raises(fg.InputError, match='use kernel="se"'):
        fg.Fleet(shards, kernel="matern32", normalize=True).train("dec-full-gp")


def test_the_papers_settings_by_one_word() -> None:
    x, y = rows()
    shards = [(x[:25], y[:25]), (x[25:], y[25:])]
    fleet = fg.Fleet(shards, normalize=False)
    with pytest.warns(FleetGPWarning, match='preset="paper" needs kernel="se"'):
        fit = fleet.train("dec-apx-gp", preset="paper", rounds=7)
    stated = fg.Fleet(shards, kernel="se", normalize=False)
    paper: dict[str, Any] = {"rho": 500.0, "kappa": 5000.0, "tol": 0.0, "noise_floor": 0.0}
    np.testing.assert_array_equal(fit.theta, stated.train("dec-apx-gp", rounds=7, **paper).theta)
    assert stated.train("dec-apx-gp", preset="paper").rounds == 100
    with pytest.raises(fg.InputError, match="unknown preset 'ours': choose one of paper"):
        stated.train(preset="ours")  # type: ignore[arg-type]


def test_the_papers_settings_in_a_terminal(tmp_path: Path) -> None:
    x, y = rows()
    np.savetxt(tmp_path / "rows.csv", np.column_stack([x, y]), delimiter=",", header="x,y", comments="")
    words = ["fit", str(tmp_path / "rows.csv"), "--inputs", "x", "--target", "y", "--out", str(tmp_path / "model")]
    words += ["--quiet", "--n-agents", "2", "--training", "dec-apx-gp", "--preset", "paper"]
    assert CliRunner().invoke(app, [*words, "--rounds", "5"]).exit_code == 0
    fleet = load_model(tmp_path / "model").fleet
    assert of_fleet(fleet) == {**EXPECTED, "kernel": "se", "normalize": False}
    assert fleet.last_fit is not None
    assert fleet.last_fit.rounds == 5
    told = CliRunner().invoke(app, [*words, "--preset", "ours", "--overwrite"]).stderr
    assert "unknown --preset 'ours'" in " ".join(told.split())
