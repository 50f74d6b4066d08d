"""What the ADMM trainers share: they go round by round, so that a caller can step them too."""

from __future__ import annotations

import abc
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Generic, Protocol, Self, TypeVar

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.consensus import Outcome, Running, Verdict, drive
from fleetgp.training.primal import Local, Primal


class AdmmState(Protocol):
    """What an ADMM recursion needs, of which every one has this."""

    @property
    def local(self) -> Local: ...

    @property
    def rho(self) -> Array: ...


State = TypeVar("State", bound=AdmmState)


class Rounds(Protocol[State]):
    """The rounds of a training: a `Recursion` over states that are watched."""

    def start(self, state: State) -> Running[State]: ...

    def step(self, running: Running[State]) -> tuple[Running[State], Verdict | None]: ...

    def ends(self, running: Running[State], verdict: Verdict) -> bool: ...


class Admm(abc.ABC, Generic[State]):
    """A trainer by ADMM on x = log theta."""

    primal: Primal

    @abc.abstractmethod
    def begin(self, x: Array) -> State:
        """The state before the first round, from a start (A, P)."""

    @abc.abstractmethod
    def rounds(self, tol: float) -> Rounds[State]:
        """Its rounds, judged to a tolerance; with tol = 0 never converged."""

    @abc.abstractmethod
    def moved(self, state: State, numbers: IntArray, values: Array) -> State:
        """With some hyperparameters of all agents at these values, where every likelihood is flat along them."""

    def pinned(self, numbers: IntArray, values: Array) -> Self:
        """A trainer like this one that leaves some hyperparameters at these values."""
        found = copy(self)
        found.primal = copy(self.primal)
        found.primal.bounds = self.primal.bounds.pinned(numbers, values)
        return found

    def run(self, state: State, *, rounds: int, tol: float, record: Callable[[int, State], None]) -> Outcome[State]:
        """Iterate to agreement and stationarity within tol; with tol = 0 for exactly `rounds` rounds."""
        recursion = self.rounds(tol)
        running, done, verdict = drive(
            recursion, recursion.start(state), rounds, lambda done, running: record(done, running.state)
        )
        outcome = Outcome.of(running.state, done, verdict)
        broken = not np.isfinite(outcome.state.local.values.nll).all()
        return replace(outcome, status="diverged") if broken else outcome
