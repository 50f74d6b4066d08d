"""Members that join and leave a running fleet, over TLS: nobody edits the file of another agent."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.data.transforms import View
from fleetgp.graph import Graph
from fleetgp.operator.launch import free_ports
from tests.agent.fleets import until
from tests.cli.commands import run, wrong
from tests.conftest import paper_shards
from tests.operator.test_processes import QUERIES, SMALL, START
from tests.processes import Machines
from tests.summaries import Simulated, assert_same

pytest.importorskip("zenoh")

TRIANGLE = [(0, 1), (1, 2), (0, 2)]


NOTHING = (np.zeros((0, 2)), np.zeros(0))


def trained(shards: Any, graph: Graph) -> tuple[fg.Fleet, Simulated]:
    """A simulated fleet, trained as the file says, and its model."""
    fleet = fg.Fleet(shards, graph, normalize=True, kernel="se")
    fit = fleet.train("dec-fact-gp", theta0=START, tol=3e-8)
    return fleet, Simulated(fleet.kernel, fit.thetas[0].tolist(), View(fit.scaling, fit.coordinates))


# Python leaves a TLS socket open whose other end hangs up before the handshake, as an agent does that begins again.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_members_join_and_leave(tmp_path: Path) -> None:
    """Three agents; a fourth joins without data and observes; one leaves; one catches up with all that it missed."""
    shards: list[Any] = list(paper_shards(120, 4))
    ends = [f"tls/127.0.0.1:{port}" for port in free_ports(4)]
    options = {**SMALL, "prediction": "dec-summary", "extra": '\n[tls]\nfolder = "keys"\n'}
    with Machines(tmp_path, shards[:3], TRIANGLE, endpoints=ends[:3], **options) as fleet:
        file = str(fleet.file)
        run("certs", file)

        def check(asked: str, there: list[int], groups: Any) -> Any:
            answer = fleet.request(asked, "ask", 60.0, queries=QUERIES, seconds=60.0)
            assert answer["members"] == [f"a{agent}" for agent in there]
            assert_same(answer, model.predict(QUERIES, [shards[k] for k in order], groups, there_in(there)))
            return answer

        def there_in(there: list[int]) -> list[int]:
            return [order.index(agent) for agent in there]

        fleet.begin("a0", "a1", "a2")
        fleet.wait_trained(["a0", "a1", "a2"], 120.0)

        new = ("--name", "a3", "--endpoint", ends[3], "--neighbours", "a1", "a2")
        told = fleet.changed("join", file, *new, "--via", "a0", "--out", str(tmp_path / "machines" / "a3"))
        assert (told["roster"], told["members"], told["reached"]) == (1, ["a0", "a1", "a2", "a3"], ["a0"])
        fleet.names.append("a3")
        fleet.begin("a3")
        fleet.wait_trained(fleet.names, 120.0)
        assert fleet.status("a3")["rows"] == 0
        answer = fleet.request("a3", "ask", 60.0, queries=QUERIES, seconds=60.0, method="dec-rbcm")
        three, first = trained(shards[:3], Graph(3, TRIANGLE))
        np.testing.assert_allclose(answer["mean"], three.predict(QUERIES, "dec-rbcm").mean, rtol=1e-5)
        rows = np.column_stack([shards[3][0], shards[3][1]]).tolist()
        fleet.request("a3", "observe", rows=rows, request="first")
        before = fleet.status("a0")["trained"]["id"]
        fleet.request("a3", "train", cold=True)
        fleet.wait(lambda s: all(x["trained"]["id"] != before for x in s.values()), fleet.names, 120.0)
        states = fleet.wait_trained(fleet.names, 120.0)
        simulated, model = trained(shards, Graph(4, [*TRIANGLE, (1, 3), (2, 3)]))
        fit = simulated.last_fit
        assert fit is not None
        np.testing.assert_allclose(fleet.thetas(fleet.names), fit.thetas, rtol=1e-9)
        assert {state["roster"] for state in states.values()} == {1}
        order = [0, 1, 2, 3]
        groups = model.groups(shards, first.groups([*shards[:3], NOTHING]))  # rows stay in groups that were sent
        check("a3", [0, 1, 2, 3], groups)
        answer = fleet.request("a3", "ask", 60.0, queries=QUERIES, seconds=60.0, method="dec-rbcm")
        expected = simulated.predict(QUERIES, "dec-rbcm")
        np.testing.assert_allclose(answer["mean"], expected.mean, rtol=1e-9)
        np.testing.assert_allclose(answer["variance"], expected.variance, rtol=1e-9)

        fleet.kill("a0")  # and misses all that follows
        fleet.wait_together(["a1", "a2", "a3"], 120.0)
        told = fleet.changed("leave", file, "--name", "a2")
        assert sorted(told["reached"]) == ["a1", "a2", "a3"]
        assert fleet.running.pop("a2").wait(60.0) == 0
        fleet.wait_together(["a1", "a3"], 120.0)
        order, groups = [0, 1, 3], (groups[0], groups[1], groups[3])
        answer = check("a1", [1, 3], groups)
        assert (answer["data_of"], answer["missing"]) == (["a0", "a1", "a3"], ["a0"])
        shown = run("status", file).stdout
        assert "Left the fleet: a2" in shown
        assert fleet.status("a1")["missing"] == ["a0"]
        fleet.changed("join", file, "--name", "a3", "--neighbours", "a0")  # another link

        fleet.begin("a0")
        states = fleet.wait_together(["a0", "a1", "a3"], 120.0)
        assert {state["roster"] for state in states.values()} == {3}
        fleet.wait(lambda s: s["a0"]["neighbours"] == {"a1": "up", "a3": "up"}, ["a0"], 60.0)
        answer = check("a0", [0, 1, 3], groups)
        assert answer["data_of"] == ["a0", "a1", "a3"]

        another = tmp_path / "another operator"  # who has an older roster
        another.mkdir()
        shutil.copy(file, another)
        shutil.copytree(tmp_path / "keys", another / "keys")
        again = str(another / "fleet.toml")
        (another / "points.csv").write_text("x,y\n0.5,0.5\n", encoding="utf-8")
        ask = ("ask", again, str(another / "points.csv"), "--agent", "a1", "--out", str(another / "answer.csv"))
        assert "`fleetgp status` fetches the newer roster" in wrong(*ask)
        assert "Left the fleet: a2" in run("status", again).stdout
        run(*ask)

        fleet.begin("a2")  # without a new roster
        assert fleet.running.pop("a2").wait(60.0) == 2
        until(lambda: "a2 has left the fleet" in fleet.log("a2")[-1]["error"])
        fleet.changed(
            *("join", file, "--name", "a2", "--neighbours", "a1", "a3", "--out", str(tmp_path / "machines" / "a2"))
        )
        fleet.begin("a2")
        fleet.wait_together(fleet.names, 120.0)
        answer = fleet.request("a2", "ask", 60.0, queries=QUERIES, seconds=60.0)
        assert (answer["data_of"], answer["missing"]) == (fleet.names, [])
