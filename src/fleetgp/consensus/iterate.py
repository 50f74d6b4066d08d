"""The driver of a recursion over neighbours: it owns rounds, stopping and history; a rule owns only its step.

A rule says what an agent sends and how it updates from what it hears. `batch` does the same for many
recursions at once, which end one by one.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus.stopping import Maximin, Status, Verdict, Watch
from fleetgp.network import Incoming, Network

State = TypeVar("State")


class NeighbourRule(abc.ABC, Generic[State]):
    """A recursion over neighbours: state <- update(state, neighbours' messages)."""

    kind: str

    @abc.abstractmethod
    def message(self, state: State) -> Array:
        """What each hosted agent sends, (A, ...)."""

    @abc.abstractmethod
    def update(self, state: State, received: Array, incoming: Incoming) -> State:
        """The next state from the messages on the incoming edges, (E, ...)."""

    @abc.abstractmethod
    def watch(self, state: State) -> Watch:
        """What the stopping rule judges."""

    def learn(self, state: State, largest: Array) -> State:
        """Take in the fleet's maxima of `Watch.largest`, which all agents get in the same round."""
        return state


@dataclass(frozen=True)
class Outcome(Generic[State]):
    """Where an iteration ended, and the truth about why.

    residual is the last verdict's, (...); infinite when none was reached, NaN when something diverged.
    """

    state: State
    rounds: int
    status: Status
    residual: Array


def iterate(
    rule: NeighbourRule[State],
    state: State,
    network: Network,
    *,
    rounds: int,
    stopping: Maximin | None = None,
    record: Callable[[int, State], None] | None = None,
) -> Outcome[State]:
    """Run a neighbour rule for at most `rounds` rounds; without `stopping`, for exactly as many.

    A verdict is about the state at the start of its window. Where it says converged, that state is returned:
    a recursion need not shrink in every round, and a later state may be worse than what was judged.
    """
    verdict: Verdict | None = None
    judged = state
    if stopping is not None:
        stopping.open(rule.watch(state))
    for done in range(1, rounds + 1):
        incoming = network.incoming
        parts = {rule.kind: rule.message(state)}
        if stopping is not None:
            parts["stopping"] = stopping.carried
        received = network.exchange_parts(parts)
        with np.errstate(over="ignore", invalid="ignore"):  # whoever overflows is judged, not warned about
            state = rule.update(state, received[rule.kind], incoming)
        if record is not None:
            record(done, state)
        if stopping is None:
            continue
        latest = stopping.hear(incoming.reduce(np.maximum, received["stopping"], -np.inf))
        if latest is not None:
            verdict = latest
            if verdict.converged.all():
                return _outcome(judged, done, verdict)
            if verdict.diverged.any():
                return _outcome(state, done, verdict)
            if verdict.largest is not None:
                state = rule.learn(state, verdict.largest[0])  # every hosted agent holds the same maxima
            judged = state
            stopping.open(rule.watch(state))
    return _outcome(state, rounds, verdict)


def _outcome(state: State, rounds: int, verdict: Verdict | None) -> Outcome[State]:
    if verdict is None:
        return Outcome(state, rounds, "round limit", np.array(np.inf))
    status: Status = "round limit"
    if verdict.diverged.any():
        status = "diverged"
    elif verdict.converged.all():
        status = "converged"
    return Outcome(state, rounds, status, verdict.residual[0])
