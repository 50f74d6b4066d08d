"""Training from end to end, on the agents hosted here: prepare, run from every start, choose.

What goes in is translated into the coordinates of the model, what comes out into the units of the user.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus import Interlude, Running, Status, Verdict
from fleetgp.consensus.agreements import agree_on_coordinates
from fleetgp.consensus.reductions import of_fleet
from fleetgp.data.dataset import Dataset
from fleetgp.data.transforms import CoordinateRule, Coordinates
from fleetgp.engines.base import translate_theta_errors
from fleetgp.engines.expert import has_moments
from fleetgp.errors import InputError, NumericalError, shortened
from fleetgp.kernels.expression import Kernels
from fleetgp.kernels.stationary import Kernel
from fleetgp.network import Ledger, Network
from fleetgp.training.fit import Fit, MeanFit
from fleetgp.training.methods import TrainingMethod
from fleetgp.training.moments import MomentsTraining
from fleetgp.training.options import TrainingOptions
from fleetgp.training.outer_loops import (
    Correction,
    agree_on_correction,
    outliers_of,
    settle,
    trend_of,
    with_best_kernel,
)
from fleetgp.training.problem import TrainingProblem, prepare, sampled
from fleetgp.training.run import Report, Run, best_run, coarse, fit_of, sizes_of
from fleetgp.training.solver import Rounds, SolverState
from fleetgp.validation import check_whole


def train(
    method: TrainingMethod,
    shards: Dataset,
    network: Network,
    kernel: Kernel | Kernels,
    options: TrainingOptions,
    report: Report | None = None,
    interlude: Interlude | None = None,
) -> Fit:
    """Train the hosted agents, whose data are `shards` in the order of `network.hosted`.

    kernel: or several, of which the one that predicts best is trained.

    Options that the method does not have are ignored: a fleet that changes its method keeps its options.
    report(start, round, thetas, chosen) is called after every round, with theta in the units of the data; chosen once
    the fleet has decided for this start.
    interlude: what the agents may do in between, without a central node and where stopping is watched.
    """
    if isinstance(kernel, tuple):
        if len(kernel) > 1:
            return with_best_kernel(train, method, shards, network, kernel, options, report, interlude)
        (kernel,) = kernel
    if options.coordinates.name != "as-given":
        with network.phase("coordinates"):
            reduction = of_fleet(network, central=not method.decentralized)
            coordinates = agree_on_coordinates(reduction, shards, options.coordinates)
        shift = coordinates.shift(kernel.units(shards.dimension))
        # Of theta in the coordinates of the model.
        starts = None if options.starts is None else options.starts - shift
        known = None if options.known is None else options.known.rescaled(np.exp(-shift))
        inside = replace(options, starts=starts, known=known, coordinates=CoordinateRule())
        inner_report = report and report_in_user_units(shift, report)
        with translate_theta_errors(units=np.exp(shift)):
            fit = train(method, shards.moved(coordinates), network, kernel, inside, inner_report, interlude)
        return to_user_units(coordinates, shift, fit)
    moments = method.meet == "pool" and not shards.in_memory and has_moments(kernel, options.engine)
    if method.meet == "moments" or moments:
        try:
            return MomentsTraining(method, shards, network, kernel, options, report).fit()
        except NumericalError as why:
            if not moments:
                raise
            shards.load_instead(why)
    training = LocalTraining(prepare(method, shards, network, kernel, options, interlude), options, report)
    training.run()
    fit = training.fit()
    if not kernel.noise_model.robust:
        return fit
    return replace(fit, outliers=outliers_of(shards, network.hosted, kernel, fit, options))


def report_in_user_units(shift: Array, report: Report) -> Report:
    """A report of theta as the user knows it."""
    return lambda start, done, thetas, chosen: report(start, done, in_user_units(shift, thetas), chosen)


def to_user_units(coordinates: Coordinates, shift: Array, fit: Fit) -> Fit:
    """The result, in units that the user knows; its moments and its scaling stay those of the model."""
    return replace(
        fit,
        thetas=in_user_units(shift, fit.thetas),
        history=in_user_units(shift, fit.history),
        starts=tuple(replace(start, theta0=in_user_units(shift, start.theta0)) for start in fit.starts),
        known=fit.known.rescaled(np.exp(shift)),
        mean=None if fit.mean is None else fit.mean.to_user_units(coordinates),
        coordinates=coordinates,
    )


def in_user_units(shift: Array, theta: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.asarray(theta * np.exp(shift))


class LocalTraining:
    """One whose likelihood is the sum of the agents' own, or that of all data in one place.

    problem: where it is: on a sample if the time was up there.  runs: from all starts.  chosen: the best one of them.
    """

    def __init__(self, problem: TrainingProblem, options: TrainingOptions, report: Report | None) -> None:
        self.problem, self.options, self.report = problem, options, report
        self.runs: Sequence[Run[Any]] = ()

    @property
    def status(self) -> Status:
        return self.chosen.outcome.status

    def run(self) -> None:
        """From all starts, the best one to its end.

        With samples, all starts are followed on the smallest one, the best on larger ones and at last on all data.
        """
        whole, options, levels = self.problem, self.options, self.problem.levels

        def on(level: int) -> TrainingProblem:
            if level == levels:
                return whole
            return replace(whole, objective=sampled(whole.objective, level, options.seed))

        self.problem = on(0)
        rounds = max(1, options.rounds // 2) if levels else options.rounds
        best = 0
        self._sample = sizes_of(self.problem) if levels else np.zeros(0, dtype=np.int64)
        self.runs = [self._begun(number) for number in range(len(whole.starts))]
        with whole.network.phase("training"):
            if levels or len(self.runs) > 1:
                for run in self.runs:
                    run.go(rounds, coarse(options.tol))
                    if run.outcome.status == "time limit":
                        break
                best = best_run(whole, self.runs)
            self.chosen = self.runs[best]
            if not levels:
                self.chosen.finish(rounds, options.tol)
            for level in range(1, levels + 1):
                if self.status == "time limit":
                    break
                # A start that diverged on a sample gets another chance.
                history = None if self.status == "diverged" else self.chosen.history
                self._continue_on(on(level), history, options.tol if level == levels else coarse(options.tol))

    def _begun(self, number: int, history: list[Array] | None = None) -> Run[Any]:
        """A start before its first round, or where a history ends."""
        return Run(self.problem, self.problem.method.solver(self.problem, self.options), number, self.report, history)

    def _continue_on(self, problem: TrainingProblem, history: list[Array] | None, tol: float) -> None:
        """Follow the chosen start on other data to its end."""
        if problem.levels:
            problem.objective.settle(self.chosen.history[-1])
        self.problem = problem
        self.chosen = self._begun(self.chosen.number, history)
        self.chosen.finish(max(self.options.rounds, len(self.chosen.history)), tol)  # one at least

    def correction(self) -> Correction:
        with self.problem.network.phase("mean"), np.errstate(over="ignore", under="ignore"):
            return Correction.joined(
                agree_on_correction(
                    part.reduction, part.objective.experts, np.exp(x), trend_of(part.scaling, part.dimension)
                )
                for part, x in self.problem.parts(self.chosen.history[-1])
            )

    def correct_mean(self, step: Sequence[float]) -> None:
        self.resume(self.problem.corrected(step))

    def reweigh(self) -> None:
        self.resume(self.problem.reweighed(self.chosen.history[-1]))

    def resume(self, problem: TrainingProblem) -> None:
        """Continue with other residuals or other weights."""
        with problem.network.phase("training"):
            self._continue_on(problem, self.chosen.history, self.options.tol)

    def fit(self) -> Fit:
        """The result, after turns with the mean function and with weights against outliers where there are any."""
        settled = settle(self, self.options.mean, robust=self.problem.kernel.noise_model.robust)
        fit = self.ended(None if settled is None else settled.of(self.problem.scaling))
        local = self.chosen.outcome.state.local
        known = np.isfinite(local.values.nll).all()
        estimates = self.problem.objective.error_estimates(local.x, local.values) if known else np.zeros(len(local.x))
        return replace(fit, approximation=np.broadcast_to(estimates, len(fit.thetas)))

    def ended(self, mean: MeanFit | None) -> Fit:
        """The result, but for what its likelihoods may be wrong by."""
        return replace(fit_of(self.problem, self.runs, self.chosen, mean), sample=self._sample)


#: A training between two rounds. It is never changed in place: a state can be stepped again. On a graph that varies
#: with time the network advances in any case.
TrainingState = Running[Any] | SolverState


@dataclass(frozen=True)
class TrainingInfo:
    """The result of one round for the agents hosted here.

    thetas: (A, P) each agent's hyperparameters, in the units of the data.
    nll: (A,) each agent's likelihood there, of the scaled observations with normalize.
    jitter: (A,) what its covariance needed; 0 where none was needed.
    engine: (A,) what evaluated its likelihood, "dense", "moments" or "vecchia".
    rho: (P,) the penalty of the next round; empty for the methods that have none.
    residual: what the stopping rule said in this round; None if it was not due, which it is every diam(G) rounds over
        the edges of the graph, and every round over its tree and with a central node.
    status: "converged" and "diverged" as the stopping rule says it in this round; else "round limit".

    >>> import fleetgp as fg
    >>> field = fg.synthetic_field(60, seed=1)
    >>> fleet = fg.Fleet(fg.partition(field.inputs, field.observations, agents=3))
    >>> trainer = fleet.trainer("dec-apx-gp", theta0=[2, 0.5, 1, 1])
    >>> state, info = trainer.step(trainer.start())
    >>> info.thetas.shape, info.nll.shape, info.status
    ((3, 4), (3,), 'round limit')
    """

    thetas: Array
    nll: Array
    jitter: Array
    engine: tuple[str, ...]
    rho: Array
    residual: float | None
    status: Status


class Trainer:
    """One of the methods that go round by round; `Fleet.trainer` makes it.

    What the fleet has to agree on first (scaling, samples, starts, the floor) is agreed when it is made. From then on
    one step is one round, and R steps are `train(rounds=R, tol=0)` to the last bit. A round is one on the network; of
    dec-fact-gp and dec-g-fact-gp it is a reduction, which takes as many as twice the graph's radius.

    >>> import fleetgp as fg
    >>> field = fg.synthetic_field(120, seed=1)
    >>> fleet = fg.Fleet(fg.partition(field.inputs, field.observations, agents=3))
    >>> trainer = fleet.trainer("dec-apx-gp", theta0=[2, 0.5, 1, 1])
    >>> state = trainer.start()
    >>> for _ in range(3):
    ...     state, info = trainer.step(state)
    >>> info.thetas.shape, trainer.ledger.total(kind="hyperparameters").messages
    ((3, 4), 12)
    """

    def __init__(self, problem: TrainingProblem, options: TrainingOptions) -> None:
        self._problem = problem
        self._solver = problem.method.stepwise_solver(problem, options)
        self._rounds: Rounds = self._solver.rounds(options.tol)

    @property
    def theta0(self) -> Array:
        """(S, P) the starts, in the units of the data."""
        return self._problem.thetas(self._problem.starts)

    @property
    def ledger(self) -> Ledger:
        """What was sent so far."""
        return self._problem.network.ledger

    def start(self, number: int = 0) -> TrainingState:
        """The state before the first round, at one of the starts."""
        check_whole("start", number, least=0)
        if number >= len(self._problem.starts):
            raise InputError(
                f"start: expected a number from 0 to {len(self._problem.starts) - 1}, got {shortened(number)}"
            )
        with self._problem.network.phase("training"):
            state: TrainingState = self._rounds.start(self._solver.begin(self._problem.start(number)))
        return state

    def step(self, state: TrainingState) -> tuple[TrainingState, TrainingInfo]:
        """One round. Where the agents find that they have converged, the state is the one that they judged."""
        with self._problem.network.phase("training"):
            state, verdict = self._rounds.step(state)
        return state, self._info(state, verdict)

    def _info(self, state: TrainingState, verdict: Verdict | None) -> TrainingInfo:
        inner = self._solver.state_of(state)
        return TrainingInfo(
            thetas=self._problem.thetas(inner.local.x),
            nll=inner.local.values.likelihood,
            jitter=inner.local.values.jitter,
            engine=tuple(inner.local.values.engine),
            rho=getattr(inner, "rho", np.empty(0)),
            residual=None if verdict is None else float(verdict.residual[0]),
            status="round limit" if verdict is None else verdict.status,
        )
