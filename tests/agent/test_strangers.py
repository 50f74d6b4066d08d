"""Agents with different descriptions: each logs the other, once, and the log says what to do."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fleetgp.agent.certificates import make_authority, make_certificate
from fleetgp.agent.description import Description, read_description
from fleetgp.agent.logs import Log
from fleetgp.agent.membership import Introduction
from fleetgp.agent.node import Node
from fleetgp.agent.presence import MOST_STRANGERS, STRANGER_SECONDS, Presence
from fleetgp.agent.threads import Threads
from fleetgp.errors import NetworkError
from fleetgp.network.zenoh.links import LONGEST_INTRODUCTION
from fleetgp.operator.launch import fleet_text, free_ports
from tests.agent.fleets import until


def describe(folder: Path, names: list[str], ends: dict[str, str], tls: str) -> Description:
    edges = [(k, k + 1) for k in range(len(names) - 1)]
    text = fleet_text("bay", names, [ends[name] for name in names], ["a.csv"] * len(names), edges, kernel="se")
    file = folder / f"{'-'.join(names)}.toml"
    file.write_text(text + tls, encoding="utf-8")
    return read_description(file)


def about(log: Log, event: str) -> list[dict[str, Any]]:
    return [line for line in log.recent() if line["event"] == event]


@pytest.mark.parametrize("scheme", ["tcp", "tls"])
@pytest.mark.parametrize("first", [False, True], ids=["the newcomer has the last id", "all ids are others"])
def test_a_newcomer_and_the_agents_that_do_not_have_it_log_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str, first: bool
) -> None:
    """a and b run with the old file; c, a neighbour of one of them, comes with a new one."""
    monkeypatch.setattr("fleetgp.agent.node.INTRODUCE", 0.2)
    old, names = ["a", "b"], (["c", "a", "b"] if first else ["a", "b", "c"])
    meets = "a" if first else "b"
    ends = {name: f"{scheme}/127.0.0.1:{port}" for name, port in zip(names, free_ports(3), strict=True)}
    if scheme == "tls":
        make_authority(tmp_path / "tls")
        for name in names:
            make_certificate(tmp_path / "tls", name, hosts=["127.0.0.1"])
    tls = '\n[tls]\nfolder = "tls"\n' if scheme == "tls" else ""
    before, after = describe(tmp_path, old, ends, tls), describe(tmp_path, names, ends, tls)
    logs = {name: Log(name, file=tmp_path / f"{name}.log") for name in names}
    with ExitStack() as closing:
        for name in names:
            description = after if name == "c" else before
            threads = Threads(logs[name])
            node = Node(description, description.id_of(name), logs[name], threads)
            closing.callback(threads.close)
            closing.callback(node.close)
        until(lambda: about(logs[meets], "unknown agent") and about(logs["c"], "another description"))
        (line,) = about(logs[meets], "unknown agent")
        assert (line["name"], line["endpoint"]) == ("c", ends["c"])
        assert "fleet.toml" in line["remedy"]
        (line,) = about(logs["c"], "another description")
        assert (line["name"], line["endpoint"]) == (meets, ends[meets])
        assert "agents" in line["why"]
        assert "edges" in line["why"]


def test_strangers_are_logged_once_and_not_without_end(tmp_path: Path) -> None:
    description = describe(tmp_path, ["a", "b"], {"a": "tcp/127.0.0.1:7001", "b": "tcp/127.0.0.1:7002"}, "")
    log = Log("a", file=tmp_path / "a.log")
    presence = Presence(description, 0, log, 1, 0.0)
    assert not presence.introduced(Introduction("b", "tcp/127.0.0.1:7002", description.digest), 0.0)
    stranger = Introduction("c", "tcp/127.0.0.1:7003", "0" * len(description.digest))
    assert [presence.introduced(stranger, now) for now in (0.0, 1.0, STRANGER_SECONDS)] == [True, False, False]
    logged = [
        presence.introduced(Introduction(f"c{k}", "", "x"), 2.0 + STRANGER_SECONDS) for k in range(2 * MOST_STRANGERS)
    ]
    assert sum(logged) == MOST_STRANGERS - 1
    assert len((tmp_path / "a.log").read_text(encoding="utf-8").splitlines()) == MOST_STRANGERS
    assert presence.introduced(Introduction("c99", "", "x"), 3.0 + 2 * STRANGER_SECONDS), (
        "those that are gone are forgotten"
    )


def test_an_introduction_is_small_and_nothing_else_comes_out() -> None:
    longest = Introduction("n" * 256, "e" * 256, "d" * 512)
    assert Introduction.decode(longest.encode()) == longest
    assert len(longest.encode()) <= LONGEST_INTRODUCTION
    for data in (b"", b"[]", b'{"name":"a"}', b"\xff", Introduction("", "", "").encode(), b" " * LONGEST_INTRODUCTION):
        with pytest.raises(NetworkError, match="not an introduction"):
            Introduction.decode(data)
