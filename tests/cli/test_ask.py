"""The commands that talk to agents: what they find out before they ask, and what an answer tells of who was missing."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fleetgp.cli.app import app
from fleetgp.operator.launch import write_example
from tests.conftest import paper_shards
from tests.processes import Processes

pytest.importorskip("zenoh")

OPTIONS: dict[str, Any] = {
    "training": "dec-apx-gp",
    "training_options": "theta0 = [2.0, 0.5, 1.0, 1.0]",
    "prediction": "dec-rbcm",
    "connect": 2,
}


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_an_answer_names_the_agents_that_took_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "points.csv").write_text("x,y\n0.5,0.5\n1.5,1.0\n", encoding="utf-8")
    ask = ["ask", "fleet.toml", "points.csv", "--agent", "a1", "--out", "answer.csv", "--json", "--quiet"]
    with Processes(tmp_path, paper_shards(60, 3), [(0, 1), (1, 2)], **OPTIONS) as fleet:
        fleet.start("a1", "a2")
        fleet.wait_trained(["a1", "a2"])
        done = run(*ask)
        assert done.exit_code == 0, done.output
        assert "warning: a0 took no part" in done.stderr
        facts = json.loads(done.stdout)
        assert facts["missing"] == ["a0"]
        # On two agents: an agenda and a sum, up and down one link each.
        assert (facts["consensus"], facts["status"], facts["rounds"]) == ("tree", "converged", 4)
        assert 0 < facts["bytes_sent"] < 1000
        assert "points by dec-rbcm, asked of a1: exact after 4 rounds" in " ".join(run(*ask[:-2]).stdout.split())
        with (tmp_path / "answer.csv").open(encoding="utf-8") as file:
            assert [row["missing_agents"] for row in csv.DictReader(file)] == ["a0", "a0"]
        shown = run("status", "fleet.toml")
        assert "the loss of this agent would split the fleet: a1" in shown.stderr
        assert "a1: a0 is down" in shown.stdout
        assert json.loads(run("status", "fleet.toml", "--json").stdout)["splitting_agents"] == ["a1"]
        fleet.start("a0")
        fleet.wait_trained(fleet.names)
        done = run(*ask, "--level", "0.9")
        assert "took no part" not in done.stderr
        with (tmp_path / "answer.csv").open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert "missing_agents" not in rows[0]
        assert all(float(row["low"]) < float(row["mean"]) < float(row["high"]) for row in rows)
        assert {row["prior_only"] for row in rows} == {"False"}
    (tmp_path / "points.csv").write_text("x,y,missing_agents\n0.5,0.5,7\n", encoding="utf-8")
    wrong = run(*ask)
    assert (wrong.exit_code, "'missing_agents' too" in wrong.stderr) == (2, True)


@pytest.mark.parametrize("place", ["/proc/answer.csv", "/proc/new/answer.csv", "fleet.toml/answer.csv"])
def test_where_no_answer_can_be_put_is_found_before_asking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Nobody runs: whoever asked first would find that."""
    monkeypatch.chdir(tmp_path)
    write_example(tmp_path / "fleet.toml", 2)
    done = run("ask", "fleet.toml", "points.csv", "--agent", "boat1", "--out", place)
    assert done.exit_code == 2
    assert "cannot be written" in done.stderr or "expected a folder, got a file" in done.stderr


@pytest.mark.parametrize("command", [("ask", "points.csv", "--out", "a.csv"), ("observe", "points.csv"), ("retrain",)])
@pytest.mark.parametrize("seconds", ["nan", "0", "-1", "inf"])
def test_a_time_that_is_none_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], seconds: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_example(tmp_path / "fleet.toml", 2)
    verb, *rest = command
    done = run(verb, "fleet.toml", *rest, "--agent", "boat1", "--seconds", seconds)
    assert (done.exit_code, "--seconds must lie above 0" in done.stderr) == (2, True)
