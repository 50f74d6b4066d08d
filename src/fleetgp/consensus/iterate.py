"""The one driver: it owns rounds, stopping and history; a rule owns only its step.

A rule says what an agent sends and how it updates from what it hears. A rule that `reaches` its neighbours
takes one round per iteration, one that reaches everyone a flood of diam(G) rounds.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus.stopping import Maximin, Settled, Status, Verdict, Watch
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


class FloodRule(abc.ABC, Generic[State]):
    """A recursion that needs everyone's value: state <- update(state, all messages)."""

    kind: str

    @abc.abstractmethod
    def message(self, state: State) -> Array:
        """What each hosted agent sends, (A, ...)."""

    @abc.abstractmethod
    def update(self, state: State, everyone: Array) -> State:
        """The next state from all messages, (M, ...)."""

    @abc.abstractmethod
    def settling(self, everyone: Array) -> Array:
        """What must settle, (M, ..., K), as a function of all messages."""


@dataclass(frozen=True)
class Outcome(Generic[State]):
    """Where an iteration ended, and the truth about why.

    rounds counts iterations (a flooded one takes diam(G) rounds of communication, which the ledger has).
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
    """Run a neighbour rule for at most `rounds` rounds; without `stopping`, for exactly as many."""
    verdict: Verdict | None = None
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
            if verdict.converged.all() or verdict.diverged.any():
                return _outcome(state, done, verdict)
            if verdict.largest is not None:
                state = rule.learn(state, verdict.largest)
            stopping.open(rule.watch(state))
    return _outcome(state, rounds, verdict)


def iterate_flooded(
    rule: FloodRule[State], state: State, network: Network, *, rounds: int, stopping: Settled | None = None
) -> Outcome[State]:
    """Run a flooded rule for at most `rounds` iterations; without `stopping`, for exactly as many."""
    verdict: Verdict | None = None
    for done in range(1, rounds + 1):
        everyone = np.stack(network.flood(rule.message(state), rule.kind))
        with np.errstate(over="ignore", invalid="ignore"):
            state = rule.update(state, everyone)
            if stopping is None:
                continue
            verdict = stopping.hear(rule.settling(everyone)) or verdict
        if verdict is not None and (verdict.converged.all() or verdict.diverged.any()):
            return _outcome(state, done, verdict)
    return _outcome(state, rounds, verdict)


def _outcome(state: State, rounds: int, verdict: Verdict | None) -> Outcome[State]:
    if verdict is None:
        return Outcome(state, rounds, "round limit", np.array(np.inf))
    status: Status = "round limit"
    if verdict.diverged.any():
        status = "diverged"
    elif verdict.converged.all():
        status = "converged"
    return Outcome(state, rounds, status, verdict.residual)
