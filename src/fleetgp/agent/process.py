"""The process of one agent: everything an agent has, until a signal or the operator ends it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from fleetgp.agent.agent import Agent
from fleetgp.agent.description import Description
from fleetgp.agent.description.certificates import Credentials, days_left
from fleetgp.agent.logs import Log
from fleetgp.agent.metrics import Metrics
from fleetgp.agent.service import Service
from fleetgp.errors import InputError

#: A certificate with fewer days left is warned about; seconds between two looks at it.
SOON = 30.0
DAY = 86_400.0
REMEDY = "make another with `fleetgp certs`, and start the agent again"


def run_agent(description: Description, name: str, *, log_file: Path | None = None) -> None:
    """Work until SIGTERM, Ctrl-C or `fleetgp down`. Logs go to stderr, or to a file."""
    os.environ.setdefault("FLEETGP_COMPILE", "0")
    description.id_of(name)
    log = Log(name, file=log_file)
    agent = None
    try:
        own = description.credentials(name)
        if own is not None:
            look_at_certificates(own, log)
        agent = Agent.start(description, name, log)
        if own is not None:
            ending = agent.threads.ending
            agent.threads.start("certificates", lambda: _look_again(own, log, ending))
        _run(agent)
    except Exception as error:
        log.error("ended by an error", error=str(error), kind=type(error).__name__)
        raise
    finally:
        log.close()
        if agent is not None and not agent.node.left:
            # Python would wait for the threads of a session that does not end, and the process would never.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0 if sys.exc_info()[0] is None else 1)


def look_at_certificates(own: Credentials, log: Log) -> None:
    """Nobody works with an agent whose certificate has expired, and its own log is where one looks for the reason."""
    for file in (own.certificate, own.authority):
        left = days_left(file)
        if left <= 0.0:
            log.error("certificate expired", file=str(file), days_ago=round(-left, 1), remedy=REMEDY)
        elif left < SOON:
            log.warn("certificate expires soon", file=str(file), days_left=round(left, 1), remedy=REMEDY)


def _look_again(own: Credentials, log: Log, ending: threading.Event) -> None:
    while not ending.wait(DAY):
        try:
            look_at_certificates(own, log)
        except (OSError, InputError) as error:  # it is being replaced, say: there will be another look
            log.warn("a certificate cannot be read", error=str(error))


def _run(agent: Agent) -> None:
    try:
        port = agent.description.agents[agent.id].metrics
        if port is not None:
            Metrics(agent, port)
        Service(agent)

        def stop(*_: Any) -> None:
            # A handler interrupts this thread anywhere, also where it holds a lock that `stop` or `Threads` needs.
            threading.Thread(target=agent.stop, name="stop", daemon=True).start()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        agent.run()
    finally:
        agent.close()
