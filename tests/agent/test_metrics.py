"""Metrics: for Prometheus, and for whoever connects and says nothing."""

from __future__ import annotations

import socket
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from fleetgp.agent import service
from fleetgp.agent.logs import Log
from fleetgp.agent.service import CONNECTIONS, Metrics, status_of
from fleetgp.agent.threads import Threads
from fleetgp.errors import NetworkError
from fleetgp.operator.launch import free_ports
from tests.agent.fleets import describe, running, serving, until


class _Agent:
    def __init__(self, log: Log) -> None:
        self.log, self.threads = log, Threads(log)


def test_idle_connections_take_few_threads_and_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def collect(_: Any) -> Any:
        yield from ()

    monkeypatch.setattr(Metrics, "collect", collect)
    monkeypatch.setattr(service, "PATIENCE", 0.5)
    (port,) = free_ports(1)
    log = Log("a0", file=tmp_path / "a.log")
    before = threading.active_count()
    served = Metrics(_Agent(log), port)  # type: ignore[arg-type]
    idle = [socket.create_connection(("127.0.0.1", port), timeout=30.0) for _ in range(CONNECTIONS + 4)]
    try:
        closed = 0
        for one in idle:  # all are closed in the end, most at once
            assert threading.active_count() <= before + 1 + CONNECTIONS
            closed += one.recv(1) == b""
        assert closed == len(idle)
        deadline = time.monotonic() + 30.0
        while True:  # and those who ask are served again
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10.0) as answer:
                    assert answer.status == 200
                break
            except OSError:
                assert time.monotonic() < deadline
    finally:
        for one in idle:
            one.close()
        served.close()
        log.close()


def test_metrics_for_prometheus(tmp_path: Path) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    description, _ = describe(tmp_path, 2)
    with running(description, tmp_path) as agents:
        until(lambda: serving(agents) and (status_of(agents[0])["disagreement"] or 1.0) < 1e-4)  # hellos tell it
        (port,) = free_ports(1)
        metrics = Metrics(agents[0], port)
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                found = {f.name: f.samples for f in text_string_to_metric_families(answer.read().decode())}
            with pytest.raises(NetworkError, match="no metrics on port"):
                Metrics(agents[1], port)
        finally:
            metrics.close()
        assert found["fleetgp_rounds"][0].value > 10
        assert found["fleetgp_neighbour_up"][0].labels == {"neighbour": "a1"}
        assert found["fleetgp_neighbour_up"][0].value == 1.0
        assert found["fleetgp_bytes_sent"][0].value > 1000
        assert {s.labels["parameter"] for s in found["fleetgp_theta"]} == {"l_x", "l_y", "sigma_f", "sigma_eps"}
        assert found["fleetgp_disagreement"][0].value < 1e-4
        assert found["fleetgp_theta_age_seconds"][0].value >= 0.0
        assert (found["fleetgp_scored_observations"][0].value, found["fleetgp_drift_log_odds"][0].value) == (0.0, 0.0)
        assert {s.labels["phase"]: s.value for s in found["fleetgp_phase"]}["serving"] == 1.0
