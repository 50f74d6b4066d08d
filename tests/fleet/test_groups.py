"""What groups say of rows, read from the frames of real exchanges: no group describes fewer than min_rows rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.data.dataset import InMemory
from fleetgp.fleet.predictor import Predictor
from fleetgp.network import Network
from fleetgp.network.loopback import Loopback, LoopbackNetwork
from fleetgp.network.wire import Frame
from fleetgp.prediction import PredictionOptions, Question, prediction_method
from fleetgp.prediction.cache import PredictionCache
from fleetgp.prediction.groups import Groups, width
from tests.conftest import paper_shards

THETA = [1.2, 0.3, 1.3, 0.1]
POINTS = np.array([[0.5, 0.5], [1.5, 1.0], [0.2, 1.9]])
AGENTS = 4


class Meeting:
    """A fleet each of whose agents is in a process of its own, as it were. Its frames are kept, and its groups."""

    def __init__(self, rows: int = 200, **given: Any) -> None:
        how: dict[str, Any] = {"kernel": "matern32", "normalize": False, "theta": THETA}
        self.fleet = fg.Fleet(paper_shards(rows, AGENTS), "path", **how)
        self.options = PredictionOptions().changed(given)
        self.caches = [PredictionCache() for _ in range(AGENTS)]
        self.frames: list[Frame] = []
        #: The rows of each group that an agent has ever had.
        self.members: list[list[frozenset[int]]] = [[] for _ in range(AGENTS)]

    def ask(self, monkeypatch: pytest.MonkeyPatch) -> list[Groups]:
        """Every agent's own groups after a question."""
        snapshot, method = self.fleet.snapshot(), prediction_method("dec-summary")
        question, real = Question(method, POINTS, self.options), LoopbackNetwork.swap

        def watched(network: LoopbackNetwork, frames: list[Frame], *others: Any) -> Any:
            self.frames.extend(frames)
            return real(network, frames, *others)

        def work(network: Network) -> Groups:
            (agent,) = network.hosted
            own = replace(snapshot, shards=InMemory([snapshot.shards[agent]]))
            predictor = Predictor(own, self.options, self.caches[agent])
            predictor.predict(question, network)
            groups: Groups = self.caches[agent].shared[method.agreement_key(self.options)].value.groups[agent]
            return groups

        monkeypatch.setattr(LoopbackNetwork, "swap", watched)
        result = Loopback(self.fleet.graph, [[agent] for agent in range(AGENTS)]).run(work)
        monkeypatch.setattr(LoopbackNetwork, "swap", real)
        for known, groups in zip(self.members, result, strict=True):
            known += [frozenset(rows.tolist()) for rows in groups.members]
        return result

    def sent(self) -> Iterator[tuple[int, np.ndarray]]:
        """Agent and packed groups, (G, width), of all frames so far."""
        for frame in self.frames:
            for part in frame.parts:
                if part.kind == "groups" and part.value.size:
                    yield part.origin, part.value.reshape(-1, width(2))


def new_rows(seed: int, count: int, centre: float = 1.0, spread: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    inputs = centre + spread * rng.uniform(-1.0, 1.0, (count, 2))
    return inputs, rng.standard_normal(count)


@pytest.mark.parametrize("given", [{}, {"min_rows": 9}, {"budget": 1500.0}])
def test_every_group_in_a_frame_is_the_mean_of_min_rows_rows(given: dict[str, Any], monkeypatch: Any) -> None:
    meeting = Meeting(**given)
    fewest, seen = meeting.options.min_rows, set()
    for turn in range(4):
        for agent, groups in enumerate(meeting.ask(monkeypatch)):
            x, y = meeting.fleet.data[agent].inputs, meeting.fleet.data[agent].values
            members = np.concatenate(groups.members)
            assert len(np.unique(members)) == len(members), "no row is in two groups"
            assert groups.counts.tolist() == [len(rows) for rows in groups.members]
            for rows, place, value in zip(groups.members, groups.places, groups.values, strict=True):
                np.testing.assert_allclose(place, x[rows].mean(axis=0), rtol=1e-12)
                np.testing.assert_allclose(value, y[rows].mean(), rtol=1e-9, atol=1e-12)
            # What is in the frames is what the agent has, now or before.
            seen |= {(agent, row.tobytes()) for row in groups.packed}
        for agent, packed in meeting.sent():
            assert (packed[:, 0] >= fewest).all()
            assert all((agent, row.tobytes()) in seen for row in packed)
        assert not {part.kind for frame in meeting.frames for part in frame.parts} & {"inputs", "observations"}
        meeting.fleet.observe(turn % AGENTS, *new_rows(turn, 30))


def test_new_rows_wait_until_they_are_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    meeting = Meeting()
    first = meeting.ask(monkeypatch)
    for count in range(4):  # one row each time
        meeting.frames.clear()
        meeting.fleet.observe(1, *new_rows(count, 1, centre=5.0, spread=0.1))
        groups = meeting.ask(monkeypatch)[1]
        assert not list(meeting.sent())
        assert groups.packed.tobytes() == first[1].packed.tobytes()
    meeting.fleet.observe(1, *new_rows(9, 1, centre=5.0, spread=0.1))
    assert meeting.ask(monkeypatch)[1].counts.sum() == first[1].counts.sum() + 5
    assert {agent for agent, _ in meeting.sent()} == {1}, "the others' groups are as they were"


def test_an_agent_with_few_rows_sends_none(monkeypatch: pytest.MonkeyPatch) -> None:
    meeting = Meeting(rows=24, min_rows=7)  # of which each agent has six
    assert [len(groups) for groups in meeting.ask(monkeypatch)] == [0] * AGENTS
    assert not list(meeting.sent())
    meeting.fleet.observe(2, *new_rows(0, 1))
    assert [len(groups) for groups in meeting.ask(monkeypatch)] == [0, 0, 1, 0]


def test_no_two_groups_differ_by_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else their difference describes these rows."""
    meeting = Meeting()
    for turn in range(6):
        meeting.ask(monkeypatch)
        meeting.fleet.observe(0, *new_rows(turn, 15))
    meeting.ask(monkeypatch)
    for known in meeting.members:
        differences = {len(one ^ other) for one in known for other in known if one != other}
        assert min(differences) >= meeting.options.min_rows
