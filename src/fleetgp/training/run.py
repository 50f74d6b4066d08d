"""One start of a training: it can be followed to a coarse tolerance first and taken up again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus import Outcome, Status
from fleetgp.training.admm import Admm
from fleetgp.training.fit import Start
from fleetgp.training.flat import tried
from fleetgp.training.options import TrainingOptions
from fleetgp.training.primal import Local
from fleetgp.training.problem import Setting
from fleetgp.training.starts import best_start

#: With several starts, each is first followed to this many times the tolerance, then the best one to its end; but
#: never to a looser one than this, at which likelihoods of starts can be compared.
COARSE = 100.0
LOOSEST = 1e-3
#: A jump to a limit may raise the fleet's likelihood by this, in nats.
NO_LOSS = 1e-3

#: report(start, round, thetas, chosen): theta in the units of the data; chosen once the fleet has decided for a start.
Report = Callable[[int, int, Array, bool], None]


class HasLocal(Protocol):
    @property
    def local(self) -> Local: ...


State = TypeVar("State", bound=HasLocal)


class Runner(Protocol[State]):
    """What follows a start: `Admm`, `TreeNewton` or `CentralMinimizer`."""

    def begin(self, x: Array) -> State: ...

    def run(self, state: State, *, rounds: int, tol: float, record: Callable[[int, State], None]) -> Outcome[State]: ...


class Run(Generic[State]):
    """Where a start has come to. history: log theta after every round.  jitter: (A,) the largest so far.

    With a history it goes on from where that one ended.
    """

    def __init__(
        self,
        setting: Setting,
        runner: Runner[State],
        number: int,
        report: Report | None,
        history: Sequence[Array] | None = None,
    ) -> None:
        self.setting, self.runner, self.number, self.report = setting, runner, number, report
        self.chosen = len(setting.starts) == 1
        self.history = [setting.start(number)] if history is None else list(history)
        self.jitter = np.zeros(len(self.history[0]))
        self._outcome: Outcome[State] | None = None
        self._tol = np.inf  # that of the last judgement

    def go(self, rounds: int, tol: float) -> None:
        """Follow it to a tolerance, unless it has diverged or used up its rounds or its time."""
        before, done = self._outcome, len(self.history) - 1
        if before is not None and before.status == "converged" and tol < self._tol and done >= rounds:
            before = self._outcome = replace(before, status="round limit")  # what was judged is not what is asked
        over = before is not None and before.status in ("diverged", "time limit")
        if before is not None and (over or tol >= self._tol or done >= rounds):
            return
        self._tol = tol
        state = self._begun() if before is None else before.state
        self._outcome = self.runner.run(state, rounds=rounds - done, tol=tol, record=self._record)

    def finish(self, rounds: int, tol: float) -> None:
        """Follow it to its end. By ADMM to a coarse tolerance first: it would crawl along a flat direction, of which
        the limit is as good. What has come to such a direction goes to its limit, and stays there.
        """
        if isinstance(self.runner, Admm) and tol > 0.0:
            self.go(rounds, coarse(tol))
            trial = tried(self.setting, self)
            jumps = np.zeros(0, dtype=bool) if trial is None else trial.gains >= -NO_LOSS
            if trial is not None and jumps.any() and self._outcome is not None:
                self.runner = self.runner.pinned(trial.numbers[jumps], trial.limits[jumps])
                state = self.runner.moved(self._outcome.state, trial.numbers[jumps], trial.limits[jumps])
                self._outcome, self._tol = replace(self._outcome, state=state), np.inf
        self.go(rounds, tol)

    @property
    def begun(self) -> bool:
        return self._outcome is not None

    @property
    def outcome(self) -> Outcome[State]:
        """How it ended, of rounds that count from the start."""
        assert self._outcome is not None, "go first"
        return replace(self._outcome, rounds=len(self.history) - 1)

    @property
    def nll(self) -> Array:
        """(A,) what was minimized, with the priors' penalty: by it starts are compared. Infinite if it diverged."""
        return self._unless_diverged(self.outcome.state.local.values.nll)

    @property
    def likelihood(self) -> Array:
        """(A,) the same without the penalty."""
        return self._unless_diverged(self.outcome.state.local.values.likelihood)

    def _unless_diverged(self, nll: Array) -> Array:
        return np.full_like(nll, np.inf) if self.outcome.status == "diverged" else nll

    @property
    def summary(self) -> Start:
        theta0 = self.setting.thetas(self.history[0][0])
        return Start(theta0, float(self.likelihood.sum()), self.outcome.rounds, self.outcome.status)

    def settle(self, x: Array, status: Status) -> None:
        """Take what the fleet has agreed on, (A, P), for where it has come to, and for how it ended."""
        assert self._outcome is not None, "go first"
        self.history[-1] = x
        self._outcome = replace(self._outcome, status=status)

    def _begun(self) -> State:
        state = self.runner.begin(self.history[-1])
        self.jitter = state.local.values.jitter
        return state

    def _record(self, _: int, state: State) -> None:
        self.history.append(state.local.x)
        self.jitter = np.maximum(self.jitter, state.local.values.jitter)
        if self.report is not None:
            self.report(self.number, len(self.history) - 1, self.setting.thetas(state.local.x), self.chosen)


def coarse(tol: float) -> float:
    """The tolerance to which a start is followed first."""
    return min(tol * COARSE, LOOSEST)


def follow(setting: Setting, runs: Sequence[Run[Any]], options: TrainingOptions) -> int:
    """Follow all starts, and the best one to its end; which one that is."""
    with setting.network.phase("training"):
        best = choose(setting, runs, options.rounds, options.tol) if len(runs) > 1 else 0
        runs[best].chosen = True
        runs[best].finish(options.rounds, options.tol)
    return best


def choose(setting: Setting, runs: Sequence[Run[Any]], rounds: int, tol: float) -> int:
    """Follow all starts to where their likelihoods can be compared, or as many as there is time for; the best one."""
    for run in runs:
        run.go(rounds, coarse(tol))
        if run.outcome.status == "time limit":
            break
    with setting.network.phase("choice"):
        best, _ = best_start(setting.reduction, np.stack([run.nll for run in runs if run.begun], axis=1))
    return best
