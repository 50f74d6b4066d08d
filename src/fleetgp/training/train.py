"""Training from end to end, on the agents hosted here: prepare, run from every start, choose.

A training in the coordinates of its model: what goes in is changed, what comes out is told as the user says it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.consensus import Interlude, Status
from fleetgp.consensus.agreements import agree_on_coordinates
from fleetgp.consensus.reductions import ByServer, ByTree
from fleetgp.data.dataset import Dataset
from fleetgp.data.transforms import Coordinates
from fleetgp.engines.base import retold
from fleetgp.engines.expert import has_moments
from fleetgp.errors import NumericalError
from fleetgp.kernels.stationary import Kernel
from fleetgp.network import Network
from fleetgp.training.fit import Fit
from fleetgp.training.flat import directions
from fleetgp.training.methods import TrainingMethod
from fleetgp.training.moments import WholeTraining
from fleetgp.training.options import TrainingOptions
from fleetgp.training.outer_loops import (
    Correction,
    MeanFit,
    agree_on_correction,
    outliers_of,
    reweighed_experts,
    settle,
    settle_robustly,
    trend_of,
)
from fleetgp.training.primal import Local
from fleetgp.training.problem import Setting, minimizer, prepare, stepwise
from fleetgp.training.run import COARSE, LOOSEST, Report, Run, Runner, choose, follow
from fleetgp.training.starts import sampled


def moved_in(shift: Array, options: TrainingOptions) -> TrainingOptions:
    """The options, with starts and what is known of theta for the coordinates of the model.

    shift: what to add to log theta of these for that of the user, (P,).
    """
    starts = None if options.starts is None else options.starts - shift
    known = None if options.known is None else options.known.rescaled(np.exp(-shift))
    return replace(options, starts=starts, known=known)


def heard_outside(shift: Array, report: Report) -> Report:
    """A report of theta as the user says it."""

    def told(start: int, done: int, thetas: Array, chosen: bool) -> None:
        report(start, done, _told(shift, thetas), chosen)

    return told


def told_outside(coordinates: Coordinates, shift: Array, fit: Fit) -> Fit:
    """The result, in units that the user knows; its moments and its scaling stay those of the model."""
    starts = tuple(replace(start, theta0=_told(shift, start.theta0)) for start in fit.starts)
    return replace(
        fit,
        thetas=_told(shift, fit.thetas),
        history=_told(shift, fit.history),
        starts=starts,
        known=fit.known.rescaled(np.exp(shift)),
        mean=None if fit.mean is None else _told_mean(coordinates, fit.mean),
        coordinates=coordinates,
    )


def _told(shift: Array, theta: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.asarray(theta * np.exp(shift))


def _told_mean(coordinates: Coordinates, mean: MeanFit) -> MeanFit:
    """Slopes in units of the inputs, or per kilometre; the centre as a place."""
    if not mean.slopes:
        return mean
    units = np.ones(len(mean.slopes)) if coordinates.name != "scaled" else np.array(coordinates.unit)
    at = coordinates.given(np.array(mean.at))
    slopes, errors = np.array(mean.slopes) / units, np.array(mean.errors) / [1.0, *units]
    return replace(mean, slopes=tuple(slopes.tolist()), at=tuple(at.tolist()), errors=tuple(errors.tolist()))


def train(
    method: TrainingMethod,
    shards: Dataset,
    network: Network,
    kernel: Kernel,
    options: TrainingOptions,
    report: Report | None = None,
    interlude: Interlude | None = None,
) -> Fit:
    """Train the hosted agents, whose data are `shards` in the order of `network.hosted`.

    Options that the method does not have are not looked at: a fleet that changes its method keeps its options.
    report(start, round, thetas, chosen) is called after every round, with theta in the units of the data; chosen once
    the fleet has decided for this start.
    interlude: what the agents may do in between, without a central node and where stopping is watched.
    """
    if options.coordinates.name == "as-given":
        return _train(method, shards, network, kernel, options, report, interlude)
    with network.phase("coordinates"):
        reduction = ByTree(network) if method.decentralized else ByServer(network)
        coordinates = agree_on_coordinates(reduction, shards, options.coordinates)
    shift = coordinates.shift(kernel.units(shards.dimension))
    inside, heard = moved_in(shift, options), report and heard_outside(shift, report)
    with retold(units=np.exp(shift)):
        found = _train(method, shards.moved(coordinates), network, kernel, inside, heard, interlude)
    return told_outside(coordinates, shift, found)


def _train(
    method: TrainingMethod,
    shards: Dataset,
    network: Network,
    kernel: Kernel,
    options: TrainingOptions,
    report: Report | None,
    interlude: Interlude | None,
) -> Fit:
    """The same in the coordinates of the model."""
    if method.meet == "moments":
        return _by_moments(method, shards, network, kernel, options, report)
    if method.meet == "pool" and not shards.in_memory and has_moments(kernel, options.engine):
        try:
            return _by_moments(method, shards, network, kernel, options, report)
        except NumericalError as why:
            shards.load_instead(why)
    training = LocalTraining(prepare(method, shards, network, kernel, options), options, report, interlude)
    training.run()
    settled = settle_robustly(training, options.mean) if kernel.noise_model.robust else settle(training, options.mean)
    found = training.fit(None if settled is None else settled.of(training.setting.scaling, settled.last.errors))
    if not kernel.noise_model.robust:
        return found
    engine = options.engine, options.n_neighbours
    return replace(found, outliers=outliers_of(shards, network.hosted, kernel, found.scaling, found.thetas, *engine))


def _by_moments(
    method: TrainingMethod,
    shards: Dataset,
    network: Network,
    kernel: Kernel,
    options: TrainingOptions,
    report: Report | None,
) -> Fit:
    """All data by their moments: no row is sent, nor loaded."""
    whole = WholeTraining(method, shards, network, kernel, options, report)
    whole.run()
    settled = settle(whole, options.mean)
    mean = None if settled is None else settled.of(whole.scaling, settled.last.errors)
    found = _fit(whole.setting, whole.runs, whole.chosen, mean)
    fit = replace(found, moments=whole.moments, approximation=np.zeros(len(found.thetas)))
    return fit if whole.sample is None else replace(fit, sample=whole.sample)


class LocalTraining:
    """One whose likelihood is the sum of the agents' own, or that of all data in one place.

    setting: where it is: on a sample if the time was up there.
    """

    def __init__(
        self, setting: Setting, options: TrainingOptions, report: Report | None, interlude: Interlude | None
    ) -> None:
        self.setting, self._options, self._report, self._interlude = setting, options, report, interlude
        self._runs: Sequence[Run[Any]] = ()  # from all starts
        self._sample: IntArray = np.zeros(0, dtype=np.int64)

    @property
    def status(self) -> Status:
        return self._run.outcome.status

    def run(self) -> None:
        """From all starts, the best one to its end."""
        setting, every = self.setting, range(len(self.setting.starts))
        if setting.levels:
            self._run_by_samples(every)
        else:
            self._runs = self._begun(setting, every)
            self._run = self._runs[follow(setting, self._runs, self._options)]

    def _begun(self, setting: Setting, numbers: Iterable[int], history: list[Array] | None = None) -> list[Run[Any]]:
        """Some of the starts before their first round, or where a history ends."""
        stepped = setting.method.stepwise
        runner: Runner[Any] = stepwise(setting, self._options, self._interlude) if stepped else minimizer(setting)
        return [Run(setting, runner, number, self._report, history) for number in numbers]

    def _run_by_samples(self, every: Iterable[int]) -> None:
        """All starts on the smallest sample, the best one on larger ones and at last on all data."""
        setting, options = self.setting, self._options
        small = replace(setting, objective=sampled(setting.objective, 0, options.seed))
        with setting.network.phase("training"):
            runs = self._begun(small, every)
            number = choose(small, runs, max(1, options.rounds // 2), options.tol)
            run, here, sizes = runs[number], small, _sizes(small)
            for level in range(1, setting.levels + 1):
                if run.outcome.status == "time limit":
                    break
                last = level == setting.levels
                here = setting if last else replace(setting, objective=sampled(setting.objective, level, options.seed))
                # A start that diverged on a sample gets another chance.
                history = None if run.outcome.status == "diverged" else run.history
                run = self._taken_up(here, run, history, options.tol if last else min(options.tol * COARSE, LOOSEST))
        self.setting, self._runs, self._run, self._sample = here, runs, run, sizes

    def _taken_up(self, here: Setting, run: Run[Any], history: list[Array] | None, tol: float) -> Run[Any]:
        """A run of the chosen start, on other data."""
        if here.levels:
            here.objective.settle(run.history[-1])
        (run,) = self._begun(here, [run.number], history)
        run.chosen = True
        run.finish(max(self._options.rounds, len(run.history)), tol)  # one at least
        return run

    def correction(self) -> Correction:
        setting, x = self.setting, self._run.history[-1]
        trend = trend_of(setting.scaling, setting.dimension)
        with setting.network.phase("mean"), np.errstate(over="ignore", under="ignore"):
            return agree_on_correction(setting.reduction, setting.objective.experts, np.exp(x), trend)

    def take_up(self, step: Sequence[float]) -> None:
        self._go_on(self.setting.corrected(step))

    def reweigh(self) -> None:
        objective = self.setting.objective
        experts = reweighed_experts(objective.experts, self._run.history[-1])
        self._go_on(replace(self.setting, objective=objective.of(experts)))

    def _go_on(self, setting: Setting) -> None:
        self.setting = setting
        with self.setting.network.phase("training"):
            self._run = self._taken_up(self.setting, self._run, self._run.history, self._options.tol)

    def fit(self, mean: MeanFit | None) -> Fit:
        found = self.ended(mean)
        estimates = _estimates(self.setting, self._run.outcome.state.local)
        return replace(found, approximation=np.broadcast_to(estimates, len(found.thetas)))

    def ended(self, mean: MeanFit | None) -> Fit:
        """The result, but for what its likelihoods may be wrong by."""
        return replace(_fit(self.setting, self._runs, self._run, mean), sample=self._sample)


def _sizes(setting: Setting) -> IntArray:
    return np.broadcast_to(setting.objective.sizes, len(setting.network.hosted))


def _fit(setting: Setting, runs: Sequence[Run[Any]], chosen: Run[Any], mean: MeanFit | None) -> Fit:
    hosted = len(setting.network.hosted)
    outcome = chosen.outcome
    history = setting.thetas(np.stack(chosen.history))
    if setting.method.meet in ("pool", "moments"):  # one expert for all
        history = np.broadcast_to(history, (len(history), hosted, history.shape[-1]))
    if setting.method.meet == "pool":
        with setting.network.phase("pool"):
            setting.network.scatter(history[-1, 0], "hyperparameters")
            if mean is not None:
                setting.network.scatter(np.array([mean.constant, *mean.slopes, *mean.at]), "statistics")
    ended = directions(setting, chosen)
    return Fit(
        method=setting.method.name,
        thetas=history[-1],
        history=history,
        rounds=outcome.rounds,
        status=with_mean(outcome.status, mean),
        residual=float(outcome.residual),
        nll=float(chosen.likelihood.sum()),
        jitter=np.broadcast_to(chosen.jitter, hosted),
        rho=getattr(outcome.state, "rho", np.empty(0)),
        starts=tuple(run.summary for run in runs if run.begun),
        scaling=setting.scaling,
        mean=mean,
        engine=tuple(np.broadcast_to(outcome.state.local.values.engine, hosted).tolist()),
        ledger=setting.network.ledger,
        noise_floor=setting.floor * setting.scaling.scale,
        known=setting.known,
        used=_sizes(setting),
        nlls=chosen.likelihood,
        start_nlls=np.stack([run.likelihood for run in runs if run.begun]),
        noises=setting.noises,
        offset=setting.offset,
        flat_numbers=ended.flat,
        stopped_numbers=ended.stopped,
    )


def with_mean(status: Status, mean: MeanFit | None) -> Status:
    """How a training ended: theta may be at its best for a mean function that is not."""
    return "round limit" if mean is not None and not mean.settled and status == "converged" else status


def _estimates(setting: Setting, local: Local) -> Array:
    """What the likelihoods at the end may be wrong by, unless there is no end."""
    if not np.isfinite(local.values.nll).all():
        return np.zeros(len(local.x))
    return setting.objective.error_estimates(local.x, local.values)
