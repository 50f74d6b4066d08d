"""What follows a start of a training: every method has a solver."""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus import UNWATCHED, Outcome, Running, Verdict, drive
from fleetgp.training.objective import Local


class SolverState(Protocol):
    """What a solver needs to continue. Every one has where the hosted agents stand."""

    @property
    def local(self) -> Local: ...


State = TypeVar("State", bound=SolverState)


class Solver(abc.ABC, Generic[State]):
    """Follows a start of a training to its end. A state is never changed in place."""

    @abc.abstractmethod
    def begin(self, x: Array) -> State:
        """The state before the first round, from a start: log theta, (A, P)."""

    @abc.abstractmethod
    def run(self, state: State, *, rounds: int, tol: float, record: Callable[[int, State], None]) -> Outcome[State]:
        """To a tolerance in log theta; with tol = 0 for exactly `rounds` rounds. record: called after each of them."""


class Rounds(Protocol[State]):
    """The rounds of a solver: a `Recursion` over states that are watched."""

    def start(self, state: State) -> Running[State]: ...

    def step(self, running: Running[State]) -> tuple[Running[State], Verdict | None]: ...

    def ends(self, running: Running[State], verdict: Verdict) -> bool: ...


class StepwiseSolver(Solver[State]):
    """One that goes round by round, so that a caller can take one step of it."""

    @abc.abstractmethod
    def rounds(self, tol: float) -> Rounds[State]:
        """Its rounds, judged to a tolerance; with tol = 0 never converged."""

    def ended(self, state: State, tol: float) -> Outcome[State] | None:
        """How it has ended already, if it has."""
        return None

    def run(self, state: State, *, rounds: int, tol: float, record: Callable[[int, State], None]) -> Outcome[State]:
        before = self.ended(state, tol)
        if before is not None:
            return before
        recursion = self.rounds(tol)
        running, done, verdict = drive(
            recursion, recursion.start(state), rounds, lambda done, running: record(done, running.state)
        )
        outcome = Outcome.of(running.state, done, verdict)
        broken = not np.isfinite(outcome.state.local.values.nll).all()
        return replace(outcome, status="diverged") if broken else outcome


class RoundSolver(StepwiseSolver[State]):
    """One of which every round is judged, by numbers that all agents have."""

    @abc.abstractmethod
    def step(self, state: State, tol: float) -> tuple[State, Verdict]:
        """One round, and the verdict about it: the same at every agent."""

    def ends(self, state: State, verdict: Verdict) -> bool:
        """Whether a verdict ends the rounds."""
        return verdict.status != "round limit"

    def rounds(self, tol: float) -> JudgedRounds[State]:
        return JudgedRounds(self, tol)


class JudgedRounds(Generic[State]):
    """The rounds of a `RoundSolver`."""

    def __init__(self, solver: RoundSolver[State], tol: float) -> None:
        self.solver, self.tol = solver, tol

    def start(self, state: State) -> Running[State]:
        return Running(state, state, UNWATCHED)

    def step(self, running: Running[State]) -> tuple[Running[State], Verdict]:
        state, verdict = self.solver.step(running.state, self.tol)
        return self.start(state), verdict

    def ends(self, running: Running[State], verdict: Verdict) -> bool:
        return self.solver.ends(running.state, verdict)
