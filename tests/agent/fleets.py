"""Fleets for tests: agents in threads of this process, and what one waits for or asks them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fleetgp.agent.agenda import Trained
from fleetgp.agent.agent import Agent
from fleetgp.agent.description import Description, read_description
from fleetgp.agent.logs import Log
from fleetgp.agent.service import Service
from fleetgp.network.frames import FrameNetwork
from fleetgp.operator.client import AgentClient
from fleetgp.operator.launch import fleet_text, free_ports
from tests.conftest import paper_shards

MODEL = Trained((0.1, -0.2, 0.3, -2.0), 77, (0, 1, 2), "dec-apx-gp", "converged", 40, 11.5, 2.5)
QUERIES = [[0.5, 0.5], [1.5, 1.0]]


def describe(folder: Path, agents: int, points: int = 40, **options: Any) -> tuple[Description, list[Any]]:
    shards = list(paper_shards(points * agents, agents))
    names = [f"a{k}" for k in range(agents)]
    for name, (inputs, observations) in zip(names, shards, strict=True):
        np.savez(folder / f"{name}.npz", x=inputs[:, 0], y=inputs[:, 1], temperature=observations)
    tls = options.pop("tls", None)
    ends = [f"{'tls' if tls else 'tcp'}/127.0.0.1:{port}" for port in free_ports(agents)]
    edges = options.pop("edges", [(k, k + 1) for k in range(agents - 1)])
    options = {
        "kernel": "se",
        "training": "dec-apx-gp",
        "training_options": "theta0 = [2.0, 0.5, 1.0, 1.0]",
        "prediction": "dec-rbcm",
        "round": 30,
        "lease": 5,
        **options,
    }
    (folder / "fleet.toml").write_text(
        fleet_text("threads", names, ends, [f"{name}.npz" for name in names], edges, **options)
        + (f'\n[tls]\nfolder = "{tls}"\n' if tls else ""),
        encoding="utf-8",
    )
    return read_description(folder / "fleet.toml"), shards


@contextmanager
def running(description: Description, log: Path) -> Iterator[list[Agent]]:
    agents: list[Agent] = []
    threads = []
    try:
        for name in description.names:
            agents.append(Agent(description, name, Log(name, file=log / f"{name}.log")))
            Service(agents[-1])
            threads.append(threading.Thread(target=agents[-1].run))
            threads[-1].start()
        yield agents
    finally:
        for agent in agents:
            agent.stop()
        for thread in threads:
            thread.join(120.0)
        for agent in agents:
            agent.log.close()
        assert not any(thread.is_alive() for thread in threads)


def until(done: Any, seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def serving(agents: list[Agent]) -> bool:
    return all(agent.activity.phase == "serving" and agent.memory.trained is not None for agent in agents)


def ask(description: Description, name: str, queries: Any, **content: Any) -> Any:
    with AgentClient(description, name) as client:
        return client.request("ask", 30.0, queries=queries, **content)


def settled(agents: list[Agent]) -> bool:
    return serving(agents) and len({agent.loop.activity.rounds for agent in agents}) == 1


class Steps:
    """The phases of what is collected and reduced besides agendas, at one agent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.phases: list[str] = []
        real = FrameNetwork._step

        def step(network: Any, outgoing: Any, expected: Any, number: int) -> Any:
            if network._links.hosted == (0,) and number == 0:
                self.phases.append(network._phase)
            return real(network, outgoing, expected, number)

        monkeypatch.setattr(FrameNetwork, "_step", step)

    @property
    def taken(self) -> list[str]:
        found, self.phases = self.phases, []
        return [phase for phase in found if phase != "setup"]
