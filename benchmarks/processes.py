"""A fleet of ten processes on a path: the price of a round, of losing an agent, and of an agent itself.

Run as a process of its own, with every agent another one: python -m benchmarks.processes
"""

from __future__ import annotations

import json
import multiprocessing
import re
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import numpy as np
from tests.processes import Processes

import fleetgp as fg
from fleetgp.agent.certificates import Credentials, make_certificate
from fleetgp.graph import Graph
from fleetgp.network.grouped import InProcess
from fleetgp.network.zenoh.links import Links
from fleetgp.network.zenoh.network import ZenohNetwork
from fleetgp.network.zenoh.session import Security
from fleetgp.operator.launch import free_ports

AGENTS, ROUNDS, KILLS = 10, 2000, 5
EDGES = [(k, k + 1) for k in range(AGENTS - 1)]


def one_end(agent: int, ends: list[str], keys: str, told: multiprocessing.Queue[float]) -> None:
    """One process: rounds in which four numbers go to every neighbour."""
    security = None
    if keys:
        own = Credentials.of(keys, f"a{agent}")
        security = Security(own.authority, own.certificate, own.key, [f"a{k}" for k in range(AGENTS)])
    graph = Graph.path(AGENTS)
    with Links.along(graph, [agent], listen=ends[agent], endpoints=dict(enumerate(ends)), security=security) as links:
        links.wait(30.0)
        network = ZenohNetwork(links, graph, [agent], timeout=30.0)
        x = np.ones((1, 4))
        for _ in range(200):
            network.neighbour_sum(x, "hyperparameters")
        start = time.perf_counter()
        for _ in range(ROUNDS):
            network.neighbour_sum(x, "hyperparameters")
        told.put((time.perf_counter() - start) / ROUNDS)
        network.flood(x, "statistics")  # nobody leaves before all are done


def bare_rounds(secured: bool, folder: Path) -> float:
    """Seconds per round, median over the agents."""
    ports = free_ports(AGENTS)
    ends = [f"{'tls' if secured else 'tcp'}/127.0.0.1:{port}" for port in ports]
    keys = ""
    if secured:
        keys = str(folder / "bare-keys")
        for agent in range(AGENTS):
            make_certificate(keys, f"a{agent}")
    context = multiprocessing.get_context("spawn")
    told = context.Queue()
    workers = [context.Process(target=one_end, args=(agent, ends, keys, told)) for agent in range(AGENTS)]
    for worker in workers:
        worker.start()
    found = [told.get(timeout=120.0) for _ in workers]
    for worker in workers:
        worker.join(30.0)
    return statistics.median(found)


def in_process_round() -> float:
    network, x = InProcess(Graph.path(AGENTS)), np.ones((AGENTS, 4))
    start = time.perf_counter()
    for _ in range(ROUNDS):
        network.neighbour_sum(x, "hyperparameters")
    return (time.perf_counter() - start) / ROUNDS


def fleet(folder: Path, points: int, secured: bool, **options: object) -> Processes:
    folder.mkdir()
    field = fg.synthetic_field(AGENTS * points, seed=1)
    shards = fg.partition(field.inputs, field.observations, agents=AGENTS)
    settings = {"training": "dec-apx-gp", "training_options": "theta0 = [2.0, 0.5, 1.0, 1.0]", "prediction": "dec-rbcm"}
    extra, ends = "", None
    if secured:
        for agent in range(AGENTS):
            make_certificate(folder / "keys", f"a{agent}")
        make_certificate(folder / "keys", "operator")
        extra = '\n[tls]\nfolder = "keys"\n'
        ends = [f"tls/127.0.0.1:{port}" for port in free_ports(AGENTS)]
    return Processes(folder, shards, EDGES, endpoints=ends, extra=extra, **{**settings, **options})


def when(lines: list[dict[str, object]], event: str, after: float) -> float:
    """The first time after a moment at which an agent logged an event."""
    times = [datetime.fromisoformat(str(line["time"])).timestamp() for line in lines if line["event"] == event]
    return min(moment for moment in times if moment > after - 1e-3)


def training_round(lines: list[dict[str, object]]) -> float:
    """Seconds per round of the first training."""
    begun, ended = when(lines, "training", 0.0), when(lines, "trained", 0.0)
    rounds = next(int(str(line["rounds"])) for line in lines if line["event"] == "trained")
    return (ended - begun) / rounds


def memory(running: Processes) -> dict[str, float]:
    """Medians over the agents in bytes: resident, and with shared pages divided among those who share them."""
    found: dict[str, list[int]] = {"resident": [], "own": []}
    for process in running.running.values():
        rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="utf-8")
        for name, label in (("resident", "Rss"), ("own", "Pss")):
            match = re.search(rf"^{label}:\s*(\d+) kB", rollup, re.MULTILINE)
            assert match is not None
            found[name].append(1024 * int(match.group(1)))
    return {name: statistics.median(values) for name, values in found.items()}


def losses(running: Processes, lose: Callable[[str], None]) -> dict[str, list[float]]:
    """Seconds until the first neighbour knew, until all survivors agreed, and until they had trained anew."""
    found: dict[str, list[float]] = {"detected": [], "agreed": [], "recovered": []}
    for number in range(KILLS):
        name = "a9" if number % 2 else "a0"  # an end of the path: the others stay together
        others = [other for other in running.names if other != name]
        moment = time.time()
        lose(name)
        running.wait_trained(others)
        logs = {other: running.log(other) for other in others}
        neighbour = "a8" if number % 2 else "a1"
        found["detected"].append(when(logs[neighbour], "link down", moment) - moment)
        found["agreed"].append(max(when(log, "view", moment) for log in logs.values()) - moment)
        found["recovered"].append(max(when(log, "trained", moment) for log in logs.values()) - moment)
        if name in running.running:
            running.signal(name, signal.SIGCONT)
        else:
            running.start(name)
        running.wait_trained(running.names)
    return found


def run() -> dict[str, object]:
    found: dict[str, object] = {"in process": in_process_round()}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for label, secured in (("tcp", False), ("tls", True)):
            found[f"bare {label}"] = bare_rounds(secured, folder)
            with fleet(folder / label, 100, secured) as running:
                running.start()
                running.wait_trained(running.names, 120.0)
                found[f"training {label}"] = training_round(running.log("a4"))
                found[f"memory {label}"] = memory(running)
                if not secured:
                    found["kill"] = losses(running, running.kill)
        with fleet(folder / "frozen", 100, False, lease=2) as running:
            running.start()
            running.wait_trained(running.names, 120.0)
            found["freeze"] = losses(running, lambda name: running.signal(name, signal.SIGSTOP))
        with fleet(folder / "large", 2000, False) as running:
            running.start()
            running.wait_trained(running.names, 300.0)
            found["memory large"] = memory(running)
    return found


if __name__ == "__main__":
    print(json.dumps(run()))
