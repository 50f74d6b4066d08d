"""The parts of an agent, and agents in threads: what they agree on, remember, and refuse."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zenoh
from hypothesis import given, settings
from hypothesis import strategies as st

import fleetgp as fg
from fleetgp.agent.agenda import Agenda, Item, Question, Trained, Wish, agree_on_agenda
from fleetgp.agent.agent import Agent
from fleetgp.agent.description import PREDICTORS, TRAINERS, Description, read_description
from fleetgp.agent.disk.checkpoint import Checkpoint
from fleetgp.agent.logs import Log
from fleetgp.agent.metrics import Metrics
from fleetgp.agent.service import Service
from fleetgp.agent.status import status_of
from fleetgp.errors import InputError, NetworkError, NumericalError
from fleetgp.graph import Graph
from fleetgp.network.loopback import Loopback
from fleetgp.operator.client import AgentClient
from fleetgp.operator.example import fleet_text, free_ports
from tests.conftest import paper_shards

MODEL = Trained((0.1, -0.2, 0.3, -2.0), 77, (0, 1, 2), "dec-apx-gp", "converged", 40, 11.5, 2.5)


# ---- the agenda ---------------------------------------------------------------------------------------------


@st.composite
def an_item(draw: st.DrawFn) -> Item:
    number = st.floats(-5.0, 5.0)
    trained = draw(
        st.none()
        | st.builds(
            Trained,
            st.tuples(number, number, number, number),
            st.integers(1, 2**32 - 1),
            st.lists(st.integers(0, 99), min_size=1, max_size=5, unique=True).map(lambda ids: tuple(sorted(ids))),
            st.sampled_from(TRAINERS),
            st.sampled_from(["converged", "round limit"]),
            st.integers(0, 5000),
            number,
            st.floats(0.1, 9.0),
        )
    )
    rows = draw(st.lists(st.tuples(number, number, number, number), max_size=3))
    queries = draw(st.none() | st.lists(st.tuples(number, number), min_size=1, max_size=4))
    question = (
        None if queries is None else Question(np.array(queries), draw(st.sampled_from(PREDICTORS)), draw(st.booleans()))
    )
    wish = draw(st.none() | st.builds(Wish, st.booleans(), st.none() | st.sampled_from(TRAINERS)))
    estimates = np.array(rows) if rows else np.zeros((0, 0))
    return Item(
        trained, estimates, draw(st.booleans()), draw(st.booleans()), draw(st.integers(0, 10**6)), wish, question
    )


def assert_same(one: Item, other: Item) -> None:
    for name in ("trained", "chosen", "failed", "new", "wish"):
        assert getattr(one, name) == getattr(other, name)
    np.testing.assert_array_equal(one.estimates.reshape(-1), other.estimates.reshape(-1))
    assert (one.question is None) == (other.question is None)
    if one.question is not None and other.question is not None:
        assert (one.question.method, one.question.noisy) == (other.question.method, other.question.noisy)
        np.testing.assert_array_equal(one.question.queries, other.question.queries)


@given(st.lists(an_item(), min_size=3, max_size=3))
@settings(max_examples=60, deadline=None)
def test_every_member_has_the_whole_agenda(items: list[Item]) -> None:
    fleet = Loopback(Graph.path(3), [[0], [1], [2]])
    agendas = fleet.run(lambda network: agree_on_agenda(network, items[network.hosted[0]], (4, 5, 9), 100, 2))
    for agenda in agendas:
        assert agenda.members == (4, 5, 9)
        for told, item in zip(agenda.items, items, strict=True):
            assert_same(told, item)
        assert agenda.model == agendas[0].model


def test_the_common_model_is_that_of_most_and_the_mean_of_its_holders() -> None:
    other = replace(MODEL, id=5, members=(0, 1, 2, 3), log_theta=(9.0, 9.0, 9.0, 9.0))
    near = replace(MODEL, log_theta=(0.3, -0.2, 0.3, -2.0))
    found = Agenda([Item(MODEL), Item(near), Item(other), Item()], (0, 1, 2, 3)).model
    assert found is not None
    assert found.id == MODEL.id
    np.testing.assert_allclose(found.log_theta, (0.2, -0.2, 0.3, -2.0))
    assert Agenda([Item(), Item()], (0, 1)).model is None


def test_when_to_train() -> None:
    def due(*items: Item, members: tuple[int, ...] = (0, 1, 2), with_members: bool = True, after: int = 0) -> Any:
        return Agenda(items, members).training(with_members=with_members, after=after)

    held = Item(MODEL)
    assert due(Item(), Item(), Item()) == Wish()
    assert due(held, held, held) is None
    assert due(held, held, members=(0, 1)) == Wish()  # somebody left
    assert due(held, held, members=(0, 1), with_members=False) is None
    assert due(held, held, Item()) == Wish()  # somebody came
    assert due(Item(), Item(), Item(failed=True)) is None
    assert due(held, held, Item(MODEL, wish=Wish(True, "dec-c-gp"))) == Wish(True, "dec-c-gp")
    assert due(held, replace(held, new=3), replace(held, new=4), after=7) == Wish()
    assert due(held, replace(held, new=3), replace(held, new=3), after=7) is None


def test_where_to_go_on() -> None:
    early, late = np.zeros((3, 4)), np.full((1, 4), 2.0)
    assert Agenda([Item(), Item()], (0, 1)).starts() is None
    np.testing.assert_array_equal(Agenda([Item(estimates=early), Item()], (0, 1)).starts(), early)
    both = Agenda([Item(estimates=early), Item(estimates=late, chosen=True), Item(MODEL)], (0, 1, 2)).starts()
    assert both is not None
    np.testing.assert_allclose(both, [(2.0 + np.array(MODEL.log_theta)) / 2.0])


# ---- memory -------------------------------------------------------------------------------------------------


def test_a_checkpoint_comes_back_as_it_was_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "checkpoint.json"
    description, _ = describe(tmp_path, 3)
    assert Checkpoint.load(path, description) is None
    kept = Checkpoint(MODEL, 40, np.array([[0.1, 1 / 3, 2.0, -7.0]]), True, 30)
    kept.save(path, description)
    text = (tmp_path / "fleet.toml").read_text()

    def changed(old: str, new: str) -> Description:
        (tmp_path / "fleet.toml").write_text(text.replace(old, new))
        return read_description(tmp_path / "fleet.toml")

    assert Checkpoint.load(path, changed('target = "temperature"', 'target = "salinity"')) is None
    renamed = Checkpoint.load(path, changed('"a2"', '"b2"'))  # who trained it is no agent any more
    assert renamed is not None
    assert renamed.trained is None
    found = Checkpoint.load(path, description)
    assert found is not None
    assert (found.trained, found.rows, found.chosen, found.round) == (MODEL, 40, True, 30)
    np.testing.assert_array_equal(found.estimates, kept.estimates)
    assert [p.name for p in path.parent.iterdir()] == ["checkpoint.json"]
    text = path.read_text()
    for broken in (text[:40], "[]", text.replace('"version": 1', '"version": 99'), text.replace("offset", "ofset")):
        path.write_text(broken)
        assert Checkpoint.load(path, description) is None


# ---- agents in threads ----------------------------------------------------------------------------------------


def describe(folder: Path, agents: int, points: int = 40, **options: Any) -> tuple[Description, list[Any]]:
    shards = list(paper_shards(points * agents, agents))
    names = [f"a{k}" for k in range(agents)]
    for name, (inputs, observations) in zip(names, shards, strict=True):
        np.savez(folder / f"{name}.npz", x=inputs[:, 0], y=inputs[:, 1], temperature=observations)
    tls = options.pop("tls", None)
    ends = [f"{'tls' if tls else 'tcp'}/127.0.0.1:{port}" for port in free_ports(agents)]
    edges = options.pop("edges", [(k, k + 1) for k in range(agents - 1)])
    options = {
        "training": "dec-apx-gp",
        "training_options": "theta0 = [2.0, 0.5, 1.0, 1.0]",
        "prediction": "dec-rbcm",
        "round": 30,
        "lease": 5,
        **options,
    }
    (folder / "fleet.toml").write_text(
        fleet_text("threads", names, ends, [f"{name}.npz" for name in names], edges, **options)
        + (f'\n[tls]\nfolder = "{tls}"\n' if tls else "")
    )
    return read_description(folder / "fleet.toml"), shards


@contextmanager
def running(description: Description, log: Path) -> Iterator[list[Agent]]:
    agents: list[Agent] = []
    threads = []
    try:
        for name in description.names:
            agents.append(Agent(description, name, Log(name, file=log / f"{name}.log")))
            Service(agents[-1])
            threads.append(threading.Thread(target=agents[-1].run))
            threads[-1].start()
        yield agents
    finally:
        for agent in agents:
            agent.stop()
        for thread in threads:
            thread.join(120.0)
        for agent in agents:
            agent.log.close()
        assert not any(thread.is_alive() for thread in threads)


def until(done: Any, seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def serving(agents: list[Agent]) -> bool:
    return all(agent.phase == "serving" and agent.memory.trained is not None for agent in agents)


def ask(description: Description, name: str, queries: Any, **content: Any) -> Any:
    with AgentClient(description, name) as client:
        return client.request("ask", 30.0, queries=queries, **content)


QUERIES = [[0.5, 0.5], [1.5, 1.0]]


def test_ten_thousand_malformed_messages_stop_nothing(tmp_path: Path) -> None:
    """Frames and hellos of a neighbour, and requests of an operator, while two agents train and answer."""
    description, shards = describe(tmp_path, 2)
    rng = np.random.default_rng(3)
    with running(description, tmp_path) as agents:
        spoiler = agents[1].node.links
        spoiler.wait(10.0)
        key = f"fleetgp/{description.run:016x}/0/1/hello"
        hello = spoiler.session.declare_publisher(key, congestion_control=zenoh.CongestionControl.BLOCK)
        for n in range(10_000):
            size = int(rng.integers(0, 120))
            data = rng.bytes(size) if n % 3 else json.dumps({"digest": n, "records": [[]] * (n % 5)}).encode()
            if n % 2:
                spoiler.send(1, 0, data)
            else:
                hello.put(data)
        until(lambda: serving(agents))
        until(lambda: agents[0].node.links.dropped["malformed"] >= 10_000)
        with AgentClient(description, "a0") as client:
            for verb, payload in (("ask", {}), ("ask", {"queries": "x"}), ("ask", {"queries": [[1, 2, 3]]})):
                with pytest.raises(InputError):
                    client.request(verb, **payload)
            with pytest.raises(InputError, match="unknown request"):
                client.request("nonsense")
            with pytest.raises(InputError, match="unknown prediction method"):
                client.request("ask", queries=QUERIES, method="grbcm")
            with pytest.raises(InputError, match="rows of 3 numbers"):
                client.request("observe", rows=[[1, 2]])
        answer = ask(description, "a0", QUERIES)
        expected = fg.Fleet(shards, "path", normalize=True)
        fit = expected.train("dec-apx-gp", theta0=fg.PAPER_THETA0)
        assert agents[0].node.links.dropped["malformed"] == 10_000
        np.testing.assert_array_equal(np.exp([agent.node.theta for agent in agents]), fit.thetas)
        np.testing.assert_array_equal(answer["mean"], expected.predict(QUERIES, "dec-rbcm").mean)


def test_new_rows_count_at_once_and_train_by_rule(tmp_path: Path) -> None:
    options = "theta0 = [2.0, 0.5, 1.0, 1.0]"
    description, shards = describe(tmp_path, 2, training_options=options)
    text = (tmp_path / "fleet.toml").read_text().replace("again_after = 0 ", "again_after = 5 ")
    (tmp_path / "fleet.toml").write_text(text)
    description = read_description(tmp_path / "fleet.toml")
    more = fg.synthetic_field(6, seed=8)
    with running(description, tmp_path) as agents:
        until(lambda: serving(agents))
        first = agents[0].memory.trained
        with AgentClient(description, "a1") as client:
            rows = np.column_stack([more.inputs, more.observations])
            assert client.request("observe", rows=rows[:4].tolist()) == {"rows": 4, "repeated": False, "in_all": 44}
            time.sleep(0.5)
            assert agents[0].memory.trained == first  # four are not five
            assert agents[1].new_rows == 4
            grown = [
                shards[0],
                tuple(np.concatenate(p) for p in zip(shards[1], (more.inputs[:4], more.observations[:4]), strict=True)),
            ]
            expected = fg.Fleet(shards, "path", normalize=True)
            expected.train("dec-apx-gp", theta0=fg.PAPER_THETA0)
            later = fg.Fleet(grown, "path", normalize=True)
            later.fit, later.theta = expected.fit, expected.theta
            np.testing.assert_allclose(
                ask(description, "a0", QUERIES)["mean"], later.predict(QUERIES, "dec-rbcm").mean, rtol=1e-12
            )
            client.request("observe", rows=rows[4:].tolist())
        until(lambda: serving(agents) and agents[0].memory.trained != first and agents[1].memory.trained != first)
        assert agents[1].new_rows == 0
        warm = [line for line in (tmp_path / "a0.log").read_text().splitlines() if '"event": "training"' in line]
        assert json.loads(warm[-1])["warm"] is True


def test_a_slow_disk_stops_neither_heartbeats_nor_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from fleetgp.agent.disk.journal import Journal

    disk, writing, real = threading.Event(), threading.Event(), Journal.append

    def append(self: Journal, values: Any, request: str) -> bool:
        writing.set()
        assert disk.wait(60.0)
        return real(self, values, request)

    monkeypatch.setattr(Journal, "append", append)
    description, _ = describe(tmp_path, 2)
    with running(description, tmp_path) as agents, ThreadPoolExecutor(1) as pool, AgentClient(description, "a1") as one:
        until(lambda: serving(agents))
        views = agents[0].views
        told = pool.submit(one.request, "observe", 60.0, rows=[[0.1, 0.1, 0.0]], request="slow")
        try:
            assert writing.wait(20.0)
            with AgentClient(description, "a1") as other:
                assert other.request("status")["rows"] == 40
            assert ask(description, "a1", QUERIES)["members"] == ["a0", "a1"]
            assert not told.done()
        finally:
            disk.set()
        assert told.result(60.0) == {"rows": 1, "repeated": False, "in_all": 41}
        assert agents[0].views == views  # nobody took it for lost


def test_an_agent_that_cannot_work_leaves_the_others_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fleetgp.training import train as real

    broken = threading.Event()
    broken.set()

    def train(method: Any, shards: Any, network: Any, *rest: Any) -> Any:
        if broken.is_set() and network._links.hosted == (1,):
            raise NumericalError("agent 1: its covariance cannot be factorized")
        return real(method, shards, network, *rest)

    monkeypatch.setattr("fleetgp.agent.agent.train", train)
    description, _ = describe(tmp_path, 2)
    with running(description, tmp_path) as agents:
        until(lambda: agents[0].phase == "serving" and agents[1].phase == "failed")
        assert status_of(agents[0])["missing"] == ["a1"]
        assert "cannot be factorized" in status_of(agents[1])["problem"]
        with pytest.raises(NetworkError, match="a1 cannot work: NumericalError"):
            ask(description, "a1", QUERIES)
        assert ask(description, "a0", QUERIES)["members"] == ["a0"]
        broken.clear()
        with AgentClient(description, "a1") as client:
            client.request("train")
        until(lambda: serving(agents) and status_of(agents[0])["trained"]["by"] == ["a0", "a1"])
        assert status_of(agents[1])["problem"] == ""


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
    from concurrent.futures import ThreadPoolExecutor

    description, _ = describe(tmp_path, 3)
    with running(description, tmp_path) as agents:
        until(lambda: serving(agents))
        jobs = [(f"a{k % 3}", PREDICTORS[k % 5]) for k in range(9)]
        with ThreadPoolExecutor(9) as pool:
            answers = list(pool.map(lambda job: ask(description, job[0], QUERIES, method=job[1]), jobs))
        assert [answer["method"] for answer in answers] == [method for _, method in jobs]
        for one, other in zip(answers, answers[5:], strict=False):
            np.testing.assert_allclose(one["mean"], other["mean"], rtol=1e-4)


def test_metrics_for_prometheus(tmp_path: Path) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    description, _ = describe(tmp_path, 2)
    with running(description, tmp_path) as agents:
        until(lambda: serving(agents) and (status_of(agents[0])["disagreement"] or 1.0) < 1e-4)  # hellos tell it
        (port,) = free_ports(1)
        metrics = Metrics(agents[0], port)
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                found = {f.name: f.samples for f in text_string_to_metric_families(answer.read().decode())}
            with pytest.raises(NetworkError, match="no metrics on port"):
                Metrics(agents[1], port)
        finally:
            metrics.close()
        assert found["fleetgp_rounds"][0].value > 10
        assert found["fleetgp_neighbour_up"][0].labels == {"neighbour": "a1"}
        assert found["fleetgp_neighbour_up"][0].value == 1.0
        assert found["fleetgp_bytes_sent"][0].value > 1000
        assert {s.labels["parameter"] for s in found["fleetgp_theta"]} == {"l_x", "l_y", "sigma_f", "sigma_eps"}
        assert found["fleetgp_disagreement"][0].value < 1e-4
        assert {s.labels["phase"]: s.value for s in found["fleetgp_phase"]}["serving"] == 1.0


def test_an_agent_alone_can_be_interrupted(tmp_path: Path) -> None:
    """Without neighbours there is nobody to wait for: the end must be noticed all the same."""
    description, _ = describe(tmp_path, 1, points=200, training_options="tol = 0.0\nrounds = 100000")
    with running(description, tmp_path) as agents:
        until(lambda: agents[0].round > 5)
        agents[0].stop()
        until(lambda: agents[0].phase == "stopped")  # the rounds that are left would take hours


def test_a_new_row_below_the_rule_leaves_the_fleet_idle(tmp_path: Path) -> None:
    describe(tmp_path, 2)
    text = (tmp_path / "fleet.toml").read_text().replace("again_after = 0 ", "again_after = 5 ")
    (tmp_path / "fleet.toml").write_text(text)
    description = read_description(tmp_path / "fleet.toml")
    with running(description, tmp_path) as agents:
        until(lambda: serving(agents))
        with AgentClient(description, "a0") as client:
            client.request("observe", rows=[[0.1, 0.1, 0.0]])
        time.sleep(0.7)
        before = agents[0].rounds
        time.sleep(1.0)
        assert agents[0].rounds == before


def test_a_question_that_cannot_be_computed_is_refused_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fleetgp.prediction import predict_in_units as real

    def predict(
        method: Any, shards: Any, network: Any, kernel: Any, thetas: Any, scaling: Any, queries: Any, *a: Any, **k: Any
    ) -> Any:
        if len(queries) == 3 and network._links.hosted == (1,):
            raise MemoryError("too much")
        return real(method, shards, network, kernel, thetas, scaling, queries, *a, **k)

    monkeypatch.setattr("fleetgp.agent.agent.predict_in_units", predict)
    monkeypatch.setattr("fleetgp.agent.agent.TRIES", 2)
    description, _ = describe(tmp_path, 2)
    with running(description, tmp_path) as agents:
        until(lambda: serving(agents))
        with pytest.raises(NetworkError, match="cannot be computed: MemoryError"):
            ask(description, "a1", [*QUERIES, [0.1, 0.1]])
        with pytest.raises(NetworkError, match="not answered in 2 attempts"):
            ask(description, "a0", [*QUERIES, [0.1, 0.1]])
        assert ask(description, "a0", QUERIES)["members"] == ["a0", "a1"]
        with pytest.raises(InputError, match="beyond 1e"):
            ask(description, "a0", [[1e308, 0.0]], method="dec-nn-rbcm")
        with pytest.raises(InputError, match="seconds must lie"):
            ask(description, "a0", QUERIES, seconds=float("nan"))
        assert serving(agents)


def test_wishes_are_fulfilled_in_turn_and_told_apart(tmp_path: Path) -> None:
    description, _ = describe(tmp_path, 2)
    with running(description, tmp_path) as agents:
        until(lambda: serving(agents))
        with AgentClient(description, "a1") as client:
            numbers = [client.request("train", method=method)["wish"] for method in ("dec-c-gp", "dec-apx-gp")]
        assert numbers == [1, 2]
        until(lambda: agents[1].requests.fulfilled == 2 and serving(agents))
        methods = [
            json.loads(line)["method"]
            for line in (tmp_path / "a0.log").read_text().splitlines()
            if '"event": "trained"' in line
        ]
        assert methods == ["dec-apx-gp", "dec-c-gp", "dec-apx-gp"]
        assert status_of(agents[1])["outcome"] == "converged"


def test_a_lost_frame_is_sent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of an agenda, the last of a training: each is asked for, and nobody is left out."""
    from fleetgp.network.wire import decode
    from fleetgp.network.zenoh.links import Links

    lost: list[int] = []
    real = Links.send

    def send(self: Links, own: int, neighbour: int, frame: bytes) -> None:
        round = decode(frame).round
        if len(lost) < 6 and own == 1 and round % 17 == len(lost) % 2 and round not in lost[-1:]:
            lost.append(round)
            return
        real(self, own, neighbour, frame)

    monkeypatch.setattr(Links, "send", send)
    description, _ = describe(tmp_path, 3, round=20)
    with running(description, tmp_path) as agents:
        until(lambda: serving(agents))
        answer = ask(description, "a1", QUERIES)
        assert answer["members"] == ["a0", "a1", "a2"]
        assert len(lost) == 6
        assert agents[1].node.links.resent >= 6
        assert agents[0].views == 1


def test_whoever_misses_deadlines_again_and_again_is_left_out_for_longer(tmp_path: Path) -> None:
    from fleetgp.agent.membership.membership import Record

    description, _ = describe(tmp_path, 2, round=5)
    alone = Agent(description, "a0", Log("a0", file=tmp_path / "a0.log"))
    try:
        for penalty in (0.0, 5.0, 15.0, 35.0):
            with alone.node._changed:
                before = time.monotonic()
                alone.node._suspend({1}, "slow")
                until_when, after = alone.node._neighbours[1].until, time.monotonic()
                assert before + penalty <= until_when <= after + penalty
                assert isinstance(alone.node._neighbours[1].suspended, Record)
    finally:
        alone.node.close()
        alone.log.close()


def test_whoever_asks_must_have_the_same_description(tmp_path: Path) -> None:
    """Else columns could change places on the way."""
    description, _ = describe(tmp_path, 1)
    text = (tmp_path / "fleet.toml").read_text()
    (tmp_path / "swapped.toml").write_text(text.replace('inputs = ["x", "y"]', 'inputs = ["y", "x"]'))
    (tmp_path / "named.toml").write_text(text.replace('name = "threads"', 'name = "others"'))
    swapped, named = (read_description(tmp_path / f"{name}.toml") for name in ("swapped", "named"))
    with running(description, tmp_path) as agents:
        until(lambda: serving(agents))
        for verb, content in (("ask", {"queries": QUERIES}), ("observe", {"rows": [[1, 2, 3]]}), ("train", {})):
            with AgentClient(swapped, "a0") as client, pytest.raises(InputError, match="another fleet description"):
                client.request(verb, **content)
        with AgentClient(named, "a0") as client, pytest.raises(InputError, match="belongs to the fleet 'threads'"):
            client.request("stop")
        assert agents[0].data.rows == 40


def test_a_question_that_takes_too_long_is_broken_off(tmp_path: Path) -> None:
    slow = "rounds = 20000\ntol = 1e-300\n"
    description, _ = describe(tmp_path, 3, prediction="dec-npae", prediction_options=slow)
    with running(description, tmp_path) as agents:
        until(lambda: serving(agents))
        with pytest.raises(NetworkError, match="no answer within 1 s: a1 is predicting"):
            ask(description, "a1", QUERIES, seconds=1.0)
        until(lambda: serving(agents))
        assert agents[0].memory.trained is not None
        assert agents[0].memory.trained.members == (0, 1, 2)


def test_a_checkpoint_of_another_model_is_left_aside(tmp_path: Path) -> None:
    description, _ = describe(tmp_path, 1)
    folder = tmp_path / "state" / "a0"
    folder.mkdir(parents=True)
    (folder / "checkpoint.json").write_text("{}")
    agent = Agent(description, "a0", Log("a0", file=tmp_path / "a0.log"))
    agent.node.close()
    agent.log.close()
    assert (folder / "checkpoint.old.json").read_text() == "{}"
    assert "checkpoint left aside" in (tmp_path / "a0.log").read_text()
    (tmp_path / "state2").write_text("")
    blocked = (tmp_path / "fleet.toml").read_text().replace('state = "state"', 'state = "state2"')
    (tmp_path / "fleet.toml").write_text(blocked)
    log = Log("a0", file=tmp_path / "b.log")
    with pytest.raises(InputError, match="expected a folder, got a file"):
        Agent(read_description(tmp_path / "fleet.toml"), "a0", log)
    log.close()


def test_a_training_that_was_cut_off_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """The file is renewed while the training runs: kill -9 leaves what it had."""
    endless = "theta0 = [2.0, 0.5, 1.0, 1.0]\ntol = 0.0\nrounds = 100000"
    description, _ = describe(tmp_path, 1, training_options=endless)
    path = tmp_path / "state" / "a0" / "checkpoint.json"

    def kept() -> Checkpoint:
        return Checkpoint.load(path, description) or Checkpoint()

    with running(description, tmp_path):
        until(lambda: kept().round >= 20)
        left = kept()
    assert left.trained is None
    assert left.chosen
    left.save(path, description)  # as a kill at that moment would have left it
    with running(description, tmp_path) as agents:
        np.testing.assert_array_equal(agents[0].memory.estimates.shape, (1, 4))
        until(lambda: agents[0].round > 0)
    lines = [json.loads(line) for line in (tmp_path / "a0.log").read_text().splitlines()]
    assert [line["warm"] for line in lines if line["event"] == "training"] == [False, True]
    assert [line["round"] for line in lines if line["event"] == "resumed"] == [left.round]
