"""Other work in the middle of a recursion: all agents pause in the same round, and go on where they were."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus.iterate import NeighbourRule, State
from fleetgp.consensus.stopping import Watch
from fleetgp.network import Incoming

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
