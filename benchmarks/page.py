"""The page: how fast an update is drawn in a browser, and what watching costs a fleet.

Run as a process of its own: python -m benchmarks.page [SECONDS]
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from tests.page.browsers import started_browser, tab
from tests.page.fakes import FakeFleet
from tests.page.test_running import Boats

from fleetgp.operator.client import AgentClient
from fleetgp.page.server import PageServer

#: Updates that are timed, and seconds for which five boats are watched.
UPDATES, WATCHED = 100, 300.0


def drawn(browser: Any, maps: bool) -> list[float]:
    """Seconds from an update's message to the screen: 30 agents, all of which have changed, with a new map or not."""
    fleet, found = FakeFleet(30), []
    fleet.draw()
    fleet.tell()
    with PageServer(fleet, port=0) as server, tab(browser) as one:
        page = one.open(server.address)
        one.wait_for_map()
        for number in range(1, UPDATES + 1):
            for name, contacts in fleet.contacts.items():
                contacts.state.update(rows=100 + number, bytes=3000 + number, round=number)  # type: ignore[attr-defined]
                assert name
            if maps:
                fleet.draw(shift=0.01 * number)
            before = page.evaluate("() => fleetgpDrawn.updates")
            fleet.tell()
            page.evaluate(
                "async before => { while (fleetgpDrawn.updates <= before) await new Promise(r => setTimeout(r, 5)); }",
                before,
            )
            time.sleep(0.2)
            found.append(page.evaluate("() => fleetgpDrawn.milliseconds") / 1e3)
    return found


def watched(seconds: float) -> dict[str, float]:
    """Five boats that get a row every 20 seconds: what maps, and looks, cost them."""
    with tempfile.TemporaryDirectory() as folder:
        boats = Boats(Path(folder))
        try:
            boats.start()
            boats.watch.start()
            boats.until(lambda picture: bool(picture.get("map")))
            began = time.monotonic()
            while time.monotonic() - began < seconds:
                with AgentClient(boats.description, "boat1") as client:
                    client.request("observe", rows=[[0.3, 0.001 * (time.monotonic() - began), 0.5]])
                time.sleep(20.0)
            budget, total = boats.watch.mapper.budget, boats.watch.collector.all_bytes
            with AgentClient(boats.description, "boat1") as client:
                looks = []
                for _ in range(50):
                    asked = time.perf_counter()
                    state = client.request("status", after=10**9)
                    looks.append(time.perf_counter() - asked)
            return {
                **budget.shares(time.monotonic() - began, total),
                "maps": budget.maps,
                "look": float(np.median(looks)),
                "told": len(json.dumps(state)),
            }
        finally:
            boats.close()


if __name__ == "__main__":
    with started_browser() as chromium:
        times = {"picture": drawn(chromium, maps=False), "map": drawn(chromium, maps=True)}
    print(json.dumps({**times, "cost": watched(float(sys.argv[1]) if len(sys.argv) > 1 else WATCHED)}))
