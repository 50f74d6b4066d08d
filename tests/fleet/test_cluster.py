"""A fleet on a Ray cluster: the bits, rounds and messages of one process, also where workers are killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.errors import InputError, NumericalError, WorkerLostError
from fleetgp.graph import Tree
from fleetgp.progress import Progress
from tests.cluster import LONG, assert_same, fragile, fragile_and_late, from_round, frozen, once_there, pid
from tests.conftest import mostly_long, paper_shards

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install fleetgp[cluster]")
pytestmark = [
    pytest.mark.usefixtures("uncompiled"),
    pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning"),
]

AGENTS, WORKERS = 6, 3
GRAPH = fg.Graph.geometric(AGENTS, seed=2)
QUERIES = np.random.default_rng(0).uniform(0.0, 2.0, (12, 2))
THETA = [1.2, 0.3, 1.3, 0.1]
AVERAGE: dict[str, Any] = {"consensus": "average", "rounds": 12, "tol": 1e-3}
#: Few rounds of everything.
HOW: dict[str, dict[str, Any]] = {
    "dec-full-gp": {"rounds": 5},
    "dec-fact-gp": {"rounds": 6},
    "dec-g-fact-gp": {"rounds": 6, "theta0": fg.PAPER_THETA0},
    "dec-c-gp": {"rounds": 6, "theta0": fg.PAPER_THETA0},
    "dec-apx-gp": {"rounds": 30, "bounds": {"l_1": (1.5, None)}, "priors": {"noise": (0.1, 2)}},
    "dec-gapx-gp": {"rounds": 30, "theta0": fg.PAPER_THETA0, "tol": 0},
    "full-gp": {"rounds": 6, "theta0": fg.PAPER_THETA0},
    "fact-gp": {"rounds": 6},
    "g-fact-gp": {"rounds": 6, "theta0": fg.PAPER_THETA0},
    "c-gp": {"rounds": 6, "theta0": fg.PAPER_THETA0},
    "apx-gp": {"rounds": 10},
    "gapx-gp": {"rounds": 10, "theta0": fg.PAPER_THETA0, "tol": 0},
}


def shards() -> list[Any]:
    return list(paper_shards(120, AGENTS))


def forget(fleet: fg.Fleet) -> None:
    """As if it had never been trained."""
    fleet.theta = fleet.last_fit = fleet.unfinished = None


def in_process(**options: Any) -> fg.Fleet:
    return fg.Fleet(shards(), GRAPH, **{"kernel": "se", "normalize": False, **options})


@pytest.fixture(scope="module")
def fleet(cluster: None) -> Iterator[fg.Fleet]:
    with fg.Fleet(shards(), GRAPH, backend="ray", workers=WORKERS, kernel="se", normalize=False) as found:
        yield found


@pytest.fixture
def crew(fleet: fg.Fleet) -> Any:
    return fleet._backend.opened.crew  # type: ignore[attr-defined]


# ---- the same answers -------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::fleetgp.errors.FleetGPWarning")
@pytest.mark.parametrize("method", mostly_long(HOW, "dec-full-gp", "dec-apx-gp", "g-fact-gp"))
def test_every_trainer_gives_what_it_gives_in_process(fleet: fg.Fleet, method: str) -> None:
    heard: dict[str, list[Progress]] = {"here": [], "there": []}
    expected = in_process().train(method, **HOW[method], progress=heard["here"].append)
    assert_same(fleet.train(method, **HOW[method], progress=heard["there"].append), expected)
    facts = {
        where: [
            (p.task, p.round, p.rounds, p.detail, p.chosen, None if p.thetas is None else p.thetas.tolist())
            for p in told
        ]
        for where, told in heard.items()
    }
    assert facts["there"] == facts["here"]


@pytest.mark.filterwarnings("ignore::fleetgp.errors.FleetGPWarning")
@pytest.mark.parametrize(
    "method", mostly_long(fg.PREDICTION_METHODS, "dec-summary", "dec-nn-grbcm", "dec-npae", "dec-nearest", "full-gp")
)
def test_every_predictor_gives_what_it_gives_in_process(fleet: fg.Fleet, method: str) -> None:
    fleet.sent_groups.clear()
    here, there = (each.condition(THETA) for each in (in_process(), fleet))
    along_trees = ("dec-full-gp", "dec-nearest", "dec-summary")
    for options in ({}, {"agent": 4, "observed": True}, AVERAGE):
        central = not method.startswith("dec-")
        if not options or not (central or ("consensus" in options and method in along_trees)):
            assert_same(there.predict(QUERIES, method, **options), here.predict(QUERIES, method, **options))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::fleetgp.errors.FleetGPWarning")
def test_several_outputs_share_the_workers(cluster: None) -> None:
    both = [(x, np.column_stack([y, np.where(x[:, 1] < 1.5, 3.0 * y + 1.0, np.nan)])) for x, y in shards()]
    how: dict[str, Any] = {"targets": ["t", "s"], "normalize": True, "mean": "constant"}
    here, there = (
        fg.Outputs(both, GRAPH, **{"kernel": "se", "normalize": False, **how}),
        fg.Outputs(both, GRAPH, **{"kernel": "se", "normalize": False, **how}, backend="ray", workers=2),
    )
    with there:
        for method in ("dec-fact-gp", "dec-apx-gp", "fact-gp", "full-gp"):
            found, expected = (each.train(method, rounds=20, tol=1e-2) for each in (there, here))
            for target in ("t", "s"):
                assert_same(found[target], expected[target])
        answers, expected_answers = there.predict(QUERIES), here.predict(QUERIES)
        for target in ("t", "s"):
            assert_same(answers[target], expected_answers[target])


def test_estimates_scaling_blocks_and_new_rows(cluster: None) -> None:
    """Agents that differ agree first; what was agreed on is not sent again; rows that come enter the posteriors."""
    more = shards()[1]
    with fg.Fleet(shards(), GRAPH, backend="ray", workers=2, normalize=True, kernel="se") as there:
        here = in_process(normalize=True)
        for each in (here, there):
            each.train("dec-apx-gp", theta0=fg.PAPER_THETA0, rounds=5, tol=0)
        many = np.random.default_rng(1).uniform(0.0, 2.0, (2100, 2))
        first = [each.predict(many) for each in (there, here)]
        second = [each.predict(QUERIES) for each in (there, here)]
        assert_same(*first)
        assert_same(*second)
        assert "groups" in first[0].ledger.rounds_by_phase
        assert "groups" not in second[0].ledger.rounds_by_phase
        for each in (here, there):
            each.observe(1, more[0][:7] + 0.01, more[1][:7])
        assert_same(there.predict(QUERIES), here.predict(QUERIES))
        blocks = there.condition().predict_in_blocks(many)
        next(blocks)
        with pytest.raises(fg.NetworkError, match="the workers have another task"):
            there.predict(QUERIES)
        blocks.close()  # type: ignore[attr-defined]
        assert_same(there.predict(QUERIES), here.predict(QUERIES))
        for each in (here, there):  # groups that were sent stay, at the workers too
            each.calibrate("dec-summary", holdout="rows", min_rows=7)
            each.theta = np.array(THETA)
        assert_same(there.predict(QUERIES, min_rows=6), here.predict(QUERIES, min_rows=6))
        mine, its = ([each.sent_groups[agent] for agent in range(AGENTS)] for each in (there, here))
        assert [[rows.tolist() for rows in sent] for sent in mine] == [[rows.tolist() for rows in sent] for sent in its]


@pytest.mark.long
def test_noise_that_differs_is_that_in_process(cluster: None) -> None:
    """Known deviations, a noise for each agent, and weights: they travel with the rows."""
    noisy = [
        (x, np.where(np.arange(len(y)) == 3, 9.0, y), np.full(len(y), 0.02 * k)) for k, (x, y) in enumerate(shards())
    ]
    how: dict[str, Any] = {"noise": ["a", "b", "a"], "robust": True, "normalize": True}
    with fg.Fleet(noisy[:3], "path", backend="ray", workers=2, **{"kernel": "se", "normalize": False, **how}) as there:
        here = fg.Fleet(noisy[:3], "path", **{"kernel": "se", "normalize": False, **how})
        start = [*THETA, THETA[-1]]
        assert_same(*(each.train(theta0=start, tol=1e-2) for each in (there, here)))
        assert_same(*(each.predict(QUERIES, "dec-grbcm", agent=2, observed=True) for each in (there, here)))


def test_an_error_of_one_agent_is_the_same_error(fleet: fg.Fleet) -> None:
    wrong = [1e-4, 1e-4, 1.0, 1e-3]
    with pytest.raises(NumericalError) as expected:
        in_process().predict(QUERIES, "dec-full-gp", theta=wrong)
    with pytest.raises(NumericalError) as found:
        fleet.predict(QUERIES, "dec-full-gp", theta=wrong)
    assert (type(found.value), str(found.value)) == (type(expected.value), str(expected.value))


def test_ctrl_c_leaves_what_it_leaves_in_process(fleet: fg.Fleet) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.round == 7:
            raise KeyboardInterrupt

    here = in_process()
    for each in (here, fleet):
        forget(each)
        with pytest.raises(KeyboardInterrupt) as stopped:
            each.train("dec-apx-gp", theta0=fg.PAPER_THETA0, rounds=500, tol=0, progress=interrupt)
        assert stopped.value.__notes__[0].startswith("the training was interrupted after 7 rounds of dec-apx-gp")
        assert each.theta is not None
    assert np.array_equal(here.theta, fleet.theta)  # type: ignore[arg-type]
    assert_same(
        fleet.train("dec-fact-gp", **HOW["dec-fact-gp"]), in_process().train("dec-fact-gp", **HOW["dec-fact-gp"])
    )


# ---- lost workers -----------------------------------------------------------------------------------------------


@pytest.fixture
def sabotage(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Workers meet with something in the middle of their work: breaking(network, memory, tell, work, *how, *given)."""
    from fleetgp.fleet import cluster

    works = {name: getattr(cluster, name) for name in ("train_group", "answer_in_group")}  # without earlier sabotage

    def put(name: str, breaking: Callable[..., Any], *how: object) -> None:
        monkeypatch.setattr(cluster, name, partial(_broken, breaking, works[name], how))

    return put


def _broken(
    breaking: Callable[..., Any],
    work: Callable[..., Any],
    how: tuple[Any, ...],
    network: Any,
    memory: Any,
    tell: Any,
    *given: Any,
) -> Any:
    return breaking(network, memory, tell, work, *how, *given)


@pytest.mark.parametrize("agent", [pytest.param(0, marks=pytest.mark.long), 5])
def test_a_worker_that_is_killed_in_a_training_is_replaced(
    fleet: fg.Fleet, crew: Any, sabotage: Callable[..., None], tmp_path: Path, agent: int
) -> None:
    expected = in_process().train("dec-apx-gp", theta0=fg.PAPER_THETA0, rounds=40, tol=0)
    before, mark, rounds = crew.lost, tmp_path / "killed", []
    sabotage("train_group", fragile, agent, mark, partial(from_round, 25))
    found = fleet.train(
        "dec-apx-gp", theta0=fg.PAPER_THETA0, rounds=40, tol=0, progress=lambda progress: rounds.append(progress.round)
    )
    assert mark.exists()
    assert crew.lost == before + 1
    assert_same(found, expected)
    assert rounds == [*range(41), 40]  # each round is told once, and the end


@pytest.mark.long
def test_a_worker_that_is_killed_in_a_prediction_is_replaced(
    fleet: fg.Fleet, crew: Any, sabotage: Callable[..., None], tmp_path: Path
) -> None:
    """Also one that has forgotten what the fleet agreed on before: it gets that from another one."""
    here = in_process(theta=THETA)
    conditioned, expected = fleet.condition(THETA), here.condition()
    before, mark = crew.lost, tmp_path / "killed"
    sabotage("answer_in_group", fragile, 5, mark, partial(from_round, 6))
    for _ in range(2):
        assert_same(
            conditioned.predict(QUERIES, "dec-grbcm", **AVERAGE), expected.predict(QUERIES, "dec-grbcm", **AVERAGE)
        )
    assert mark.exists()
    assert crew.lost == before + 1
    idle = crew.task(GRAPH, pid, [()] * WORKERS).finish()
    os.kill(idle[1], signal.SIGKILL)
    answer = conditioned.predict(QUERIES, "dec-grbcm")
    assert_same(answer, expected.predict(QUERIES, "dec-grbcm"))
    assert "augment" not in answer.ledger.rounds_by_phase
    assert crew.lost == before + 2


def test_a_worker_that_is_killed_in_the_middle_of_a_reduction_is_replaced(
    fleet: fg.Fleet, crew: Any, sabotage: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The root's, which waits for the others; and one that has told what it had, and waits for the result.

    With a time limit, which has passed before the lost one is replaced: what it said before is what is said again.
    """
    monkeypatch.setattr(crew, "timeout", LONG)
    groups = crew.hosting
    root = next(k for k, group in enumerate(groups) if Tree.of(GRAPH).root in group)
    expected = in_process().train("dec-fact-gp", theta0=fg.PAPER_THETA0)
    for number in (root, (root + 1) % WORKERS):
        before, mark = crew.lost, tmp_path / f"killed {number}"
        sabotage("train_group", fragile_and_late, groups[number][0], mark, 3)
        found = fleet.train("dec-fact-gp", theta0=fg.PAPER_THETA0, seconds=1e6)
        assert mark.exists()
        assert crew.lost == before + 1
        assert found.status == "time limit"
        assert 3 <= found.rounds < expected.rounds
        assert np.array_equal(found.history, expected.history[: found.rounds + 1])


def test_too_many_losses_end_with_a_state_to_resume_from(
    fleet: fg.Fleet, sabotage: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget(fleet)
    heard = tmp_path / "heard"
    sabotage("train_group", fragile, 0, tmp_path / "killed", partial(once_there, heard))

    def listen(progress: Progress) -> None:
        if progress.round == 3:
            heard.touch()

    with monkeypatch.context() as patch:
        patch.setattr("fleetgp.network.ray.crew.LOSSES", 0)
        with pytest.raises(WorkerLostError, match="more than 0 workers were lost in one task") as lost:
            fleet.train("dec-apx-gp", theta0=fg.PAPER_THETA0, rounds=1_000_000, tol=0, progress=listen)
    assert "fleet.theta holds its estimates" in lost.value.__notes__[0]
    assert fleet.unfinished is not None
    assert fleet.unfinished.round >= 3
    assert fleet.train("dec-apx-gp", theta0=fleet.theta, rounds=3).rounds == 3


@pytest.mark.long
def test_a_worker_that_does_not_answer_is_replaced(
    fleet: fg.Fleet, crew: Any, sabotage: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetgp.network.ray.crew.SILENCE", 10.0)
    sabotage("train_group", frozen, tmp_path / "frozen")
    expected = in_process().train("dec-apx-gp", theta0=fg.PAPER_THETA0, rounds=20, tol=0)
    assert_same(fleet.train("dec-apx-gp", theta0=fg.PAPER_THETA0, rounds=20, tol=0), expected)


# ---- whose cluster ----------------------------------------------------------------------------------------------


def test_what_a_cluster_cannot_do_is_refused(fleet: fg.Fleet) -> None:
    with pytest.raises(InputError, match="trainer needs all agents in this process"):
        fleet.trainer("dec-apx-gp")
    with pytest.raises(InputError, match="unknown backend 'dask': choose one of in-process, ray"):
        in_process(backend="dask")
    with pytest.raises(InputError, match='workers and address belong to backend="ray"'):
        in_process(workers=2)
    with pytest.raises(InputError, match="expected at most one worker for each of the 6 agents, got 7"):
        in_process(backend="ray", workers=7)
    crowd = fg.Fleet(list(paper_shards(120, 12)), backend="ray", workers=12, kernel="se", normalize=False)
    with pytest.raises(InputError, match="expected at most 6 workers, one for each core of the cluster, got 12"):
        crowd.train("dec-fact-gp")
    with pytest.raises(
        InputError, match=r"expected the cluster that this process has joined, .*, got 192\.0\.2\.1:6379"
    ):
        in_process(backend="ray", workers=2, address="192.0.2.1:6379").train("dec-fact-gp")
    assert ray.is_initialized()


JOINS_AND_STARTS = """
import socket
import sys
import warnings
import ray
import fleetgp as fg
from fleetgp.network.ray import session

if __name__ == "__main__":
    session.processors = lambda: 0  # any worker is one too many for what is started here
    field = fg.synthetic_field(80, seed=1)
    shards = fg.partition(field.inputs, field.observations, agents=4)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = f"127.0.0.1:{closed.getsockname()[1]}"
    try:
        fg.Fleet(shards, backend="ray", workers=1, address=nobody).train("dec-fact-gp")
    except fg.NetworkError as error:
        assert f"expected a Ray cluster at {nobody} that lets this process in, got none" in str(error)
    else:
        raise AssertionError("nobody was joined")
    assert not ray.is_initialized()
    thetas = []
    for address in (sys.argv[1], None):
        started = fg.Fleet(shards, backend="ray", workers=1, address=address)
        with warnings.catch_warnings(record=True) as told, started as fleet:
            thetas.append(fleet.train("dec-fact-gp", theta0=[1, 1, 1, 1], rounds=3).thetas.tolist())
            mine = ray.get_runtime_context().gcs_address
            assert (mine == sys.argv[1]) == (address is not None), mine
        said = [str(one.message) for one in told if one.category is fg.FleetGPWarning]
        assert [text[:29] for text in said] == ([] if address else ["1 workers share the 0 process"]), said
        assert not ray.is_initialized()
    print(mine)
    assert thetas[0] == thetas[1]
"""


def test_a_cluster_is_joined_or_started_and_only_what_was_started_is_stopped(fleet: fg.Fleet, tmp_path: Path) -> None:
    script = tmp_path / "joins.py"
    script.write_text(JOINS_AND_STARTS, encoding="utf-8")
    address = ray.get_runtime_context().gcs_address
    done = subprocess.run([sys.executable, script, address], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    host, port = done.stdout.split()[-1].split(":")
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((host, int(port)), timeout=30)
    assert fleet.predict(QUERIES, "dec-poe", theta=THETA).status == "converged"


@pytest.mark.long
def test_calibration_and_the_choice_of_a_kernel_are_those_in_process(fleet: fg.Fleet) -> None:
    here = in_process(kernel=["se", "matern12"])
    forget(fleet)
    fleet.kernel = ["se", "matern12"]
    try:
        assert_same(fleet.train("dec-fact-gp", rounds=4), here.train("dec-fact-gp", rounds=4))
        assert fleet.kernel is here.kernel
        assert_same(fleet.calibrate("dec-nn-rbcm"), here.calibrate("dec-nn-rbcm"))
        assert_same(fleet.predict(QUERIES, "dec-nn-rbcm"), here.predict(QUERIES, "dec-nn-rbcm"))
    finally:
        forget(fleet)
        fleet.kernel = ["se"]
