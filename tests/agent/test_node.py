"""The node of an agent: its thread beside the work, and how waiting ends."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from fleetgp.agent.logs import Log
from fleetgp.agent.membership import View
from fleetgp.agent.node import Node, StoppedError
from fleetgp.agent.threads import Threads
from fleetgp.errors import Cancelled
from fleetgp.network.zenoh.network import EpochOverError
from tests.agent.fleets import describe, until


@contextmanager
def nodes(folder: Path, agents: int) -> Iterator[list[Node]]:
    description, _ = describe(folder, agents, connect=120)
    log = Log("nodes", file=folder / "log")
    threads = Threads(log)
    found = [Node(description, agent, log, threads) for agent in range(agents)]
    try:
        yield found
    finally:
        for node in found:
            node.close()
            node.close()
        assert all(node.left for node in found)
        assert threads.close() == []
        log.close()


def agreed(pool: ThreadPoolExecutor, found: list[Node]) -> list[View]:
    return list(pool.map(lambda node: node.agree(), found))


def test_stopping_wakes_who_waits_for_a_view(tmp_path: Path) -> None:
    """Its neighbour never comes."""
    with nodes(tmp_path, 2) as found, ThreadPoolExecutor(1) as pool:
        found[1].close()
        waiting = pool.submit(found[0].agree)
        found[0].stop()
        with pytest.raises(StoppedError):
            waiting.result(60.0)


def test_stopping_wakes_who_idles_and_nothing_begins_after_it(tmp_path: Path) -> None:
    with nodes(tmp_path, 2) as found, ThreadPoolExecutor(2) as pool:
        view, same = agreed(pool, found)
        assert view == same
        idle = pool.submit(found[0].idle, view, 0, lambda: False)
        found[0].stop()
        with pytest.raises(Cancelled):
            idle.result(60.0)
        with pytest.raises(StoppedError), found[0].epoch(view, 0):
            pass


def test_who_idles_is_woken_by_a_wish_of_its_own_or_a_neighbours_next_task(tmp_path: Path) -> None:
    with nodes(tmp_path, 2) as found, ThreadPoolExecutor(2) as pool:
        view, _ = agreed(pool, found)
        wanted: list[bool] = []
        idle = pool.submit(found[0].idle, view, 0, lambda: bool(wanted))
        wanted.append(True)
        found[0].wake()
        idle.result(60.0)
        idle = pool.submit(found[0].idle, view, 0, lambda: False)
        with found[1].epoch(view, 0):  # its hellos say so
            idle.result(60.0)


def test_a_view_that_is_over_here_is_over_for_all(tmp_path: Path) -> None:
    """One abandons it: both are told, and both agree on the next one."""
    with nodes(tmp_path, 2) as found, ThreadPoolExecutor(2) as pool:
        view, _ = agreed(pool, found)
        idle = pool.submit(found[1].idle, view, 0, lambda: False)
        found[0].abandon("anything")
        with pytest.raises(EpochOverError):
            idle.result(60.0)
        until(lambda: found[0].view is None)
        again, same = agreed(pool, found)
        assert again == same
        assert again.members == view.members
        assert again.id != view.id


def test_stopping_needs_no_monitor(tmp_path: Path) -> None:
    """An agent whose peer monitor has failed is stopped by its owner all the same."""
    with nodes(tmp_path, 2) as found, ThreadPoolExecutor(2) as pool:
        view = agreed(pool, found)[0]
        with found[0].epoch(view, 1) as network:
            blocked = pool.submit(network.exchange, np.zeros((1, 1)), "statistics")
            found[0].monitor.close()
            found[0]._monitoring.join(60.0)
            found[0].stop()
            with pytest.raises(Cancelled):
                blocked.result(60.0)
