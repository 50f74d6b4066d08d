"""What follows a start of a training: every method has a solver."""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus import Outcome, Verdict
from fleetgp.consensus.iterate import Recursion
from fleetgp.training.objective import Local


class SolverState(Protocol):
    """What a solver needs to continue. Every one has where the hosted agents stand."""

    @property
    def local(self) -> Local: ...


State = TypeVar("State", bound=SolverState)


class Solver(abc.ABC, Generic[State]):
    """Follows a start of a training to its end. A state is never changed in place.

    It is a `Minimizer` or a `StepwiseSolver`.
    """

    @abc.abstractmethod
    def begin(self, x: Array) -> State:
        """The state before the first round, from a start: log theta, (A, P)."""


class Minimizer(Solver[State]):
    """One without single steps."""

    @abc.abstractmethod
    def run(self, state: State, *, rounds: int, tol: float, record: Callable[[int, State], None]) -> Outcome[State]:
        """To a tolerance in log theta; with tol = 0 for exactly `rounds` rounds. record: called after each of them."""


class Rounds(Recursion[Any], Protocol):
    """The rounds of a solver, for `drive`."""

    def start(self, state: Any) -> Any: ...


class StepwiseSolver(Solver[State]):
    """One that goes round by round, so that a caller can take one step of it."""

    @abc.abstractmethod
    def rounds(self, tol: float) -> Rounds:
        """Its rounds, judged to a tolerance; with tol = 0 never converged."""

    @abc.abstractmethod
    def state_of(self, running: Any) -> State:
        """Its own state in what the driver steps."""

    def ended(self, state: State, tol: float) -> Outcome[State] | None:
        """How it has ended already, if it has."""
        return None

    def outcome(self, running: Any, done: int, verdict: Verdict | None) -> Outcome[State]:
        """How its rounds ended, from what the driver returns."""
        outcome = Outcome.of(self.state_of(running), done, verdict)
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

    def rounds(self, tol: float) -> Rounds:
        return JudgedRounds(self, tol)

    def state_of(self, running: State) -> State:
        return running


class JudgedRounds:
    """The rounds of a `RoundSolver`: what the driver steps is the solver's own state."""

    def __init__(self, solver: RoundSolver[Any], tol: float) -> None:
        self.step = partial(solver.step, tol=tol)
        self.ends = solver.ends

    def start(self, state: Any) -> Any:
        return state
