"""The summary of the whole fleet at every agent: only changes travel, and no agent's part is lost when it goes away."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fleetgp.agent.agenda import Agenda, Item
from fleetgp.agent.agent import Agent
from fleetgp.agent.description import read_description
from fleetgp.agent.logs import Log
from fleetgp.agent.summaries import Change, Entry, Own, Summary, SummaryFile, SummarySync, load_summary, save_summary
from fleetgp.errors import NonsenseError
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations
from fleetgp.network.wire import Frame, encode
from fleetgp.prediction import calibrate
from fleetgp.prediction.groups import Groups, split, summarize, width
from tests.agent.fleets import MODEL, Steps, ask, describe, running, serving, settled, until
from tests.agent.test_totals import gone, living, members, said
from tests.summaries import Simulated, assert_same, near

#: A fleet that predicts by dec-summary; its agents are on a path, and have the same theta to the last bit.
FLEET: dict[str, Any] = {"training": "dec-fact-gp", "prediction": "dec-summary", "connect": 4}
QUERIES = [[0.3, 0.4], [1.2, 1.7], [0.9, 0.1], [0.5, 1.0], [1.9, 0.2], [1.1, 1.1]]


def held(agent: Agent) -> dict[int, Groups]:
    """By agent, as an agent holds them."""
    summary = agent.memory.summary
    return {} if summary is None else {one: entry.groups for one, entry in summary.entries.items()}


def simulated(agent: Agent) -> Simulated:
    """With the model that an agent holds."""
    trained, description = agent.memory.trained, agent.description
    assert trained is not None
    kernel = description.kernel_of(trained.kernel)
    return Simulated(kernel, trained.theta, trained.view, description.prediction_options())


def simulated_groups(agents: Sequence[Agent], before: Sequence[Groups] | None = None) -> tuple[Groups, ...]:
    return simulated(agents[0]).groups([agent.data.shard for agent in agents], before)


def assert_simulated(answer: Any, groups: Sequence[Groups], agents: Sequence[Agent]) -> None:
    """The answer is that of a simulated fleet of the members, with the groups of all agents."""
    present = [agent.id for agent in agents if agent.name in answer["members"]]
    shards = [agent.data.shard for agent in agents]
    assert_same(answer, simulated(agents[present[0]]).predict(QUERIES, shards, groups, present))


def assert_held(agents: Sequence[Agent], groups: Sequence[Groups]) -> None:
    """All agents hold these, to the bit where they made them, and the same numbers everywhere."""
    numbers = {agent.memory.summary and agent.memory.summary.number for agent in agents}
    assert len(numbers) == 1
    for agent in agents:
        for one, expected in enumerate(groups):
            np.testing.assert_allclose(held(agent)[one].packed, expected.packed, rtol=1e-9, atol=1e-12)


def together(*agents: Agent) -> bool:
    """Whether these agents are a view, and hold the same summary."""
    view = tuple(sorted(agent.id for agent in agents))
    numbers = {agent.memory.summary and agent.memory.summary.number for agent in agents}
    return all(members(agent) == view for agent in agents) and serving(list(agents)) and len(numbers) == 1


def sent(agent: Agent) -> int:
    """Bytes of groups that an agent has sent."""
    return agent.activity.kinds["groups"]


def test_members_hold_the_groups_of_all_and_answer_as_the_simulator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps(monkeypatch)
    description, shards = describe(tmp_path, 3, **FLEET)
    with running(description, tmp_path) as agents:
        until(lambda: settled(agents) and together(*agents))
        groups = simulated_groups(agents)
        assert_held(agents, groups)
        assert "groups" in steps.taken
        for agent in agents:
            answer = ask(description, agent.name, QUERIES)
            assert_simulated(answer, groups, agents)
            assert answer["data_of"] == ["a0", "a1", "a2"]
        assert "groups" not in steps.taken, "nothing has changed"
        # New rows wait until enough of them change the same groups: nothing travels for the first ones.
        before = sum(map(sent, agents))
        agents[1].data.append(near(shards[1], 2, seed=1))
        answer = ask(description, "a0", QUERIES)
        assert "groups" not in steps.taken
        assert_simulated(answer, groups, agents)
        agents[1].data.append(near(shards[1], 6, seed=2))
        answer = ask(description, "a0", QUERIES)
        assert steps.taken.count("groups") == 1
        groups = simulated_groups(agents, groups)
        assert_simulated(answer, groups, agents)
        until(lambda: together(*agents))
        assert_held(agents, groups)
        # Of eight groups of 8 numbers each a few change: some 100 numbers over two links, and not 8 x 8 x 3.
        assert 0 < sum(map(sent, agents)) - before < 2 * 8 * 8 * 4


def test_groups_of_agents_that_are_away_stay_and_whoever_comes_back_gets_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps(monkeypatch)
    description, shards = describe(tmp_path, 4, points=60, **FLEET)
    with running(description, tmp_path) as agents:
        until(lambda: settled(agents) and together(*agents))
        groups = simulated_groups(agents)
        theta = agents[0].memory.log_theta
        whole = sum(len(one) for one in groups) * 8 * width(2)
        gone(agents[3])
        until(lambda: together(*agents[:3]))
        steps.phases.clear()
        answer = ask(description, "a1", QUERIES)
        assert "groups" not in steps.taken, "those who are there hold the same still"
        assert_simulated(answer, groups, agents)
        assert (answer["data_of"], answer["missing"]) == (["a0", "a1", "a2", "a3"], ["a3"])
        assert agents[0].memory.log_theta == theta, "nobody came, so there is nothing to train for"
        # Both parts get rows while they are apart.
        agents[3].data.append(near(shards[3], 7, seed=3))
        agents[0].data.append(near(shards[0], 7, seed=4))
        answer = ask(description, "a2", QUERIES)
        groups = (*simulated_groups(agents[:3], groups[:3]), groups[3])
        assert_simulated(answer, groups, agents)
        # It comes back with its file: both parts send what has changed, and no more.
        steps.phases.clear()
        before = sum(map(sent, agents))
        with living(description, "a3", tmp_path) as back:
            everyone = [*agents[:3], back]
            until(lambda: together(*everyone))
            groups = simulated_groups(everyone, groups)
            assert_held(everyone, groups)
            assert 0 < sum(map(sent, everyone)) - before < whole
            assert steps.taken.count("groups") == 3, "who holds what, what it lacks, and what it has"
            for name in ("a3", "a0"):
                assert_simulated(ask(description, name, QUERIES), groups, everyone)
        until(lambda: together(*agents[:3]))
        # It comes back without its file, and gets all groups, also its own: nobody else receives any.
        (tmp_path / "state" / "a3" / "summary.bin").unlink()
        before = sum(map(sent, agents[:3]))
        with living(description, "a3", tmp_path) as back:
            everyone = [*agents[:3], back]
            until(lambda: together(*everyone))
            assert_held(everyone, groups)
            assert sent(back) == 0, "its rows stay in the groups that were sent of them"
            assert sum(map(sent, agents[:3])) - before < 4 * whole
            assert_simulated(ask(description, "a3", QUERIES), groups, everyone)
            for count in (4, 2):  # it does not know which rows are in which group, but which are new
                back.data.append(near(shards[3], count, seed=count))
                groups = simulated_groups(everyone, groups)
                assert_simulated(ask(description, "a0", QUERIES), groups, everyone)
        assert said(tmp_path / "a3.log", "summary left aside") == []


def test_an_agent_that_is_cut_off_answers_from_what_it_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    description, shards = describe(tmp_path, 3, **FLEET)
    with running(description, tmp_path) as agents:
        until(lambda: settled(agents) and together(*agents))
        groups = simulated_groups(agents)
        for agent in agents[1:]:
            gone(agent)
        until(lambda: together(agents[0]))
        answer = ask(description, "a0", QUERIES)
        assert (answer["members"], answer["rounds"], answer["bytes_sent"]) == (["a0"], 0, 0)
        assert_simulated(answer, groups, agents)
        assert not any(answer["prior_only"]), "it knows of the others' areas"
        agents[0].data.append(near(shards[0], 9, seed=5))
        assert_simulated(ask(description, "a0", QUERIES), groups, agents)
    monkeypatch.setattr(description, "timeouts", description.timeouts.model_copy(update={"connect": 0.2}))
    with living(description, "a0", tmp_path) as alone:
        until(lambda: together(alone))
        again = ask(description, "a0", QUERIES)
        assert again["data_of"] == ["a0", "a1", "a2"]
        assert_simulated(again, groups, [alone, *agents[1:]])


@pytest.mark.parametrize("spoilt", ["cut", "bit", "foreign", "no number"])
def test_a_damaged_file_is_left_aside_and_the_fleet_goes_on(spoilt: str, tmp_path: Path) -> None:
    description, _ = describe(tmp_path, 2, **FLEET)
    file = tmp_path / "state" / "a0" / "summary.bin"
    with running(description, tmp_path) as agents:
        until(lambda: settled(agents) and together(*agents))
        expected = held(agents[0])
        loaded = load_summary(file, description)
        assert loaded is not None
        assert loaded.number == agents[0].memory.summary.number  # type: ignore[union-attr]
        assert loaded.own == agents[0].memory.summary.own  # type: ignore[union-attr]
        for one, groups in expected.items():
            np.testing.assert_array_equal(loaded.entries[one].groups.packed, groups.packed)
        for mine, its in zip(loaded.entries[0].groups.members, expected[0].members, strict=True):
            np.testing.assert_array_equal(mine, its)
        assert file.stat().st_mode & 0o077 == 0
    content = file.read_bytes()
    place = content.index(b"\n") + 101
    damaged = {
        "cut": content[:-4],
        "bit": content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :],
        "foreign": content.replace(b"temperature over", b"salinity over"),
        "no number": content.replace(b'"size":5', b'"size":-5'),
    }[spoilt]
    assert damaged != content
    file.write_bytes(damaged)
    assert load_summary(file, description) is None
    with running(description, tmp_path) as agents:
        until(lambda: settled(agents) and together(*agents))
        assert_held(agents, simulated_groups(agents))
    assert file.with_suffix(".old.bin").read_bytes() == damaged
    assert len(said(tmp_path / "a0.log", "summary left aside")) == 1


def own_members(agent: Agent) -> set[frozenset[int]]:
    """The rows of each of an agent's own groups."""
    own = held(agent).get(agent.id, Groups.none(2))
    return {frozenset(rows.tolist()) for rows in own.members}


def test_groups_stay_where_the_options_change(tmp_path: Path) -> None:
    """Over restarts: larger ones are joined of whole groups, and are not split again for smaller ones."""
    description, shards = describe(tmp_path, 2, **FLEET)
    file, basis = tmp_path / "fleet.toml", 0
    text, sent = file.read_text(encoding="utf-8"), [set[frozenset[int]]() for _ in range(2)]
    for turn, changed in enumerate(("", "min_rows = 9", "min_rows = 100", "min_rows = 5")):
        file.write_text(text.replace('"dec-summary"', f'"dec-summary"\n{changed}'), encoding="utf-8")
        description = read_description(file)
        with running(description, tmp_path) as agents:
            until(lambda: settled(agents))
            agents[1].data.append(near(shards[1], 3, seed=turn))
            ask(description, "a0", QUERIES)
            until(lambda: together(*agents) and agents[0].memory.summary.basis != basis)  # type: ignore[union-attr]  # noqa: B023
            basis = agents[0].memory.summary.basis  # type: ignore[union-attr]
            for agent, known in zip(agents, sent, strict=True):
                new = own_members(agent)
                assert all(len(rows) >= description.prediction_options().min_rows for rows in new)
                assert not any(rows < earlier for rows in new - known for earlier in known), "a group is split"
                known |= new
                assert not known or min(len(a ^ b) for a in known for b in known if a != b) >= 5
    assert all(len(known) > len(own_members(agent)) > 0 for agent, known in zip(agents, sent, strict=True))


def test_groups_of_a_calibration_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a row comes between the calibration and the first question."""
    how = 'theta0 = [2.0, 0.5, 1.0, 1.0]\ncalibrate = "rows"\nrounds = 5'
    description, shards = describe(tmp_path, 2, points=100, **FLEET | {"training_options": how})
    agents, ready = list[Agent](), threading.Event()
    sent: list[set[frozenset[int]]] = [set(), set()]

    def calibrated(fleet: Any, network: Any, *others: Any) -> Any:
        result, (own,) = calibrate.calibrate(fleet, network, *others), network.hosted
        sent[own] |= {frozenset(rows.tolist()) for rows in fleet.sent[own]}
        assert ready.wait(60.0)
        agents[own].data.append(near(shards[own], 1, seed=own))
        return result

    monkeypatch.setattr("fleetgp.agent.training_task.calibrate", calibrated)
    with running(description, tmp_path) as started:
        agents += started
        ready.set()
        until(lambda: settled(agents) and together(*agents))
        ask(description, "a0", QUERIES)
        for agent, known in zip(agents, sent, strict=True):
            assert known
            assert own_members(agent) == known


def test_files_without_the_sizes_of_groups_that_were_sent_are_read(tmp_path: Path) -> None:
    description, shards = describe(tmp_path, 2, **FLEET)
    shard = Observations(*shards[0])
    members = split(shard.inputs, 5)
    groups = summarize(shard, members, description.kernels[0], Hyperparameters.from_theta([1.0, 1.0, 1.0, 0.1]))
    own = Own.of(0, [1.0, 1.0, 1.0, 0.1], shard, groups.members)
    save_summary(Summary(1, 5, {0: Entry(3, groups)}, own), tmp_path / "new.bin", description)
    line, _, rest = (tmp_path / "new.bin").read_bytes().partition(b"\n")
    older = json.loads(line)
    assert older.pop("sent") == len(members)
    line, place = json.dumps(older).encode(), len(rest) - 4 * (len(shard) + len(members))
    body = rest[32:place] + rest[place + 4 * len(members) :]
    (tmp_path / "old.bin").write_bytes(line + b"\n" + hashlib.sha256(line + body).digest() + body)
    for name in ("new", "old"):
        loaded = load_summary(tmp_path / f"{name}.bin", description)
        assert loaded is not None
        assert loaded.own == own
        for found in (loaded.members(shard), loaded.entries[0].groups.members):
            assert [rows.tolist() for rows in found] == [rows.tolist() for rows in groups.members]
    # Groups that were sent are kept beside those that the agent has now.
    save_summary(Summary(1, 50, {0: Entry(3, Groups.none(2))}, own), tmp_path / "none.bin", description)
    none = load_summary(tmp_path / "none.bin", description)
    assert none is not None
    assert [rows.tolist() for rows in none.members(shard)] == [rows.tolist() for rows in groups.members]


def changes_in(frames: Sequence[Frame]) -> Iterator[tuple[int, Change]]:
    """The size of groups, and what frames say of agents' groups."""
    for frame in frames:
        for part in frame.parts:
            if part.kind == "groups" and len(part.value) > 1:
                place = 1
                while place < len(part.value):
                    agent, made, base, gone, new = (int(one) for one in part.value[place : place + 5])
                    middle, end = place + 5 + gone, place + 5 + gone + 8 * new
                    rows = part.value[middle:end].reshape(new, 8)
                    yield (
                        int(part.value[0]),
                        Change(agent, made, base, part.value[place + 5 : middle], rows, Groups.none(2)),
                    )
                    place = end


def test_no_frame_describes_fewer_rows_than_min_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither do the differences of successive summaries: their rows came at least five at a time."""
    frames: list[Frame] = []
    monkeypatch.setattr(
        "fleetgp.network.zenoh.network.encode",
        lambda frame: frames.append(frame) or encode(frame),  # type: ignore[func-returns-value]
    )
    description, shards = describe(tmp_path, 3, **FLEET)
    with running(description, tmp_path) as agents:
        until(lambda: settled(agents) and together(*agents))
        groups = simulated_groups(agents)
        for seed, (agent, count) in enumerate([(0, 3), (2, 4), (0, 1), (2, 4), (0, 3), (1, 25)]):
            agents[agent].data.append(near(shards[agent], count, seed))
            assert_simulated(ask(description, "a1", QUERIES), groups := simulated_groups(agents, groups), agents)
    seen: dict[int, dict[int, Entry]] = {}
    updates = set()
    for size, change in changes_in(frames):
        assert size == 5
        assert (change.new[:, 0] >= 5).all()
        known = seen.setdefault(change.agent, {})
        before = next((entry for entry in known.values() if entry.number == change.base), None)
        entry = change.applied(0, {} if before is None else {change.agent: before})
        known[entry.made] = entry
        if before is not None:
            more = int(entry.groups.counts.sum() - before.groups.counts.sum())
            updates.add((change.agent, more))
    assert updates == {(0, 7), (2, 8), (1, 25)}


def test_a_stuck_sensor_at_one_place_makes_groups_that_are_all_alike(tmp_path: Path) -> None:
    description, _ = describe(tmp_path, 3, **FLEET)
    with running(description, tmp_path) as agents:
        until(lambda: settled(agents) and together(*agents))
        groups = simulated_groups(agents)
        for _ in range(3):
            agents[1].data.append([[0.5, 0.5, 11.0]] * 5)
            answer = ask(description, "a0", QUERIES)
            groups = simulated_groups(agents, groups)
            assert_simulated(answer, groups, agents)
            until(lambda: together(*agents))
            assert_held(agents, groups)
        assert len({row.tobytes() for row in groups[1].packed}) == len(groups[1]) - 2


def test_an_agent_joins_others_that_have_too_few_rows_for_groups(tmp_path: Path) -> None:
    description, _ = describe(tmp_path, 3, points=4, **FLEET)
    with running(description, tmp_path) as agents:
        until(lambda: settled(agents) and together(*agents))
        assert [len(one) for one in held(agents[0]).values()] == []
        gone(agents[2])
        until(lambda: together(*agents[:2]))
        (tmp_path / "state" / "a2" / "summary.bin").unlink()
        with living(description, "a2", tmp_path) as back:
            until(lambda: together(*agents[:2], back))
            answer = ask(description, "a2", QUERIES)
            assert answer["members"] == ["a0", "a1", "a2"]
            assert said(tmp_path / "a2.log", "nonsense") == []


def test_groups_become_larger_when_they_do_not_fit_any_more(tmp_path: Path) -> None:
    budget = 32 * 8 * width(2)
    description, shards = describe(tmp_path, 3, prediction_options=f"budget = {budget}", **FLEET)
    with running(description, tmp_path) as agents:
        until(lambda: settled(agents) and together(*agents))
        groups = simulated_groups(agents)
        assert_held(agents, groups)
        assert agents[0].memory.summary.size == 5  # type: ignore[union-attr]
        rng = np.random.default_rng(1)
        for agent, (inputs, values) in zip(agents, shards, strict=True):
            places = inputs + rng.normal(0.0, 0.01, inputs.shape)
            agent.data.append(np.column_stack([places, values]).tolist())
        answer = ask(description, "a2", QUERIES)
        groups = simulated_groups(agents, groups)
        assert sum(one.packed.nbytes for one in groups) <= budget
        until(lambda: together(*agents))
        assert_held(agents, groups)
        assert_simulated(answer, groups, agents)
        assert agents[0].memory.summary.size > 5  # type: ignore[union-attr]


class Wire:
    """Of a network, what others send: `messages`, by position."""

    hosted = (0,)

    def __init__(self, *messages: Any) -> None:
        self.messages = [np.array(one, dtype=float) for one in messages]

    def collect(self, _: Any, *, recipient: int | None = None) -> Any:
        return {"groups": self.messages}


GROUP = [7.0, 0.5, 0.5, 0.1, 0.0, 0.1, 1.5, 0.01]


@pytest.mark.parametrize(
    "message",
    [
        [[5.0]],
        [5.0, 1.0],
        [5.5, 1.0, 9.0, 0.0, 0.0, 1.0, *GROUP],
        [np.nan, 1.0, 9.0, 0.0, 0.0, 1.0, *GROUP],
        [10.0, 1.0, 9.0, 0.0, 0.0, 1.0, *GROUP],
        [5.0, 0.0, 9.0, 0.0, 0.0, 1.0, *GROUP],
        [5.0, 7.0, 9.0, 0.0, 0.0, 1.0, *GROUP],
        [5.0, 1.0, -9.0, 0.0, 0.0, 1.0, *GROUP],
        [5.0, 1.0, np.inf, 0.0, 0.0, 1.0, *GROUP],
        [5.0, 1.0, 9.0, 3.0, 0.0, 1.0, *GROUP],
        [5.0, 1.0, 9.0, 0.0, 1.0, 1.0, 0.0, *GROUP],
        [5.0, 1.0, 9.0, 0.0, 0.0, 1e15, *GROUP],
        [5.0, 1.0, 9.0, 0.0, 0.0, 2.0, *GROUP],
        [5.0, 1.0, 9.0, 0.0, 0.0, 1.0, *GROUP, 1.0],
        [5.0, 1.0, 9.0, 0.0, 0.0, 1.0, 4.0, *GROUP[1:]],
        [5.0, 1.0, 9.0, 0.0, 0.0, 1.0, *GROUP[:-1], 0.0],
        [5.0, 1.0, 9.0, 0.0, 0.0, 1.0, *GROUP[:-1], np.nan],
        [5.0, 1.0, 9.0, 0.0, 0.0, 1.0, 21.0, *GROUP[1:]],
        [5.0, 1.0, 9.0, 0.0, 0.0, 5.0, *(5 * [5.0, *GROUP[1:]])],  # of 25 rows
        [5.0, 1.0, 9.0, 0.0, 0.0, 1.0, *GROUP, 1.0, 9.0, 0.0, 0.0, 1.0, *GROUP],
    ],
)
def test_groups_that_cannot_be_are_refused_with_the_name_of_the_sender(message: Any, tmp_path: Path) -> None:
    description, _ = describe(tmp_path, 2, **FLEET)
    log = Log("a0", file=tmp_path / "a0.log")
    sync = SummarySync(0, SummaryFile(tmp_path / "summary.bin", description, log, lambda: None), description)
    agenda = Agenda([Item(MODEL, rows=20), Item(MODEL, rows=20)], (0, 1))
    summary, nothing = Summary(1, 5, {}), Groups.none(2)
    good = [5.0, 1.0, 9.0, 0.0, 0.0, 1.0, *GROUP]
    result = sync._with_changes(Wire([], good), agenda, summary, nothing)  # type: ignore[arg-type]
    assert result.entries[1].made == 9
    with pytest.raises(NonsenseError) as caught:
        sync._with_changes(Wire([], message), agenda, summary, nothing)  # type: ignore[arg-type]
    assert caught.value.sender == 1
    with pytest.raises(NonsenseError, match="newer"):
        sync._with_changes(Wire([], good), agenda, result, nothing)  # type: ignore[arg-type]
    log.close()


@pytest.mark.parametrize(
    "offer", [[[5.0]], [0.0, 1.0, 9.0, 4.0], [5.0, 1.0, 9.0], [5.0, 2.0, 9.0, 4.0], [5.0, 1.0, 0.5, 4.0], [5.0, np.nan]]
)
def test_offers_that_cannot_be_are_refused_with_the_name_of_the_sender(offer: Any, tmp_path: Path) -> None:
    description, _ = describe(tmp_path, 2, **FLEET)
    log = Log("a0", file=tmp_path / "a0.log")
    sync = SummarySync(0, SummaryFile(tmp_path / "summary.bin", description, log, lambda: None), description)
    own, good = [5.0, 0.0, 8.0, 3.0], [5.0, 1.0, 9.0, 4.0]
    sizes, versions = sync._offers(Wire(own, good), [7, 8], Summary(1, 5, {}))  # type: ignore[arg-type]
    assert (sizes, versions) == ([5, 5], [{0: (8, 3)}, {1: (9, 4)}])
    with pytest.raises(NonsenseError) as caught:
        sync._offers(Wire(own, offer), [7, 8], Summary(1, 5, {}))  # type: ignore[arg-type]
    assert caught.value.sender == 1
    # Whoever sends other groups than it offered is named, too.
    agenda = Agenda([Item(MODEL, rows=20), Item(MODEL, rows=20, summary=8)], (0, 1))
    with pytest.raises(NonsenseError, match="it said it holds"):
        sync._caught_up(Wire([], [5.0, 1.0, 9.0, 0.0, 0.0, 1.0, *GROUP]), agenda, [0, 8], Summary(1, 0, {}))  # type: ignore[arg-type]
    log.close()


def test_rows_are_found_where_others_came_before_them_and_a_row_that_has_gone_takes_its_group_along() -> None:
    rng = np.random.default_rng(0)
    data = Observations(rng.normal(size=(9, 2)), rng.normal(size=9))
    twice = Observations.joined([data, data.rows(slice(0, 1))])
    members = [np.array([0, 3, 6]), np.array([1, 4, 9]), np.array([2, 5, 8])]
    own = Own.of(0, (1.0,), twice, members)
    assert own.found(twice) == members
    new = Observations(rng.normal(size=(2, 2)), rng.normal(size=2))
    moved = own.found(Observations.joined([new, twice]))
    assert [rows.tolist() for rows in moved] == [[2, 5, 8], [3, 6, 11], [4, 7, 10]]
    left = own.found(twice.rows([0, 1, 2, 3, 5, 6, 7, 8, 9]))
    assert [rows.tolist() for rows in left] == [[0, 3, 5], [2, 4, 7]]


def test_a_member_that_sends_groups_of_few_rows_is_left_out_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong, real = [False], SummarySync._message

    def message(sync: SummarySync, agent: int, entry: Entry, base: Any) -> Any:
        values = real(sync, agent, entry, base)
        if wrong[0] and sync._id == 1:
            values[-width(2)] = 4.0
        return values

    monkeypatch.setattr(SummarySync, "_message", message)
    description, shards = describe(tmp_path, 3, edges=[(0, 1), (1, 2), (0, 2)], round=5, **FLEET)
    with running(description, tmp_path) as agents:
        until(lambda: settled(agents) and together(*agents))
        groups = simulated_groups(agents)
        wrong[0] = True
        agents[1].data.append(near(shards[1], 6, seed=1))
        answer = ask(description, "a0", QUERIES)
        assert answer["members"] == ["a0", "a2"]
        assert answer["data_of"] == ["a0", "a1", "a2"]
        assert_simulated(answer, groups, agents)
        wrong[0] = False
        nonsense = said(tmp_path / "a0.log", "nonsense") + said(tmp_path / "a2.log", "nonsense")
        assert {line["sender"] for line in nonsense} == {"a1"}
        assert all("groups of at least 5 rows" in line["error"] for line in nonsense)


def test_where_answers_are_local_only_the_question_travels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(monkeypatch)
    description, _ = describe(tmp_path, 3, prediction_options="local = true", **FLEET)
    with running(description, tmp_path) as agents:
        until(lambda: settled(agents) and together(*agents))
        groups, shards = simulated_groups(agents), [agent.data.shard for agent in agents]
        steps.phases.clear()
        expected = simulated(agents[0]).predict(QUERIES, shards, groups, range(3))
        for agent in agents:
            answer = ask(description, agent.name, QUERIES)
            np.testing.assert_allclose(answer["mean"], expected.means[agent.id], rtol=1e-9)
        assert steps.taken == []
