"""The driver of recursions: it owns rounds and history; a recursion owns its step and when it is over.

`iterate` runs a rule over neighbours: what an agent sends, and how it updates from what it receives. Trainers are such
rules, or recursions of their own, so that a caller can take their rounds one by one; `batch` has loops for many
recursions at once. `WithInterludes` is for other work in the middle of a recursion: all agents pause in the same round,
and continue where they were.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus.stopping import UNWATCHED, Maximin, Status, Unwatched, Verdict, Watch, Window
from fleetgp.network import Incoming, Network

State = TypeVar("State")


class Recursion(Protocol[State]):
    """What the driver runs. A state is never changed in place."""

    def step(self, state: State) -> tuple[State, Verdict | None]:
        """One round on the network: the next state, and a verdict if one is due."""
        ...

    def ends(self, state: State, verdict: Verdict) -> bool:
        """Whether a verdict, and the state that came with it, end the recursion."""
        ...


def drive(
    recursion: Recursion[State],
    state: State,
    rounds: int,
    record: Callable[[int, State], None] | None = None,
) -> tuple[State, int, Verdict | None]:
    """Step until a verdict ends it, for at most `rounds` rounds: where it stands, after how many, the last verdict."""
    verdict: Verdict | None = None
    for done in range(1, rounds + 1):
        state, latest = recursion.step(state)
        if record is not None:
            record(done, state)
        if latest is not None:
            verdict = latest
            if recursion.ends(state, latest):
                return state, done, verdict
    return state, rounds, verdict


class NeighbourRule(abc.ABC, Generic[State]):
    """A recursion over neighbours: state <- update(state, neighbours' messages)."""

    kind: str

    @abc.abstractmethod
    def message(self, state: State) -> Array:
        """What each hosted agent sends, (A, ...)."""

    @abc.abstractmethod
    def update(self, state: State, received: Array, incoming: Incoming) -> State:
        """The next state from the messages on the incoming edges, (E, ...)."""

    def watch(self, state: State) -> Watch:
        """What the stopping rule judges; unless a rule says more, the messages must agree."""
        message = self.message(state)
        return Watch(message.reshape(len(message), -1))

    def learn(self, state: State, largest: Mapping[str, Array]) -> State:
        """Take in the fleet's maxima of `Watch.largest`, which all agents get in the same round."""
        return state


@dataclass(frozen=True)
class Running(Generic[State]):
    """A recursion between two rounds. judged: the state at the start of the window, which its verdict is about."""

    state: State
    judged: State
    window: Window | Unwatched


class OverNeighbours(Generic[State]):
    """A neighbour rule on a network, as the driver runs it and a caller can step it."""

    def __init__(self, rule: NeighbourRule[State], network: Network, stopping: Maximin | Unwatched) -> None:
        self.rule, self.network, self.stopping = rule, network, stopping

    def start(self, state: State) -> Running[State]:
        return Running(state, state, self.stopping.open(self.rule.watch(state)))

    def step(self, running: Running[State]) -> tuple[Running[State], Verdict | None]:
        """A verdict is about the state at the start of its window. Where it says converged, that state is returned:
        a recursion need not shrink in every round, and a later state may be worse than what was judged.
        """
        rule, incoming = self.rule, self.network.incoming
        received = self.network.exchange_parts({rule.kind: rule.message(running.state), **running.window.parts})
        with np.errstate(over="ignore", invalid="ignore"):  # an overflow is judged, not warned about
            state = rule.update(running.state, received[rule.kind], incoming)
        window = running.window.update(received, incoming)
        verdict = window.verdict
        if verdict is None:
            return Running(state, running.judged, window), None
        if verdict.status == "converged":
            state = running.judged
        elif verdict.status == "round limit":
            # Every hosted agent holds the same maxima.
            state = rule.learn(state, {name: values[0] for name, values in verdict.largest.items()})
        return Running(state, state, window.reopen(rule.watch(state))), verdict

    def ends(self, running: Running[State], verdict: Verdict) -> bool:
        return verdict.status != "round limit"


@dataclass(frozen=True)
class Outcome(Generic[State]):
    """Where an iteration ended, and the truth about why.

    residual is the last verdict's, (...); infinite when none was reached, NaN when something diverged.
    agreed: where it ended, to the tolerance, with the same bits at every agent; None where no agent knows that.
    """

    state: State
    rounds: int
    status: Status
    residual: Array
    agreed: Array | None = None

    @classmethod
    def of(cls, state: State, rounds: int, verdict: Verdict | None) -> Outcome[State]:
        if verdict is None:
            return cls(state, rounds, "round limit", np.array(np.inf))
        agreed = None if verdict.highest is None else verdict.highest[0]
        return cls(state, rounds, verdict.status, verdict.residual[0], agreed)


def iterate(
    rule: NeighbourRule[State],
    state: State,
    network: Network,
    *,
    rounds: int,
    stopping: Maximin | Unwatched = UNWATCHED,
) -> Outcome[State]:
    """Run a neighbour rule for at most `rounds` rounds; without `stopping`, for exactly as many."""
    recursion = OverNeighbours(rule, network, stopping)
    running, done, verdict = drive(recursion, recursion.start(state), rounds)
    return Outcome.of(running.state, done, verdict)


#: The name under which it travels.
WANTED = "interlude wanted"


class Interlude(Protocol):
    """Work that the agents may do between two rounds, together."""

    def wanted(self) -> bool:
        """Whether an agent hosted here wants it."""
        ...

    def play(self) -> None:
        """Do it; called at every agent after the same round."""
        ...


class WithInterludes(NeighbourRule[State]):
    """A rule whose agents pause at the end of a window in which one of them wants to.

    That somebody wants to is one more maximum in the messages about stopping, so it costs no round, and all agents know
    it in the same one.
    """

    def __init__(self, rule: NeighbourRule[State], interlude: Interlude) -> None:
        self.rule, self.interlude, self.kind = rule, interlude, rule.kind

    def message(self, state: State) -> Array:
        return self.rule.message(state)

    def update(self, state: State, received: Array, incoming: Incoming) -> State:
        return self.rule.update(state, received, incoming)

    def watch(self, state: State) -> Watch:
        watch = self.rule.watch(state)
        wanted = np.full((len(watch.agree), 1), float(self.interlude.wanted()))
        return replace(watch, largest={**watch.largest, WANTED: wanted})

    def learn(self, state: State, largest: Mapping[str, Array]) -> State:
        state = self.rule.learn(state, largest)
        if largest[WANTED][0] > 0.0:
            self.interlude.play()
        return state
