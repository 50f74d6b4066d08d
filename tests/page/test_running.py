"""The page of a real fleet, in a real browser: it starts, loses a boat, gets it back, is asked, and learns again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("zenoh")
pytest.importorskip("starlette")

from fleetgp.agent.description import read_description
from fleetgp.operator.client import AgentClient
from fleetgp.operator.launch import write_example
from fleetgp.page import watch as watching
from fleetgp.page.maps import SHARE, WIDTH, deviations
from fleetgp.page.server import PageServer
from fleetgp.page.watch import Watch
from tests.agent.fleets import describe, running, serving, until
from tests.page.browsers import PHONE, Tab, tab

#: Seconds after which only a hang has not ended.
LONG = 240.0


class Boats:
    """The five example boats, as `fleetgp up --example` writes them, and a page of them."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "fleet.toml"
        write_example(self.file)
        self.description = read_description(self.file)
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.watch = Watch(self.description)
        self.server = PageServer(self.watch, port=0)

    def start(self, *names: str) -> None:
        env = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        for name in names or self.description.names:
            command = [sys.executable, "-m", "fleetgp", "agent", str(self.file), "--name", name]
            with (self.file.parent / f"{name}.log").open("ab") as log:
                self.running[name] = subprocess.Popen(command, env=env, stdout=log, stderr=log)

    def kill(self, name: str) -> None:
        process = self.running.pop(name)
        process.kill()
        process.wait()

    def close(self) -> None:
        self.server.close()
        self.watch.close()
        for process in self.running.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self.running.values():
            process.wait(60.0)

    def until(self, done: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        deadline = time.monotonic() + LONG
        while not done(picture := self.watch.picture()[1]):
            assert time.monotonic() < deadline, json.dumps(picture)[:4000]
            time.sleep(0.05)
        return picture


@pytest.fixture
def boats(tmp_path: Path) -> Iterator[Boats]:
    """Of one test alone: no test depends on what another did to the boats."""
    fleet = Boats(tmp_path)
    try:
        fleet.watch.start()
        fleet.server.start()
        yield fleet
    finally:
        fleet.close()


def test_a_silent_boat_is_seen_within_the_lease() -> None:
    """By the limits on each wait, on whatever machine."""
    assert watching.PAUSE + watching.REACH + watching.WITHIN + watching.TICK <= 5.0


def test_a_fleet_that_lives(browser: Any, boats: Boats, tmp_path: Path) -> None:
    with tab(browser) as one:
        page = one.open(boats.server.address)
        page.locator("#sentence", has_text="None of the 5 boats answers.").wait_for()
        boats.start()
        one.wait_for_map()
        page.locator("#sentence", has_text="All 5 boats are there.").wait_for()
        assert one.colours() > 50
        page.locator("#model", has_text="The field changes over").wait_for()
        asked_as_ask_does(one, boats)
        page.locator("#plot:not(.stale)").wait_for()
        one.picture("running", tmp_path)
        boats.kill("boat2")
        page.locator('#overlay [data-agent="boat2"][data-presence="gone"]').wait_for()
        page.locator("#sentence", has_text="4 of 5 boats are there. boat2 has been gone for").wait_for()
        # The others hold groups of its rows: they need not learn again for the map to stay whole.
        page.locator("#model", has_text="Learned by boat1, boat2, boat3, boat4 and boat5").wait_for()
        page.locator("#plot:not(.stale)").wait_for()
        one.picture("missing", tmp_path)
        pictures_of_a_split_fleet(browser, boats, tmp_path)
        boats.start("boat2")
        page.locator("#sentence", has_text="All 5 boats are there.").wait_for()
        page.locator("#events", has_text="boat2 is back.").wait_for()
        learn_again(one, boats)


def asked_as_ask_does(one: Tab, boats: Boats) -> None:
    """A click gives the numbers that the same question gives an operator."""
    page = one.page
    boats.until(lambda picture: all(agent["phase"] == "serving" for agent in picture["agents"].values()))
    page.locator("#plot").click(position={"x": 400, "y": 250})
    value = page.locator(".value")
    value.wait_for()
    point = json.loads(value.get_attribute("data-point"))
    agent = next(name for name in boats.description.names if f"{name} was asked" in one.text("#answer"))
    with AgentClient(boats.description, agent) as client:
        answer = client.request("ask", 60.0, queries=[point])
    mean, half = answer["mean"][0], WIDTH * float(deviations(answer)[0])
    told = [float(value.get_attribute(f"data-{name}")) for name in ("mean", "low", "high")]
    assert told == pytest.approx([mean, mean - half, mean + half], rel=1e-12)
    page.locator("#questions", has_text="was asked for 1 point here").wait_for()


def pictures_of_a_split_fleet(browser: Any, boats: Boats, tmp_path: Path) -> None:
    """boat4 is frozen: boat3 is alone, and boat1 and boat5 are left."""
    boats.running["boat4"].send_signal(signal.SIGSTOP)
    try:
        with tab(browser, color_scheme="dark") as dark, tab(browser, viewport=PHONE) as phone:
            for one, name in ((dark, "split-dark"), (phone, "split-phone")):
                page = one.open(boats.server.address)
                page.locator(
                    "#sentence", has_text="2 parts that do not hear each other: boat1 and boat5; boat3"
                ).wait_for()
                page.locator('#overlay [data-agent="boat4"][data-presence="silent"]').wait_for()
                one.wait_for_map()
                one.picture(name, tmp_path)
    finally:
        boats.running["boat4"].send_signal(signal.SIGCONT)


def learn_again(one: Tab, boats: Boats) -> None:
    page = one.page
    ready = boats.until(
        lambda picture: picture["model"].get("by") == list(boats.description.names) and not picture["model"]["learning"]
    )
    page.get_by_role("button", name="Learn again ...").click()
    page.get_by_role("dialog").get_by_role("button", name="Learn again").click()
    boats.until(lambda picture: picture["model"]["id"] != ready["model"]["id"])
    page.locator("#events", has_text="There is a new model, learned by boat1, boat2, boat3, boat4 and boat5").wait_for()


def test_what_a_map_costs_is_counted_and_kept_small(tmp_path: Path) -> None:
    """By the agents' own ledgers: what the page says that it spent is no less than what the fleet sent for a map, and
    after each map it rests until that is within its share.
    """
    description, _ = describe(tmp_path, 2)
    watch = Watch(description, pause=0.1)
    assert watch.picture()[1]["map"] == {}, "a picture says so while there is no map"

    def frames() -> int:
        """Bytes that all agents have sent besides hellos, as they report themselves."""
        total = 0
        for name in description.names:
            with AgentClient(description, name) as client:
                total += sum(client.request("status")["kinds"].values())
        return total

    def is_quiet() -> bool:
        picture = watch.picture()[1]
        agents = picture["agents"].values()
        return (
            bool(picture["map"]) and not picture["maps"]["asking"] and {one["phase"] for one in agents} == {"serving"}
        )

    try:
        with running(description, tmp_path) as agents:
            watch.start()
            until(lambda: serving(agents) and is_quiet())
            before, budget = frames(), watch.mapper.budget
            spent, maps = budget.bytes, budget.maps
            watch.renew()
            until(lambda: budget.maps > maps)
            assert 0 < frames() - before <= budget.bytes - spent
    finally:
        watch.close()
    rate, total = 5_000.0, watch.collector.all_bytes
    wait = budget.wait(100, 1e9, total, rate)
    assert budget.bytes + 100 * budget.per_point[1] <= SHARE * (total + rate * wait) * (1 + 1e-9)
