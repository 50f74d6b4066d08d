"""`kernel="auto"`: which kernel predicts best what it has not seen. The likelihood alone misleads where data have gaps.

Every kernel is trained, with the fleet's own trainer, on a sample of the data. Then each agent hides blocks of its own
rows, five times another fifth; its own expert predicts them from the rest, and the fleet adds up the logarithms of
their predictive density, in one reduction. The largest total wins, the first of equals. Nothing is sent but what a
training sends, and sums.

The few numbers of theta know the hidden rows, of every kernel alike; what predicts a row does not. A training on the
rest for each fifth would cost five times as much, and one fifth alone does not decide: on the Gulf Stream two draws of
it prefer matern52 and matern12, where all five prefer matern32, the best by far.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus import Interlude
from fleetgp.consensus.reductions import ByServer, ByTree
from fleetgp.data.dataset import Dataset, InMemory
from fleetgp.data.partition import FEWEST, FOLDS, block_pieces, drawn, hidden
from fleetgp.data.transforms import View
from fleetgp.engines.expert import Expert, check_engine, reweighed
from fleetgp.errors import InputError, NumericalError
from fleetgp.kernels.expression import Kernels
from fleetgp.kernels.stationary import Kernel
from fleetgp.metrics import log_density
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations
from fleetgp.network import Network
from fleetgp.training.fit import Compared, Fit
from fleetgp.training.methods import TrainingMethod
from fleetgp.training.options import TrainingOptions
from fleetgp.training.run import Report
from fleetgp.training.starts import SMALLEST
from fleetgp.training.train import train

#: Cells of the box of an agent's own data, of which it hides a fifth: in two dimensions a block is a seventh of the box
#: wide.
CELLS = 50
#: Hidden rows of an agent that are predicted, at most.
MOST_HIDDEN = 500
#: Trainings that are only compared end here.
COARSE = 1e-3


@dataclass(frozen=True)
class Trial:
    """An agent's data for a comparison. sample: what kernels are trained on.  folds: what predicts what."""

    sample: Observations
    folds: tuple[tuple[Observations, Observations], ...]


def train_best(
    method: TrainingMethod,
    shards: Dataset,
    network: Network,
    kernels: Kernels,
    options: TrainingOptions,
    report: Report | None = None,
    interlude: Interlude | None = None,
) -> Fit:
    """`train` with the best of several kernels; with a single one there is nothing to compare.

    Of the time, if it is limited, the comparison gets half. It is not reported.
    """
    if len(kernels) == 1:
        return replace(train(method, shards, network, kernels[0], options, report, interlude), kernel=kernels[0].name)
    _check(method, kernels, options)
    seconds = None if options.seconds is None else options.seconds / 2.0
    coarse = replace(options, tol=max(options.tol, COARSE), seconds=None if seconds is None else seconds / len(kernels))
    trials = [_trial(own, options.seed) for own in shards.load()]
    told = []
    for kernel in kernels:
        fit = train(method, InMemory(trial.sample for trial in trials), network, kernel, coarse, interlude=interlude)
        told.append(_told(fit, trials, network, kernel, options))
    compared = _compared(method, network, kernels, shards.dimension, _padded(told))
    best = max(range(len(kernels)), key=lambda k: compared[k].density)
    if not np.isfinite(compared[best].density):
        raise NumericalError(
            f"none of the kernels {', '.join(kernel.name for kernel in kernels)} could be trained: train with one, to "
            "be told why"
        )
    found = train(method, shards, network, kernels[best], replace(options, seconds=seconds), report, interlude)
    return replace(found, kernel=kernels[best].name, compared=compared)


def _check(method: TrainingMethod, kernels: Kernels, options: TrainingOptions) -> None:
    if method.meet == "moments":
        raise InputError(f'{method.name} is for the kernel "se" alone: there is nothing to choose, give kernel="se"')
    for kernel in kernels:
        check_engine(options.engine, kernel)


def _trial(data: Observations, seed: int) -> Trial:
    """An agent hides blocks of its own area: nobody else is needed for it."""
    inputs, values, folds = data.inputs, data.values, []
    pieces = block_pieces(inputs, inputs.min(axis=0), inputs.max(axis=0), CELLS, seed)
    for mask in (hidden(pieces, fold) for fold in range(FOLDS)):
        away = drawn(np.flatnonzero(mask), MOST_HIDDEN // FOLDS, inputs, values, seed)
        if len(away):
            folds.append((data.rows(np.flatnonzero(~mask)), data.rows(away)))
    return Trial(data.rows(drawn(np.arange(len(data)), SMALLEST, inputs, values, seed)), tuple(folds))


def _told(fit: Fit, trials: Sequence[Trial], network: Network, kernel: Kernel, options: TrainingOptions) -> Array:
    """(A, 3 + P) what each hosted agent adds: the log density of its hidden rows, how many they are, whether it has
    failed, and its log theta.
    """
    return np.array(
        [
            _of_agent(fit, theta, trial, agent, kernel, options)
            for trial, agent, theta in zip(trials, network.hosted, fit.thetas, strict=True)
        ]
    )


def _of_agent(
    fit: Fit, theta: Array, trial: Trial, agent: int, kernel: Kernel, options: TrainingOptions
) -> list[float]:
    failed, engine = [0.0, 0.0, 1.0, *np.zeros(len(theta))], (options.engine, options.n_neighbours)
    with np.errstate(all="ignore"):
        log_theta = np.log(theta)
    if fit.status == "diverged" or not np.isfinite(log_theta).all():
        return failed
    scaling, coordinates, density, count = fit.scaling, fit.coordinates, 0.0, 0
    units = kernel.units(trial.sample.dimension)
    own = np.exp(log_theta - scaling.shift(units) - coordinates.shift(units))
    for rest, asked in trial.folds:
        seen = View(scaling, coordinates).of(rest)
        expert, queries = Expert(seen, kernel, agent, *engine), coordinates.places(asked.inputs)
        try:
            expert = reweighed(expert, own) if kernel.noise_model.robust else expert
            mean, variance = expert.condition(own).mean_and_variance(queries)
        except NumericalError:
            return failed
        variance = scaling.scale**2 * variance + kernel.noise(asked, Hyperparameters.from_theta(theta))
        found = log_density(scaling.mean(queries) + scaling.scale * mean, variance, asked.values)
        density, count = density + float(found.sum()), count + len(asked)
    return [density, float(count), 0.0, *log_theta] if np.isfinite(density) else failed


def _padded(told: Sequence[Array]) -> Array:
    """(A, K, 3 + P) of all kernels, P the largest number of hyperparameters of one."""
    width = max(one.shape[1] for one in told)
    return np.stack([np.pad(one, ((0, 0), (0, width - one.shape[1]))) for one in told], axis=1)


def _compared(
    method: TrainingMethod, network: Network, kernels: Kernels, dimension: int, told: Array
) -> tuple[Compared, ...]:
    """What the fleet found, the same at every agent. told: (A, K, 3 + P)."""
    reduction = ByTree(network) if method.decentralized else ByServer(network)
    with network.phase("kernels"):
        totals = reduction.total(told)
    if not totals[:, 1].any():
        raise InputError(
            f'kernel="auto": expected agents with at least {FEWEST} rows each, of which they hide some to compare '
            "kernels, got none: choose a kernel"
        )
    found = []
    for kernel, (density, rows, failed, *logs) in zip(kernels, totals.tolist(), strict=True):
        sound = failed == 0.0 and rows > 0.0
        own = np.array(logs[: kernel.count(dimension)])
        theta = np.exp(own / network.agents) if sound else np.full(len(own), np.nan)
        found.append(Compared(kernel.name, density / rows if sound else -np.inf, int(rows), tuple(theta.tolist())))
    return tuple(found)
