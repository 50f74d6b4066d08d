"""Training from end to end, on the agents hosted here: prepare, run from every start, choose."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.consensus import Interlude
from fleetgp.data.partition import Shard
from fleetgp.data.streamed import Streamed, load_instead
from fleetgp.errors import NumericalError
from fleetgp.gp.fleet_expert import has_moments
from fleetgp.gp.kernels import Kernel
from fleetgp.network import Network
from fleetgp.training.fit import Fit
from fleetgp.training.methods import TrainingMethod
from fleetgp.training.options import TrainingOptions
from fleetgp.training.primal import Local
from fleetgp.training.run import COARSE, LOOSEST, Report, Run, Runner, choose, follow
from fleetgp.training.samples import sampled
from fleetgp.training.setting import Setting, minimizer, prepare, stepwise
from fleetgp.training.whole import WholeTraining


def train(
    method: TrainingMethod,
    shards: Sequence[Shard],
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
    if method.meet == "moments":
        return _by_moments(method, shards, network, kernel, options, report)
    if method.meet == "pool" and isinstance(shards, Streamed) and has_moments(kernel, options.engine):
        try:
            return _by_moments(method, shards, network, kernel, options, report)
        except NumericalError as why:
            load_instead(shards, why)
    setting = prepare(method, shards, network, kernel, options)

    def begun(setting: Setting, numbers: Iterable[int], history: list[Array] | None = None) -> list[Run[Any]]:
        runner: Runner[Any] = stepwise(setting, options, interlude) if method.stepwise else minimizer(setting)
        return [Run(setting, runner, number, report, history) for number in numbers]

    every = range(len(setting.starts))
    if setting.levels:
        return _by_samples(setting, begun, every, options)
    runs = begun(setting, every)
    return _fit(setting, runs, runs[follow(setting, runs, options)])


def _by_moments(
    method: TrainingMethod,
    shards: Sequence[Shard],
    network: Network,
    kernel: Kernel,
    options: TrainingOptions,
    report: Report | None,
) -> Fit:
    """All data by their moments: no row is sent, nor loaded."""
    whole = WholeTraining(method, shards, network, kernel, options, report)
    whole.run()
    fit = replace(_fit(whole.setting, whole.runs, whole.chosen), moments=whole.moments)
    return fit if whole.sample is None else replace(fit, sample=whole.sample)


class Begun(Protocol):
    """Some of the starts before their first round, or where a history ends."""

    def __call__(
        self, setting: Setting, numbers: Iterable[int], history: list[Array] | None = None
    ) -> list[Run[Any]]: ...


def _by_samples(setting: Setting, begun: Begun, every: Iterable[int], options: TrainingOptions) -> Fit:
    """All starts on the smallest sample, the best one on larger ones and at last on all data."""
    small = replace(setting, objective=sampled(setting.objective, 0, options.seed))
    with setting.network.phase("training"):
        runs = begun(small, every)
        number = choose(small, runs, max(1, options.rounds // 2), options.tol)
        run, here, sizes = runs[number], small, _sizes(small)
        for level in range(1, setting.levels + 1):
            if run.outcome.status == "time limit":
                break
            last = level == setting.levels
            here = setting if last else replace(setting, objective=sampled(setting.objective, level, options.seed))
            here.objective.settle(run.history[-1])
            # A start that diverged on a sample gets another chance.
            (run,) = begun(here, [number], None if run.outcome.status == "diverged" else run.history)
            run.chosen = True
            rounds = max(options.rounds, len(run.history))  # one at least
            run.go(rounds, options.tol if last else min(options.tol * COARSE, LOOSEST))
    return replace(_fit(here, runs, run), sample=sizes)


def _sizes(setting: Setting) -> IntArray:
    sizes = [expert.size for expert in setting.objective.experts]
    return np.broadcast_to(np.array(sizes), len(setting.network.hosted))


def _fit(setting: Setting, runs: Sequence[Run[Any]], chosen: Run[Any]) -> Fit:
    hosted = len(setting.network.hosted)
    outcome = chosen.outcome
    history = setting.thetas(np.stack(chosen.history))
    if setting.method.meet in ("pool", "moments"):  # one expert for all
        history = np.broadcast_to(history, (len(history), hosted, history.shape[-1]))
    if setting.method.meet == "pool":
        with setting.network.phase("pool"):
            setting.network.scatter(history[-1, 0], "hyperparameters")
    return Fit(
        method=setting.method.name,
        thetas=history[-1],
        history=history,
        rounds=outcome.rounds,
        status=outcome.status,
        residual=float(outcome.residual),
        nll=float(chosen.nll.sum()),
        jitter=np.broadcast_to(chosen.jitter, hosted),
        rho=getattr(outcome.state, "rho", np.empty(0)),
        starts=tuple(run.summary for run in runs if run.begun),
        scaling=setting.scaling,
        engine=tuple(np.broadcast_to(outcome.state.local.values.engine, hosted).tolist()),
        ledger=setting.network.ledger,
        noise_floor=float(np.exp(setting.floor.log)) * setting.scaling.scale,
        used=_sizes(setting),
        nlls=chosen.nll,
        start_nlls=np.stack([run.nll for run in runs if run.begun]),
        approximation=np.broadcast_to(_estimates(setting, outcome.state.local), hosted),
    )


def _estimates(setting: Setting, local: Local) -> Array:
    """What the likelihoods at the end may be wrong by, unless there is no end."""
    if not np.isfinite(local.values.nll).all():
        return np.zeros(len(local.x))
    return setting.objective.error_estimates(local.x, local.values)
