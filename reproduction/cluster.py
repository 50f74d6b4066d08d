"""Pieces of work at the workers of a Ray cluster."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import cache
from typing import Any

from threadpoolctl import threadpool_limits

from fleetgp.fleet.errands import errands
from fleetgp.linalg.threads import processors
from fleetgp.network.ray.session import Session
from reproduction.processes import Work, prepare_worker


class OnCluster:
    """workers: how many; None: one for each core of the cluster.  address: see `Session`.

    The cluster is joined, or a local one started, when there is work for the first time.
    """

    def __init__(self, workers: int | None = None, address: str | None = None) -> None:
        self._workers, self._address = workers, address
        self._session: Session | None = None

    def results(self, work: Work, tasks: Sequence[dict[str, Any]]) -> Generator[tuple[int, dict[str, Any]]]:
        """(number, work(task)) of every task, begun in their order, each as soon as it is there."""
        if self._session is None:
            self._session = Session(self._address, self._workers or min(processors(), len(tasks)))
        workers = self._session.room_for(self._workers, len(tasks))
        return errands(at_worker, [(work, task) for task in tasks], workers, "cell")

    def close(self) -> None:
        """Leave the cluster, or end what was started. Safe to call twice."""
        if self._session is not None:
            self._session.close()
            self._session = None


def at_worker(work: Work, task: dict[str, Any]) -> dict[str, Any]:
    """In a process of the cluster."""
    _prepared()
    return work(task)


@cache
def _prepared() -> None:
    """Once in a process."""
    threadpool_limits(1)  # a worker is one core's
    prepare_worker()
