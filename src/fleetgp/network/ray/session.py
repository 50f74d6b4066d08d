"""The cluster that this process works on: one that it joins, or a local one that it starts, and stops."""

from __future__ import annotations

import os
import secrets
import socket
import threading
from pathlib import Path

import ray

from fleetgp.errors import InputError, NetworkError, warn
from fleetgp.linalg.threads import processors

#: Seconds within which a cluster must answer at its address.
KNOCK = 20.0

_LOCK = threading.Lock()
#: How many sessions use the connection that was opened here; None if it was not opened here.
_USERS: int | None = None


class Session:
    """A connection to a cluster, while somebody needs it.

    address: of the cluster to join. Without it: the one that this process is connected to, or that Ray finds
        (RAY_ADDRESS, or `ray start` on this machine), and if there is none, a local one with room for the workers.
    What was begun here ends with the last session; a connection or a cluster of somebody else stays.
    """

    def __init__(self, address: str | None, workers: int) -> None:
        global _USERS
        with _LOCK:
            if not ray.is_initialized():
                _connect(address, workers)
                _USERS = 0
            elif address not in (None, "auto", ray.get_runtime_context().gcs_address):
                here = ray.get_runtime_context().gcs_address
                raise InputError(f"expected the cluster that this process has joined, {here}, got {address}")
            self._counted = _USERS is not None
            if _USERS is not None:
                _USERS += 1
        self._open = True

    @property
    def cores(self) -> int:
        """Those of the whole cluster."""
        return int(ray.cluster_resources().get("CPU", 0))

    def room_for(self, workers: int | None, most: int) -> int:
        """The number of workers: as many as were asked for, or one per core, and no more than `most`."""
        if workers is None:
            return max(1, min(self.cores, most))
        if workers > self.cores:
            raise InputError(f"expected at most {self.cores} workers, one for each core of the cluster, got {workers}")
        return workers

    def close(self) -> None:
        """Safe to call twice."""
        global _USERS
        with _LOCK:
            if not self._open:
                return
            self._open = False
            if not self._counted or _USERS is None:
                return
            _USERS -= 1
            if _USERS == 0:
                _USERS = None
                ray.shutdown()


def _connect(address: str | None, workers: int) -> None:
    quiet = {"log_to_driver": False, "logging_level": "error"}
    if address is not None:
        try:
            _knock(address)
            ray.init(address=address, **quiet)
        except (OSError, RuntimeError, ValueError) as error:
            first = str(error).strip().partition("\n")[0]
            raise NetworkError(
                f"expected a Ray cluster at {address} that lets this process in, got none ({first}): start one with "
                "`ray start --head`, or leave the address out. One that is there may ask for a token: set "
                "RAY_AUTH_MODE=token where it is started and here"
            ) from error
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a cluster that is started here reports nothing
    ensure_token()
    try:
        ray.init(num_cpus=workers, include_dashboard=False, **quiet)
    except ValueError:  # a cluster is there, and has its cores
        ray.init(**quiet)
        return
    if workers > processors():
        warn(
            f"{workers} workers share the {processors()} processors of this machine: as many workers as processors are "
            "quicker"
        )


def ensure_token() -> None:
    """Give a local cluster its token in the environment if the home folder has none and cannot be written.

    Ray otherwise creates ~/.ray/auth_token, and fails where it may not: a service account often has no home.
    """
    if {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys():
        return
    try:
        (Path.home() / ".ray").mkdir(parents=True, exist_ok=True)
    except OSError:
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def _knock(address: str) -> None:
    """An OSError where nobody listens at a host:port: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "/" not in host:
        socket.create_connection((host, int(port)), KNOCK).close()
