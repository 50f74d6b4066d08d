"""Tasks within tasks: questions in the middle of a training, and what becomes of the training."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from fleetgp.network.zenoh.network import EpochOverError
from fleetgp.operator.client import AgentClient
from tests.agent.fleets import QUERIES, ask, describe, running, serving, until

# ---- questions in the middle of a training ------------------------------------------------------------------


def test_questions_are_answered_while_the_fleet_trains(tmp_path: Path) -> None:
    """With the model from before, and without ending the training."""
    description, _ = describe(tmp_path, 3)
    with running(description, tmp_path) as agents:
        until(lambda: serving(agents))
        before = {name: ask(description, name, QUERIES)["mean"] for name in description.names}
        endless = description.training.model_copy(update={"rounds": 10**9, "tol": 1e-300})
        for agent in agents:
            agent.description.training = endless
        with AgentClient(description, "a0") as client:
            client.request("train", cold=True)
        until(lambda: all(agent.activity.phase == "training" and agent.activity.round > 3 for agent in agents))
        views = [agent.activity.views for agent in agents]
        for name in description.names:
            assert ask(description, name, QUERIES)["mean"] == before[name]
        until(
            lambda: all(agent.activity.phase == "training" for agent in agents)
        )  # an answer may come before its agent goes on
        assert [agent.activity.views for agent in agents] == views


def test_an_honest_divergence_is_told_and_nobody_is_blamed(tmp_path: Path) -> None:
    """Options with which every agent diverges: all say so, and stay one fleet."""
    wild = "theta0 = [2.0, 0.5, 1.0, 1.0]\nrho = 0.01\nkappa = 0.01"
    description, _ = describe(tmp_path, 3, training_options=wild)
    with running(description, tmp_path) as agents:
        until(lambda: all("training failed" in (tmp_path / f"a{k}.log").read_text(encoding="utf-8") for k in range(3)))
        assert [agent.activity.views for agent in agents] == [1, 1, 1]
        assert all(set(agent.node.neighbours().values()) == {"up"} for agent in agents)


# ---- tasks within tasks -------------------------------------------------------------------------------------


def test_a_view_that_ends_during_an_interlude_ends_the_training_at_once(tmp_path: Path) -> None:
    """Also if the interlude had its last word already: else an agent would wait a whole deadline for nobody."""
    description, _ = describe(tmp_path, 2)
    with running(description, tmp_path) as agents:
        until(lambda: serving(agents))
        node, view = agents[0].node, agents[0].node.view
        assert view is not None
        with node.epoch(view, 10**6) as outer:
            with node.epoch(view, 10**6 + 1):
                node.abandon("anything")
            with pytest.raises(EpochOverError):
                outer.exchange(np.zeros((1, 1)), "statistics")
        until(lambda: serving(agents))


def test_a_frame_that_was_lost_before_an_interlude_is_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    description, _ = describe(tmp_path, 2)
    with running(description, tmp_path) as agents, ThreadPoolExecutor(1) as pool:
        until(lambda: serving(agents))
        nodes, views = [agent.node for agent in agents], [agent.node.view for agent in agents]
        assert views[0] is not None
        assert views[1] is not None
        with nodes[0].epoch(views[0], 10**6) as outer, nodes[1].epoch(views[1], 10**6) as other:
            with monkeypatch.context() as patch:
                patch.setattr(nodes[0].links, "send", lambda *_: None)  # nothing that a0 sends arrives
                heard = pool.submit(other.exchange, np.zeros((1, 1)), "statistics")
                assert outer.exchange(np.ones((1, 1)), "statistics").tolist() == [[0.0]]
            with nodes[0].epoch(views[0], 10**6 + 1):  # a0 has gone on, and a1 says that it waits
                assert heard.result(60.0).tolist() == [[1.0]]
        assert nodes[0].links.resent >= 1
