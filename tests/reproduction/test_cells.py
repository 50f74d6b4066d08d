"""Cells are kept as they finish, and a failure loses only its own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from fleetgp.files import ResumableCache
from fleetgp.progress import Progress
from reproduction.cells import Cell, Processes, run_cells

#: Nothing is computed here, and a worker that compiles before it begins takes seconds.
pytestmark = pytest.mark.usefixtures("uncompiled")


def work(task: dict[str, Any]) -> dict[str, Any]:
    if task.get("fail"):
        raise ValueError("no")
    with Path(task["log"]).open("a", encoding="utf-8") as log:
        log.write(f"{task['n']}\n")
    return {"square": task["n"] ** 2, "threads": os.environ["OPENBLAS_NUM_THREADS"]}


def test_cells_are_kept_as_they_finish_and_not_done_twice(tmp_path: Path) -> None:
    log = tmp_path / "log"
    cells = [Cell(str(n), {"n": n, "log": str(log)}, effort=n) for n in range(4)]
    kept = ResumableCache(tmp_path / "cells", {})
    seen: list[Progress] = []
    found = run_cells(cells[:2], work, kept, place=Processes(1), listener=seen.append)
    assert {name: piece["square"] for name, piece in found.items()} == {"0": 0, "1": 1}
    assert found["1"]["threads"] == "1"
    assert log.read_text(encoding="utf-8") == "1\n0\n", "the longest first"
    found = run_cells(cells, work, kept, place=Processes(2), listener=seen.append)
    assert {name: piece["square"] for name, piece in found.items()} == {"0": 0, "1": 1, "2": 4, "3": 9}
    assert sorted(log.read_text(encoding="utf-8").split()) == ["0", "1", "2", "3"]
    assert (seen[-1].round, seen[-1].rounds) == (4, 4)


def test_a_cell_that_fails_loses_only_itself(tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    kept = ResumableCache(tmp_path / "cells", {})
    cells = [Cell("good", {"n": 2, "log": log}, 2.0), Cell("bad", {"n": 3, "log": log, "fail": True}, 1.0)]
    with pytest.raises(ValueError, match="no"):
        run_cells(cells, work, kept, place=Processes(1))
    assert kept.get("good")["square"] == 4
    assert kept.get("bad") is None
