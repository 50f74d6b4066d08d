"""A training that diverged says what it ran into; and with the default floor no data are too free of noise."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import fleetgp as fg
from fleetgp.cli.app import app
from fleetgp.data import Shard
from fleetgp.training import TrainingOptions
from fleetgp.training.reporting import about_divergence

#: Most trainings here are cut short on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning")


def noise_free(agents: int = 3, points: int = 240) -> list[Shard]:
    rng = np.random.default_rng(3)
    x = rng.uniform(0, 2, (points, 2))
    return fg.partition(x, 290.0 + 4.0 * np.sin(2 * x[:, 0]) * np.cos(3 * x[:, 1]), agents=agents)


@pytest.mark.parametrize(
    ("method", "kernel"), [("dec-g-fact-gp", "matern32"), ("dec-fact-gp", "matern52"), ("full-gp", "matern32")]
)
def test_without_a_floor_data_without_noise_send_sigma_eps_to_zero_which_is_said(method: str, kernel: str) -> None:
    fleet = fg.Fleet(noise_free(), normalize=True, kernel=kernel, inputs=["lon", "lat"])
    chosen = {"engine": "vecchia", "n_neighbours": 8, "theta0": [1.0, 1.0, 4.0, 1.0]}
    with pytest.warns(fg.FleetGPWarning, match=r"sigma_eps went from 1 to .*e-.*Give a noise_floor; its default is"):
        fit = fleet.train(method, noise_floor=0.0, **chosen)  # type: ignore[arg-type]
    assert fit.status == "diverged"
    with pytest.raises(fg.InputError, match=f"{method} diverged, train in another way"):
        fleet.predict([[1.0, 1.0]])
    with pytest.warns(fg.FleetGPWarning, match="stands at its floor"):
        fit = fleet.train(method, **chosen)  # type: ignore[arg-type]
    assert fit.status == "converged"


@pytest.mark.parametrize("method", ["dec-g-fact-gp", "full-gp", "dec-full-gp"])
def test_an_input_that_does_not_matter_is_named(method: str) -> None:
    x = np.random.default_rng(0).uniform(size=(240, 2))
    noise = 0.1 * np.random.default_rng(4).standard_normal(240)  # one whose best l_depth is infinite for every trainer
    data = fg.partition(x, np.sin(6 * x[:, 0]) + noise, agents=3)
    with pytest.warns(fg.FleetGPWarning, match="the likelihood does not depend on l_depth "):
        fit = fg.Fleet(data, kernel="se", normalize=False, inputs=["lon", "depth"]).train(method)
    assert (fit.status, fit.flat) == ("converged", ("l_depth",))


def test_what_else_may_have_run_away() -> None:
    fleet = fg.Fleet([([[0.0], [1.0]], [0.0, 1.0])], kernel="se", normalize=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fg.FleetGPWarning)
        fit = replace(fleet.train("dec-fact-gp", theta0=[1.0, 1.0, 0.1], rounds=1), status="diverged")
    options = TrainingOptions(kappa=0.01)  # which dec-fact-gp does not have: a fleet.toml may

    def said(*ends: list[float], floor: float = 0.0, names: tuple[str, ...] = fleet.names) -> str:
        history = np.array([[[2.0, 3.0, 0.1]], *([end] for end in ends)])
        return about_divergence(replace(fit, history=history, noise_floor=floor), options, names)

    assert "no likelihood at theta = (l_1 = 2, sigma_f = 3, sigma_eps = 0.1)" in said()
    assert "no likelihood" in said([np.nan, np.inf, 0.0])
    assert "sigma_f went from 3 to 1e-05. The observations do not vary" in said([2.1, 1e-5, 0.1])
    assert "sigma_f went from 3 to 3e+09. Start elsewhere" in said([2.1, 3e9, 0.1], [np.inf, 3e9, 0.1])
    rational = ("alpha", "sigma_f", "sigma_eps")
    assert "alpha went from 2 to 2e+09. With a large alpha rq is se: take se" in said([2e9, 3.0, 0.1], names=rational)
    assert "Give a larger noise_floor" in said([2.1, 3.0, 1e-9], floor=1e-9)


def test_the_command_line_says_so_too(tmp_path: Path) -> None:
    x = np.random.default_rng(0).uniform(size=(240, 2))
    y = np.sin(6 * x[:, 0]) + 0.1 * np.random.default_rng(1).standard_normal(240)
    file = tmp_path / "sea.csv"
    np.savetxt(file, np.column_stack([x, y]), delimiter=",", header="lon,lat,sst", comments="", fmt="%.17g")
    fit = ["fit", str(file), "--inputs", "lon,lat", "--target", "sst", "--n-agents", "2"]
    fit += ["--training", "full-gp", "--json", "--out", str(tmp_path / "model")]
    found = CliRunner().invoke(app, fit)
    said = " ".join(found.stderr.split())
    assert found.exit_code == 0
    assert "the likelihood does not depend on l_lat" in said
    assert "which may be left out" in said
    assert json.loads(found.stdout)["flat"] == ["l_lat"]
    trained = fg.load_model(tmp_path / "model").fleet.last_fit
    assert trained is not None
    assert trained.flat == ("l_lat",)
