"""Rows that leave real processes: taken back, forgotten, and gone after a restart."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from fleetgp.agent.memory import Checkpoint
from fleetgp.agent.observations import ObservationStore
from fleetgp.agent.summaries import load_summary
from fleetgp.cli.memory import is_without
from fleetgp.fleet.privacy import PREDICTOR
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations
from fleetgp.operator.client import AgentClient
from fleetgp.prediction.groups import summarize
from tests.cli.commands import run
from tests.processes import Processes
from tests.summaries import Simulated, assert_same

QUERIES = [[0.3, 7.4], [1.2, 9.7], [0.9, 6.1], [1.9, 3.2]]


def shards_of(agents: int, rows: int = 60) -> list[tuple[Any, Any]]:
    """Each with its own strip in x, over ten days."""
    rng = np.random.default_rng(0)
    inputs = [np.column_stack([k + rng.uniform(0, 1, rows), np.sort(rng.uniform(0, 10, rows))]) for k in range(agents)]
    return [(x, np.sin(2 * x[:, 0]) + np.cos(x[:, 1] / 2) + 0.1 * rng.standard_normal(rows)) for x in inputs]


def assert_simulated(fleet: Processes, shards: list[Any], asked: str) -> None:
    """An answer is that of the simulator of exactly these rows, with groups that are of nothing else."""
    answer = fleet.request(asked, "ask", 60.0, queries=QUERIES)
    description, groups = fleet.description, []
    for number, (name, (x, y)) in enumerate(zip(fleet.names, shards, strict=True)):
        summary = load_summary(description.state / name / "summary.bin", description)
        trained = Checkpoint.load(description.state / name / "checkpoint.json", description).trained  # type: ignore[union-attr]
        assert summary is not None
        assert trained is not None
        kernel = description.kernel_of(trained.kernel)
        model = Simulated(kernel, answer["theta"], trained.view, description.prediction_options())
        held, own = summary.entries[number].groups, model._conditioned([Observations(x, y)])
        h = Hyperparameters.from_theta(own.thetas[0])
        made = summarize(own.shards[0], summary.members(Observations(x, y)), own.kernel, h).packed
        for row in held.packed:
            assert np.isclose(made, row, rtol=1e-9, atol=1e-12).all(axis=1).any()
        groups.append(held)
    assert_same(answer, model.predict(QUERIES, shards, groups, range(len(shards))))


def rows_on_disk(fleet: Processes, number: int, copy: Path) -> tuple[Any, Any]:
    """What an agent's files say."""
    description, name = fleet.description, fleet.names[number]
    shutil.copy(description.state / name / "observed.jsonl", copy)
    data = ObservationStore(description.data_of(number), description.inputs, description.target, copy, time="day")
    return data.shard.inputs, data.shard.values


def test_rows_leave_real_processes_and_stay_away(tmp_path: Path) -> None:
    shards = shards_of(3)
    lines: dict[str, Any] = {"model": 'time = "day"\n', "extra": '\n[memory]\nkeep = "nothing"\n'}
    with Processes(tmp_path, shards, [(0, 1), (1, 2)], inputs=("x", "day"), prediction=PREDICTOR, **lines) as fleet:
        fleet.start()
        fleet.wait(lambda states: all(one["phase"] == "serving" for one in states.values()), fleet.names, 120.0)
        bad = np.column_stack([np.full(8, 1.5), np.linspace(9.0, 9.9, 8), np.linspace(3.0, 4.0, 8)]).tolist()
        fleet.request("a1", "observe", 30.0, rows=bad, request="dive-0")
        fleet.request("a2", "ask", 60.0, queries=QUERIES)
        which = "remove", str(fleet.file), "--agent", "a1"
        result = json.loads(run(*which, "--request", "dive", "--wait", "60", "--json").stdout)
        assert (result["removed"], result["groups"], result["not_confirmed"]) == (8, 1, {})
        assert_simulated(fleet, shards, "a0")
        first, last = shards[1][0][20, 1], shards[1][0][25, 1]
        between = "--between", repr(float(first)), repr(float(last))
        result = json.loads(run(*which, *between, "--wait", "60", "--json").stdout)
        assert (result["removed"], result["not_confirmed"]) == (6, {})
        x, y = shards[1]
        shards[1] = np.delete(x, np.arange(20, 26), axis=0), np.delete(y, np.arange(20, 26))
        assert_simulated(fleet, shards, "a0")
        out = json.loads(run("forget", str(fleet.file), "--before", "5", "--json").stdout)
        for number, (name, (x, _)) in enumerate(zip(fleet.names, shards, strict=True)):
            shards[number] = left = rows_on_disk(fleet, number, tmp_path / f"copy-{name}.jsonl")
            overdue = out["agents"][name]["overdue"]  # of groups that others hold
            assert (left[0][:, 1] < 5.0).sum() == overdue < 15
            assert out["agents"][name]["forgotten"] == (x[:, 1] < 5.0).sum() - overdue == len(x) - len(left[1])
        assert_simulated(fleet, shards, "a2")
        fleet.kill("a1")
        fleet.start("a1")
        states = fleet.wait(
            lambda states: all(one["members"] == fleet.names and one["phase"] == "serving" for one in states.values()),
            fleet.names,
            120.0,
        )
        assert [states[name]["rows"] for name in fleet.names] == [len(y) for _, y in shards]
        assert (states["a1"]["removed"], states["a1"]["forgotten"]) == (14, 60 - 6 - len(shards[1][1]))
        assert_simulated(fleet, shards, "a0")
        with AgentClient(fleet.description, "a1") as client:
            own = client.request("receipt", name=result["name"])
        assert all(is_without(fleet.status(name)["holds"]["a1"], own) for name in fleet.names)
