"""When a running fleet trains again: what its agenda decides, what an agent keeps, and a fleet whose field changes."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fleetgp.agent.agenda import Agenda, Item, Scored
from fleetgp.agent.description import NEEDED, read_description
from fleetgp.agent.memory import Checkpoint
from fleetgp.agent.requests import TrainRequest
from fleetgp.agent.service import status_of
from fleetgp.errors import InputError
from fleetgp.operator.client import AgentClient
from tests.agent.fleets import MODEL, describe, running, serving, until

BAD = Scored(40, 2, 90.0, (30.0, *(-9.0,) * 7))
GOOD = Scored(40, 2, 41.0, (-9.0,) * 8)


def agenda(*scored: Scored, rows: int = 100, **changes: Any) -> Agenda:
    return Agenda([replace(Item(MODEL, rows=rows, new=40, scored=one), **changes) for one in scored], (0, 1, 2))


def due(one: Agenda, after: Any = NEEDED) -> TrainRequest | None:
    return one.training(with_members=False, after=after)


def test_a_fleet_trains_again_when_its_new_rows_say_so() -> None:
    assert due(agenda(BAD, GOOD, GOOD)) == TrainRequest()
    assert due(agenda(GOOD, GOOD, GOOD)) is None
    assert due(agenda(Scored(), Scored(), Scored())) is None
    assert due(agenda(BAD, GOOD, GOOD, rows=1000)) is None  # too few to change anything
    assert due(agenda(BAD, BAD, BAD, failed=True)) is None
    assert due(agenda(BAD, BAD, BAD), after=0) is None
    assert due(agenda(GOOD, GOOD, GOOD), after=120) == TrainRequest()
    assert due(agenda(BAD, BAD, BAD), after=121) is None


def test_what_was_scored_with_another_model_does_not_count() -> None:
    items = agenda(BAD, GOOD, GOOD).items
    other = replace(items[0], trained=replace(MODEL, id=76))
    assert due(Agenda([other, *items[1:]], (0, 1, 2))) is None


@pytest.mark.parametrize("facts", [(0, 0, 0.0, (1.0,)), (40, 2, 1.0, ()), (1, 2, 1.0, (0.0,) * 8)])
def test_sums_that_cannot_be_are_refused(facts: Any) -> None:
    with pytest.raises(ValueError, match="the odds of 8 alternatives"):
        Scored(*facts)


def test_what_was_scored_is_kept_and_an_older_file_has_none(tmp_path: Path) -> None:
    description, _ = describe(tmp_path, 3)
    kept, path = Checkpoint(replace(MODEL, ended=1.7e9), 40, drift=BAD), tmp_path / "checkpoint.json"
    kept.save(path, description)
    loaded = Checkpoint.load(path, description)
    assert loaded is not None
    assert (loaded.trained, loaded.drift) == (kept.trained, BAD)
    facts = json.loads(path.read_text(encoding="utf-8"))
    del facts["drift"], facts["trained"]["ended"]
    path.write_text(json.dumps(facts), encoding="utf-8")
    older = Checkpoint.load(path, description)
    assert older is not None
    assert (older.trained, older.drift, older.rows) == (MODEL, Scored(), 40)


def test_the_rule_is_a_word_or_a_number(tmp_path: Path) -> None:
    description, _ = describe(tmp_path, 1)
    assert description.training.again_after == NEEDED
    text = (tmp_path / "fleet.toml").read_text(encoding="utf-8")
    for given, value in (("", NEEDED), ("again_after = 7", 7), ("again_after = 0", 0)):
        (tmp_path / "fleet.toml").write_text(text.replace('again_after = "when-needed"', given), encoding="utf-8")
        assert read_description(tmp_path / "fleet.toml").training.again_after == value
    for given in ("again_after = -1", 'again_after = "never"', "again_after = true"):
        (tmp_path / "fleet.toml").write_text(text.replace('again_after = "when-needed"', given), encoding="utf-8")
        with pytest.raises(InputError, match="again_after"):
            read_description(tmp_path / "fleet.toml")


def test_a_fleet_scores_new_rows_while_idle_and_trains_when_the_field_changes(tmp_path: Path) -> None:
    description, shards = describe(tmp_path, 2, points=64)
    more = []
    for name, (inputs, values) in zip(description.names, shards, strict=True):
        chosen = np.random.default_rng(1).permutation(64)
        old, new = chosen[:40], chosen[40:]
        np.savez(tmp_path / f"{name}.npz", x=inputs[old, 0], y=inputs[old, 1], temperature=values[old])
        more.append(np.column_stack([inputs, values])[new])

    def trainings() -> list[bool]:
        lines = [json.loads(line) for line in (tmp_path / "a0.log").read_text(encoding="utf-8").splitlines()]
        return [line["warm"] for line in lines if line["event"] == "training"]

    with running(description, tmp_path) as agents:
        until(lambda: serving(agents))
        assert status_of(agents[0])["trained"]["seconds"] < 300.0
        with AgentClient(description, "a1") as client:
            client.request("observe", rows=more[1].tolist())
            until(lambda: agents[1].memory.drift.batches == 1)
            assert not agents[1].memory.drift.alarming
            assert not agents[1].loop._pending()  # nobody else has to know
            assert trainings() == [False]
            drift = status_of(agents[1])["drift"]
            assert (drift["rows"], drift["log_odds"]) == (24, agents[1].memory.drift.log_odds)
            first = agents[0].memory.trained
            client.request("observe", rows=(more[0] * [1.0, 1.0, 4.0]).tolist())
        until(lambda: serving(agents) and all(agent.memory.trained != first for agent in agents))
        until(
            lambda: serving(agents) and len({agent.memory.trained.id for agent in agents if agent.memory.trained}) == 1
        )
        assert trainings() == [False, True]
        assert [agent.memory.drift for agent in agents] == [Scored(), Scored()]
        assert not any(agent.loop.drift.score() for agent in agents)  # all rows are in the model
    line = next(line for line in (tmp_path / "a0.log").read_text(encoding="utf-8").splitlines() if "no longer" in line)
    facts = json.loads(line)
    assert (facts["rows"], facts["p_value"] < 1e-3) == (48, True)
    assert math.isfinite(facts["p_value"])
