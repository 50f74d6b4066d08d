"""Loops around a training: the mean function and robust weights, each in turns with theta.

The mean function of a training: generalized least squares and theta in turns, down the likelihood of both.

It begins with ordinary least squares. At the theta that is the best for what is left, the best coefficients are
(H'C^-1 H)^-1 H'C^-1 y, sums over the agents as their likelihoods are; theta goes on from where it is, and so on, until
the coefficients would change by next to nothing of their own standard errors. In expectation the two do not depend on
each other, so that a few turns do. All is decided by numbers that are the same at every agent.

A training that one stuck sensor does not spoil: theta and the weights of outliers, in turns.

Theta is trained with all observations alike, then every expert weighs its own by the rule of `engines.expert`, and
theta is trained on from where it is. A few turns do, since the rule judges observations by their own spread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.consensus import Status
from fleetgp.consensus.agreements import MeanName, Scaling, independent_solution
from fleetgp.consensus.reductions import Reduction
from fleetgp.data.dataset import Dataset
from fleetgp.engines.base import Trend
from fleetgp.engines.expert import Expert, outliers, reweighed
from fleetgp.errors import NumericalError
from fleetgp.kernels.stationary import Kernel
from fleetgp.linalg.threads import side_by_side
from fleetgp.network import SUM

#: A mean function has settled if no coefficient would change by more than this part of its standard error.
SETTLED = 1e-3
#: So many times theta is trained, at most.
TURNS = 20
#: A step is at most so many times longer than its correction, and one more.
LONGEST_STEP = 9.0


@dataclass(frozen=True)
class MeanFit:
    """The mean function of a model, in the units of the data: constant + slopes'(x - at).

    With coordinates="kilometres" the differences of longitude and latitude are in kilometres, east and north, and the
    slopes per kilometre: cos(lat_c) pi R (lon - at_lon) / 180 and pi R (lat - at_lat) / 180, lat_c that of the plane.

    slopes: one for each input; none where the mean function is a constant.  at: where the constant is the mean.
    errors: the standard errors of the constant and the slopes at the theta of the fit, which theirs of predictions do
        not count; NaN if they could not be computed, and then it is ordinary least squares.
    turns: how often theta was trained.  settled: another turn would change nothing to speak of.
    """

    constant: float
    slopes: tuple[float, ...]
    at: tuple[float, ...]
    errors: tuple[float, ...]
    turns: int
    settled: bool

    def named(self, inputs: Sequence[str] | None) -> dict[str, float]:
        """The coefficients by name."""
        names = inputs or [f"input {d + 1}" for d in range(len(self.slopes))]
        slopes = {f"per {name}": slope for name, slope in zip(names, self.slopes, strict=False)}
        return {"constant": self.constant, **slopes}


@dataclass(frozen=True)
class Correction:
    """What generalized least squares adds to a mean function, of the scaled observations, and its standard errors.

    known: False where an agent's covariance has no answer.
    """

    coefficients: Array
    errors: Array
    known: bool

    @property
    def negligible(self) -> bool:
        return self.known and bool((np.abs(self.coefficients) <= SETTLED * self.errors).all())


#: Of a training that has no end.
NOWHERE = Correction(np.zeros(0), np.full(1, np.nan), known=False)


class Training(Protocol):
    """One that can be taken up again with another mean function."""

    @property
    def status(self) -> Status: ...

    def correction(self) -> Correction:
        """At the theta that it has come to."""

    def take_up(self, step: Sequence[float]) -> None:
        """Go on from where it is, on other residuals: with so much more of the mean function."""


def trend_of(scaling: Scaling, dimension: int) -> Trend:
    return Trend(np.array(scaling.centre or [0.0] * dimension), bool(scaling.slope))


def agree_on_correction(reduction: Reduction, experts: Sequence[Expert], thetas: Array, trend: Trend) -> Correction:
    """Generalized least squares for the fleet, each expert at its own theta (A, P): one reduction."""
    count = trend.count
    pairs = list(zip(experts, thetas, strict=True))
    rows = np.stack(side_by_side(lambda pair: _own(*pair, trend), pairs))

    def solved(total: Array, _: object) -> Array:
        products = total[0, 1:].reshape(count + 1, count + 1)
        right = np.column_stack([products[:-1, -1], np.eye(count)])
        found = independent_solution(products[:-1, :-1], right)
        known = total[0, 0] == 0.0 and bool(np.isfinite(found).all())
        told = np.concatenate([found[:, 0], np.sqrt(np.diagonal(found[:, 1:]))]) if known else np.zeros(2 * count)
        return np.concatenate([[float(known)], told])[None]

    (told,) = reduction.merged(rows[:, None], SUM, finish=solved, result_shape=(1 + 2 * count,))
    known = bool(told[0])
    return Correction(told[1 : 1 + count], told[1 + count :] if known else np.full(count, np.nan), known)


def _own(expert: Expert, theta: Array, trend: Trend) -> Array:
    """An agent's summands: whether it has none, and Z'C^-1 Z."""
    try:
        found = expert.products(theta, trend)
    except NumericalError:
        found = np.full((trend.count + 1, trend.count + 1), np.nan)
    sound = bool(np.isfinite(found).all())
    return np.concatenate([[float(not sound)], found.ravel() if sound else np.zeros(found.size)])


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

    def of(self, scaling: Scaling, errors: Array) -> MeanFit:
        """The mean function that theta was last trained with. errors: the standard errors of the scaled data."""
        told = tuple((scaling.scale * errors).tolist())
        return MeanFit(scaling.offset, scaling.slope, scaling.centre, told, self.turns, self.last.negligible)


def settle(training: Training, mean: MeanName) -> Settled | None:
    """Turn by turn, after the first; None without a mean function."""
    if mean == "zero":
        return None
    turns, before = 1, None
    while True:
        found = NOWHERE if training.status == "diverged" else training.correction()
        if not found.known or found.negligible or training.status != "converged" or turns == TURNS:
            return Settled(found, turns)
        step = longer_step(found, before)
        training.take_up(step)
        turns, before = turns + 1, (found, step)


#: So many times theta is trained with weights.
ROBUST_TURNS = 5


class Reweighing(Training, Protocol):
    """A training that can be taken up again with other weights."""

    def reweigh(self) -> None:
        """Go on from where it is, with the weights for its theta."""


def settle_robustly(training: Reweighing, mean: MeanName) -> Settled | None:
    """With weights, and with the mean function, if there is one; a training that did not converge is left as it is."""
    found = settle(training, mean)
    for _ in range(ROBUST_TURNS):
        if training.status != "converged":  # as all agents know
            break
        training.reweigh()
        turns = 0 if found is None else found.turns
        found = settle(training, mean)
        found = None if found is None else replace(found, turns=found.turns + turns)
    return found


def reweighed_experts(experts: Sequence[Expert], log_thetas: Array) -> list[Expert]:
    """Each with weights at its own log theta, (A, P)."""

    def one(pair: tuple[Expert, Array]) -> Expert:
        try:
            return reweighed(*pair)
        except NumericalError:  # nor is there a likelihood, which says so
            return pair[0]

    return side_by_side(one, list(zip(experts, np.exp(log_thetas), strict=True)))


def outliers_of(
    shards: Dataset,
    agents: Sequence[int],
    kernel: Kernel,
    scaling: Scaling,
    thetas: Array,
    engine: str,
    n_neighbours: int,
) -> IntArray:
    """(A,) how many of its own observations each hosted agent weighs down, at its own theta (A, P)."""
    units = scaling.shift(kernel.units(shards[0].dimension))
    with np.errstate(all="ignore"):
        log_thetas = np.log(thetas) - units
    if not np.isfinite(log_thetas).all():  # it has diverged
        return np.zeros(len(shards), dtype=np.int64)
    pairs = zip(shards.rescaled(scaling), agents, strict=True)
    experts = [Expert(own, kernel, agent, engine, n_neighbours) for own, agent in pairs]
    return np.array([outliers(expert) for expert in reweighed_experts(experts, log_thetas)])
