"""When a fleet of agents trains, and with what."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.agent.agenda import Agenda, Item, Tasks
from fleetgp.agent.agent import Agent
from fleetgp.agent.description import read_description
from fleetgp.agent.logs import Log
from fleetgp.agent.memory import Checkpoint
from fleetgp.agent.requests import TrainRequest
from fleetgp.agent.service import status_of
from fleetgp.errors import NeighbourLostError, NonsenseError, NumericalError
from fleetgp.network.zenoh.network import EpochOverError
from fleetgp.operator.client import AgentClient
from tests.agent.fleets import QUERIES, ask, describe, running, serving, until

#: Most trainings here are cut short on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning")


def trainings(folder: Path) -> list[bool]:
    """Of every training that a0 has begun, whether it was warm."""
    lines = [json.loads(line) for line in (folder / "a0.log").read_text(encoding="utf-8").splitlines()]
    return [line["warm"] for line in lines if line["event"] == "training"]


def test_new_rows_count_at_once_and_train_by_rule(tmp_path: Path) -> None:
    options = "theta0 = [2.0, 0.5, 1.0, 1.0]\nbounds = { l_x = [0.1, 0.9] }\npriors = { noise = [0.3, 2.0] }"
    description, shards = describe(tmp_path, 2, training_options=options)
    text = (
        (tmp_path / "fleet.toml").read_text(encoding="utf-8").replace('again_after = "when-needed"', "again_after = 5")
    )
    (tmp_path / "fleet.toml").write_text(text, encoding="utf-8")
    description = read_description(tmp_path / "fleet.toml")
    more = fg.synthetic_field(6, seed=8)
    with running(description, tmp_path) as agents:
        until(lambda: serving(agents))
        first = agents[0].memory.trained
        with AgentClient(description, "a1") as client:
            rows = np.column_stack([more.inputs, more.observations])
            assert client.request("observe", rows=rows[:4].tolist()) == {"rows": 4, "repeated": False, "in_all": 44}
            assert agents[1].loop.new_rows == 4
            grown = [
                shards[0],
                tuple(np.concatenate(p) for p in zip(shards[1], (more.inputs[:4], more.observations[:4]), strict=True)),
            ]
            expected = fg.Fleet(shards, "path", normalize=True, kernel="se")
            known: dict[str, Any] = {"bounds": {"l_1": (0.1, 0.9)}, "priors": {"noise": (0.3, 2.0)}}
            with pytest.warns(fg.FleetGPWarning, match="l_1 stands at its upper bound"):
                expected.train("dec-apx-gp", theta0=fg.PAPER_THETA0, **known)
            later = fg.Fleet(grown, "path", normalize=True, kernel="se")
            later.last_fit, later.theta = expected.last_fit, expected.theta
            np.testing.assert_allclose(
                ask(description, "a0", QUERIES)["mean"], later.predict(QUERIES, "dec-rbcm").mean, rtol=1e-12
            )
            until(lambda: serving(agents))
            assert trainings(tmp_path) == [False]  # four are not five
            client.request("observe", rows=rows[4:].tolist())
        until(lambda: serving(agents) and agents[0].memory.trained != first and agents[1].memory.trained != first)
        assert agents[1].loop.new_rows == 0
        assert trainings(tmp_path) == [False, True]
        ends = [line for line in (tmp_path / "a1.log").read_text(encoding="utf-8").splitlines() if '"trained"' in line]
        assert json.loads(ends[0])["at_bounds"] == ["l_x"]


def test_a_new_row_below_the_rule_leaves_the_fleet_idle(tmp_path: Path) -> None:
    describe(tmp_path, 2)
    text = (
        (tmp_path / "fleet.toml").read_text(encoding="utf-8").replace('again_after = "when-needed"', "again_after = 5")
    )
    (tmp_path / "fleet.toml").write_text(text, encoding="utf-8")
    description = read_description(tmp_path / "fleet.toml")
    with running(description, tmp_path) as agents:
        until(lambda: serving(agents))
        with AgentClient(description, "a0") as client:
            client.request("observe", rows=[[0.1, 0.1, 0.0]])
        rounds = []
        for _ in range(4):  # the first time the row may be told as well
            ask(description, "a0", QUERIES)
            rounds.append(agents[0].activity.rounds)
        # One agenda and one answer each: a fleet that is not idle in between agrees on further agendas.
        assert rounds[3] - rounds[2] == rounds[2] - rounds[1]
        assert len(trainings(tmp_path)) == 1


def test_wishes_are_fulfilled_in_turn_and_told_apart(tmp_path: Path) -> None:
    description, _ = describe(tmp_path, 2)
    with running(description, tmp_path) as agents:
        until(lambda: serving(agents))
        with AgentClient(description, "a1") as client:
            numbers = [client.request("train", method=method)["training"] for method in ("dec-c-gp", "dec-apx-gp")]
        assert numbers == [1, 2]
        until(lambda: agents[1].requests.fulfilled == 2 and serving(agents))
        methods = [
            json.loads(line)["method"]
            for line in (tmp_path / "a0.log").read_text(encoding="utf-8").splitlines()
            if '"event": "trained"' in line
        ]
        assert methods == ["dec-apx-gp", "dec-c-gp", "dec-apx-gp"]
        assert status_of(agents[1])["outcome"] == "converged"


LOST = NeighbourLostError(3, [1], 5.0)


@pytest.mark.parametrize(
    ("error", "continues"),
    [(EpochOverError("over"), True), (LOST, True), (NonsenseError(0, "1e90"), False), (NumericalError("no"), False)],
)
def test_a_training_continues_where_it_was_if_members_were_lost_and_starts_cold_if_it_failed(
    error: BaseException, continues: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with alone(tmp_path) as agent:
        loop, tasks = agent.loop, Tasks(agent.node, SimpleNamespace(id=1), agent.activity)  # type: ignore[arg-type]
        agent.train(TrainRequest(cold=True))

        def broken(*_: Any) -> Any:
            agent.memory.note(np.zeros((1, 4)), True, 3)
            raise error

        monkeypatch.setattr(loop.trainer, "run", broken)
        with pytest.raises(type(error)):
            loop._train(tasks, Agenda([Item()], (0,)), TrainRequest(cold=True))
        assert agent.requests.training() == TrainRequest(cold=not continues)
        view: Any = SimpleNamespace(id=1)
        assert (Agenda([loop._item(view, None)], (0,)).starts() is not None) == continues


def test_a_training_that_diverges_from_a_warm_start_is_repeated_cold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with alone(tmp_path) as agent:
        loop = agent.loop
        view: Any = SimpleNamespace(id=1)
        tasks: Any = SimpleNamespace(view=view)
        monkeypatch.setattr(loop.trainer, "run", lambda *_: "diverged")
        agent.train(TrainRequest())
        agent.memory.note(np.zeros((1, 4)), True, 3)
        agenda = Agenda([loop._item(view, None)], (0,))
        loop._train(tasks, agenda, TrainRequest())
        assert agent.requests.training() == TrainRequest()  # not done yet
        again = Agenda([loop._item(view, None)], (0,))
        assert again.training(with_members=True, after=0) == TrainRequest()
        assert again.starts() is None
        loop._train(tasks, again, TrainRequest())
        assert agent.requests.training() is None
        assert agent.requests.outcome == "diverged"
        assert loop._item(view, None).failed


def test_estimates_far_from_the_own_data_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class OverError(Exception):
        pass

    with alone(tmp_path) as agent:
        told = [np.array([[1.0, 1.0, 1.0, 0.1]]), np.array([[1.0, 1.0, 1.0, 1e30]])]

        def train(*given: Any) -> Any:
            for done, thetas in enumerate(told):
                given[5](0, done, thetas, True)
            raise OverError

        monkeypatch.setattr("fleetgp.agent.training_task.train", train)
        monkeypatch.setattr(Tasks, "next", lambda _: nullcontext(SimpleNamespace()))
        view: Any = SimpleNamespace(id=1, members=(0,))
        nobody: Any = None
        for kept in (0, 1):
            tasks = Tasks(agent.node, view, agent.activity)
            with pytest.raises(OverError):
                agent.loop.trainer.run(tasks, Agenda([Item()], (0,)), TrainRequest(), nobody, agent.loop.answers.shard)
            assert len(agent.memory.estimates) == kept
            told.pop()


@contextmanager
def alone(folder: Path) -> Iterator[Agent]:
    description, _ = describe(folder, 1)
    log = Log("a0", file=folder / "a0.log")
    agent = Agent(description, "a0", log)
    try:
        yield agent
    finally:
        agent.close()
        log.close()


def test_a_fleet_chooses_its_kernel_and_calibrates_its_answers(tmp_path: Path) -> None:
    """As a Fleet does; a warm training keeps the kernel, and what an agent keeps on disk has both."""
    how = 'calibrate = "rows"\nrounds = 5'
    _, shards = describe(tmp_path, 2, training="dec-fact-gp", training_options=how)
    text = (tmp_path / "fleet.toml").read_text(encoding="utf-8")
    (tmp_path / "fleet.toml").write_text(text.replace('kernel = "se"', 'kernel = "auto"'), encoding="utf-8")
    description = read_description(tmp_path / "fleet.toml")
    assert len(description.kernels) == 4
    expected = fg.Fleet(shards, "path", normalize=True, kernel="auto")
    expected.train("dec-fact-gp", rounds=5)
    (knot,) = expected.calibrate("dec-rbcm", holdout="rows").knots
    with running(description, tmp_path) as agents:
        until(lambda: serving(agents) and all(a.memory.trained and a.memory.trained.calibration for a in agents))
        trained = status_of(agents[1])["trained"]
        assert trained["kernel"] == expected.kernel.name
        assert trained["calibrated"]["knots"][0]["factor"] == pytest.approx(knot.factor, rel=1e-6)
        told, found = ask(description, "a0", QUERIES), expected.predict(QUERIES, "dec-rbcm")
        np.testing.assert_allclose(told["variance"], found.variance, rtol=1e-6)
        np.testing.assert_allclose(told["factor"], found.factor, rtol=1e-6)
        assert ask(description, "a0", QUERIES, method="dec-poe")["factor"] == [1.0, 1.0]
        kept = Checkpoint.load(agents[0].memory._path, description)
        assert kept is not None
        assert kept.trained == agents[0].memory.trained
