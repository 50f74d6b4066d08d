"""`observe` with real processes: every request counts once, whoever dies and whatever gets lost."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fleetgp.errors import NetworkError
from fleetgp.operator.launch import write_example
from tests.cli.commands import run, said, wrong
from tests.conftest import paper_shards
from tests.disks import tiny_disk, writable
from tests.processes import Processes

pytest.importorskip("zenoh")

OPTIONS: dict[str, Any] = {
    "training": "dec-apx-gp",
    "training_options": "theta0 = [2.0, 0.5, 1.0, 1.0]",
    "prediction": "dec-rbcm",
}
ROWS = [[0.5, 0.5, 1.0], [0.6, 0.5, 1.1]]


def fleetgp(fleet: Processes, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fleetgp", *map(str, arguments)]
    return subprocess.run(command, cwd=fleet.folder, capture_output=True, text=True, timeout=120, check=False)


def until_reached(fleet: Processes) -> int:
    rows: int = fleet.wait(lambda _: True, ["a0"], 60.0)["a0"]["rows"]
    return rows


def test_a_request_counts_once_through_kills_before_and_after_its_answer(tmp_path: Path) -> None:
    journal = tmp_path / "state" / "a0" / "observed.jsonl"
    with Processes(tmp_path, paper_shards(20, 1), [], **OPTIONS) as fleet, ThreadPoolExecutor(1) as pool:
        fleet.start()
        rows = until_reached(fleet)
        # After: it was acknowledged, and the agent died.
        assert fleet.request("a0", "observe", rows=ROWS, request="after")["in_all"] == rows + 2
        fleet.kill("a0")
        fleet.start()
        assert until_reached(fleet) == rows + 2
        told = fleet.request("a0", "observe", rows=ROWS, request="after")
        assert told == {"rows": 2, "repeated": True, "in_all": rows + 2}
        # Before: killed as soon as the file has grown, or at once; whether the answer came is chance.
        for number, seen in enumerate((True, False)):
            before = journal.stat().st_size
            asked = pool.submit(fleet.request, "a0", "observe", rows=ROWS * 50, request=f"before-{number}")
            deadline = time.monotonic() + 30.0
            while seen and journal.stat().st_size == before and time.monotonic() < deadline:
                pass
            fleet.kill("a0")
            acknowledged = True
            try:
                asked.result(60.0)
            except NetworkError:
                acknowledged = False
            fleet.start()
            kept = until_reached(fleet) - rows - 2 - 100 * number
            assert kept in ((100,) if acknowledged else (0, 100))
            told = fleet.request("a0", "observe", rows=ROWS * 50, request=f"before-{number}")
            assert told == {"rows": 100, "repeated": kept == 100, "in_all": rows + 2 + 100 * (number + 1)}


def test_the_command_tries_again_and_says_how_to_repeat_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Processes(tmp_path, paper_shards(20, 1), [], **OPTIONS) as fleet, ThreadPoolExecutor(1) as pool:
        (tmp_path / "new.csv").write_text("x,y,temperature\n0.5,0.5,1.0\n0.6,0.5,1.1\n", encoding="utf-8")
        lost = said(run("observe", "fleet.toml", "new.csv", "--agent", "a0", "--seconds", "1", code=1))
        assert "cannot be reached" in lost
        assert "0 of 2 rows are acknowledged. To repeat it, with no row twice: fleetgp observe" in lost
        name = lost.split("--request ")[1].split()[0]
        # While the agent starts, the command waits for it.
        repeat = ["observe", "fleet.toml", "new.csv", "--agent", "a0", "--request", name, "--json", "--seconds", "90"]
        waiting = pool.submit(fleetgp, fleet, *repeat)
        fleet.start()
        done = waiting.result()
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert told == {"agent": "a0", "rows": 2, "repeated": 0, "in_all": 22, "request": name}
        again = json.loads(run(*repeat).stdout)
        assert again == {**told, "repeated": 2}
        (tmp_path / "new.csv").write_text("x,y,temperature\n0.5,0.5,9.0\n0.6,0.5,1.1\n", encoding="utf-8")
        assert "was used for other rows" in wrong(*repeat)
        assert "--request must be" in wrong(*repeat[:-5], "--request", "a b")
        assert until_reached(fleet) == 22


def test_many_rows_go_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    from fleetgp.cli import requests

    monkeypatch.setattr(requests, "MAX_NUMBERS", 30)
    with Processes(tmp_path, paper_shards(20, 1), [], **OPTIONS) as fleet:
        fleet.start()
        until_reached(fleet)
        values = np.random.default_rng(1).standard_normal((25, 3))
        for repeated in (0, 25):
            counts = requests.send_rows(fleet.description, "a0", values, "many", time.monotonic() + 60.0, "")
            assert counts == {"rows": 25, "repeated": repeated, "in_all": 45}
        lines = (tmp_path / "state" / "a0" / "observed.jsonl").read_text(encoding="utf-8").splitlines()
        assert [json.loads(line)["request"] for line in lines] == ["many-0", "many-1", "many-2"]


def test_an_agent_goes_on_when_its_disk_is_full_or_read_only(tmp_path: Path) -> None:
    """What it acknowledged is there after kill -9; what it refused is not, and can be told again."""
    with tiny_disk(tmp_path / "state") as disk, Processes(tmp_path, paper_shards(20, 1), [], **OPTIONS) as fleet:
        fleet.start()
        fleet.wait_trained(["a0"])
        kept, refused = 0, ""
        for number in range(60):
            try:
                fleet.request("a0", "observe", rows=ROWS * 100, request=f"r{number}")
                kept += 200
            except NetworkError as error:
                refused = str(error)
                assert fleet.status("a0")["rows"] == 20 + kept
                break
        assert "a0 cannot keep these rows, and has kept none of them" in refused
        assert "No space left on device" in refused
        assert len(fleet.request("a0", "ask", 30.0, queries=[[0.5, 0.5]])["mean"]) == 1
        fleet.kill("a0")
        try:  # no byte and no file has room any more; the agent starts all the same
            for number in range(10_000):
                (disk / f"filler-{number}").write_bytes(bytes(100))
        except OSError as error:
            refused = str(error)
        assert "No space left" in refused
        fleet.start()
        assert until_reached(fleet) == 20 + kept
        writable(disk, False)
        with pytest.raises(NetworkError, match="Read-only file system"):
            fleet.request("a0", "observe", rows=ROWS, request="later")
        assert len(fleet.request("a0", "ask", 60.0, queries=[[0.5, 0.5]], seconds=60.0)["mean"]) == 1
        writable(disk, True)
        for filler in disk.glob("filler-*"):
            filler.unlink()
        assert fleet.request("a0", "observe", rows=ROWS[:1], request="later")["in_all"] == 21 + kept


def test_rows_for_an_agent_are_judged_before_they_are_sent_and_advice_names_what_there_is(modelled: Path) -> None:
    (modelled / "points.csv").unlink()
    write_example(modelled / "fleet.toml")
    rows = pd.read_csv("data/boat1.csv").head(9)
    rows.loc[4, rows.columns[-1]] = -9999.0
    rows.to_csv("rows.csv", index=False)
    told = wrong("observe", "fleet.toml", "rows.csv", "--agent", "boat1")
    assert "-9999 once" in told
    assert "fill = [-9999.0] in the agent's table of fleet.toml" in told
    assert "--fill" not in told
    rows.to_csv("rows.csv", index=False, sep=";")
    assert "(--sep ';')" in wrong("observe", "fleet.toml", "rows.csv", "--agent", "boat1")
    assert "-9999 once" in wrong("observe", "fleet.toml", "rows.csv", "--agent", "boat1", "--sep", ";")
    assert "(--sep ';')" in wrong("ask", "fleet.toml", "rows.csv", "--agent", "boat1", "--out", "a.csv")
