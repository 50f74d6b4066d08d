"""The process of one agent: everything an agent has, until a signal or the operator ends it."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

from fleetgp.agent.agent import Agent
from fleetgp.agent.description import Description
from fleetgp.agent.logs import Log
from fleetgp.agent.metrics import Metrics
from fleetgp.agent.service import Service


def run_agent(description: Description, name: str, *, log_file: Path | None = None) -> None:
    """Work until SIGTERM, Ctrl-C or `fleetgp down`. Logs go to stderr, or to a file."""
    os.environ.setdefault("FLEETGP_COMPILE", "0")
    description.id_of(name)
    log = Log(name, file=log_file)
    try:
        _run(Agent(description, name, log))
    except Exception as error:
        log.error("ended by an error", error=str(error), kind=type(error).__name__)
        raise
    finally:
        log.close()


def _run(agent: Agent) -> None:
    metrics = None
    try:
        port = agent.description.agents[agent.id].metrics
        if port is not None:
            metrics = Metrics(agent, port)
        service = Service(agent)

        def stop(*_: Any) -> None:
            # In a thread: a handler interrupts this one anywhere, also where it holds what `stop` needs.
            threading.Thread(target=agent.stop, daemon=True).start()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        agent.run()
        del service
    finally:
        agent.node.close()
        if metrics is not None:
            metrics.close()
