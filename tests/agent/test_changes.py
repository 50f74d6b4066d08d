"""A fleet in processes whose model has a mean function and coordinates: it answers as one in this process does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.agent.agenda import Change, Trained
from fleetgp.agent.description import read_description
from fleetgp.agent.memory import Checkpoint
from fleetgp.data.transforms import Coordinates, Scaling
from fleetgp.errors import InputError
from tests.agent.fleets import ask, describe, running, settled, until
from tests.shared import observed

START = [60.0, 20.0, 1.0, 0.3]
CHANGE = Change.of(
    Scaling(1.0, 2.0, (3.0, 4.0), (5.0, 6.0)), Coordinates("kilometres", (10.0, 40.0), (0.01, 0.02), 0, 0.005)
)


def at_sea(folder: Path, **options: Any) -> tuple[Any, list[Any]]:
    """Two agents whose inputs are degrees, with a trend."""
    _, shards = describe(folder, 2, points=30, training_options=f"theta0 = {START}", **options)
    text = (folder / "fleet.toml").read_text(encoding="utf-8")
    text = text.replace('inputs = ["x", "y"]', 'inputs = ["lon", "lat"]\nmean = "linear"\ncoordinates = "kilometres"')
    (folder / "fleet.toml").write_text(text, encoding="utf-8")
    moved = [(0.5 * x + [10.0, 40.0], y + 20.0 + 3.0 * x[:, 0]) for x, y in shards]
    for number, (x, y) in enumerate(moved):
        np.savez(folder / f"a{number}.npz", lon=x[:, 0], lat=x[:, 1], temperature=y)
    return read_description(folder / "fleet.toml"), moved


def test_it_answers_as_a_fleet_in_this_process(tmp_path: Path) -> None:
    description, shards = at_sea(tmp_path, training="dec-full-gp", prediction="dec-full-gp")
    queries = shards[0][0][:3] + 0.01
    fleet = fg.Fleet(
        shards, inputs=["lon", "lat"], mean="linear", coordinates="kilometres", normalize=True, kernel="se"
    )
    fit = fleet.train("dec-full-gp", theta0=START)
    with running(description, tmp_path) as agents:
        until(lambda: settled(agents))
        for agent in agents:
            trained = agent.memory.trained
            assert trained is not None
            assert (trained.scaling, trained.coordinates) == (fit.scaling, fit.coordinates)
        for method in ("dec-full-gp", "dec-rbcm", "dec-nn-grbcm", "dec-summary"):
            answer, expected = ask(description, "a1", queries.tolist(), method=method), fleet.predict(queries, method)
            np.testing.assert_allclose(answer["mean"], expected.mean, rtol=1e-6)
            np.testing.assert_allclose(answer["variance"], expected.variance, rtol=1e-4)
        totals = agents[0].memory.totals
        assert totals is not None
        assert totals.contents.view.scaling == fit.scaling
        row = totals.contents.beyond(0, *observed(shards[:1]))
        assert row is not None
        assert not row.any()  # all of its rows are in


@pytest.mark.filterwarnings("ignore:sigma_eps stands at its floor")  # of a field that is smoother than the kernel
def test_one_on_the_sphere_does_across_180_degrees(tmp_path: Path) -> None:
    start, kernel = [200.0, 1.0, 0.3], "iso-matern32(lon, lat)"
    _, shards = describe(tmp_path, 2, points=30, training="dec-fact-gp")
    text = (tmp_path / "fleet.toml").read_text(encoding="utf-8").replace("[2.0, 0.5, 1.0, 1.0]", str(start))
    model = f'inputs = ["lon", "lat"]\nkernel = "{kernel}"\ncoordinates = "sphere"'
    text = "\n".join(line for line in text.splitlines() if not line.startswith("kernel"))
    (tmp_path / "fleet.toml").write_text(text.replace('inputs = ["x", "y"]', model), encoding="utf-8")
    moved = [(5.0 * x + [175.0, 60.0], y) for x, y in shards]
    moved = [(np.column_stack([(x[:, 0] + 180.0) % 360.0 - 180.0, x[:, 1]]), y) for x, y in moved]
    assert min(x[:, 0].min() for x, _ in moved) < 0.0 < max(x[:, 0].max() for x, _ in moved)
    for number, (x, y) in enumerate(moved):
        np.savez(tmp_path / f"a{number}.npz", lon=x[:, 0], lat=x[:, 1], temperature=y)
    description = read_description(tmp_path / "fleet.toml")
    fleet = fg.Fleet(moved, inputs=["lon", "lat"], coordinates="sphere", kernel=kernel, normalize=description.normalize)
    fit = fleet.train("dec-fact-gp", theta0=start)
    queries = np.array([[180.0, 64.0], [-179.5, 65.0]])
    with running(description, tmp_path) as agents:
        until(lambda: settled(agents))
        trained = agents[0].memory.trained
        assert trained is not None
        assert trained.coordinates == fit.coordinates
        for method in ("dec-rbcm", "dec-nn-grbcm", "dec-summary"):
            answer, expected = ask(description, "a1", queries.tolist(), method=method), fleet.predict(queries, method)
            np.testing.assert_allclose(answer["mean"], expected.mean, rtol=1e-6)
            np.testing.assert_allclose(answer["variance"], expected.variance, rtol=1e-4)


def test_a_checkpoint_has_it_and_an_older_one_has_none(tmp_path: Path) -> None:
    description, _ = at_sea(tmp_path)
    path = tmp_path / "checkpoint.json"
    trained = Trained((0.1, 0.2, 0.3, 0.4), 7, (0, 1), "dec-fact-gp", "converged", 3, 1.0, 2.0, CHANGE)
    Checkpoint(trained, 5).save(path, description)
    found = Checkpoint.load(path, description)
    assert found is not None
    assert found.trained == trained
    assert trained.scaling == Scaling(1.0, 2.0, (3.0, 4.0), (5.0, 6.0))
    facts = json.loads(path.read_text(encoding="utf-8"))
    del facts["trained"]["change"]
    path.write_text(json.dumps(facts), encoding="utf-8")
    old = Checkpoint.load(path, description)
    assert old is not None
    assert old.trained is not None
    assert (old.trained.scaling, old.trained.coordinates) == (Scaling(1.0, 2.0), Coordinates())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("slope", [1.0]),
        ("centre", []),
        ("unit", [0.0, 1.0]),
        ("origin", [1.0]),
        ("longitude", 2),
        ("latitude", 2),
        ("coordinates", "x"),
    ],
)
def test_one_that_cannot_be_is_refused(tmp_path: Path, name: str, value: Any) -> None:
    description, _ = at_sea(tmp_path)
    path = tmp_path / "checkpoint.json"
    trained = Trained((0.1, 0.2, 0.3, 0.4), 7, (0, 1), "dec-fact-gp", "converged", 3, 1.0, 2.0, CHANGE)
    Checkpoint(trained, 5).save(path, description)
    facts = json.loads(path.read_text(encoding="utf-8"))
    facts["trained"]["change"][name] = value
    path.write_text(json.dumps(facts), encoding="utf-8")
    assert Checkpoint.load(path, description) is None


def test_a_description_names_the_line_that_is_wrong(tmp_path: Path) -> None:
    description, _ = at_sea(tmp_path)
    assert (description.mean, description.coordinates.name) == ("linear", "kilometres")
    text = (tmp_path / "fleet.toml").read_text(encoding="utf-8")
    for old, new, told in (
        ('mean = "linear"', 'mean = "cubic"', "line 4: mean"),
        ('inputs = ["lon", "lat"]', 'inputs = ["x", "lat"]', "line 5: coordinates"),
        ('coordinates = "kilometres"', 'coordinates = "sphere"', "expected mean="),
    ):
        (tmp_path / "fleet.toml").write_text(text.replace(old, new), encoding="utf-8")
        with pytest.raises(InputError, match=told):
            read_description(tmp_path / "fleet.toml")
