"""Cells at the workers of a cluster: the results of one process, and what happens when a worker dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetgp.errors import InputError, WorkerLostError
from fleetgp.files import ResumableCache
from fleetgp.progress import Progress
from reproduction import training
from reproduction.cells import Cell, OnCluster, run_cells

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install fleetgp[cluster]")
from fleetgp.fleet import ray_tasks  # noqa: E402

pytestmark = pytest.mark.usefixtures("uncompiled")


@pytest.fixture
def place(cluster: None) -> Iterator[OnCluster]:
    found = OnCluster(2)
    yield found
    found.close()
    assert ray.is_initialized(), "the cluster is somebody else's"


def work(task: dict[str, Any]) -> dict[str, Any]:
    """It writes down that it was done. deaths: so many times the process that does it dies."""
    log = Path(task["folder"]) / str(task["n"])
    done = len(log.read_text(encoding="utf-8")) if log.exists() else 0
    log.write_text("x" * (done + 1), encoding="utf-8")
    if done < task.get("deaths", 0):
        os.kill(os.getpid(), signal.SIGKILL)
    if task.get("fail"):
        raise InputError("expected another cell")
    return {"square": task["n"] ** 2}


def cells_in(folder: Path, count: int, **given: Any) -> list[Cell]:
    """The last ones, which have the largest effort, go first."""
    folder.mkdir(exist_ok=True)
    return [Cell(str(n), {"n": n, "folder": str(folder), **given}, effort=n) for n in range(count)]


def test_an_experiment_has_the_results_of_one_process(tmp_path: Path, place: OnCluster) -> None:
    cells = [cell for cell in training.cells(training.Plan((200,), (2,), 1, 1)) if "gp-0" in cell.name][-6:]
    seen: list[Progress] = []
    found = run_cells(cells, training.run, ResumableCache(tmp_path, {}), place=place, listener=seen.append)
    for cell in cells:
        expected = training.run(cell.task)
        rounded = {name: pytest.approx(expected[name], rel=1e-5) for name in ("nll", "disagreement", "theta")}
        assert found[cell.name] == {**expected, **rounded, "seconds": found[cell.name]["seconds"]}
    assert [progress.round for progress in seen] == list(range(len(cells) + 1))
    assert run_cells(cells, training.run, ResumableCache(tmp_path, {}), place=None) == found, "all of them are kept"


def test_the_cell_of_a_lost_worker_is_done_again(tmp_path: Path, place: OnCluster) -> None:
    cells = cells_in(tmp_path / "log", 3)
    cells[1].task["deaths"] = 1
    found = run_cells(cells, work, ResumableCache(tmp_path, {}), place=place)
    assert {name: piece["square"] for name, piece in found.items()} == {"0": 0, "1": 1, "2": 4}
    assert [(tmp_path / "log" / str(n)).read_text(encoding="utf-8") for n in range(3)] == ["x", "xx", "x"]


@pytest.mark.long
def test_what_is_done_before_an_end_is_kept(tmp_path: Path, place: OnCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end is an error in a cell, a worker that is lost every time, or Ctrl-C."""
    kept, single = ResumableCache(tmp_path / "failed", {}), OnCluster(1)
    cells = cells_in(tmp_path / "log", 2)
    cells[0].task["fail"] = True
    with pytest.raises(InputError, match="expected another cell"):
        run_cells(cells, work, kept, place=single)
    assert (kept.get("0"), kept.get("1")) == (None, {"square": 1})

    kept, cells = ResumableCache(tmp_path / "lost", {}), cells_in(tmp_path / "others", 2)
    cells[0].task["deaths"] = 99
    monkeypatch.setattr(ray_tasks, "LOSSES", 1)
    with pytest.raises(
        WorkerLostError, match=r"more than 1 workers were lost with one cell.*what was finished is kept"
    ):
        run_cells(cells, work, kept, place=single)
    assert (kept.get("0"), kept.get("1")) == (None, {"square": 1})

    def stop(progress: Progress) -> None:
        if progress.round == 1:
            raise KeyboardInterrupt

    kept, cells = ResumableCache(tmp_path / "stopped", {}), cells_in(tmp_path / "more", 9)
    with pytest.raises(KeyboardInterrupt):
        run_cells(cells, work, kept, place=place, listener=stop)
    assert kept.get("8") == {"square": 64} or kept.get("7") == {"square": 49}, "the longest go first"
    assert len(list((tmp_path / "more").iterdir())) < 9, "nothing was begun after the end"
    single.close()
