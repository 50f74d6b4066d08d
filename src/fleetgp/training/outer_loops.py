"""Loops around a training: the mean function, weights against outliers, and the choice of a kernel.

Mean function: generalized least squares and theta in turns, down the likelihood of both. It begins with ordinary least
squares. At the best theta for the residuals, the best coefficients are (H'C^-1 H)^-1 H'C^-1 y, sums over the agents as
their likelihoods are; theta continues from where it is, until the coefficients would change by a small part of their
own standard errors. In expectation theta and coefficients do not depend on each other, so that a few turns are enough.

Outliers: theta is trained with all observations alike, then every expert weighs its own by the rule of
`engines.expert`, and theta is trained on from where it is. A few turns are enough, since the rule judges observations
by their own spread.

`kernel="auto"`: the kernel that best predicts what it has not seen. The likelihood alone misleads where data have gaps.
Every kernel is trained, with the fleet's own trainer, on a sample of the data. Then each agent hides blocks of its own
rows, five times another fifth; its own expert predicts them from the rest, and the fleet adds up the logarithms of
their predictive density, in one reduction. The largest total wins, the first of equals. Theta knows the hidden rows, of
every kernel alike: a training on the rest for each fifth would cost five times as much. One fifth alone does not
decide: on the Gulf Stream two draws of it prefer matern52 and matern12; all five prefer matern32, the best by far.

All is decided by numbers that are the same at every agent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.consensus import Interlude, Status
from fleetgp.consensus.agreements import NOBODY, MeanName, Scaling, independent_solution, merged_of_enough
from fleetgp.consensus.reductions import Reduction, of_fleet
from fleetgp.data.dataset import Dataset, InMemory
from fleetgp.data.partition import FEWEST, FOLDS, block_pieces, drawn, hidden
from fleetgp.data.transforms import View
from fleetgp.engines.base import Trend
from fleetgp.engines.expert import Expert, check_engine, outliers, reweighed
from fleetgp.errors import InputError, NumericalError
from fleetgp.kernels.expression import Kernels
from fleetgp.kernels.stationary import Kernel
from fleetgp.linalg.threads import side_by_side
from fleetgp.metrics import log_density
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations
from fleetgp.network import SUM, Network
from fleetgp.training.fit import Compared, Fit, MeanFit
from fleetgp.training.methods import TrainingMethod
from fleetgp.training.objective import reweighed_experts
from fleetgp.training.options import TrainingOptions
from fleetgp.training.problem import SMALLEST
from fleetgp.training.run import Report

#: A mean function has settled if no coefficient would change by more than this part of its standard error.
SETTLED = 1e-3
#: So many times theta is trained, at most.
TURNS = 20
#: A step is at most so many times longer than its correction, and one more.
LONGEST_STEP = 9.0


@dataclass(frozen=True)
class Correction:
    """What generalized least squares adds to a mean function, of the scaled observations, and its standard errors.

    known: False where an agent's covariance has no answer.
    """

    coefficients: Array
    errors: Array
    known: bool

    @classmethod
    def joined(cls, corrections: Iterable[Correction]) -> Correction:
        """Of several outputs, one after the other."""
        parts = list(corrections)
        coefficients = np.concatenate([part.coefficients for part in parts])
        return cls(coefficients, np.concatenate([part.errors for part in parts]), all(part.known for part in parts))

    @property
    def negligible(self) -> bool:
        return self.known and bool((np.abs(self.coefficients) <= SETTLED * self.errors).all())


#: Of a training that has no end.
NOWHERE = Correction(np.zeros(0), np.full(1, np.nan), known=False)


class Training(Protocol):
    """One that can be continued with another mean function or other weights."""

    @property
    def status(self) -> Status: ...

    def correction(self) -> Correction:
        """At the theta that it has come to."""

    def correct_mean(self, step: Sequence[float]) -> None:
        """Continue on other residuals: with so much more of the mean function."""


class Reweighing(Training, Protocol):
    """One that can also be continued with other weights."""

    def reweigh(self) -> None:
        """Continue with the weights for its theta."""


def trend_of(scaling: Scaling, dimension: int) -> Trend:
    return Trend(np.array(scaling.centre or [0.0] * dimension), bool(scaling.slope))


def agree_on_correction(reduction: Reduction, experts: Sequence[Expert], thetas: Array, trend: Trend) -> Correction:
    """Generalized least squares for the fleet, each expert at its own theta (A, P): one reduction.

    Agents with few rows take no part, unless all have few.
    """
    count = trend.count
    pairs = list(zip(experts, thetas, strict=True))
    rows = np.stack(side_by_side(lambda pair: _own(*pair, trend), pairs))

    def solved(total: Array, _: object) -> Array:
        products = total[0, 1:].reshape(count + 1, count + 1)
        right = np.column_stack([products[:-1, -1], np.eye(count)])
        solution = independent_solution(products[:-1, :-1], right)
        known = total[0, 0] == 0.0 and bool(np.isfinite(solution).all())
        nobody = not total.any()
        numbers = (
            np.concatenate([solution[:, 0], np.sqrt(np.diagonal(solution[:, 1:]))]) if known else np.zeros(2 * count)
        )
        return np.concatenate([[NOBODY if nobody else float(known)], numbers])[None]

    (result,) = merged_of_enough(
        reduction,
        rows[:, None],
        [expert.size for expert in experts],
        SUM,
        0.0,
        lambda result: bool(result[0, 0] != NOBODY),
        finish=solved,
        result_shape=(1 + 2 * count,),
    )
    known = bool(result[0] == 1.0)
    return Correction(result[1 : 1 + count], result[1 + count :] if known else np.full(count, np.nan), known)


def _own(expert: Expert, theta: Array, trend: Trend) -> Array:
    """An agent's summands: whether it has none, and Z'C^-1 Z."""
    try:
        products = expert.products(theta, trend)
    except NumericalError:
        products = np.full((trend.count + 1, trend.count + 1), np.nan)
    sound = bool(np.isfinite(products).all())
    return np.concatenate([[float(not sound)], products.ravel() if sound else np.zeros(products.size)])


def longer_step(now: Correction, before: tuple[Correction, list[float]] | None) -> list[float]:
    """What to add to the coefficients, from this correction, the one before, and what was added then.

    Corrections shrink by about the same factor r from turn to turn where theta and the coefficients do depend on each
    other; all that are to come sum to d / (1 - r). (Anderson's method with one step of memory, in units of the errors.)

    >>> d0, d1 = (Correction(np.array([d]), np.array([0.1]), True) for d in (8.0, 4.0))
    >>> longer_step(d1, None), longer_step(d1, (d0, [8.0]))
    ([4.0], [8.0])
    """
    new: list[float] = now.coefficients.tolist()
    if before is None:
        return new
    (old, added), errors = (before[0].coefficients.tolist(), before[1]), now.errors.tolist()
    change = [a - b for a, b in zip(new, old, strict=True)]
    # Sums one by one: all agents have the same bits, whatever their processors.
    across = sum(a * c / e**2 for a, c, e in zip(new, change, errors, strict=True))
    size = sum(c * c / e**2 for c, e in zip(change, errors, strict=True))
    share = min(max(across / size, -LONGEST_STEP), 0.5) if size > 0.0 else 0.0
    return [a - share * (b + c) for a, b, c in zip(new, added, change, strict=True)]


@dataclass(frozen=True)
class Settled:
    """How the turns ended. last: what another one would add.  turns: how often theta was trained."""

    last: Correction
    turns: int

    def of(self, scaling: Scaling, errors: Array | None = None) -> MeanFit:
        """The mean function that theta was last trained with.

        errors: the standard errors for the scaled data; None for those of the last correction.
        """
        scaled = self.last.errors if errors is None else errors
        standard_errors = tuple((scaling.scale * scaled).tolist())
        return MeanFit(scaling.offset, scaling.slope, scaling.centre, standard_errors, self.turns, self.last.negligible)


#: So many times theta is trained with weights.
ROBUST_TURNS = 5


def settle(training: Reweighing, mean: MeanName, *, robust: bool) -> Settled | None:
    """Turn by turn with the mean function, and with weights against outliers; None without a mean function.

    A training that did not converge is left as it is, as all agents know.
    """
    settled = settle_mean(training, mean)
    for _ in range(ROBUST_TURNS if robust else 0):
        if training.status != "converged":
            break
        training.reweigh()
        turns = 0 if settled is None else settled.turns
        settled = settle_mean(training, mean)
        settled = None if settled is None else replace(settled, turns=settled.turns + turns)
    return settled


def settle_mean(training: Training, mean: MeanName) -> Settled | None:
    """Turn by turn, after the first; None without a mean function."""
    if mean == "zero":
        return None
    turns, before = 1, None
    while True:
        correction = NOWHERE if training.status == "diverged" else training.correction()
        if not correction.known or correction.negligible or training.status != "converged" or turns == TURNS:
            return Settled(correction, turns)
        step = longer_step(correction, before)
        training.correct_mean(step)
        turns, before = turns + 1, (correction, step)


def outliers_of(shards: Dataset, agents: Sequence[int], kernel: Kernel, fit: Fit, options: TrainingOptions) -> IntArray:
    """(A,) how many of its own observations each hosted agent weighs down, at its own theta of a result."""
    units = fit.scaling.shift(kernel.units(shards.dimension))
    with np.errstate(all="ignore"):
        log_thetas = np.log(fit.thetas) - units
    if not np.isfinite(log_thetas).all():  # it has diverged
        return np.zeros(len(shards), dtype=np.int64)
    pairs = zip(shards.rescaled(fit.scaling), agents, strict=True)
    experts = [Expert(own, kernel, agent, options.engine, options.n_neighbours) for own, agent in pairs]
    return np.array([outliers(expert) for expert in reweighed_experts(experts, log_thetas)])


# ---- the best of several kernels ------------------------------------------------------------------------------------

#: Cells of the box of an agent's own data, of which it hides a fifth: in two dimensions a block is a seventh of the box
#: wide.
CELLS = 50
#: Hidden rows of an agent that are predicted, at most.
MOST_HIDDEN = 500
#: Trainings that are only compared end here.
COARSE = 1e-3


@dataclass(frozen=True)
class HeldOut:
    """An agent's data for a comparison. sample: what kernels are trained on.  folds: what predicts what."""

    sample: Observations
    folds: tuple[tuple[Observations, Observations], ...]

    @classmethod
    def of(cls, data: Observations, seed: int) -> HeldOut:
        """Hide blocks of the agent's own area, without any message."""
        if not len(data):
            return cls(data, ())
        inputs, values, folds = data.inputs, data.values, []
        pieces = block_pieces(inputs, inputs.min(axis=0), inputs.max(axis=0), CELLS, seed)
        for mask in (hidden(pieces, fold) for fold in range(FOLDS)):
            away = drawn(np.flatnonzero(mask), MOST_HIDDEN // FOLDS, inputs, values, seed)
            if len(away):
                folds.append((data.rows(np.flatnonzero(~mask)), data.rows(away)))
        return cls(data.rows(drawn(np.arange(len(data)), SMALLEST, inputs, values, seed)), tuple(folds))


def with_best_kernel(
    train: Callable[..., Fit],
    method: TrainingMethod,
    shards: Dataset,
    network: Network,
    kernels: Kernels,
    options: TrainingOptions,
    report: Report | None,
    interlude: Interlude | None,
) -> Fit:
    """Train with the kernel that predicts best. Of the time, if it is limited, the comparison gets half.

    The comparison is not reported.  train: `fleetgp.training.train.train`.
    """
    if method.meet == "moments":
        raise InputError(f'{method.name} is for the kernel "se" alone: there is nothing to choose, give kernel="se"')
    for kernel in kernels:
        check_engine(options.engine, kernel)
    seconds = None if options.seconds is None else options.seconds / 2.0
    coarse = replace(options, tol=max(options.tol, COARSE), seconds=None if seconds is None else seconds / len(kernels))
    trials = [HeldOut.of(own, options.seed) for own in shards.load()]
    width = 3 + max(kernel.count(shards.dimension) for kernel in kernels)
    rows = np.zeros((len(trials), len(kernels), width))  # of each agent and kernel
    for k, kernel in enumerate(kernels):
        fit = train(method, InMemory(trial.sample for trial in trials), network, kernel, coarse, interlude=interlude)
        for i, (trial, agent, theta) in enumerate(zip(trials, network.hosted, fit.thetas, strict=True)):
            own = _of_agent(fit, theta, trial, agent, kernel, options)
            rows[i, k, : len(own)] = own
    compared = _compared(method, network, kernels, shards.dimension, rows)
    best = max(range(len(kernels)), key=lambda k: compared[k].density)
    if not np.isfinite(compared[best].density):
        raise NumericalError(
            f"none of the kernels {', '.join(kernel.name for kernel in kernels)} could be trained: train with one, to "
            "be told why"
        )
    fit = train(method, shards, network, kernels[best], replace(options, seconds=seconds), report, interlude)
    return replace(fit, compared=compared)


def _of_agent(
    fit: Fit, theta: Array, trial: HeldOut, agent: int, kernel: Kernel, options: TrainingOptions
) -> list[float]:
    """(3 + P) what an agent adds: the log density of its hidden rows, how many they are, whether it has failed, and its
    log theta.
    """
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
        densities = log_density(scaling.mean(queries) + scaling.scale * mean, variance, asked.values)
        density, count = density + float(densities.sum()), count + len(asked)
    return [density, float(count), 0.0, *log_theta] if np.isfinite(density) else failed


def _compared(
    method: TrainingMethod, network: Network, kernels: Kernels, dimension: int, rows: Array
) -> tuple[Compared, ...]:
    """The fleet's comparison, the same at every agent. rows: (A, K, 3 + P), P the largest of all kernels."""
    reduction = of_fleet(network, central=not method.decentralized)
    with network.phase("kernels"):
        totals = reduction.total(rows)
    if not totals[:, 1].any():
        raise InputError(
            f'kernel="auto": expected agents with at least {FEWEST} rows each, of which they hide some to compare '
            "kernels, got none: choose a kernel"
        )
    compared = []
    for kernel, (density, count, failed, *logs) in zip(kernels, totals.tolist(), strict=True):
        sound = failed == 0.0 and count > 0.0
        own = np.array(logs[: kernel.count(dimension)])
        theta = np.exp(own / network.agents) if sound else np.full(len(own), np.nan)
        compared.append(Compared(kernel.name, density / count if sound else -np.inf, int(count), tuple(theta.tolist())))
    return tuple(compared)
