"""private = "rows" in a fleet.toml: agents refuse what would reveal a row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.agent.agent import Agent
from fleetgp.agent.description import Description, read_description
from fleetgp.agent.logs import Log
from fleetgp.agent.observations import store_of
from fleetgp.agent.service import status_of
from fleetgp.errors import InputError
from fleetgp.operator.client import AgentClient
from tests.agent.fleets import QUERIES, ask, describe, running, serving, until

CALIBRATE = 'theta0 = [2.0, 0.5, 1.0, 1.0]\ncalibrate = "rows"\nrounds = 5'


def private(folder: Path, *changes: tuple[str, str], **options: Any) -> Description:
    """Two agents that keep their rows."""
    describe(folder, 2, **options)
    text = (folder / "fleet.toml").read_text(encoding="utf-8")
    for old, new in (('target = "temperature"', 'target = "temperature"\nprivate = "rows"'), *changes):
        assert old in text
        text = text.replace(old, new)
    (folder / "fleet.toml").write_text(text, encoding="utf-8")
    return read_description(folder / "fleet.toml")


def test_agents_refuse_what_sends_rows_and_calibrate_without(tmp_path: Path) -> None:
    description = private(tmp_path, training_options=CALIBRATE, prediction="dec-poe")
    with running(description, tmp_path) as agents:
        until(lambda: serving(agents) and all(a.memory.trained and a.memory.trained.calibration for a in agents))
        assert ask(description, "a0", QUERIES)["method"] == "dec-poe"
        for method in ("dec-nearest", "dec-full-gp", "dec-npae"):
            with pytest.raises(InputError, match=f'{method} is refused by private="rows"'):
                ask(description, "a1", QUERIES, method=method)
        with AgentClient(description, "a0") as client, pytest.raises(InputError, match="dec-g-fact-gp is refused"):
            client.request("train", 30.0, method="dec-g-fact-gp")


def test_the_status_shows_no_exact_corner_and_no_mean_of_the_rows(tmp_path: Path) -> None:
    description = private(tmp_path, edges=[(0, 1)])
    data = store_of(description, "a0", tmp_path / "state", Log("a0", file=tmp_path / "a0.log"))
    rows = data.shard.inputs
    place = {name: np.array(values) for name, values in data.place.items()}
    width = np.ptp(rows, axis=0)
    assert (place["low"] < rows.min(axis=0)).all()
    assert (place["high"] > rows.max(axis=0)).all()
    assert (rows.min(axis=0) - place["low"] < width / 8.0).all()
    assert (place["high"] - rows.max(axis=0) < width / 8.0).all()
    np.testing.assert_array_equal(place["centre"], (place["low"] + place["high"]) / 2.0)
    row = [*rows.mean(axis=0).tolist(), 12.0]
    data.append([row])  # inside of the box: nothing of it can be seen
    assert {name: values.tolist() for name, values in place.items()} == data.place


def test_the_status_of_an_agent_has_this_place(tmp_path: Path) -> None:
    description = private(tmp_path)
    with running(description, tmp_path) as agents:
        for agent in agents:
            place, rows = status_of(agent)["place"], agent.data.shard.inputs
            assert not set(place["low"] + place["high"] + place["centre"]) & set(rows.ravel().tolist())
            assert not np.isclose(place["centre"], rows.mean(axis=0), rtol=1e-12, atol=0.0).any()


def test_it_is_part_of_what_agents_agree_on_and_the_default_method_sends_no_row(tmp_path: Path) -> None:
    plain, _ = describe(tmp_path, 2)
    found = private(tmp_path, ('method = "dec-rbcm"', ""))
    assert (found.private, found.prediction.method) == ("rows", "dec-summary")
    assert found.digest != plain.digest


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([('"dec-apx-gp"', '"dec-gapx-gp"')], 'training.method: dec-gapx-gp is refused by private="rows"'),
        ([('"dec-rbcm"', '"dec-nn-grbcm"')], 'prediction.method: dec-nn-grbcm is refused by private="rows"'),
        ([('"dec-rbcm"', '"dec-summary"\nmin_rows = 4')], 'min_rows=4 is refused by private="rows"'),
        ([('"dec-rbcm"', '"dec-full-gp"')], 'prediction.method: dec-full-gp is refused by private="rows"'),
        ([('data = "a1.npz"', 'data = "a1.npz"\nshow_rows = true')], "'a1' has show_rows, and the fleet has private"),
        ([('private = "rows"', 'private = "sums"')], "private"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(tmp_path: Path, changes: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        private(tmp_path, *changes)


def test_an_agent_with_few_rows_does_not_start(tmp_path: Path) -> None:
    description = private(tmp_path)
    np.savez(tmp_path / "a1.npz", x=np.arange(4.0), y=np.arange(4.0), temperature=np.arange(4.0))
    with pytest.raises(fg.InputError, match=r"a1: private = .* at least 5 rows of every agent, got 4"):
        Agent(description, "a1", Log("a1", file=tmp_path / "a1.log"))
