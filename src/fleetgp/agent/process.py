"""The process of one agent: everything an agent has, until a signal or the operator ends it."""

from __future__ import annotations

import os
import signal
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
    log = Log(name, file=log_file)
    agent = Agent(description, name, log)
    metrics = None
    try:
        service = Service(agent)
        port = description.agents[agent.id].metrics
        if port is not None:
            metrics = Metrics(agent, port)

        def stop(*_: Any) -> None:
            agent.stop()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        agent.run()
        del service
    except BaseException:
        agent.node.close()
        raise
    finally:
        if metrics is not None:
            metrics.close()
        log.close()
