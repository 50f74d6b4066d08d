"""Fleets as an operator runs them: the commands, from an empty folder to an answer and to the end."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.agent.description import Description, read_description
from fleetgp.operator.client import AgentClient
from fleetgp.operator.launch import write_example
from tests.agent.fleets import until
from tests.cli.commands import run, said, wrong

pytest.importorskip("zenoh")


def fleetgp(*arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fleetgp", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)


def test_the_commands_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From nothing to an answer; then everything else one can do with a fleet that runs."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "fleet.md").read_text(encoding="utf-8")
    commands = re.findall(r"^fleetgp (up .*--example.*|ask boats.*)$", page, flags=re.MULTILINE)
    assert len(commands) == 2
    monkeypatch.chdir(tmp_path)
    up, ask = (command.split("#")[0].split() for command in commands)
    try:
        done = fleetgp(*up, folder=tmp_path)
        assert done.returncode == 0, done.stderr
        check_costs(read_description("boats/fleet.toml"))
        run(*ask)
        answer = np.genfromtxt(tmp_path / "answer.csv", delimiter=",", names=True)
        truth = fg.synthetic_field(1, seed=1, inputs=np.column_stack([answer["x"], answer["y"]])).truth
        assert np.abs(answer["mean"] - truth).mean() < 0.1
        file = "boats/fleet.toml"
        told = json.loads(run("status", file, "--json").stdout)
        assert {s["phase"] for s in told["agents"].values()} == {"serving"}
        shown = run("status", file).stdout
        assert all(f"boat{k}" in shown for k in range(1, 6))
        assert "run already" in said(run("up", file, code=2))
        (tmp_path / "new.csv").write_text("x,y,temperature\n0.5,0.5,1.0\n0.6,0.5,1.1\n", encoding="utf-8")
        told = json.loads(run("observe", file, "new.csv", "--agent", "boat2", "--json").stdout)
        assert (told["agent"], told["rows"], told["repeated"], told["in_all"]) == ("boat2", 2, 0, 122)
        with (tmp_path / "boats/data/boat4.csv").open("a", encoding="utf-8") as data:  # a watched file
            data.write("1.0,1.0,0.3\n")
        deadline = time.monotonic() + 240.0
        while time.monotonic() < deadline:
            states = json.loads(run("status", file, "--json").stdout)["agents"]
            if states["boat4"]["rows"] == 121:
                break
        assert (states["boat4"]["rows"], states["boat2"]["rows"]) == (121, 122)
        assert (states["boat4"]["new_rows"], states["boat2"]["new_rows"]) == (1, 2)
        trained = json.loads(run("retrain", file, "--agent", "boat1", "--json").stdout)
        assert trained["trained"]["status"] == "converged"
        assert "no agent 'boat9'" in wrong("ask", file, "boats/points.csv", "--agent", "boat9", "--out", "b.csv")
    finally:
        down = run("down", "boats/fleet.toml", "--json")
    assert len(json.loads(down.stdout)["stopped"]) == 5
    assert "no agent of" in said(run("status", "boats/fleet.toml", code=1))


def check_costs(description: Description) -> None:
    """As docs/fleet.md says: the frames of all five boats, from the agenda on; their summaries are there already."""
    points = np.loadtxt("boats/points.csv", delimiter=",", skiprows=1).tolist()
    costs = [cost_of(description, name, points) for name in ("boat3", "boat1", "boat4")]
    assert [rounds for rounds, _ in costs] == [8, 8, 8]
    assert max(sent for _, sent in costs) <= 12_000
    assert sum(request(description, name, "status")["kinds"]["groups"] for name in description.names) <= 30_000


def cost_of(description: Description, asked: str, points: Any) -> tuple[int, int]:
    """The rounds and bytes of frames that a question costs a fleet that does nothing else: by what its agents count."""

    def counted() -> tuple[set[int], int, list[int]]:
        states = [request(description, name, "status") for name in description.names]
        calm = all(s["phase"] == "serving" and s["members"] == list(description.names) for s in states)
        rounds = {s["rounds"] for s in states}
        questions = [s["questions"] for s in states]
        return rounds if calm else set(), sum(s["bytes"] - s["overhead"] for s in states), questions

    until(lambda: len(counted()[0]) == 1)
    (before,), sent, asked_before = counted()
    answer = request(description, asked, "ask", 60.0, queries=points)
    until(lambda: len(counted()[0]) == 1 and counted()[2] == [number + 1 for number in asked_before])
    (after,), now, _ = counted()
    assert (answer["status"], answer["members"]) == ("converged", list(description.names))
    assert answer["rounds"] == after - before
    assert answer["bytes_sent"] < now - sent
    return after - before, now - sent


def request(description: Description, agent: str, verb: str, within: float = 10.0, **content: Any) -> Any:
    with AgentClient(description, agent) as client:
        return client.request(verb, within, **content)


def test_up_stops_all_agents_on_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_example(tmp_path / "boats" / "fleet.toml", boats=2)
    process = subprocess.Popen(
        [sys.executable, "-m", "fleetgp", "up", "boats/fleet.toml"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    lines: list[str] = []

    def read() -> None:
        assert process.stderr is not None
        lines.extend(process.stderr)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    deadline = time.monotonic() + 240.0
    try:
        while sum("trained" in line for line in lines) < 2:
            assert time.monotonic() < deadline, lines
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert process.wait(120.0) == 0
    finally:
        process.terminate()  # if it goes on: no agent outlives the test
        process.wait()
    reader.join(60.0)
    assert process.stderr is not None
    process.stderr.close()
    assert sum("stopped" in line for line in lines) == 2
    monkeypatch.chdir(tmp_path)
    run("status", "boats/fleet.toml", code=1)
