"""What an agent tells Prometheus, on loopback.

What an agent tells of itself: to `fleetgp status`, to the page, and to Prometheus.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from http.server import ThreadingHTTPServer
from typing import Any

import numpy as np

from fleetgp.agent.agent import Agent
from fleetgp.agent.logs import PHASES, Log
from fleetgp.errors import InputError, NetworkError

#: Rows that an agent shows at most.
MOST_ROWS = 2_000


def status_of(agent: Agent, after: int = 0) -> dict[str, Any]:
    """The agent's state as plain values. after: the number of the last event that the asker has heard of."""
    node, names, trained, requests = agent.node, agent.description.names, agent.memory.trained, agent.requests
    activity, view = agent.activity, node.view
    members = [] if view is None else [names[member] for member in view.members]
    return {
        "agent": agent.name,
        "pid": os.getpid(),
        "phase": activity.phase,
        "problem": activity.problem or activity.data_problem or agent.data.journal.problem,
        "round": activity.round if activity.phase == "training" else node.round,
        "rounds": activity.rounds,
        "agents": list(names),
        "members": members,
        "missing": [name for name in names if members and name not in members],
        "theta": agent.theta,
        "disagreement": node.disagreement(),
        "trained": None
        if trained is None
        else {
            "id": trained.id,
            "by": [names[member] for member in trained.members],
            "method": trained.method,
            "status": trained.status,
            "rounds": trained.rounds,
            "kernel": agent.description.kernel_of(trained.kernel).name,
            "calibrated": None if trained.calibration is None else asdict(trained.calibration),
        },
        "neighbours": node.neighbours(),
        "bytes": sum(node.links.sent.values()),
        "told": node.links.told,
        "sent": {names[neighbour]: size for neighbour, size in sorted(node.links.sent.items())},
        "kinds": dict(activity.kinds),
        "dropped": dict(node.links.dropped),
        "resent": node.links.resent,
        "rows": agent.data.rows,
        "missing_rows": agent.data.journal.missing_rows,
        "new_rows": agent.new_rows,
        "place": agent.data.place,
        "shows_rows": agent.description.agents[agent.id].show_rows,
        "questions": activity.questions,
        "waiting": requests.waiting,
        "fulfilled": requests.fulfilled,
        "outcome": requests.outcome,
        "views": activity.views,
        "began": activity.began,
        "seconds": time.time() - activity.began,
        "events": agent.log.recent(after),
        "digest": agent.description.digest,
    }


def shown_rows(agent: Agent) -> dict[str, Any]:
    """The inputs and targets of an agent that shows them: all, or some that are spread over all."""
    if not agent.description.agents[agent.id].show_rows:
        raise InputError(
            f"{agent.name} does not show its rows: `show_rows = true` in its own fleet.toml would allow it"
        )
    data = agent.data.shard
    inputs, targets = data.inputs, data.values
    kept = np.unique(np.linspace(0, len(targets) - 1, min(len(targets), MOST_ROWS)).round().astype(int))
    return {"inputs": inputs[kept].tolist(), "targets": targets[kept].tolist(), "of": len(targets)}


#: Connections that are served at once; more are closed.
CONNECTIONS = 8
#: Seconds after which a connection that says nothing is closed.
PATIENCE = 2.0


class _Server(ThreadingHTTPServer):
    """A few threads, whoever connects. It is on loopback, so that a scrape is a matter of milliseconds."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: Any, log: Log) -> None:
        self._free = threading.Semaphore(CONNECTIONS)
        self._log = log
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """In the log instead of on stderr, whose lines are JSON."""
        error = sys.exc_info()[1]
        self._log.warn("a scrape of the metrics failed", error=f"{type(error).__name__}: {error}")


class Metrics:
    """Serves /metrics until it is closed. Every scrape reads the agent's state as it is."""

    def __init__(self, agent: Agent, port: int) -> None:
        from prometheus_client import CollectorRegistry, MetricsHandler

        self._agent = agent
        registry = CollectorRegistry()
        registry.register(self)
        handler = type("Scrape", (MetricsHandler,), {"registry": registry, "timeout": PATIENCE})
        try:
            self._server = _Server(("127.0.0.1", port), handler, agent.log)
        except OSError as error:
            raise NetworkError(f"no metrics on port {port}: {error.strerror}") from error
        agent.threads.start("metrics", self._server.serve_forever, wake=self.close)

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        status = status_of(self._agent)

        def counter(name: str, text: str, value: float) -> Any:
            return CounterMetricFamily(f"fleetgp_{name}", text, value=value)

        def gauge(name: str, text: str, value: float) -> Any:
            return GaugeMetricFamily(f"fleetgp_{name}", text, value=value)

        yield counter("rounds", "Rounds of communication", status["rounds"])
        yield counter("questions", "Questions answered together with others", status["questions"])
        yield counter("views", "Memberships the agent worked in", status["views"])
        yield counter("frames_resent", "Frames sent again because both ends waited", status["resent"])
        yield gauge("round", "Round of the training under way", status["round"])
        yield gauge("observations", "Rows the agent has", status["rows"])
        yield gauge("new_observations", "Rows that came after the last training", status["new_rows"])
        yield gauge("members", "Agents in the present membership", len(status["members"]))
        if status["disagreement"] is not None:
            yield gauge("disagreement", "Largest difference to a neighbour's log theta", status["disagreement"])
        sent = CounterMetricFamily("fleetgp_bytes_sent", "Bytes sent", labels=["neighbour"])
        up = GaugeMetricFamily("fleetgp_neighbour_up", "1 for a neighbour one can work with", labels=["neighbour"])
        names = self._agent.description.names
        for name, standing in status["neighbours"].items():
            sent.add_metric([name], self._agent.node.links.sent[names.index(name)])
            up.add_metric([name], float(standing == "up"))
        yield sent
        yield up
        dropped = CounterMetricFamily("fleetgp_frames_dropped", "Messages refused", labels=["reason"])
        for reason, count in status["dropped"].items():
            dropped.add_metric([reason], count)
        yield dropped
        theta = GaugeMetricFamily("fleetgp_theta", "Hyperparameters, natural units", labels=["parameter"])
        for name, value in status["theta"].items():
            theta.add_metric([name], value)
        yield theta
        phase = GaugeMetricFamily("fleetgp_phase", "1 for what the agent is doing", labels=["phase"])
        for name in PHASES:
            phase.add_metric([name], float(name == status["phase"]))
        yield phase

    def close(self) -> None:
        """Safe to call twice."""
        self._server.shutdown()
        self._server.server_close()
