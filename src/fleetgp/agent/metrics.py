"""What an agent tells Prometheus, on loopback."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from typing import Any

from fleetgp.agent.activity import PHASES
from fleetgp.agent.agent import Agent
from fleetgp.agent.logs import Log
from fleetgp.agent.status import status_of
from fleetgp.errors import NetworkError

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
