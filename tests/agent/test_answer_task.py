"""Questions: answered together, in time, or refused with a word."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.agent.agenda import Agenda, Item, Trained
from fleetgp.agent.agent import Agent
from fleetgp.agent.answer_task import TRIES, AnswerTask
from fleetgp.agent.description import PREDICTORS
from fleetgp.agent.logs import Activity, Log
from fleetgp.agent.memory import AgentState, Memory
from fleetgp.agent.node import StoppedError
from fleetgp.agent.observations import store_of
from fleetgp.agent.requests import PendingQuestion, Question, Requests
from fleetgp.agent.service import Service
from fleetgp.errors import InputError, NeighbourLostError, NetworkError
from fleetgp.fleet.predictor import Predictor
from fleetgp.network.zenoh.network import EpochOverError
from fleetgp.prediction import Conditioned, prediction_method
from tests.agent.fleets import MODEL, QUERIES, ask, describe, running, serving, until


def test_an_asker_gets_an_error_in_the_time_that_was_stated(tmp_path: Path) -> None:
    description, _ = describe(tmp_path, 2, connect=30)
    names = description.names
    alone = Agent(description, names[0], Log(names[0], file=tmp_path / "a0.log"))
    Service(alone)
    thread = threading.Thread(target=alone.run)
    thread.start()  # its neighbour never comes: it waits for 30 s
    try:
        began = time.monotonic()
        with pytest.raises(NetworkError, match=r"no answer within 1 s: a0 is agreeing"):
            ask(description, "a0", QUERIES, seconds=1.0)
        assert time.monotonic() - began < 25.0, "it waited for the neighbour"
        with pytest.raises(NetworkError, match=r"a1 cannot be reached at tcp/127\.0\.0\.1"):
            ask(description, "a1", QUERIES)
    finally:
        alone.stop()
        thread.join(20.0)
        alone.log.close()


def test_several_askers_are_served_in_turn(tmp_path: Path) -> None:
    description, _ = describe(tmp_path, 3)
    with running(description, tmp_path) as agents:
        until(lambda: serving(agents))
        jobs = [(f"a{k % 3}", PREDICTORS[k % 5]) for k in range(9)]
        with ThreadPoolExecutor(9) as pool:
            answers = list(pool.map(lambda job: ask(description, job[0], QUERIES, method=job[1]), jobs))
        assert [answer["method"] for answer in answers] == [method for _, method in jobs]
        for one, other in zip(answers, answers[5:], strict=False):
            np.testing.assert_allclose(one["mean"], other["mean"], rtol=1e-4)


def test_a_question_that_cannot_be_computed_is_refused_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Predictor.predict

    def broken(self: Predictor, question: Any, network: Any) -> Any:
        if len(question.queries) == 3 and network._links.hosted == (1,):
            raise MemoryError("too much")
        return real(self, question, network)

    monkeypatch.setattr(Predictor, "predict", broken)
    monkeypatch.setattr("fleetgp.agent.answer_task.TRIES", 2)
    description, _ = describe(tmp_path, 2, round=5)
    with running(description, tmp_path) as agents:
        until(lambda: serving(agents))
        with pytest.raises(NetworkError, match="cannot be computed: MemoryError"):
            ask(description, "a1", [*QUERIES, [0.1, 0.1]])
        with pytest.raises(NetworkError, match="not answered in 2 attempts"):
            ask(description, "a0", [*QUERIES, [0.1, 0.1]])
        assert ask(description, "a0", QUERIES)["members"] == ["a0", "a1"]
        with pytest.raises(InputError, match="beyond 1e"):
            ask(description, "a0", [[1e308, 0.0]], method="dec-nn-rbcm")
        with pytest.raises(InputError, match="expected seconds above 0"):
            ask(description, "a0", QUERIES, seconds=float("nan"))
        until(lambda: serving(agents))  # the last one may still note what it has answered


def test_a_question_that_takes_too_long_is_broken_off(tmp_path: Path) -> None:
    slow = 'consensus = "average"\nrounds = 20000\ntol = 1e-300\n'
    description, _ = describe(tmp_path, 3, prediction="dec-npae", prediction_options=slow)
    with running(description, tmp_path) as agents:
        until(lambda: serving(agents))
        with pytest.raises(NetworkError, match="no answer within 1 s: a1 is predicting"):
            ask(description, "a1", QUERIES, seconds=1.0)
        until(lambda: serving(agents))
        assert agents[0].memory.trained is not None
        assert agents[0].memory.trained.members == (0, 1, 2)


LOST = NeighbourLostError(3, [1], 5.0)


class _Interrupted:
    """Tasks whose networks are all interrupted, as when a view is over."""

    def __init__(self, error: BaseException) -> None:
        self.view = SimpleNamespace(members=(0, 1))
        self._error = error

    def next(self) -> AbstractContextManager[Any]:
        raise self._error


@pytest.mark.parametrize("error", [EpochOverError("over"), StoppedError("stop"), LOST])
def test_what_ends_a_view_passes_through_a_question_and_leaves_it_for_the_next(
    error: BaseException, tmp_path: Path
) -> None:
    """Until it has been begun too often: then it may be what ends the views."""
    description, _ = describe(tmp_path, 2)
    log = Log("a0", file=tmp_path / "a0.log")
    requests = Requests(log)
    told: list[dict[str, Any]] = []
    asked = PendingQuestion(Question(np.array(QUERIES), "dec-rbcm"), 60.0, time.monotonic() + 60.0, told.append)
    requests.ask(asked)
    data = store_of(description, "a0", tmp_path, log)
    memory = Memory(tmp_path / "checkpoint.json", description, log)
    answers = AnswerTask(AgentState(description, 0, data, memory, requests, Activity(), log))
    agenda = Agenda([Item(MODEL, question=asked.question), Item(MODEL)], (0, 1))
    for attempt in range(TRIES):
        assert requests.question() is asked, attempt
        with pytest.raises(type(error)) as caught:
            answers.run(_Interrupted(error), agenda, asked)  # type: ignore[arg-type]
        assert caught.value is error
        assert answers.under_way is None
    assert requests.question() is None
    assert [list(answer) for answer in told] == [["error"]]
    assert f"not answered in {TRIES} attempts" in told[0]["error"]
    log.close()


def test_a_posterior_is_kept_until_the_model_changes_and_takes_new_rows(tmp_path: Path) -> None:
    description, _ = describe(tmp_path, 1)
    log = Log("a0", file=tmp_path / "a0.log")
    data = store_of(description, "a0", tmp_path, log)
    memory = Memory(tmp_path / "checkpoint.json", description, log)
    answers = AnswerTask(AgentState(description, 0, data, memory, Requests(log), Activity(), log))

    def conditioned(model: Trained) -> Conditioned:
        predictor = answers.predictor(Agenda([Item(model)], (0,)), model)
        return predictor.conditioned(fg.InProcess(fg.Graph(1, [])), prediction_method("dec-rbcm"))

    first = conditioned(MODEL)
    rows = len(first.shards[0])
    assert conditioned(replace(MODEL, rounds=7)) is first  # how it was found does not matter
    before = answers.look()
    data.append([[0.1, 0.2, 0.3]])
    assert conditioned(MODEL) is first  # the data of the agenda, whatever comes in the meantime
    assert answers.look() != before
    grown = conditioned(MODEL)
    assert grown is first  # new rows enter it
    assert len(grown.shards[0]) == rows + 1
    assert conditioned(replace(MODEL, log_theta=(0.1, -0.2, 0.3, -2.1))) is not grown
    scaled = conditioned(replace(MODEL, scale=2.0))
    assert scaled is not grown
    assert conditioned(replace(MODEL, scale=2.0)) is scaled
    log.close()
