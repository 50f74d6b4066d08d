"""Fleets of up to thirty processes on a cycle: how long they take to agree on who is there, and what they tell for it.

Run as a process of its own, with every agent another one: python -m benchmarks.agreement
"""

from __future__ import annotations

import json
import tempfile
import time
from datetime import datetime
from pathlib import Path

from tests.processes import Processes

import fleetgp as fg

SIZES = (5, 10, 20, 30)
#: Seconds after which something hangs.
LONG = 300.0


def moments(fleet: Processes, name: str, event: str, after: float, **fields: object) -> list[float]:
    """When an agent logged an event after some time; fields: how many things these must name."""
    return [
        moment
        for line in fleet.log(name)
        if line["event"] == event and all(len(line[key]) == count for key, count in fields.items())
        if (moment := datetime.fromisoformat(line["time"]).timestamp()) > after
    ]


def agreement(fleet: Processes, after: float) -> float:
    """Seconds from the last link that came up until the last agent worked in the view of all."""
    count = len(fleet.names)
    deadline = time.monotonic() + LONG
    while not all(moments(fleet, name, "view", after, members=count) for name in fleet.names):
        if time.monotonic() > deadline:
            raise RuntimeError(f"no agreement within {LONG:g} s\n{fleet.last_words()}")
        time.sleep(0.2)
    linked = max(max(moments(fleet, name, "neighbour up", after), default=after) for name in fleet.names)
    agreed = max(min(moments(fleet, name, "view", after, members=count)) for name in fleet.names)
    return agreed - linked


def told(fleet: Processes) -> int:
    """Bytes of all hellos so far."""
    return sum(int(fleet.status(name).get("told", 0)) for name in fleet.names)


def fleet_of(agents: int, folder: Path) -> Processes:
    field = fg.synthetic_field(20 * agents, seed=1)
    shards = fg.partition(field.inputs, field.observations, agents=agents)
    return Processes(
        folder,
        shards,
        [(k, (k + 1) % agents) for k in range(agents)],
        training="dec-apx-gp",
        training_options="theta0 = [2.0, 0.5, 1.0, 1.0]\nrounds = 5",
        prediction="dec-rbcm",
        connect=LONG,
        round=60,
        lease=10,
    )


def measured(agents: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as place, fleet_of(agents, Path(place)) as fleet:
        fleet.start()
        found = {"start": agreement(fleet, 0.0), "told": told(fleet)}
        away = fleet.names[1 :: max(1, agents // 3)][:3]
        for name in away:
            fleet.kill(name)
        left = [name for name in fleet.names if name not in away]
        fleet.wait(lambda states: all(set(s["missing"]) >= set(away) for s in states.values()), left, LONG)
        before, moment = sum(int(fleet.status(name).get("told", 0)) for name in left), time.time()
        fleet.start(*away)
        found["back"] = agreement(fleet, moment)
        found["told again"] = told(fleet) - before
        return found


def run() -> dict[int, dict[str, float]]:
    return {agents: measured(agents) for agents in SIZES}


if __name__ == "__main__":
    print(json.dumps(run()))
