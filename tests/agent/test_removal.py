"""Rows that leave one agent of a fleet: all others answer without them, and hold nothing that was made of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fleetgp.agent.agenda import Agenda, Calibrated, Item
from fleetgp.agent.agent import Agent
from fleetgp.agent.description import read_description
from fleetgp.agent.totals import Agreements
from fleetgp.cli.memory import is_without
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.operator.client import AgentClient
from fleetgp.prediction import Calibration
from fleetgp.prediction.calibration import Knot
from fleetgp.prediction.groups import Groups, summarize
from fleetgp.prediction.methods import SharedState
from tests.agent.fleets import MODEL, ask, describe, running, settled, until
from tests.agent.test_summaries import FLEET, QUERIES, assert_simulated, held, simulated, simulated_groups, together
from tests.agent.test_totals import gone, living
from tests.cli.commands import run
from tests.summaries import near


def removal(agent: Agent, **which: Any) -> Any:
    with AgentClient(agent.description, agent.name) as client:
        return client.request("remove", 30.0, name="removal-1", **which)


def confirmed(agents: Sequence[Agent], name: str, of: Agent) -> bool:
    own = of.receipt(name)
    return own["clean"] and all(is_without(agent.holds.get(of.name, {}), own) for agent in agents)


def made_of(agent: Agent) -> Groups:
    """The groups that an agent has sent, made again of the rows that they are said to be of."""
    summary, trained = agent.memory.summary, agent.memory.trained
    assert summary is not None
    assert summary.own is not None
    assert trained is not None
    shard, model = agent.data.shard, simulated(agent)
    fleet = model._conditioned([shard])
    h = Hyperparameters.from_theta(fleet.thetas[0])
    members = summary.members(shard)[: len(summary.entries[agent.id].groups)]
    return summarize(fleet.shards[0], members, fleet.kernel, h)


def test_members_answer_as_if_the_rows_had_never_been_there(tmp_path: Path) -> None:
    description, shards = describe(tmp_path, 3, **FLEET)
    with running(description, tmp_path) as agents:
        until(lambda: settled(agents) and together(*agents))
        groups, before = simulated_groups(agents), ask(description, "a0", QUERIES)
        agents[1].data.append(near(shards[1], 7, seed=1), "dive-0")
        ask(description, "a2", QUERIES)
        receipt = removal(agents[1], request="dive")
        facts = {name: receipt[name] for name in ("removed", "groups", "waiting", "ended", "in_all")}
        assert facts == {"removed": 7, "groups": 1, "waiting": 0, "ended": [], "in_all": 40}
        until(lambda: confirmed(agents, "removal-1", agents[1]))  # nobody has to ask for that
        answer = ask(description, "a0", QUERIES)
        assert_simulated(answer, groups, agents)
        assert answer["mean"] == before["mean"]
        # A row of the data file takes its group along; the other rows of the group make another one, or wait.
        value = float(agents[2].data.shard.values[3])
        which = "--agent", "a2", "--where", f"temperature == {value!r}"
        result = json.loads(run("remove", str(tmp_path / "fleet.toml"), *which, "--wait", "60", "--json").stdout)
        assert (result["removed"], result["groups"], result["not_confirmed"]) == (1, 1, {})
        assert set(result["confirmed"]) == {"a0", "a1", "a2"}
        assert agents[2].data.rows == 39
        for agent in agents:
            np.testing.assert_allclose(held(agent)[2].packed, made_of(agents[2]).packed, rtol=1e-9, atol=1e-12)
        assert_simulated(ask(description, "a1", QUERIES), [held(agents[0])[one] for one in range(3)], agents)
        # The others have it from their files, and so has the agent itself, whose file still has the row.
        gone(agents[2])
        until(lambda: together(*agents[:2]))
        with living(description, "a2", tmp_path) as back:
            everyone = [*agents[:2], back]
            until(lambda: together(*everyone))
            assert (back.data.rows, back.data.removed, back.data.arrived) == (39, 1, 40)
            assert confirmed(everyone, result["name"], back)
            assert_simulated(ask(description, "a0", QUERIES), [held(back)[one] for one in range(3)], everyone)


def test_forgotten_rows_stay_in_groups_that_all_hold_until_these_are_taken_back(tmp_path: Path) -> None:
    describe(tmp_path, 3, points=60, **FLEET)
    file = tmp_path / "fleet.toml"
    file.write_text('time = "x"\n' + file.read_text(encoding="utf-8"), encoding="utf-8")
    description = read_description(file)
    with running(description, tmp_path) as agents:
        until(lambda: settled(agents) and together(*agents))
        middle = float(np.median(agents[1].data.shard.inputs[:, 0]))
        with AgentClient(description, "a1") as client:
            receipt = client.request("forget", 30.0, name="old", before=middle)
        assert receipt["forgotten"] == receipt["summarized"] >= 20
        until(lambda: confirmed(agents, "old", agents[1]) and together(*agents))
        kept = agents[1].data.stand.kept
        for agent in agents:
            counts = held(agent)[1].counts
            assert receipt["forgotten"] == kept.counts.sum() == counts[counts >= 20].sum()
        groups = [held(agents[one])[one] for one in range(3)]
        assert groups[1].without_rows.sum() == len(kept)
        assert_simulated(ask(description, "a0", QUERIES), groups, agents)
        # They survive a restart, and go whole when one of their rows is taken back.
        gone(agents[1])
        until(lambda: together(agents[0]) or together(agents[2]))
        with living(description, "a1", tmp_path) as back:
            everyone = [agents[0], back, agents[2]]
            until(lambda: together(*everyone))
            groups = [held(agent)[agent.id] for agent in everyone]
            assert_simulated(ask(description, "a2", QUERIES), groups, everyone)
            place = float(kept.places[0, 0])
            assert removal(back, between=[place, place])["kept_groups"] >= 1
            until(lambda: confirmed(everyone, "removal-1", back))
            assert back.data.stand.kept.counts.sum() == held(agents[0])[1].counts.sum() - held_rows(back)
            # All rows may be taken back: the agent stays, without any.
            with AgentClient(description, "a1") as client:
                client.request("remove", 30.0, name="everything", where="x > -100")
            until(lambda: confirmed(everyone, "everything", back))
            assert (back.data.rows, len(back.data.stand.kept), len(held(agents[2])[1])) == (0, 0, 0)
            groups = [held(agent)[agent.id] for agent in everyone]
            assert_simulated(ask(description, "a1", QUERIES), groups, everyone)


def held_rows(agent: Agent) -> int:
    """How many of the rows that an agent still has are in its groups."""
    groups = held(agent)[agent.id]
    return int(groups.counts[~groups.without_rows].sum())


def test_who_is_away_has_not_confirmed_until_it_is_back(tmp_path: Path) -> None:
    description, shards = describe(tmp_path, 2, **FLEET)
    with running(description, tmp_path) as agents:
        until(lambda: settled(agents) and together(*agents))
        agents[1].data.append(near(shards[1], 6, seed=1), "dive")
        ask(description, "a0", QUERIES)
        gone(agents[0])
        until(lambda: together(agents[1]))
        removal(agents[1], request="dive")
        until(lambda: agents[1].receipt("removal-1")["clean"])  # alone it holds its own groups without them
        assert not confirmed(agents, "removal-1", agents[1])
        with living(description, "a0", tmp_path) as back:
            everyone = [back, agents[1]]
            until(lambda: together(*everyone) and confirmed(everyone, "removal-1", agents[1]))
            assert_simulated(ask(description, "a0", QUERIES), [held(back)[one] for one in range(2)], everyone)
            np.testing.assert_allclose(held(back)[1].packed, made_of(agents[1]).packed, rtol=1e-9, atol=1e-12)


def test_moments_are_made_again_without_rows_that_were_taken_back(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "training": "dec-full-gp",
        "training_options": "",
        "prediction": "dec-full-gp",
        "connect": 4,
    }
    description, shards = describe(tmp_path, 3, **options)
    with running(description, tmp_path) as agents:
        until(lambda: settled(agents) and all(agent.memory.totals is not None for agent in agents))
        before = ask(description, "a0", QUERIES)
        agents[1].data.append(near(shards[1], 7, seed=1), "dive-0")
        more = ask(description, "a0", QUERIES)
        assert not np.allclose(before["variance"], more["variance"], rtol=1e-6)
        assert removal(agents[1], request="dive")["ended"] == ["moments"]
        until(lambda: confirmed(agents, "removal-1", agents[1]))
        answer = ask(description, "a2", QUERIES)
        for name in ("mean", "variance"):
            np.testing.assert_allclose(answer[name], before[name], rtol=1e-9)
        assert [agent.memory.totals and agent.memory.totals.contents.count for agent in agents] == [120] * 3


def test_totals_lose_the_rows_of_who_is_away_rather_than_keep_what_was_taken_back(tmp_path: Path) -> None:
    options: dict[str, Any] = {"training": "dec-full-gp", "training_options": "", "prediction": "dec-full-gp"}
    description, _ = describe(tmp_path, 3, **options)

    def agents_in(agent: Agent) -> tuple[int, ...]:
        return () if agent.memory.totals is None else agent.memory.totals.contents.agents

    with running(description, tmp_path) as agents:
        until(lambda: settled(agents) and all(agents_in(agent) == (0, 1, 2) for agent in agents))
        gone(agents[2])
        until(lambda: together(*agents[:2]))
        value = float(agents[1].data.shard.values[3])
        removal(agents[1], where=f"temperature == {value!r}")
        until(lambda: confirmed(agents[:2], "removal-1", agents[1]))
        assert [agents_in(agent) for agent in agents[:2]] == [(0, 1), (0, 1)]
        with living(description, "a2", tmp_path) as back:
            until(lambda: all(agents_in(agent) == (0, 1, 2) for agent in (*agents[:2], back)))
            until(lambda: confirmed((*agents[:2], back), "removal-1", agents[1]))
            assert back.memory.totals is not None
            assert back.memory.totals.contents.count == 119


def test_a_calibration_ends_at_all_members_and_does_not_come_back() -> None:
    knot = Knot("rows", 1.0, 1.0, 10, 0.9, 0.95)
    facts: dict[str, Any] = {
        "method": "dec-summary",
        "eta": "auto",
        "n_neighbours": 8,
        "holdout": "rows",
        "level": 0.95,
    }
    calibration = Calibration(**facts, cells=100, knots=(knot,), theta=np.ones(4))
    calibrated = replace(MODEL, calibration=Calibrated.of(calibration))
    with_it, without = Item(calibrated), Item(MODEL, uncalibrated=True)
    assert Agenda([with_it, Item(MODEL)], (0, 1)).model == calibrated
    agenda = Agenda([with_it, without], (0, 1))
    assert agenda.model == MODEL
    assert agenda.uncalibrated(MODEL.id)
    assert not Agenda([with_it, replace(without, trained=replace(MODEL, id=78))], (0, 1)).uncalibrated(MODEL.id)


def test_agreements_about_data_of_before_are_dropped() -> None:
    agreements, state = Agreements(), SharedState()
    now = Agenda([Item(data=1), Item(data=2)], (0, 3))
    agreements.keep("npae", 17, state, {}, now)
    agreements.drop_outdated(now)
    agreements.drop_outdated(Agenda([Item(data=1)], (0,)))  # the other one is away
    assert (agreements.held, agreements.versions) == ((17,), [{0: 1, 3: 2}])
    agreements.drop_outdated(Agenda([Item(data=1), Item(data=5)], (0, 3)))
    assert (agreements.held, agreements.versions) == ((), [])


@pytest.mark.parametrize(
    ("one", "without"),
    [
        ({}, True),
        ({"groups": 17}, True),
        ({"groups": 18, "agreements": [3]}, True),
        ({"groups": 16}, False),
        ({"totals": 3}, True),
        ({"totals": 2}, False),
        ({"agreements": [3, 2]}, False),
    ],
)
def test_what_shows_that_an_agent_holds_nothing_of_rows_that_have_left(one: dict[str, Any], without: bool) -> None:
    assert is_without(one, {"held": {"groups": 17, "totals": 3}, "data": 3}) == without
    assert not is_without({"groups": 16}, {"held": {}, "data": 3})
