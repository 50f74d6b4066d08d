"""A small Ray cluster for the tests, started once in a process of theirs; and what networks on it are checked with."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fleetgp.graph import Topology
from fleetgp.network import Network

#: Seconds that nothing here takes, on any machine: only a hang is longer.
LONG = 120.0


@contextmanager
def small_cluster(cores: int) -> Iterator[None]:
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install fleetgp[cluster]")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    session = pytest.importorskip("fleetgp.network.ray.session")
    session.ensure_token()
    store = 80 * 2**20
    ray.init(
        address="local",
        num_cpus=cores,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
        object_store_memory=store,
        _system_config={"health_check_failure_threshold": 100},  # a busy machine is slow, not dead
    )
    try:
        yield
    finally:
        ray.shutdown()


def call(network: Network, _: object, __: object, function: Callable[[Network], Any]) -> Any:
    return function(network)


def run_on(crew: Any, topology: Topology) -> Callable[[Callable[[Network], Any]], list[Any]]:
    """The `run` of the conformance suite, in the crew's processes."""
    return lambda function: crew.task(topology, call, [(function,)] * len(crew.hosts)).finish()


class Counter:
    """A semaphore in a process of its own."""

    def __init__(self) -> None:
        self._inner = threading.Semaphore(0)

    def acquire(self, timeout: float) -> bool:
        return self._inner.acquire(timeout=timeout)

    def release(self, n: int) -> None:
        self._inner.release(n)


class SharedSemaphore:
    """Between processes, value 0 at first."""

    def __init__(self) -> None:
        import ray

        self._counter: Any = ray.remote(num_cpus=0, max_concurrency=8)(Counter).remote()

    def acquire(self, timeout: float) -> bool:
        import ray

        return bool(ray.get(self._counter.acquire.remote(timeout), timeout=2 * LONG))

    def release(self, n: int) -> None:
        import ray

        ray.get(self._counter.release.remote(n), timeout=LONG)


def fragile(
    network: Any,
    memory: Any,
    tell: Any,
    inner: Callable[..., Any],
    agent: int,
    mark: Path,
    ready: Callable[[int], bool],
    *given: Any,
) -> Any:
    """inner(network, memory, tell, *given), but the process that hosts an agent is killed in a round that is ready.

    mark: a file that is there once it has happened: it happens once.
    """
    take = network.take

    def take_or_die(groups: Any, number: int) -> Any:
        if agent in network.hosted and ready(network.round) and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return take(groups, number)

    network.take = take_or_die
    return inner(network, memory, tell, *given)


def fragile_and_late(
    network: Any, memory: Any, tell: Any, inner: Callable[..., Any], agent: int, mark: Path, reading: int, *given: Any
) -> Any:
    """inner(..), but the process that hosts an agent is killed in a reduction, after so many readings of its clock: the
    root's while it waits for others, another one while it waits for the result. Then time is up on all clocks.
    """
    network.clock.wall = lambda: 1e12 if mark.exists() else 0.0
    take = network.take

    def take_or_die(groups: Any, number: int) -> Any:
        told_all = network.tree.root in network.hosted or number == network._number - 1
        if agent in network.hosted and network.clock.readings.count == reading and told_all and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return take(groups, number)

    network.take = take_or_die
    return inner(network, memory, tell, *given)


def from_round(first: int, now: int) -> bool:
    return now >= first


def once_there(file: Path, now: int) -> bool:
    return file.exists()


def frozen(network: Any, memory: Any, tell: Any, inner: Callable[..., Any], mark: Path, *given: Any) -> Any:
    """The same, but the process that hosts agent 0 stops, and says nothing more."""
    if 0 in network.hosted and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGSTOP)
    return inner(network, memory, tell, *given)


def pid(network: Network, memory: object, tell: object) -> int:
    return os.getpid()


def failing(network: Network, memory: object, tell: object) -> None:
    """One host fails while the others wait for it."""
    if 1 in network.hosted:
        raise ValueError("agent 1 broke")
    network.neighbour_sum(np.zeros(len(network.hosted)), "statistics")


def telling(network: Network, memory: object, tell: Callable[[object], None], count: int) -> int:
    for number in range(count):
        tell((number, network.hosted))
    return count


def assert_same(found: Any, expected: Any) -> None:
    """All fields of a Fit or a Prediction, to the last bit."""
    for field in fields(expected):
        one, other = getattr(found, field.name), getattr(expected, field.name)
        if field.name == "ledger":
            assert one.as_dict() == other.as_dict()
        elif field.name == "moments":
            assert (one is None) == (other is None)
            assert one is None or np.array_equal(one.packed, other.packed)
        elif is_dataclass(other) and field.name == "points":
            assert_same(one, other)
        elif field.name == "starts":
            assert [(s.nll, s.rounds, s.status, *s.theta0) for s in one] == [
                (s.nll, s.rounds, s.status, *s.theta0) for s in other
            ]
        elif isinstance(other, np.ndarray):
            assert np.shape(one) == other.shape, field.name
            assert np.array_equal(one, other, equal_nan=other.dtype == float), field.name
        else:
            assert one == other, field.name
