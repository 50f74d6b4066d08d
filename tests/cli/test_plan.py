"""fleetgp plan and fleetgp verify."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fleetgp as fg
from fleetgp.operator.launch import fleet_text, write_example
from tests.cli.commands import run, said, wrong

SLOW = "9600 bit/s, 2 s"


@pytest.fixture
def boats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Five boats in a circle, with 120 rows each."""
    monkeypatch.chdir(tmp_path)
    write_example(Path("fleet.toml"))
    return tmp_path


def test_a_described_fleet_is_planned(boats: Path) -> None:
    told = json.loads(run("plan", "fleet.toml", "--link", SLOW, "--queries", "500", "--json").stdout)
    assert told["rows_of"] == {f"boat{k}": 120 for k in range(1, 6)}
    assert (told["agents"], told["rows"], told["not_counted"], told["splitting_agents"]) == (5, 600, [], [])
    same = fg.recommend([120] * 5, "cycle", dimension=2, kernel="se", link=SLOW, queries=500)
    assert {name: told[name] for name in ("trainer", "predictor", "why")} == {
        "trainer": same.trainer,
        "predictor": same.predictor,
        "why": list(same.why),
    }
    assert told["candidates"] == json.loads(json.dumps(same.facts["candidates"]))
    one = json.loads(run("plan", "fleet.toml", "--agent", "boat3", "--json").stdout)
    costs = {row["method"]: row["usual"]["bytes"] for row in one["candidates"]}
    assert costs["dec-rbcm"] == fg.recommend(
        [120] * 5, "cycle", dimension=2, kernel="se", agent=2
    ).candidate("dec-rbcm").usual.bytes  # fmt: skip


def test_what_people_see(boats: Path) -> None:
    shown = run("plan", "fleet.toml", "--link", SLOW, "--private", "sums")
    text = " ".join(shown.stdout.split())
    assert "We recommend dec-fact-gp and dec-nn-rbcm; the file has dec-fact-gp and dec-summary." in text
    assert "* dec-fact-gp" in text
    assert "Not for you: prediction by dec-grbcm, dec-nn-grbcm, dec-nearest" in text
    assert "prediction by dec-summary: it sends means of a few rows each (groups), which are private" in text
    assert "warning" not in shown.stderr


def test_a_loss_that_splits_the_fleet_and_files_elsewhere_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names, ends = ["a", "b", "c"], [f"tcp/127.0.0.1:{7001 + k}" for k in range(3)]
    Path("fleet.toml").write_text(
        fleet_text("bay", names, ends, [f"{n}.csv" for n in names], [(0, 1), (1, 2)]), encoding="utf-8"
    )
    assert "none of the agents' files can be read here: give --rows" in wrong("plan", "fleet.toml")
    Path("a.csv").write_text("x,y,temperature\n0,0,1\n0,1,2\n1,1,3\n", encoding="utf-8")
    seen = said(run("plan", "fleet.toml"))
    assert "the files of b, c are not here: 3 rows each are assumed" in seen
    assert "the loss of this agent would split the fleet: b" in seen
    told = json.loads(run("plan", "fleet.toml", "--rows", "500", "--json").stdout)
    assert told["rows_of"] == {"a": 3, "b": 500, "c": 500}
    assert (told["not_counted"], told["splitting_agents"]) == (["b", "c"], ["b"])


def test_bad_plans(boats: Path) -> None:
    assert "link: expected a rate" in wrong("plan", "fleet.toml", "--link", "fast")
    assert "unknown private 'all'" in wrong("plan", "fleet.toml", "--private", "all")
    assert "unknown accuracy 'high'" in wrong("plan", "fleet.toml", "--accuracy", "high")
    assert "there is no agent 'boat9'" in wrong("plan", "fleet.toml", "--agent", "boat9")
    assert "there is no such file" in wrong("plan", "nowhere.toml")


def test_a_model_is_verified(modelled: Path) -> None:
    """It has no noise, and a theta that somebody gave: its intervals are too wide, and all else is right."""
    found = run("verify", "m", "--method", "dec-rbcm", "dec-nearest", "--hold", "0.4", "--json", code=1)
    told = json.loads(found.stdout)
    failed = [check["name"] for check in told["checks"] if check["verdict"] == "failed"]
    assert not told["passed"]
    assert failed
    assert all("intervals" in name for name in failed)
    assert {name.split(":")[0] for name in failed} <= {"dec-rbcm", "dec-nearest"}
    shown = run("verify", "m", "--hold", "0")
    assert "passed" in shown.stdout
    assert "failed" not in shown.stdout
    assert "Only 0 rows could be hidden" in " ".join(shown.stdout.split())
    assert "unknown prediction method" in wrong("verify", "m", "--method", "best")
    assert "hold must be a number" in wrong("verify", "m", "--hold", "2")
    assert "there is no model.json" in wrong("verify", ".")
