"""Mean functions and coordinates in model folders; folders from before have neither."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.errors import InputError
from fleetgp.fleet.maps import cells_within
from fleetgp.storage.folder import load_model, save_model
from fleetgp.storage.model import Model
from fleetgp.storage.sections import VERSION_WITH_MEAN, VERSION_WITH_ROWS
from tests.conftest import paper_shards


@cache
def trained(mean: Any = "linear", coordinates: Any = "kilometres") -> Model:
    shards = [(0.5 * x + [10.0, 40.0], y + 20.0 + x[:, 0]) for x, y in paper_shards(60, 2)]
    fleet = fg.Fleet(shards, inputs=["lon", "lat"], mean=mean, coordinates=coordinates, normalize=True, kernel="se")
    fleet.train(theta0=[60, 20, 1, 0.3] if coordinates == "kilometres" else [0.6, 0.2, 1, 0.3])
    return Model(fleet, ("a", "b"), ("lon", "lat"), "sst")


def test_a_loaded_model_is_the_same(tmp_path: Path) -> None:
    model = trained()
    again = load_model(save_model(model, tmp_path / "m"))
    one, other = model.fleet.last_fit, again.fleet.last_fit
    assert one is not None
    assert other is not None
    assert (one.mean, one.scaling, one.coordinates) == (other.mean, other.scaling, other.coordinates)
    assert (again.fleet.mean, again.fleet.coordinates) == ("linear", model.fleet.coordinates)
    queries = [[10.1, 40.2], [10.7, 40.9]]
    assert np.array_equal(model.fleet.predict(queries).means, again.fleet.predict(queries).means)
    facts = json.loads((tmp_path / "m" / "model.json").read_text(encoding="utf-8"))
    assert facts["version"] == VERSION_WITH_MEAN  # an older FleetGP would answer without the mean


def test_a_folder_from_before_has_a_mean_of_zero_and_inputs_as_given(tmp_path: Path) -> None:
    model = trained("zero", "as-given")
    file = save_model(model, tmp_path / "m") / "model.json"
    facts = json.loads(file.read_text(encoding="utf-8"))
    assert facts["version"] == VERSION_WITH_ROWS
    for name in ("mean", "coordinates"):
        del facts[name]
        del facts["training"][name]
    for name in ("slope", "centre"):
        del facts["training"]["scaling"][name]
    file.write_text(json.dumps(facts), encoding="utf-8")
    again = load_model(tmp_path / "m")
    assert (again.fleet.mean, again.fleet.coordinates.name) == ("zero", "as-given")
    queries = [[10.1, 40.2], [10.7, 40.9]]
    assert np.array_equal(model.fleet.predict(queries).means, again.fleet.predict(queries).means)


@pytest.mark.parametrize(
    ("where", "name", "value"),
    [
        ("scaling", "slope", [1.0]),
        ("scaling", "centre", []),
        ("mean", "turns", "3"),
        ("coordinates", "unit", [0.0, 1.0]),
        ("coordinates", "origin", []),
        ("coordinates", "name", "sphere"),
    ],
)
def test_damage_is_noticed(tmp_path: Path, where: str, name: str, value: Any) -> None:
    file = save_model(trained(), tmp_path / "m") / "model.json"
    facts = json.loads(file.read_text(encoding="utf-8"))
    facts["training"][where][name] = value
    file.write_text(json.dumps(facts), encoding="utf-8")
    with pytest.raises(InputError):
        load_model(tmp_path / "m")


def test_a_map_measures_in_kilometres() -> None:
    model = trained()
    assert model.fleet.theta is not None
    length = model.fleet.theta[1] / (6371.0088 * np.pi / 180.0)  # along latitudes, in degrees
    x = model.fleet.shards[0][0]
    edge = x[x[:, 1].argmax()]
    cells = np.array([[edge[0], edge[1] + steps * length] for steps in (0.9, 5.0)])
    every = np.concatenate([inputs for inputs, _ in model.fleet.shards])
    assert cells[1, 1] - every[:, 1].max() > 2.0 * length
    assert cells_within(model.fleet.snapshot(), cells, 1.0).tolist() == [True, False]
