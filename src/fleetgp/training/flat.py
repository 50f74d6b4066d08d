"""Directions in which the likelihood is flat: how far a search follows them, and whether it ended in one.

Along an input without effect the likelihood approaches its limit as the length-scale grows; so does that of rq as alpha
grows, and that of a part of the kernel that is not needed as its sigma_f shrinks. There is no minimum then, and nothing
is wrong: beyond some point all values are equally good. Limits that all agents know stop the search there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.kernels.stationary import OBSERVED, Kernel
from fleetgp.training.constraints import Bounds, Prior

if TYPE_CHECKING:
    from fleetgp.training.problem import Setting
    from fleetgp.training.run import Run

#: The longest length-scale, as a multiple of the reach of the data: the kernel is constant along the input, to 1e-6.
LONGEST = 1e3
#: The largest alpha of rq, which is se by then, and any other hyperparameter without a unit: a multiple of its start.
LARGEST_SHAPE = 1e4
#: The smallest and the largest sigma_f, as multiples of the observations' size. It grows without end, together with
#: the length-scales, where observations without noise follow a straight line.
FAINTEST, LOUDEST = 1e-5, 1e3
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


@dataclass(frozen=True)
class Ended:
    """Of a search: the numbers of the hyperparameters along which the likelihood is flat where it ended, and of those
    that stand at their limit though it is not.
    """

    flat: tuple[int, ...] = ()
    stopped: tuple[int, ...] = ()


def limits_of(kernel: Kernel, reach: Array, size: float, dimension: int) -> Bounds:
    """On log theta, (P,). reach: (D,) how far the data do.  size: of the observations."""
    base, far = kernel.start(reach, 1.0, size), kernel.start(reach, LONGEST, size)
    return _limits(kernel, dimension, base, np.where(far == base, LARGEST_SHAPE * base, far), LOUDEST)


def limits_around(kernel: Kernel, starts: Array, dimension: int) -> Bounds:
    """The same where nothing is known of the data but starts that were given, log theta (S, P)."""
    own = np.exp(starts[:, : starts.shape[1] - kernel.noise_count])
    return _limits(kernel, dimension, own.min(axis=0), LARGEST_SHAPE * own.max(axis=0), np.inf)


def _limits(kernel: Kernel, dimension: int, signals: Array, largest: Array, loudest: float) -> Bounds:
    noises, signal = kernel.noise_count, _signals(kernel, dimension)
    with np.errstate(divide="ignore"):
        lower = np.where(signal, np.log(FAINTEST * signals), -np.inf)
        upper = np.log(np.where(signal, loudest * signals, largest))
    return Bounds(np.append(lower, np.full(noises, -np.inf)), np.append(upper, np.full(noises, np.inf)))


def _signals(kernel: Kernel, dimension: int) -> BoolArray:
    """Which hyperparameters but for the noise are a sigma_f."""
    return np.asarray(kernel.units(dimension)[: -kernel.noise_count] == OBSERVED)


def open_limits(limits: Bounds, own: Bounds, prior: Prior) -> Bounds:
    """Those of the limits that no bound and no prior replaces."""
    free = np.broadcast_to(prior.precision == 0.0, limits.lower.shape)
    lower = np.where(free & (own.lower == -np.inf) & (own.upper > limits.lower), limits.lower, -np.inf)
    upper = np.where(free & (own.upper == np.inf) & (own.lower < limits.upper), limits.upper, np.inf)
    return Bounds(lower, upper)


def within(limits: Bounds, own: Bounds) -> Bounds:
    """The bounds and the limits."""
    return Bounds(np.maximum(own.lower, limits.lower), np.minimum(own.upper, limits.upper))


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


def tried(setting: Setting, run: Run[Any]) -> Trial | None:
    """What there is beyond, of a search that converged; None if nothing has come near a limit.

    All agents ask the same, since they know the same point, and conclude the same from the same sums. Nothing is sent
    unless a hyperparameter has come near its limit.
    """
    outcome, limits = run.outcome, setting.limits
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
    values = setting.objective.at(np.tile(np.arange(len(own)), 2 * len(numbers)), places.reshape(-1, own.shape[1]))
    nlls = np.column_stack([outcome.state.local.values.nll, values.nll.reshape(-1, len(own)).T])
    with setting.network.phase("flat"):
        totals = setting.reduction.total(np.where(np.isfinite(nlls), nlls, INFINITE))
    there, back = totals[1:].reshape(2, -1)
    at = np.abs(outcome.agreed[numbers] - ends) <= AT
    return Trial(numbers, ends, totals[0] - there, np.abs(there - back), np.asarray(at))


def directions(setting: Setting, run: Run[Any]) -> Ended:
    """Whether a search that converged ended in a flat direction."""
    trial = tried(setting, run)
    if trial is None:
        return Ended()
    flat = (trial.gains >= -NEGLIGIBLE) & (trial.changes <= NEGLIGIBLE)
    return Ended(tuple(trial.numbers[flat].tolist()), tuple(trial.numbers[~flat & trial.at].tolist()))
