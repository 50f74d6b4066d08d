"""Hyperparameters by name, and a theta that is of another model than its numbers say."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, Matern, RationalQuadratic

import fleetgp as fg
from fleetgp.errors import FleetGPWarning
from fleetgp.kernels.expression import as_kernel
from fleetgp.model.hyperparameters import Hyperparameters

#: Most trainings here are cut short on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning")


def shards(offset: float = 0.0, n: int = 120) -> list[Any]:
    field = fg.synthetic_field(n, seed=4)
    return fg.partition(field.inputs, offset + field.observations, agents=3)


def test_a_fit_has_its_values_by_name_also_from_disk(tmp_path: Path) -> None:
    fleet = fg.Fleet(shards(), inputs=["lon", "lat"], kernel="matern32(lon) * se(lat)", normalize=False)
    fit = fleet.train("dec-fact-gp", theta0=[1.0, 0.5, 1.0, 0.3], rounds=3)
    assert fit.names == fleet.names
    assert fit.named == dict(zip(fleet.names, fit.theta.tolist(), strict=True))
    assert fit is fleet.last_fit
    assert f"{fit.names[0]}={fit.theta[0]:.4g}, {fit.names[1]}=" in repr(fit)
    fg.save_model(fg.Model(fleet, ("a", "b", "c"), ("lon", "lat"), "y"), tmp_path / "m")
    again = fg.load_model(tmp_path / "m").fleet.last_fit
    assert again is not None
    assert again.named == fit.named


def test_names_are_of_the_kernel_that_was_chosen() -> None:
    parts = shards(n=60)
    fit = fg.Fleet(parts, kernel="se + linear(1)", normalize=False).train(
        "dec-apx-gp", theta0=[1.0, 0.5, 1.0, 1.0, 0.3], rounds=1
    )
    choosing = fg.Fleet(parts, kernel=["se", "se + linear(1)"], normalize=False)
    assert choosing.adopt(replace(fit, names=())).names == ("l_1", "l_2", "sigma_f1", "sigma_f2", "sigma_eps")
    assert choosing.names == fit.names
    both = fg.Outputs(
        [(x, np.column_stack([y, -y])) for x, y in parts], targets=["s", "t"], kernel="se", normalize=False
    )
    fits = both.train("dec-apx-gp", theta0=[1.0, 0.5, 1.0, 0.3, 1.0, 0.3], rounds=1)
    assert list(fits["t"].named) == ["l_1", "l_2", "sigma_f", "sigma_eps"]
    assert fits["t"] is both.fleets["t"].last_fit


@pytest.mark.parametrize(
    ("name", "theirs", "times"),
    [
        ("se", lambda scale: RBF(scale), np.sqrt(2.0)),
        ("matern12", lambda scale: Matern(scale, nu=0.5), 1.0),
        ("matern32", lambda scale: Matern(scale, nu=1.5), 1.0),
        ("matern52", lambda scale: Matern(scale, nu=2.5), 1.0),
        ("rq", lambda scale: RationalQuadratic(scale, alpha=1.7), np.sqrt(2.0)),
    ],
)
def test_length_scales_beside_those_of_scikit_learn_are_as_the_docstring_says(
    name: str, theirs: Any, times: float
) -> None:
    x = np.linspace(0.0, 3.0, 7)[:, None]
    kernel = as_kernel(name, 1)
    theta = [0.8 * times, *([1.7] if name == "rq" else []), 1.0, 0.1]
    ours = kernel(x, None, Hyperparameters.from_theta(theta))
    np.testing.assert_allclose(ours, theirs(0.8)(x), rtol=1e-10)


def test_a_theta_of_a_normalized_fleet_is_warned_of() -> None:
    theta = [1.2, 0.3, 1.3, 0.1]
    mean = np.mean(np.concatenate([y for _, y in shards(280.0)]))
    with pytest.warns(FleetGPWarning, match=rf"the observations lie about {mean:.4g},.*normalize=True") as told:
        fg.Fleet(shards(280.0), theta=theta, kernel="se", normalize=False)
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fg.Fleet(shards(280.0), theta=theta, normalize=True, kernel="se")
        fg.Fleet(shards(280.0), theta=theta, mean="constant", kernel="se", normalize=False)
        fg.Fleet(shards(2.0), theta=theta, kernel="se", normalize=False)
        fg.Fleet(
            shards(280.0), theta=[1.2, 0.3, 270.0, 0.1], kernel="se", normalize=False
        )  # as it comes out of a training without normalize
        fg.Fleet(shards(280.0), kernel="se", normalize=False)
