"""The conformance suite, second part: how a network ends, and that nobody waits for ever.

`check_ends`: close, double close, cancellation, wake-up, wrong use, nonsense. Rounds must have a long deadline.
`check_lost_neighbour`: a neighbour that falls silent is named, and no round goes on without it. The deadline is short.
`run` is that of `testing`; every call must open another fleet. Where its groups are processes, `semaphore` must make
one of value 0 that works between them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from fleetgp.arrays import Array
from fleetgp.errors import Cancelled, FleetGPError, NeighbourLostError, NetworkError, NonsenseError
from fleetgp.graph import Topology
from fleetgp.network.base import Network
from fleetgp.network.testing import Run

#: Seconds that nothing here takes, on any machine: only a hang is longer.
LONG = 120.0


def _of_threads() -> threading.Semaphore:
    return threading.Semaphore(0)


def check_ends(run: Run, topology: Topology, semaphore: Callable[[], Any] = _of_threads) -> None:
    """Whatever ends a network, it stays ended, and whoever waits is woken."""
    run(_check_wrong_use_and_close)
    run(_check_cancelled)
    beside = Beside(run, topology, semaphore)
    _check_wakes(beside, lambda network: network.close(), NetworkError, "closed")
    _check_wakes(beside, lambda network: network.cancel(Cancelled("enough")), Cancelled, "enough")
    _check_names_sender(run, topology, _send_nonsense)
    _check_names_sender(run, topology, _send_in_another_phase)


def check_lost_neighbour(run: Run, topology: Topology, semaphore: Callable[[], Any] = _of_threads) -> None:
    """A group falls silent in the middle of a round."""
    outcomes = Beside(run, topology, semaphore).a_silent_group(_lose)
    silent = set(range(topology.agents)) - {agent for hosted, _ in outcomes for agent in hosted}
    for hosted, lost in outcomes:
        near = {j for i in hosted for j in topology.union.neighbours(i)} - set(hosted)
        missing = {j for i in hosted for j in topology.at(0).neighbours(i)} & silent
        assert missing <= set(lost) <= near, f"agents {hosted} blame {lost}, not {sorted(missing)}"


# ---- the end of one network -----------------------------------------------------------------------------------


def _raised(verb: Callable[[], Any]) -> BaseException | None:
    try:
        verb()
    except BaseException as error:
        return error
    return None


def _round(network: Network) -> Array:
    return network.neighbour_sum(np.ones(len(network.hosted)), "statistics")


def _flood(network: Network) -> list[Array]:
    return network.flood(np.ones(len(network.hosted)), "statistics")


def _check_over(network: Network, kind: type[BaseException], why: str) -> None:
    """Every verb raises, at once and as often as it is called; what was booked stays."""
    before = network.round, network.ledger.as_dict()
    for error in (_raised(lambda: _round(network)), _raised(lambda: _flood(network)), _raised(lambda: _round(network))):
        assert isinstance(error, kind), f"expected {kind.__name__}, got {error!r}"
        assert why in str(error), f"expected {why!r}, got {str(error)!r}"
    assert (network.round, network.ledger.as_dict()) == before, "a network that is over counts on"


def _check_wrong_use_and_close(network: Network) -> None:
    count, neighbours = len(network.hosted), network.incoming.degrees
    for wrong in (
        lambda: network.exchange(np.zeros(count), "secrets"),
        lambda: network.exchange(np.zeros(count + 1), "statistics"),
        lambda: network.flood([np.zeros(1)] * (count + 1), "statistics"),
    ):
        assert isinstance(_raised(wrong), FleetGPError), "wrong use is not refused"
    assert (network.round, network.ledger.messages) == (0, 0), "wrong use counts as a round"
    assert np.array_equal(_round(network), neighbours), "there is no right round after wrong use"
    with network:
        pass
    network.close()
    _check_over(network, NetworkError, "closed")
    network.cancel(Cancelled("too late"))
    _check_over(network, NetworkError, "closed")


def _check_cancelled(network: Network) -> None:
    _round(network)
    network.cancel(Cancelled("enough"))
    network.close()
    _check_over(network, Cancelled, "enough")


# ---- a group that says nothing ----------------------------------------------------------------------------------


class Beside:
    """Runs work at all groups but one."""

    def __init__(self, run: Run, topology: Topology, semaphore: Callable[[], Any]) -> None:
        self._run, self._agents, self._semaphore = run, topology.agents, semaphore

    def a_silent_group(self, work: Callable[[Network], Any]) -> list[tuple[Any, Any]]:
        """work(network) at every group but agent 0's, which takes no part and leaves last; (hosted, result) of each."""
        finished, agents = self._semaphore(), self._agents

        def one(network: Network) -> Any:
            if 0 in network.hosted:
                for _ in range(agents - len(network.hosted)):
                    assert finished.acquire(timeout=LONG), "some group neither finished nor failed"
                return None
            try:
                return network.hosted, work(network)
            finally:
                finished.release(len(network.hosted))

        return [found for found in self._run(one) if found is not None]


def _rounds(network: Network) -> None:
    """As many as it takes until everybody has noticed that somebody is silent."""
    for _ in range(network.agents * network.topology.period):
        _round(network)


def _lose(network: Network) -> tuple[int, ...]:
    error = _raised(lambda: _rounds(network))
    assert isinstance(error, NeighbourLostError), f"expected NeighbourLostError, got {error!r}"
    _check_over(network, NetworkError, "an earlier round failed")
    return error.neighbours


def _check_wakes(beside: Beside, end: Callable[[Network], None], kind: type[BaseException], why: str) -> None:
    """Another thread ends a network whose verb waits."""

    def work(network: Network) -> BaseException | None:
        finished = threading.Event()

        def watch() -> None:
            while not network.waiting_for and not finished.wait(0.001):
                pass
            end(network)

        watcher = threading.Thread(target=watch)
        watcher.start()
        error = _raised(lambda: _rounds(network))
        finished.set()
        watcher.join(LONG)
        _check_over(network, kind, why)
        return error

    for hosted, error in beside.a_silent_group(work):
        assert isinstance(error, kind), f"agents {hosted}: expected {kind.__name__}, got {error!r}"
        assert why in str(error), f"agents {hosted}: expected {why!r}, got {str(error)!r}"


# ---- a group that nobody can work with --------------------------------------------------------------------------


def _send_nonsense(network: Network) -> None:
    network.exchange(np.full((len(network.hosted), 1), np.nan if 0 in network.hosted else 0.0), "hyperparameters")


def _send_in_another_phase(network: Network) -> None:
    with network.phase("one" if 0 in network.hosted else "another"):
        _round(network)


def _check_names_sender(run: Run, topology: Topology, work: Callable[[Network], None]) -> None:
    """Agent 0's group sends what nobody can work with: those who get it name the sender, and stop."""

    def one(network: Network) -> tuple[tuple[int, ...], BaseException | None]:
        error = _raised(lambda: work(network))
        if error is not None:
            _check_over(network, NetworkError, "an earlier round failed")
        return network.hosted, error

    outcomes = run(one)
    culprits = next(set(hosted) for hosted, _ in outcomes if 0 in hosted)
    for hosted, error in outcomes:
        senders = {j for i in hosted for j in topology.at(0).neighbours(i)} & culprits
        if senders and 0 not in hosted:
            assert isinstance(error, NonsenseError), f"agents {hosted}: expected NonsenseError, got {error!r}"
            assert error.sender in senders, f"agents {hosted} blame {error.sender}, not one of {sorted(senders)}"
