"""Answers along the tree: who is told, what travels once, and what becomes of it when a member dies in the middle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fleetgp.agent.agenda import Agenda, Item
from fleetgp.agent.agent import Agent
from fleetgp.agent.node import StoppedError
from fleetgp.agent.totals import number_of
from fleetgp.fleet.predictor import Predictor
from fleetgp.network.frames import FrameNetwork
from fleetgp.network.zenoh.network import ZenohNetwork
from fleetgp.prediction import PredictionOptions, prediction_method
from tests.agent.fleets import MODEL, QUERIES, Steps, ask, describe, running, settled, until

CYCLE = [(k, (k + 1) % 5) for k in range(5)]
WARM = "theta0 = [1.2, 0.3, 1.3, 0.1]\ntol = 1e-3"


def test_samples_and_boxes_travel_once_until_data_or_members_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    description, _ = describe(tmp_path, 3, training_options=WARM)
    steps = Steps(monkeypatch)
    with running(description, tmp_path) as agents:
        until(lambda: settled(agents))
        assert steps.taken is not None
        first = ask(description, "a1", QUERIES, method="dec-grbcm")
        assert steps.taken == ["augment", "aggregate"]
        assert ask(description, "a1", QUERIES, method="dec-grbcm")["mean"] == first["mean"]
        assert ask(description, "a2", QUERIES, method="dec-grbcm")["mean"] == first["mean"]
        assert steps.taken == ["aggregate"] * 2
        # Another theta does not change the samples, but the basis of NPAE, and rows change both.
        for method, needed in (("dec-npae", ["box", "box", "aggregate"]), ("dec-npae", ["aggregate"])):
            ask(description, "a0", QUERIES, method=method)
            assert steps.taken == needed
        agents[2].data.append([[0.7, 0.7, 0.1]])
        changed = ask(description, "a1", QUERIES, method="dec-grbcm")
        assert steps.taken == ["augment", "aggregate"]
        assert changed["mean"] != first["mean"]
        # A new view of the same members, who say what they hold.
        until(lambda: settled(agents))  # all have heard that the answer is there
        agents[1].node.abandon("a new view")
        until(lambda: [agent.activity.views for agent in agents] == [2, 2, 2] and settled(agents))
        assert ask(description, "a2", QUERIES, method="dec-grbcm")["mean"] == changed["mean"]
        assert steps.taken == ["aggregate"]
        # One of them has lost it, as after a restart: all collect anew.
        agents[0].loop.answers.agreements._by_rule.clear()
        until(lambda: settled(agents))  # all have heard that the answer is there
        agents[1].node.abandon("a new view")
        until(lambda: [agent.activity.views for agent in agents] == [3, 3, 3] and settled(agents))
        assert ask(description, "a2", QUERIES, method="dec-grbcm")["mean"] == changed["mean"]
        assert steps.taken == ["augment", "aggregate"]


def test_an_agreement_is_another_one_for_other_members_data_scaling_and_theta() -> None:
    agenda = Agenda([Item(MODEL, data=3), Item(MODEL, data=4)], (0, 1))
    models = [MODEL, replace(MODEL, offset=1.0), replace(MODEL, scale=2.0), replace(MODEL, log_theta=(0.0,) * 4)]
    agendas = [Agenda(agenda.items, (0, 2)), Agenda([agenda.items[0]] * 2, (0, 1))]
    seen = {}
    for name in ("dec-nn-grbcm", "dec-npae"):
        row = prediction_method(name)
        numbers = [number_of(agenda, model, row, PredictionOptions()) for model in models]
        numbers += [number_of(other, MODEL, row, PredictionOptions()) for other in agendas]
        seen[name] = len(set(numbers))
        assert number_of(agenda, replace(MODEL, id=9), row, PredictionOptions()) == numbers[0]
    assert seen == {"dec-nn-grbcm": 5, "dec-npae": 6}  # samples do not depend on theta


def test_only_the_asker_is_told_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Predictor.predict
    told: dict[int, bool] = {}

    def noted(self: Predictor, question: Any, network: Any) -> Any:
        found = real(self, question, network)
        told[network._links.hosted[0]] = bool(np.isfinite(found.means).all())
        return found

    monkeypatch.setattr(Predictor, "predict", noted)
    description, _ = describe(tmp_path, 4, training_options=WARM)
    with running(description, tmp_path) as agents:
        until(lambda: settled(agents))
        answers = []
        for asked in (3, 1):
            for method in ("dec-rbcm", "dec-nn-grbcm", "dec-nn-npae"):
                told.clear()
                answers.append(ask(description, f"a{asked}", QUERIES, method=method))
                until(lambda: len(told) == 4 and settled(agents))
                assert told == {agent: agent == asked for agent in range(4)}
                assert np.isfinite(answers[-1]["mean"]).all()
        assert [one["mean"] == other["mean"] for one, other in zip(answers[:3], answers[3:], strict=True)] == [True] * 3
        assert {agent.activity.questions for agent in agents} == {6}
        assert "NaN" not in "".join((tmp_path / f"a{k}.log").read_text(encoding="utf-8") for k in range(4))


@pytest.mark.parametrize("victim", [1, 0], ids=["inner", "root"])
def test_a_member_that_dies_in_the_middle_of_a_reduction_is_left_out(
    victim: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has heard its children, and dies before it says a word of it: the survivors answer without it."""
    real = FrameNetwork._step
    dying: list[Agent] = []

    def step(network: Any, outgoing: Any, expected: Any, number: int) -> Any:
        speaks = bool(outgoing) and number > 0  # in the first step only leaves speak
        if dying and network._links.hosted == (victim,) and network._phase == "aggregate" and speaks:
            dying.pop().loop.stopping.set()
            network._links.session.close()  # as the kernel does with the sockets of a process that is killed
            raise StoppedError("killed")
        return real(network, outgoing, expected, number)

    monkeypatch.setattr(FrameNetwork, "_step", step)
    description, _ = describe(tmp_path, 5, edges=CYCLE, training_options=WARM, prediction="dec-nn-grbcm")
    with running(description, tmp_path) as agents:
        until(lambda: settled(agents))
        before = ask(description, "a2", QUERIES)
        assert before["members"] == list(description.names)
        dying.append(agents[victim])
        answer = ask(description, "a2", QUERIES)
        survivors = [name for name in description.names if name != f"a{victim}"]
        assert not dying
        assert answer["members"] == survivors
        assert answer["missing"] == [f"a{victim}"]
        assert answer["trained"]["by"] == list(description.names)  # the answer did not wait for another training
        assert np.isfinite(answer["mean"]).all()


def test_lost_frames_of_a_reduction_are_sent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up and down, at a leaf and at the root; nobody is left out."""
    lost: list[tuple[int, int]] = []
    real = ZenohNetwork._send

    def send(network: Any, frame: Any) -> None:
        edge = (frame.sender, frame.receiver)
        if network._phase == "aggregate" and edge in ((0, 1), (2, 1), (1, 0)) and edge not in lost:
            lost.append(edge)
            with monkeypatch.context() as patch:
                patch.setattr(type(network._links), "send", lambda *_: None)
                real(network, frame)
            return
        real(network, frame)

    description, _ = describe(tmp_path, 3, training_options=WARM)
    monkeypatch.setattr("fleetgp.network.zenoh.network.AGAIN", 0.2)
    with running(description, tmp_path) as agents:
        until(lambda: settled(agents))
        expected = ask(description, "a2", QUERIES)["mean"]
        monkeypatch.setattr(ZenohNetwork, "_send", send)
        assert ask(description, "a0", QUERIES)["mean"] == expected
        assert len(lost) == 3
        assert [agent.activity.views for agent in agents] == [1, 1, 1]
