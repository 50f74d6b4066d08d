"""Training from end to end, on the agents hosted here: prepare, run from every start, choose.

What goes in is translated into the coordinates of the model, what comes out into the units of the user.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fleetgp.arrays import Array, IntArray
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
    reweighed_experts,
    settle,
    settle_robustly,
    trend_of,
    with_best_kernel,
)
from fleetgp.training.problem import TrainingProblem, prepare, sampled
from fleetgp.training.run import Report, Run, coarse, fit_of, follow, sizes_of
from fleetgp.training.solver import Rounds
from fleetgp.validation import check_whole


def to_model_units(shift: Array, options: TrainingOptions) -> TrainingOptions:
    """The options, with starts and constraints on theta for the coordinates of the model.

    shift: what to add to log theta of these for that of the user, (P,).
    """
    starts = None if options.starts is None else options.starts - shift
    known = None if options.known is None else options.known.rescaled(np.exp(-shift))
    return replace(options, starts=starts, known=known)


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
        inside = replace(to_model_units(shift, options), coordinates=CoordinateRule())
        heard = report and report_in_user_units(shift, report)
        with translate_theta_errors(units=np.exp(shift)):
            fit = train(method, shards.moved(coordinates), network, kernel, inside, heard, interlude)
        return to_user_units(coordinates, shift, fit)
    moments = method.meet == "pool" and not shards.in_memory and has_moments(kernel, options.engine)
    if method.meet == "moments" or moments:
        try:
            return replace(MomentsTraining(method, shards, network, kernel, options, report).fit(), kernel=kernel.name)
        except NumericalError as why:
            if not moments:
                raise
            shards.load_instead(why)
    training = LocalTraining(prepare(method, shards, network, kernel, options, interlude), options, report)
    training.run()
    fit = replace(training.settled(robust=kernel.noise_model.robust), kernel=kernel.name)
    if not kernel.noise_model.robust:
        return fit
    return replace(fit, outliers=outliers_of(shards, network.hosted, kernel, fit, options))


class LocalTraining:
    """One whose likelihood is the sum of the agents' own, or that of all data in one place.

    problem: where it is: on a sample if the time was up there.  runs: from all starts.  chosen: the best one of them.
    """

    def __init__(self, problem: TrainingProblem, options: TrainingOptions, report: Report | None) -> None:
        self.problem, self.options, self.report = problem, options, report
        self.runs: Sequence[Run[Any]] = ()
        self._sample: IntArray = np.zeros(0, dtype=np.int64)

    @property
    def status(self) -> Status:
        return self.chosen.outcome.status

    def run(self) -> None:
        """From all starts, the best one to its end."""
        problem, options = self.problem, self.options
        with problem.network.phase("training"):
            if problem.levels:
                self._run_by_samples()
            else:
                self.runs = [self._begun(problem, number) for number in range(len(problem.starts))]
                self.chosen = self.runs[follow(problem, self.runs, options.rounds, options.tol)]

    def _begun(self, problem: TrainingProblem, number: int, history: list[Array] | None = None) -> Run[Any]:
        """A start before its first round, or where a history ends."""
        return Run(problem, problem.method.solver(problem, self.options), number, self.report, history)

    def _run_by_samples(self) -> None:
        """All starts on the smallest sample, the best one on larger ones and at last on all data."""
        problem, options = self.problem, self.options
        small = here = replace(problem, objective=sampled(problem.objective, 0, options.seed))
        self.runs = [self._begun(small, number) for number in range(len(problem.starts))]
        self._sample = sizes_of(small)
        run = self.runs[follow(small, self.runs, max(1, options.rounds // 2), options.tol, to_end=False)]
        for level in range(1, problem.levels + 1):
            if run.outcome.status == "time limit":
                break
            last = level == problem.levels
            here = problem if last else replace(problem, objective=sampled(problem.objective, level, options.seed))
            # A start that diverged on a sample gets another chance.
            history = None if run.outcome.status == "diverged" else run.history
            run = self._continued(here, run, history, options.tol if last else coarse(options.tol))
        self.problem, self.chosen = here, run

    def _continued(self, here: TrainingProblem, run: Run[Any], history: list[Array] | None, tol: float) -> Run[Any]:
        """A run of the chosen start, on other data."""
        if here.levels:
            here.objective.settle(run.history[-1])
        run = self._begun(here, run.number, history)
        run.chosen = True
        run.finish(max(self.options.rounds, len(run.history)), tol)  # one at least
        return run

    def correction(self) -> Correction:
        problem, x = self.problem, self.chosen.history[-1]
        trend = trend_of(problem.scaling, problem.dimension)
        with problem.network.phase("mean"), np.errstate(over="ignore", under="ignore"):
            return agree_on_correction(problem.reduction, problem.objective.experts, np.exp(x), trend)

    def take_up(self, step: Sequence[float]) -> None:
        self._continue_on(self.problem.corrected(step))

    def reweigh(self) -> None:
        objective = self.problem.objective
        experts = reweighed_experts(objective.experts, self.chosen.history[-1])
        self._continue_on(replace(self.problem, objective=objective.of(experts)))

    def _continue_on(self, problem: TrainingProblem) -> None:
        self.problem = problem
        with problem.network.phase("training"):
            self.chosen = self._continued(problem, self.chosen, self.chosen.history, self.options.tol)

    def settled(self, *, robust: bool = False) -> Fit:
        """The result, after turns with the mean function and with weights against outliers where there are any."""
        settled = settle_robustly(self, self.options.mean) if robust else settle(self, self.options.mean)
        mean = None if settled is None else settled.of(self.problem.scaling, settled.last.errors)
        fit = self.ended(mean)
        local = self.chosen.outcome.state.local
        known = np.isfinite(local.values.nll).all()
        estimates = self.problem.objective.error_estimates(local.x, local.values) if known else np.zeros(len(local.x))
        return replace(fit, approximation=np.broadcast_to(estimates, len(fit.thetas)))

    def ended(self, mean: MeanFit | None) -> Fit:
        """The result, but for what its likelihoods may be wrong by."""
        return replace(fit_of(self.problem, self.runs, self.chosen, mean), sample=self._sample)


#: A training between two rounds. It is never changed in place: a state can be stepped again. On a graph that varies
#: with time the network goes on in any case.
TrainingState = Running[Any]


@dataclass(frozen=True)
class TrainingInfo:
    """What one round tells, of the agents hosted here.

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
        self._setting = problem
        self._method = problem.method.stepwise_solver(problem, options)
        self._rounds: Rounds[Any] = self._method.rounds(options.tol)

    @property
    def theta0(self) -> Array:
        """(S, P) the starts, in the units of the data."""
        return self._setting.thetas(self._setting.starts)

    @property
    def ledger(self) -> Ledger:
        """What was sent so far."""
        return self._setting.network.ledger

    def start(self, number: int = 0) -> TrainingState:
        """The state before the first round, at one of the starts."""
        check_whole("start", number, least=0)
        if number >= len(self._setting.starts):
            raise InputError(
                f"start: expected a number from 0 to {len(self._setting.starts) - 1}, got {shortened(number)}"
            )
        with self._setting.network.phase("training"):
            return self._rounds.start(self._method.begin(self._setting.start(number)))

    def step(self, state: TrainingState) -> tuple[TrainingState, TrainingInfo]:
        """One round. Where the agents find that they have converged, the state is the one that they judged."""
        with self._setting.network.phase("training"):
            state, verdict = self._rounds.step(state)
        return state, self._info(state, verdict)

    def _info(self, state: TrainingState, verdict: Verdict | None) -> TrainingInfo:
        inner = state.state
        return TrainingInfo(
            thetas=self._setting.thetas(inner.local.x),
            nll=inner.local.values.likelihood,
            jitter=inner.local.values.jitter,
            engine=tuple(inner.local.values.engine),
            rho=getattr(inner, "rho", np.empty(0)),
            residual=None if verdict is None else float(verdict.residual[0]),
            status="round limit" if verdict is None else verdict.status,
        )
