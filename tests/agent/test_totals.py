"""The model of the whole fleet at every agent: it answers alone, rows are added once, and none is lost in silence."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.agent.agent import Agent
from fleetgp.agent.description import Description
from fleetgp.agent.logs import Log
from fleetgp.agent.requests import TrainRequest
from fleetgp.agent.roster import SignedRoster
from fleetgp.agent.service import Service
from fleetgp.agent.totals import CONTENTS, Contents, Part, load_totals
from fleetgp.kernels.stationary import KERNELS
from fleetgp.network.frames import FrameNetwork
from tests.agent.fleets import QUERIES, Steps, ask, describe, running, serving, settled, until

WARM = "theta0 = [1.2, 0.3, 1.3, 0.1]"
EXACT: dict[str, Any] = {"training": "dec-full-gp", "training_options": WARM, "prediction": "dec-full-gp", "connect": 4}


@contextmanager
def living(description: Description, name: str, log: Path) -> Iterator[Agent]:
    """One agent of a fleet, alone."""
    agent = Agent(description, name, Log(name, file=log / f"{name}.log"))
    Service(agent)
    thread = threading.Thread(target=agent.run)
    thread.start()
    try:
        yield agent
    finally:
        agent.stop()
        thread.join(120.0)
        agent.log.close()


def gone(agent: Agent) -> None:
    agent.stop()
    until(lambda: agent.activity.phase == "stopped")


def members(agent: Agent) -> tuple[int, ...]:
    view = agent.node.view
    return () if view is None else view.members


def together(*agents: Agent) -> bool:
    """Whether these agents are a view, serve, and hold the same totals."""
    view = tuple(sorted(agent.id for agent in agents))
    held = {agent.memory.totals and agent.memory.totals.number for agent in agents}
    return (
        serving(list(agents))
        and all(members(agent) == view for agent in agents)
        and len(held) == 1
        and None not in held
    )


def assert_exact(answer: Any, shards: list[Any], agent: Agent) -> None:
    """The answer is that of full-gp with these data, at the theta of the agent."""
    trained = agent.memory.trained
    assert trained is not None
    inputs, observations = (np.concatenate(parts) for parts in zip(*shards, strict=True))
    fleet = fg.Fleet(
        [(inputs, (observations - trained.offset) / trained.scale)], "complete", kernel="se", normalize=False
    )
    theta = np.array(trained.theta) / np.exp(trained.scaling.shift(KERNELS["se"].units(2)))
    found = fleet.predict(QUERIES, "full-gp", theta=theta, engine="dense")
    np.testing.assert_allclose(answer["mean"], trained.offset + trained.scale * found.mean, rtol=0.0, atol=1e-6)
    np.testing.assert_allclose(answer["variance"], trained.scale**2 * found.variance, rtol=0.0, atol=1e-6)


def said(log: Path, event: str) -> list[Any]:
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line["event"] == event]


def test_whoever_is_cut_off_answers_with_the_model_of_the_whole_fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    description, shards = describe(tmp_path, 3, **EXACT)
    with running(description, tmp_path) as agents:
        until(lambda: settled(agents))
        assert_exact(ask(description, "a0", QUERIES), shards, agents[0])
        for agent in agents[1:]:
            gone(agent)
        until(lambda: together(agents[0]))
        answer = ask(description, "a0", QUERIES)
        assert_exact(answer, shards, agents[0])
        assert (answer["rounds"], answer["bytes_sent"]) == (0, 0)
        assert answer["members"] == ["a0"]
        assert answer["missing"] == ["a1", "a2"]
        assert answer["data_of"] == ["a0", "a1", "a2"]
        assert answer["participants"] == [3, 3]
        assert len(said(tmp_path / "a0.log", "training")) == 1
    monkeypatch.setattr(description, "timeouts", description.timeouts.model_copy(update={"connect": 0.2}))
    with living(description, "a0", tmp_path) as alone:  # it waits no longer for neighbours that do not come
        until(lambda: together(alone))
        again = ask(description, "a0", QUERIES)
        assert again["mean"] == answer["mean"]
        assert again["data_of"] == answer["data_of"]
        assert (again["rounds"], again["bytes_sent"]) == (0, 0)


def kinds(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Of what is reduced, as it comes."""
    found: set[str] = set()
    real = FrameNetwork.reduce

    def reduce(network: Any, x: Any, kind: str, *rest: Any, **more: Any) -> Any:
        found.add(kind)
        return real(network, x, kind, *rest, **more)

    monkeypatch.setattr(FrameNetwork, "reduce", reduce)
    return found


def grown(shards: list[Any], **rows: Any) -> list[Any]:
    """The agents' data with new rows, by name."""
    found = list(shards)
    for name, new in rows.items():
        x, y = found[int(name[1:])]
        found[int(name[1:])] = np.concatenate([x, np.array(new)[:, :-1]]), np.concatenate([y, np.array(new)[:, -1]])
    return found


ONE, TWO, OUTSIDE = [[0.5, 0.52, 1.0], [1.2, 0.8, -0.5]], [[1.5, 1.02, 0.7]], [[0.6, 3.5, 0.2]]


def test_new_rows_are_differences_in_one_reduction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    description, shards = describe(tmp_path, 3, **{**EXACT, "prediction": "dec-rbcm"})
    steps, sent = Steps(monkeypatch), kinds(monkeypatch)
    with running(description, tmp_path) as agents:
        until(lambda: settled(agents))
        assert "moments" in sent
        assert steps.taken is not None
        sent.clear()
        before = ask(description, "a0", QUERIES, method="dec-full-gp")
        assert steps.taken == []
        agents[0].data.append(ONE)
        agents[2].data.append(TWO)
        answer = ask(description, "a1", QUERIES, method="dec-full-gp")
        now = grown(shards, a0=ONE, a2=TWO)
        assert_exact(answer, now, agents[1])
        assert np.abs(np.subtract(answer["mean"], before["mean"])).max() > 1e-3  # the rows matter
        assert steps.taken == ["moments"]
        assert sent == {"moments"}
        until(lambda: settled(agents))
        for name in description.names:
            assert ask(description, name, QUERIES, method="dec-full-gp")["mean"] == answer["mean"]
        assert steps.taken == []
        assert len({agent.memory.totals.number for agent in agents if agent.memory.totals}) == 1
        # Outside of the box they agree anew, on a box that holds it.
        agents[1].data.append(OUTSIDE)
        answer = ask(description, "a0", QUERIES, method="dec-full-gp")
        assert_exact(answer, grown(now, a1=OUTSIDE), agents[0])
        assert steps.taken == ["moments", "box", "moments"]
        assert sent == {"moments", "statistics"}
        assert len(said(tmp_path / "a0.log", "training")) == 1


def test_contents_that_cannot_be_are_refused() -> None:
    good = Contents((Part(0, 5, 1), Part(2, 3, 7)), 0.0, 1.0, (0.0, 1.0), (1.0, 1.0), (9, 7))
    good.check(3, 2)
    assert CONTENTS.decode(CONTENTS.encode(good)) == good
    for absurd in (
        replace(good, parts=good.parts[::-1]),
        replace(good, parts=(Part(0, 5, 1),) * 2),
        replace(good, parts=(Part(3, 5, 1),)),
        replace(good, centre=(0.0,)),
        replace(good, sizes=(9000, 9000)),
        replace(good, half=(1.0, 0.0)),
        replace(good, offset=np.inf),
        replace(good, parts=()),
    ):
        with pytest.raises(ValueError, match=r"\w"):
            CONTENTS.decode(CONTENTS.encode(absurd)).check(3, 2)


def test_members_with_older_totals_and_none_get_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of an agent that is not there stay in them, and nobody's count twice."""
    steps = Steps(monkeypatch)
    description, shards = describe(tmp_path, 4, **EXACT)
    with running(description, tmp_path) as agents:
        until(lambda: settled(agents))
        first = [agent.memory.totals for agent in agents]
        agents[0].data.append(ONE)
        assert_exact(ask(description, "a1", QUERIES), grown(shards, a0=ONE), agents[1])
        until(lambda: settled(agents))
        gone(agents[3])
        until(lambda: together(*agents[:3]))
        # As if a1 had missed that meeting, and a2 had lost its files: they get what a0 holds, with the rows of a3.
        agents[1].memory.totals_file.current, agents[2].memory.totals_file.current = first[1], None
        agents[2].data.append(TWO)
        agents[1].node.abandon("a new view")
        until(lambda: together(*agents[:3]))
        for name in ("a2", "a1"):
            answer = ask(description, name, QUERIES)
            assert_exact(answer, grown(shards, a0=ONE, a2=TWO), agents[1])
            assert answer["data_of"] == list(description.names)
            assert answer["missing"] == ["a3"]
        assert said(tmp_path / "a0.log", "rows of others are not in the totals any more") == []
        # A row outside of the box would cost those of a3: it waits.
        steps.phases.clear()
        agents[0].data.append(OUTSIDE)
        for sent in (["moments"], []):
            answer = ask(description, "a1", QUERIES)
            assert_exact(answer, grown(shards, a0=ONE, a2=TWO), agents[1])
            assert answer["data_of"] == list(description.names)
            assert answer["left_out"] == ["a0"]
            assert steps.taken == sent
        # Whoever wants a model of those who are there says so, and is told what that costs.
        agents[1].train(TrainRequest())
        until(lambda: agents[1].requests.fulfilled == 1 and together(*agents[:3]))
        answer = ask(description, "a1", QUERIES)
        assert_exact(answer, grown(shards, a0=[*ONE, *OUTSIDE], a2=TWO)[:3], agents[1])
        assert (answer["data_of"], answer["left_out"]) == (["a0", "a1", "a2"], [])
        (lost,) = said(tmp_path / "a1.log", "rows of others are not in the totals any more")
        assert lost["agents"] == ["a3"]


@pytest.mark.parametrize("keep", [False, True])
def test_rows_of_an_agent_that_left_count_if_they_are_kept(keep: bool, tmp_path: Path) -> None:
    """Nobody can take them out of the sums alone: the members make new ones, unless the rows are kept."""
    description, shards = describe(tmp_path, 3, edges=[(0, 1), (1, 2), (0, 2)], **EXACT)
    with running(description, tmp_path) as agents:
        until(lambda: settled(agents))
    roster = SignedRoster(description.roster.without("a2", keep_rows=keep))
    later = description.with_roster(roster)
    with living(later, "a0", tmp_path) as one, living(later, "a1", tmp_path) as other:
        until(lambda: together(one, other))
        answer = ask(later, "a1", QUERIES)
        assert_exact(answer, shards if keep else shards[:2], other)
        assert answer["data_of"] == ["a0", "a1", *(["a2"] if keep else [])]
        assert answer["missing"] == []
    assert len(said(tmp_path / "a0.log", "totals dropped")) == (0 if keep else 1)


def test_an_agent_that_comes_back_is_added_once(tmp_path: Path) -> None:
    """Both parts got rows while they were apart; the one that comes back holds older totals."""
    description, shards = describe(tmp_path, 3, **EXACT)
    with running(description, tmp_path) as agents:
        until(lambda: settled(agents))
        gone(agents[2])
        until(lambda: together(*agents[:2]))
        agents[0].data.append(ONE)
        assert_exact(ask(description, "a0", QUERIES), grown(shards, a0=ONE), agents[0])
        agents[2].data.append(TWO)  # to its journal
        agents[1].data.append(OUTSIDE)
        assert ask(description, "a0", QUERIES)["left_out"] == ["a1"]
        with living(description, "a2", tmp_path) as back:
            everyone = [*agents[:2], back]
            # In its absence a row outside of the box had to wait; not any more.
            until(lambda: together(*everyone))
            for name in ("a2", "a0"):
                answer = ask(description, name, QUERIES)
                assert_exact(answer, grown(shards, a0=ONE, a1=OUTSIDE, a2=TWO), back)
                assert (answer["missing"], answer["left_out"]) == ([], [])
            assert {len(said(tmp_path / f"a{k}.log", "training")) for k in range(3)} == {1}


@pytest.mark.parametrize("spoilt", ["cut", "bit", "foreign"])
def test_totals_on_disk_come_back_as_they_were_or_not_at_all(spoilt: str, tmp_path: Path) -> None:
    description, shards = describe(tmp_path, 1, **EXACT)
    file = tmp_path / "state" / "a0" / "totals.bin"
    with running(description, tmp_path) as agents:
        until(lambda: serving(agents))
        expected = agents[0].memory.totals
    assert expected is not None
    found = load_totals(file, description)
    assert found is not None
    assert found.number == expected.number
    np.testing.assert_array_equal(found.moments.packed, expected.moments.packed)
    assert file.stat().st_mode & 0o077 == 0
    content = file.read_bytes()
    place = content.index(b"\n") + 1001
    damaged = {
        "cut": content[:-8],
        "bit": content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :],
        "foreign": content.replace(b"temperature over", b"salinity over"),
    }[spoilt]
    file.write_bytes(damaged)
    with running(description, tmp_path) as agents:
        until(lambda: serving(agents))
        assert_exact(ask(description, "a0", QUERIES), shards, agents[0])  # agreed anew
    assert file.with_suffix(".old.bin").read_bytes() == damaged
    assert len(said(tmp_path / "a0.log", "totals left aside")) == 1
    assert load_totals(file, description) is not None
