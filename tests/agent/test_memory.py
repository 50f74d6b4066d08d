"""What an agent remembers: its model and its estimates come back as they were, or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fleetgp.agent.agent import Agent
from fleetgp.agent.description import Description, read_description
from fleetgp.agent.logs import Log
from fleetgp.agent.memory import Checkpoint
from fleetgp.errors import InputError
from tests.agent.fleets import MODEL, describe, running, until


def test_a_checkpoint_comes_back_as_it_was_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "checkpoint.json"
    description, _ = describe(tmp_path, 3)
    assert Checkpoint.load(path, description) is None
    kept = Checkpoint(MODEL, 40, np.array([[0.1, 1 / 3, 2.0, -7.0]]), True, 30)
    kept.save(path, description)
    text = (tmp_path / "fleet.toml").read_text(encoding="utf-8")

    def changed(old: str, new: str) -> Description:
        (tmp_path / "fleet.toml").write_text(text.replace(old, new), encoding="utf-8")
        return read_description(tmp_path / "fleet.toml")

    assert Checkpoint.load(path, changed('target = "temperature"', 'target = "salinity"')) is None
    renamed = Checkpoint.load(path, changed('"a2"', '"b2"'))  # who trained it is no agent any more
    assert renamed is not None
    assert renamed.trained is None
    found = Checkpoint.load(path, description)
    assert found is not None
    assert (found.trained, found.rows, found.chosen, found.round) == (MODEL, 40, True, 30)
    np.testing.assert_array_equal(found.estimates, kept.estimates)
    assert [p.name for p in path.parent.iterdir()] == ["checkpoint.json"]
    text = path.read_text(encoding="utf-8")
    for broken in (text[:40], "[]", text.replace('"version": 1', '"version": 99'), text.replace("offset", "ofset")):
        path.write_text(broken, encoding="utf-8")
        assert Checkpoint.load(path, description) is None


def test_a_checkpoint_of_another_model_is_left_aside(tmp_path: Path) -> None:
    description, _ = describe(tmp_path, 1)
    folder = tmp_path / "state" / "a0"
    folder.mkdir(parents=True)
    (folder / "checkpoint.json").write_text("{}", encoding="utf-8")
    agent = Agent(description, "a0", Log("a0", file=tmp_path / "a0.log"))
    agent.close()
    agent.log.close()
    assert (folder / "checkpoint.old.json").read_text(encoding="utf-8") == "{}"
    assert "checkpoint left aside" in (tmp_path / "a0.log").read_text(encoding="utf-8")
    (tmp_path / "state2").write_text("", encoding="utf-8")
    blocked = (tmp_path / "fleet.toml").read_text(encoding="utf-8").replace('state = "state"', 'state = "state2"')
    (tmp_path / "fleet.toml").write_text(blocked, encoding="utf-8")
    log = Log("a0", file=tmp_path / "b.log")
    with pytest.raises(InputError, match="expected a folder, got a file"):
        Agent(read_description(tmp_path / "fleet.toml"), "a0", log)
    log.close()


def test_a_training_that_was_cut_off_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """The file is renewed while the training runs: kill -9 leaves what it had."""
    endless = "theta0 = [2.0, 0.5, 1.0, 1.0]\ntol = 0.0\nrounds = 100000"
    description, _ = describe(tmp_path, 1, training_options=endless)
    path = tmp_path / "state" / "a0" / "checkpoint.json"

    def kept() -> Checkpoint:
        return Checkpoint.load(path, description) or Checkpoint()

    with running(description, tmp_path):
        until(lambda: kept().round >= 20)
        left = kept()
    assert left.trained is None
    assert left.chosen
    left.save(path, description)  # as a kill at that moment would have left it
    with running(description, tmp_path) as agents:
        np.testing.assert_array_equal(agents[0].memory.estimates.shape, (1, 4))
        until(lambda: agents[0].activity.round > 0)
    lines = [json.loads(line) for line in (tmp_path / "a0.log").read_text(encoding="utf-8").splitlines()]
    assert [line["warm"] for line in lines if line["event"] == "training"] == [False, True]
    assert [line["round"] for line in lines if line["event"] == "resumed"] == [left.round]
