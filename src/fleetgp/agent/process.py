"""The process of one agent: everything an agent has, until a signal or the operator ends it."""

from __future__ import annotations

import datetime
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from fleetgp.agent.agent import Agent
from fleetgp.agent.certificates import Credentials, days_ahead, days_left
from fleetgp.agent.description import Description
from fleetgp.agent.logs import Log
from fleetgp.agent.metrics import Metrics
from fleetgp.agent.service import Service
from fleetgp.errors import FleetGPError, InputError

#: A certificate with fewer days left is warned about; seconds between two looks at it.
SOON = 30.0
DAY = 86_400.0
#: Seconds until a certificate that could not be read is read again.
RETRY = 60.0
REMEDY = "make another with `fleetgp certs`, and start the agent again"
CLOCK = "if the clock of this machine is wrong, set it; else"


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
        left, ahead = days_left(file), days_ahead(file)
        clock, remedy = datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"), f"{CLOCK} {REMEDY}"
        if left <= 0.0:
            log.error("certificate expired", file=str(file), days_ago=round(-left, 1), clock=clock, remedy=remedy)
        elif ahead > 0.0:
            facts = {"file": str(file), "valid_in_days": round(ahead, 1), "clock": clock, "remedy": remedy}
            log.error("certificate is not valid yet", **facts)
        elif left < SOON:
            log.warn("certificate expires soon", file=str(file), days_left=round(left, 1), remedy=REMEDY)


def _look_again(own: Credentials, log: Log, ending: threading.Event) -> None:
    """Once a day, and when a certificate expires: that ends the agent.

    Zenoh closes a link when the certificate of its other end expires, but may let it in again within the same second,
    and then for good. An agent that has ended cannot come back without another certificate. If it does not end, its
    neighbours refuse it (`network.zenoh.session`).
    """
    left = _seconds_left(own)
    while not ending.wait(min(DAY, max(left, 0.0))):
        try:
            look_at_certificates(own, log)
            left = _seconds_left(own)
        except (OSError, InputError) as error:  # it is being replaced, say: there will be another look
            log.warn("a certificate cannot be read", error=str(error))
            left = min(DAY, RETRY)
            continue
        if left <= 0.0:
            raise FleetGPError(f"the certificate of this agent or of its authority has expired: {CLOCK} {REMEDY}")


def _seconds_left(own: Credentials) -> float:
    return 86_400.0 * min(days_left(own.certificate), days_left(own.authority))


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
