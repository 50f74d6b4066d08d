"""A fleet from files on a Ray cluster: workers read them, each its own agents', and all is as in one process."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fleetgp as fg
from fleetgp.data.dataset import Dataset
from fleetgp.errors import InputError
from fleetgp.io import file_dataset
from fleetgp.io.file_dataset import FileDataset
from fleetgp.progress import Progress
from tests.cluster import assert_same

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install fleetgp[cluster]")
pytestmark = pytest.mark.usefixtures("uncompiled")

AGENTS = 4
FIELD = fg.synthetic_field(400, seed=1)
QUERIES = np.random.default_rng(0).uniform(0.2, 1.8, (20, 2))
#: A start, and a theta for which the moments that it needs are not enough.
START, SHORT = [1.0, 0.5, 1.0, 0.2], [0.3, 0.1, 1.0, 0.1]
WHAT: dict[str, Any] = {"inputs": ["a", "b"], "target": "y", "rows": 30, "normalize": True, "graph": "cycle"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("files")
    for number, (x, y) in enumerate(fg.partition(FIELD.inputs, FIELD.observations, agents=AGENTS)):
        frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": y, "who": "me"})
        frame.to_parquet(place / f"s{number}.parquet")
    return place


def held_by(fleet: fg.Fleet) -> Dataset:
    assert not fleet.data.in_memory
    return fleet.data


def of_files(folder: Path, **options: Any) -> fg.Fleet:
    return fg.Fleet.from_files(str(folder / "s*.parquet"), **{"kernel": "se", "normalize": False, **WHAT, **options})


def test_all_is_as_in_process_and_only_workers_read(
    folder: Path, cluster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    here = of_files(Path("."))
    fit = here.train("dec-full-gp", theta0=START)
    answer, other = (here.predict(QUERIES, "dec-full-gp", theta=theta) for theta in (None, SHORT))
    assert other.ledger.rounds_by_phase["moments"], "another pass"
    for name in ("survey", "rows_of"):
        monkeypatch.setattr(file_dataset, name, None)
    heard: list[Progress] = []
    with of_files(Path("."), backend="ray", workers=2, progress=heard.append) as there:
        assert [(told.task, told.round, told.unit) for told in heard[-1:]] == [("first pass", 400, "row")]
        one, its = here.data, there.data
        assert isinstance(one, FileDataset)
        assert isinstance(its, FileDataset)
        assert (its.names, its.points, its.suspicions) == (one.names, one.points, one.suspicions)
        assert all(np.array_equal(a.packed, b.packed) for a, b in zip(its.summaries, one.summaries, strict=True))
        heard.clear()
        assert_same(there.train("dec-full-gp", theta0=START, progress=heard.append), fit)
        rows = [(told.round, told.rounds) for told in heard if told.task.startswith("moments")]
        assert (rows[0], rows[-1]) == ((0, 400), (400, 400))
        read = [done for done, _ in rows]  # of them all there is one more to come until the pass has ended
        assert read == sorted(read), "of all workers together"
        found = there.predict(QUERIES, "dec-full-gp")
        assert_same(found, answer)
        assert found.means.strides[0] == found.participants.strides[0] == 0, "in memory once, as in process"
        assert_same(there.predict(QUERIES, "dec-full-gp", theta=SHORT), other)


@pytest.mark.long
def test_full_gp_is_as_in_process_too(folder: Path, cluster: None) -> None:
    here = of_files(folder, normalize=True)
    fit, answer = here.train("full-gp", theta0=START), here.predict(QUERIES, "full-gp")
    with of_files(folder, normalize=True, backend="ray", workers=2) as there:
        assert_same(there.train("full-gp", theta0=START), fit)
        assert_same(there.predict(QUERIES, "full-gp"), answer)
        with pytest.raises(
            InputError, match=r"moments of the data do not suffice \(.*\), and their rows are not loaded"
        ):
            there.predict(QUERIES, "full-gp", theta=[0.01, 0.01, 1.0, 0.1])


def test_a_worker_that_is_killed_in_a_pass_is_replaced(
    folder: Path, cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the first one, and in the one for moments, after a file that was read."""
    from fleetgp.fleet import cluster as groups
    from fleetgp.fleet import cluster as on_cluster
    from fleetgp.fleet import ray_tasks

    survey, train_group = ray_tasks.survey_file, groups.train_group
    killed = [tmp_path / "first", tmp_path / "second"]

    def die_once(mark: Path) -> None:
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def fragile_survey(source: Any, number: int) -> Any:
        if number == 2:
            die_once(killed[0])
        return survey(source, number)

    def fragile_group(network: Any, *given: Any) -> Any:
        gathered = file_dataset.gathered_moments
        read: list[int] = []

        def gathered_or_die(*args: Any) -> Any:
            if 3 in network.hosted and read:
                die_once(killed[1])
            read.append(1)
            return gathered(*args)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(file_dataset, "gathered_moments", gathered_or_die)
            return train_group(network, *given)

    monkeypatch.setattr(ray_tasks, "survey_file", fragile_survey)
    monkeypatch.setattr(on_cluster, "train_group", fragile_group)
    with of_files(folder, backend="ray", workers=2) as there:
        assert killed[0].exists()
        found = there.train("dec-full-gp", theta0=START)
        assert killed[1].exists()
        assert there._backend.opened.crew.lost == 1  # type: ignore[attr-defined]
    assert_same(found, of_files(folder).train("dec-full-gp", theta0=START))


@pytest.mark.long
def test_a_sample_comes_first_and_its_rows_stay_on_the_cluster(
    cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fleetgp.fleet import ray_tasks

    rng = np.random.default_rng(0)
    for number in range(2):
        x = rng.uniform(0.0, 1.0, 9000)
        frame = pd.DataFrame({"a": x, "y": np.sin(12.0 * x) + 0.1 * rng.standard_normal(len(x))})
        frame.to_parquet(tmp_path / f"s{number}.parquet")
    line: dict[str, Any] = {"inputs": ["a"]}
    fit = of_files(tmp_path, **line).train("dec-full-gp")
    assert fit.sample.tolist() == [2000, 2000]
    with of_files(tmp_path, **line, backend="ray", workers=2) as there:
        shards = there.data
        assert isinstance(shards, FileDataset)
        assert isinstance(shards.rows, ray_tasks.InStore)
        assert not shards.drawn
        assert_same(there.train("dec-full-gp"), fit)
        assert shards.rows.close.alive, "the cluster on which files were read is the one that trains"
        monkeypatch.setattr(ray_tasks, "_job", lambda: "another one, which has not what was drawn")
        assert shards.of_agents([0, 1]).elsewhere == ()
        assert_same(there.train("dec-full-gp"), fit)
    assert not shards.rows.close.alive


def test_what_is_wrong_with_a_file_is_said_as_in_process(folder: Path, cluster: None, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b,y\n0,1,1\n1,2,3\n2,4,2\n", encoding="utf-8")
    (tmp_path / "b.csv").write_text("a,b,y\n0,1,1\n1,x,3\n2,4,2\n", encoding="utf-8")
    told = []
    places: list[dict[str, Any]] = [{}, {"backend": "ray", "workers": 2}]
    for where in places:
        with pytest.raises(InputError, match=r"b\.csv: column 'b' must hold numbers") as error:
            fg.Fleet.from_files(str(tmp_path / "*.csv"), **{"kernel": "se", "normalize": False, **WHAT}, **where)
        told.append((type(error.value), str(error.value)))
    assert told[0] == told[1]


@pytest.mark.long
def test_what_is_read_is_kept_for_either(
    folder: Path, cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = of_files(folder, backend="ray", cache=tmp_path / "cache")
    monkeypatch.setattr(file_dataset, "survey", None)
    assert repr(of_files(folder, cache=tmp_path / "cache")) == repr(there)


def test_what_needs_rows_is_refused(folder: Path, cluster: None) -> None:
    ours: dict[str, Any] = {"backend": "ray", "workers": 2}
    with pytest.raises(InputError, match="expected a file for each agent on a cluster, got a column"):
        of_files(folder, **ours, agent="who")
    with pytest.raises(InputError, match='expected data in memory for backend="ray", or a file for each agent'):
        fg.Fleet(held_by(of_files(folder, agent="who", graph="path")), backend="ray", kernel="se", normalize=False)
    with pytest.raises(InputError, match="sample is for methods that need rows"):
        of_files(folder, **ours, sample=10)
    with pytest.raises(InputError, match="expected at most one worker for each of the 4 agents, got 5"):
        of_files(folder, backend="ray", workers=5)
    with pytest.raises(InputError, match="unknown backend 'dask'"):
        of_files(folder, backend="dask")
    fleet = fg.Fleet(held_by(of_files(folder)), **{"kernel": "se", "normalize": False, **ours})
    for ask in (lambda: fleet.train("dec-fact-gp"), lambda: fleet.predict(QUERIES, "dec-nn-grbcm", theta=START)):
        with pytest.raises(
            InputError, match="needs rows, and the workers of a cluster only add up what is in the files"
        ):
            ask()
