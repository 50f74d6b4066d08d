"""Rosters among agents that are linked, or only connected: whoever holds an older one gets the newer."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fleetgp.agent.certificates import Credentials, make_certificate
from fleetgp.agent.description import Description, read_description
from fleetgp.agent.logs import Log
from fleetgp.agent.node import Node
from fleetgp.agent.roster import Roster, SignedRoster
from fleetgp.agent.threads import Threads
from fleetgp.network.zenoh.session import OPERATOR
from fleetgp.operator.launch import fleet_text, free_ports
from tests.agent.fleets import until

pytest.importorskip("zenoh")

NAMES = ["a", "b", "c"]


class Trial:
    """Nodes of a fleet of a, b and perhaps c; each holds a description of its own."""

    def __init__(self, folder: Path, scheme: str, closing: ExitStack) -> None:
        self.closing, self.folder = closing, folder
        self.ends = {name: f"{scheme}/127.0.0.1:{port}" for name, port in zip(NAMES, free_ports(3), strict=True)}
        self.operator = None
        if scheme == "tls":
            for name in (*NAMES, OPERATOR):
                make_certificate(folder / "tls", name)
            self.operator = Credentials.of(folder / "tls", OPERATOR)
        text = fleet_text("bay", NAMES[:2], [self.ends[n] for n in NAMES[:2]], ["a.csv"] * 2, [(0, 1)])
        (folder / "fleet.toml").write_text(text + ('\n[tls]\nfolder = "tls"\n' if self.operator else ""))
        self.base = read_description(folder / "fleet.toml")
        self.joined = self.base.roster.joined("c", self.ends["c"], ["b"])
        self.got: dict[str, list[bytes]] = {name: [] for name in NAMES}
        self.logs = {name: Log(name, file=folder / f"{name}.log") for name in NAMES}

    def holding(self, roster: Roster) -> Description:
        return self.base.with_roster(SignedRoster.of(roster, self.operator))

    def start(self, name: str, description: Description) -> None:
        threads = Threads(self.logs[name])
        node = Node(description, description.id_of(name), self.logs[name], threads, rosters=self.got[name].append)
        self.closing.callback(threads.close)
        self.closing.callback(node.close)

    def about(self, name: str, event: str) -> list[dict[str, Any]]:
        return [line for line in self.logs[name].recent() if line["event"] == event]


@pytest.fixture(params=["tcp", "tls"])
def trial(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("fleetgp.agent.node.INTRODUCE", 0.2)
    with ExitStack() as closing:
        yield Trial(tmp_path, request.param, closing)


def test_a_neighbour_with_an_older_roster_gets_the_newer(trial: Trial) -> None:
    newer = trial.holding(trial.joined)
    trial.start("a", trial.base)
    trial.start("b", newer)
    until(lambda: trial.got["a"])
    assert newer.signed is not None
    assert trial.got["a"][0] == newer.signed.encode()
    assert trial.got["b"] == []
    line, *_ = trial.about("b", "other roster")  # by its hello, and perhaps by its introduction
    assert "version 0 of the roster, and here is version 1" in line["why"]
    assert not trial.about("a", "refused"), "another roster is no error"
    assert not trial.about("b", "refused")


def test_a_newcomer_brings_its_own_admission(trial: Trial) -> None:
    """b does not know c, which is no neighbour of it yet."""
    newer = trial.holding(trial.joined)
    trial.start("b", trial.base)
    trial.start("c", newer)
    until(lambda: trial.got["b"])
    assert newer.signed is not None
    assert trial.got["b"][0] == newer.signed.encode()


@pytest.mark.parametrize("later", ["b", "c"])
def test_who_has_left_and_does_not_know_is_refused_by_name_and_learns_it(trial: Trial, later: str) -> None:
    """Whichever of the two connects to the other."""
    gone, there = ("c", "b") if later == "c" else ("b", "c")
    three = trial.joined
    end = three.joined("c", trial.ends["c"], ["a"]).without(gone)
    newer = trial.holding(end)
    trial.start(there, newer)
    trial.start(gone, trial.holding(three))
    until(lambda: trial.got[gone])
    assert newer.signed is not None
    assert trial.got[gone][0] == newer.signed.encode()
    (line,) = trial.about(there, "refused")
    assert (line["name"], "has left the fleet" in line["why"]) == (gone, True)
    assert "fleetgp join" in line["remedy"]
