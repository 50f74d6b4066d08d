"""How a fleet stands: the table of `status`, and whose loss would split the fleet."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from fleetgp.agent.description import Description, read_description
from fleetgp.cli.running import report_started, status_lines
from fleetgp.graph import Graph
from fleetgp.operator.client import cut_agents, split_by, split_warning
from fleetgp.operator.launch import fleet_text, write_example


def describe(folder: Path, names: list[str]) -> Description:
    ends = [f"tcp/127.0.0.1:{7001 + k}" for k in range(len(names))]
    edges = [(k, k + 1) for k in range(len(names) - 1)]
    (folder / "fleet.toml").write_text(fleet_text("bay", names, ends, ["a.csv"] * len(names), edges), encoding="utf-8")
    return read_description(folder / "fleet.toml")


def state(description: Description, name: str, **changes: Any) -> dict[str, Any]:
    theta = {"l_x": 1.1713, "l_y": 0.29354, "sigma_f": 1.2871, "sigma_eps": 0.098912}
    return {
        "agent": name,
        "phase": "predicting",
        "problem": "",
        "round": 12345,
        "members": list(description.names),
        "theta": theta,
        "trained": {"status": "converged"},
        "neighbours": {other: "up" for other in description.names if other != name},
        "bytes": 987_654_321,
        "rows": 1_234_567,
        "digest": description.digest,
        **changes,
    }


def shown(description: Description, told: dict[str, dict[str, Any]]) -> str:
    out = io.StringIO()
    console = Console(file=out, width=80, highlight=False)
    for line in status_lines(description, told):
        console.print(line, soft_wrap=isinstance(line, str))
    return out.getvalue()


def test_the_table_fits_80_columns_with_a_line_for_each_agent(tmp_path: Path) -> None:
    names = [f"glider-number-{k:02d}" for k in range(1, 9)]
    description = describe(tmp_path, names)
    told = {name: state(description, name) for name in names}
    told[names[2]] = {"error": "glider cannot be reached at tcp/127.0.0.1:1: is it running?"}
    lines = shown(description, told).splitlines()
    assert lines[0].strip() == "Fleet bay"
    assert lines[1].split() == ["agent", "phase", "neighbours", "up", "round", "rows", "sent"]
    assert all(len(line) <= 80 for line in lines[:10])
    assert [line.split()[0] for line in lines[2:10]] == names
    assert lines[2].split()[1:] == ["predicting", "7", "of", "7", "12345", "1,234,567", "988", "MB"]
    assert lines[4].split()[1:] == ["unreachable"]


def test_what_the_agents_hold_of_each_other_is_said_in_words(tmp_path: Path) -> None:
    description = describe(tmp_path, ["a", "b", "c"])

    def held(*names: str, seconds: float) -> dict[str, Any]:
        groups = dict.fromkeys(names, 40)
        return {"groups": groups, "bytes": dict.fromkeys(names, 2560.0), "seconds": dict.fromkeys(names, seconds)}

    told = {name: state(description, name, summary=held("a", "b", "c", seconds=200.0)) for name in "abc"}
    text = "All agents hold a summary of the rows of all agents: 120 groups, 7.68 kB, the oldest 3 min old."
    assert text in shown(description, told)
    told["b"]["summary"] = held("b", seconds=7200.0)
    told["c"]["summary"] = None
    text = shown(description, told)
    assert "a holds a summary of the rows of all agents: 120 groups, 7.68 kB, the oldest 3 min old." in text
    assert "b holds a summary of the rows of b: 40 groups, 2.56 kB, the oldest 2 h old." in text


def test_how_old_the_model_and_the_parts_of_the_map_are_and_whether_new_rows_fit(tmp_path: Path) -> None:
    description = describe(tmp_path, ["a", "b"])

    def told(log_odds: float) -> dict[str, dict[str, Any]]:
        drift = {"rows": 40, "batches": 2, "squares": 50.0, "odds": [log_odds] * 8, "log_odds": log_odds}
        summary = {
            "groups": {"a": 9, "b": 9},
            "bytes": {"a": 576.0, "b": 576.0},
            "seconds": {"a": 7200.0, "b": 200.0},
        }
        trained = {"status": "converged", "seconds": 10_000.0}
        facts = {"rows": 200, "trained": trained, "drift": drift}
        return {
            "a": state(description, "a", summary=summary, **facts),
            "b": state(description, "b", summary=None, **facts),
        }

    text = shown(description, told(-5.0))
    assert "The model was trained 3 h ago." in text
    assert "Theta fits the 80 new rows: nothing to do. Mean square of their innovations: 1.25 (1 is expected)." in text
    assert "Groups made 3 min ago: b; 2 h ago: a." in text
    assert "Train again, from the present theta: the 80 new rows are better predicted with" in shown(
        description, told(20)
    )
    assert "trained 3 h" not in shown(description, {"a": state(description, "a")})  # one of an older FleetGP


def test_an_agent_that_the_running_agents_do_not_have_is_no_unreachable_one(tmp_path: Path) -> None:
    description = describe(tmp_path, ["a", "b", "c"])
    told = {name: state(description, name, agents=["a", "b"]) for name in ("a", "b")}
    told["c"] = {"error": "c cannot be reached at tcp/127.0.0.1:1: is it running?"}
    text = shown(description, told)
    assert "unreachable" not in text
    assert "Not in the file of the running agents: c." in text
    assert "All agents: " in text
    told["a"] = state(description, "a", agents=["a", "b", "c"])  # one that was not started again still misses it
    assert "unreachable" in shown(description, told)


def test_why_agents_cannot_be_reached_is_said_once_for_all_of_them(tmp_path: Path) -> None:
    description = describe(tmp_path, ["a", "b", "c", "d"])
    told = {name: state(description, name) for name in "a"}
    for name in "bc":
        told[name] = {"error": f"{name} cannot be reached at tls/127.0.0.1:1: it runs, but refuses [this] certificate"}
    told["d"] = {"error": "d cannot be reached at tls/127.0.0.1:1: is it running?"}
    text = shown(description, told)
    assert "b, c: cannot be reached: it runs, but refuses [this] certificate" in text
    assert "is it running" not in text


def test_what_agents_agree_on_is_said_once_and_what_is_wrong_for_each(tmp_path: Path) -> None:
    description = describe(tmp_path, ["a", "b", "c"])
    told = {name: state(description, name) for name in "abc"}
    assert "All agents: l_x 1.171, l_y 0.2935, sigma_f 1.287, sigma_eps 0.09891." in shown(description, told)
    told["b"] = state(
        description, "b", neighbours={"a": "down", "c": "refused: it holds another"}, problem="[full] disk"
    )
    told["c"] = state(description, "c", theta={"l_x": 2.0, "l_y": 1.0, "sigma_f": 1.0, "sigma_eps": 1.0}, members=["c"])
    text = shown(description, told)
    assert "a, b: l_x 1.171" in text
    assert "c: l_x 2, " in text
    assert "0 of 2" in text
    assert "b: a is down; c is refused: it holds another" in text
    assert "b: [full] disk" in text
    assert "The fleet is in parts: a, b, c; c." in text


@given(st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.tuples(*[st.integers(0, n - 1)] * 2)))))
@settings(max_examples=200, deadline=None)
def test_whose_loss_splits_a_fleet(drawn: tuple[int, list[tuple[int, int]]]) -> None:
    agents, pairs = drawn
    edges = {(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]}
    other: Any = nx.Graph()
    other.add_nodes_from(range(agents))
    other.add_edges_from(edges)
    if nx.is_connected(other):
        assert cut_agents(Graph(agents, sorted(edges))) == sorted(nx.articulation_points(other))


def test_a_long_path_needs_no_deep_recursion() -> None:
    assert cut_agents(Graph.path(3000)) == list(range(1, 2999))


def test_the_agents_are_named(tmp_path: Path) -> None:
    assert split_by(describe(tmp_path, ["a", "b", "c", "d"])) == ["b", "c"]
    assert split_warning(["b", "c"]).startswith("the loss of any of these agents would split the fleet: b, c;")
    assert split_warning(["b"]).startswith("the loss of this agent would split the fleet: b;")


@pytest.mark.parametrize("boats", [1, 2, 3, 5])
def test_no_loss_splits_the_example(tmp_path: Path, boats: int) -> None:
    write_example(tmp_path / "fleet.toml", boats)
    assert split_by(read_description(tmp_path / "fleet.toml")) == []


def test_what_was_started_is_told_with_its_processes_and_the_points_that_are_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "fleet.toml"
    report_started(file, {"boat1": 4711, "boat2": 4712}, tmp_path)
    told = "".join(capsys.readouterr().out.split())
    assert "boat14711,boat24712." in told
    assert "--agentboat1points.csv" in told
    (tmp_path / "points.csv").touch()
    report_started(file, {"boat1": 4711}, tmp_path)
    assert f"--agentboat1{tmp_path / 'points.csv'}" in "".join(capsys.readouterr().out.split())
