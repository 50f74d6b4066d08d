"""One start of a training, the result of the best one, and whether it ended where the likelihood is flat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.consensus import Outcome, Status, drive
from fleetgp.training.admm import Admm
from fleetgp.training.fit import Fit, MeanFit, Start
from fleetgp.training.problem import TrainingProblem, best_start
from fleetgp.training.solver import Minimizer, Solver, State, StepwiseSolver

#: With several starts, each is first followed to this many times the tolerance, then the best one to its end; but
#: never to a looser one than this, at which likelihoods of starts can be compared.
COARSE = 100.0
LOOSEST = 1e-3
#: A jump to a limit may raise the fleet's likelihood by this, in nats.
NO_LOSS = 1e-3

#: As close to its limit as this, in log theta, a hyperparameter may stand in a flat direction.
NEAR = np.log(100.0)
#: Along a flat direction, the likelihood changes by less than this, in nats.
NEGLIGIBLE = 0.05
#: Between its limit and this far from it, in log theta, a flat likelihood does not change either.
BACK = np.log(3.0)
#: As close as this, in log theta, is at a limit.
AT = 1e-6
#: In place of an infinite likelihood, so that sums stay finite.
INFINITE = 1e300


#: report(start, round, thetas, chosen): theta in the units of the data; chosen once the fleet has decided for a start.
Report = Callable[[int, int, Array, bool], None]


class Run(Generic[State]):
    """Where a start has come to. history: log theta after every round.  jitter: (A,) the largest so far.

    With a history it continues where that one ended.
    """

    def __init__(
        self,
        problem: TrainingProblem,
        solver: Solver[State],
        number: int,
        report: Report | None,
        history: Sequence[Array] | None = None,
    ) -> None:
        self.problem, self.solver, self.number, self.report = problem, solver, number, report
        self.chosen = len(problem.starts) == 1
        self.history = [problem.start(number)] if history is None else list(history)
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
        self._tol, solver, left = tol, self.solver, rounds - done
        if before is None:
            state = solver.begin(self.history[-1])
            self.jitter = state.local.values.jitter
        else:
            state = before.state
        if isinstance(solver, Minimizer):
            self._outcome = solver.run(state, rounds=left, tol=tol, record=self._record)
            return
        assert isinstance(solver, StepwiseSolver)
        self._outcome = solver.ended(state, tol)
        if self._outcome is None:
            recursion, own = solver.rounds(tol), solver.state_of
            end = drive(recursion, recursion.start(state), left, lambda done, running: self._record(done, own(running)))
            self._outcome = solver.outcome(*end)

    def finish(self, rounds: int, tol: float) -> None:
        """It is chosen: follow it to its end.

        By ADMM to a coarse tolerance first: it would crawl along a flat direction, of which the limit is as good. What
        has come to such a direction goes to its limit, and stays there.
        """
        self.chosen = True
        if isinstance(self.solver, Admm) and tol > 0.0:
            self.go(rounds, coarse(tol))
            trial = tried(self.problem, self.outcome)
            jumps = np.zeros(0, dtype=bool) if trial is None else trial.gains >= -NO_LOSS
            if trial is not None and jumps.any() and self._outcome is not None:
                self.solver = self.solver.pinned(trial.numbers[jumps], trial.limits[jumps])
                state = self.solver.moved(self._outcome.state, trial.numbers[jumps], trial.limits[jumps])
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
        theta0 = self.problem.thetas(self.history[0][0])
        return Start(theta0, float(self.likelihood.sum()), self.outcome.rounds, self.outcome.status)

    def settle(self, x: Array, status: Status) -> None:
        """Take what the fleet has agreed on, (A, P), for where it has come to, and for how it ended."""
        assert self._outcome is not None, "go first"
        self.history[-1] = x
        self._outcome = replace(self._outcome, status=status)

    def _record(self, _: int, state: State) -> None:
        self.history.append(state.local.x)
        self.jitter = np.maximum(self.jitter, state.local.values.jitter)
        if self.report is not None:
            self.report(self.number, len(self.history) - 1, self.problem.thetas(state.local.x), self.chosen)


def coarse(tol: float) -> float:
    return min(tol * COARSE, LOOSEST)


def best_run(problem: TrainingProblem, runs: Sequence[Run[Any]]) -> int:
    """The number of the run that the fleet chooses, of those that there was time for."""
    with problem.network.phase("choice"):
        best, _ = best_start(problem.reduction, np.stack([run.nll for run in runs if run.begun], axis=1))
    return best


def sizes_of(problem: TrainingProblem) -> IntArray:
    """(A,) of how many observations the likelihoods are."""
    return np.broadcast_to(problem.objective.sizes, len(problem.network.hosted))


def fit_of(problem: TrainingProblem, runs: Sequence[Run[Any]], chosen: Run[Any], mean: MeanFit | None) -> Fit:
    hosted = len(problem.network.hosted)
    outcome = chosen.outcome
    history = problem.thetas(np.stack(chosen.history))
    if problem.method.one_expert:
        history = np.broadcast_to(history, (len(history), hosted, history.shape[-1]))
    if problem.method.meet == "pool":
        with problem.network.phase("pool"):
            problem.network.scatter(history[-1, 0], "hyperparameters")
            if mean is not None:
                problem.network.scatter(mean.coefficients, "statistics")
    flat, stopped = flat_and_stopped(problem, outcome)
    return Fit(
        method=problem.method.name,
        thetas=history[-1],
        history=history,
        rounds=outcome.rounds,
        status=with_mean(outcome.status, mean),
        residual=float(outcome.residual),
        nll=float(chosen.likelihood.sum()),
        jitter=np.broadcast_to(chosen.jitter, hosted),
        rho=getattr(outcome.state, "rho", np.empty(0)),
        starts=tuple(run.summary for run in runs if run.begun),
        scaling=problem.scaling,
        mean=mean,
        engine=tuple(np.broadcast_to(outcome.state.local.values.engine, hosted).tolist()),
        ledger=problem.network.ledger,
        noise_floor=problem.floor * problem.scaling.scale,
        known=problem.known,
        used=sizes_of(problem),
        nlls=chosen.likelihood,
        start_nlls=np.stack([run.likelihood for run in runs if run.begun]),
        noises=problem.kernel.noise_count,
        kernel=problem.kernel.name,
        offset=problem.offset,
        flat_numbers=flat,
        stopped_numbers=stopped,
    )


def with_mean(status: Status, mean: MeanFit | None) -> Status:
    """How a training ended: theta may be at its best for a mean function that is not."""
    return "round limit" if mean is not None and not mean.settled and status == "converged" else status


# ---- flat directions ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Trial:
    """The fleet's likelihood where a search ended, and with one hyperparameter at a time elsewhere.

    numbers: of the hyperparameters that have come near their limits, (K,).  limits: of these, (K,).
    gains: (K,) by how much the likelihood is smaller at the limit.  changes: (K,) by how much it changes close to it.
    at: (K,) whether they stand there already.
    """

    numbers: IntArray
    limits: Array
    gains: Array
    changes: Array
    at: BoolArray


def tried(problem: TrainingProblem, outcome: Outcome[Any]) -> Trial | None:
    """What there is beyond, of a search that converged; None if nothing has come near a limit.

    All agents ask the same, since they know the same point, and conclude the same from the same sums. Nothing is sent
    unless a hyperparameter has come near its limit.
    """
    limits = problem.limits
    if outcome.status != "converged" or outcome.agreed is None or not limits.given.any():
        return None
    low, high = (np.broadcast_to(end, outcome.agreed.shape) for end in (limits.lower, limits.upper))
    above = outcome.agreed >= high - np.where(low > -np.inf, AT, NEAR)  # a large sigma_f is not flat before its end
    numbers = np.flatnonzero(above | (outcome.agreed <= low + NEAR))
    if not len(numbers):
        return None
    ends = np.where(above, high, low)[numbers]
    backs = ends + np.where(above[numbers], -BACK, BACK)
    own = outcome.state.local.x
    places = np.tile(own, (2, len(numbers), 1, 1))
    for k, number in enumerate(numbers):
        places[0, k, :, number], places[1, k, :, number] = ends[k], backs[k]
    values = problem.objective(places.reshape(-1, own.shape[1]), np.tile(np.arange(len(own)), 2 * len(numbers)))
    nlls = np.column_stack([outcome.state.local.values.nll, values.nll.reshape(-1, len(own)).T])
    with problem.network.phase("flat"):
        totals = problem.reduction.total(np.where(np.isfinite(nlls), nlls, INFINITE))
    there, back = totals[1:].reshape(2, -1)
    at = np.abs(outcome.agreed[numbers] - ends) <= AT
    return Trial(numbers, ends, totals[0] - there, np.abs(there - back), np.asarray(at))


def flat_and_stopped(problem: TrainingProblem, outcome: Outcome[Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The numbers of the hyperparameters along which the likelihood is flat where a search ended, and of those that
    stand at their limit though it is not.
    """
    trial = tried(problem, outcome)
    if trial is None:
        return (), ()
    flat = (trial.gains >= -NEGLIGIBLE) & (trial.changes <= NEGLIGIBLE)
    return tuple(trial.numbers[flat].tolist()), tuple(trial.numbers[~flat & trial.at].tolist())
