"""Metrics: for Prometheus, and for whoever connects and says nothing."""

from __future__ import annotations

import socket
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from fleetgp.agent import metrics
from fleetgp.agent.logs import Log
from fleetgp.agent.metrics import CONNECTIONS, Metrics
from fleetgp.operator.example import free_ports


class _Agent:
    def __init__(self, log: Log) -> None:
        self.log = log


def test_idle_connections_take_few_threads_and_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def collect(_: Any) -> Any:
        yield from ()

    monkeypatch.setattr(Metrics, "collect", collect)
    monkeypatch.setattr(metrics, "PATIENCE", 1.0)
    (port,) = free_ports(1)
    log = Log("a0", file=tmp_path / "a.log")
    before = threading.active_count()
    served = Metrics(_Agent(log), port)  # type: ignore[arg-type]
    idle = [socket.create_connection(("127.0.0.1", port), timeout=30.0) for _ in range(100)]
    try:
        closed = 0
        for one in idle:  # all are closed in the end, most at once
            assert threading.active_count() <= before + 1 + CONNECTIONS
            closed += one.recv(1) == b""
        assert closed == 100
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
