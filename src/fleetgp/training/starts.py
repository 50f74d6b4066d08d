"""Where training starts, and which of several starts wins. Both are agreed by the fleet.

First on a sample, then on all: where an agent has many observations, a training begins with some of them.

A sample of a thousand tells much about theta, and its exact likelihood costs next to nothing. All starts are followed
on the smallest sample. The best one goes on with eight times as many, and so on, at last with all. The result is the
optimum of all observations; samples only save time, and tell which engine suits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.consensus.reductions import Reduction
from fleetgp.engines.expert import MOST_DENSE, Expert
from fleetgp.kernels.stationary import Kernel
from fleetgp.model.observations import Observations
from fleetgp.training.objective import Objective

#: Observations of an agent in the smallest sample, and how many times as many are in the next one.
SMALLEST, TIMES = 1000, 8
#: A sample is taken if all observations are more than so many times as many; the smallest one if they are more than the
#: dense engine takes.
WORTH = 4


def levels(observations: int) -> int:
    """How many samples an agent with so many observations trains on first.

    >>> [levels(n) for n in (1_500, 1_501, 32_000, 32_001, 1_000_000)]
    [0, 1, 1, 2, 3]
    """
    if observations <= MOST_DENSE:
        return 0
    count = 1
    while observations > WORTH * SMALLEST * TIMES**count:
        count += 1
    return count


def first_sizes(observations: IntArray) -> IntArray:
    """How many observations of each agent are in the smallest sample."""
    return np.minimum(observations, SMALLEST)


def sampled(objective: Objective, level: int, seed: int) -> Objective:
    """The likelihoods of a sample with at most as many observations of each agent as the level has.

    level: 0 for the smallest sample.  seed: known to all. Rows are drawn by where they lie (`arrays.py`).
    """
    size = SMALLEST * TIMES**level
    return objective.changed(lambda expert: _sample(expert, size, seed))


def _sample(expert: Expert, size: int, seed: int) -> Expert:
    if expert.size <= size:
        return expert
    return expert.part(expert.data.drawn(size, seed))


#: Length-scales of the default starts, as fractions of the reach of the data.
SPANS = (0.5, 0.15, 0.05)
#: Noise of the default starts, as a fraction of the observations' size.
NOISE = 0.3


@dataclass(frozen=True)
class Magnitudes:
    """Powers of two, agreed by the fleet: how wide its data are, (D,), how large, and how far they vary.

    levels: of the samples of its data that the largest agent trains on first.
    """

    widths: Array
    size: float
    deviation: float
    levels: int = 0


def agree_on_magnitudes(
    reduction: Reduction, shards: Sequence[Observations], *, widths: bool = False, deviation: bool = False
) -> Magnitudes:
    """What is asked for, in one message; the size comes with either, the levels with the widths.

    Only the fleet's maxima of rounded magnitudes are agreed: the power of two at or above each agent's width along
    each axis, its root mean square, and its standard deviation, and of its size about a power of ten. No coordinate and
    no observation can be read from them. A magnitude of zero counts as 1, a deviation of zero as the size.
    """
    values = [one.values for one in shards]
    columns = [np.array([[np.sqrt((y**2).mean())] for y in values])]
    if widths:
        columns.insert(0, np.stack([np.ptp(one.inputs, axis=0) for one in shards]))
    if deviation:
        columns.append(np.array([[y.std() if np.ptp(y) > 0.0 else 0.0] for y in values]))
    told = power_of_two(np.concatenate(columns, axis=1))
    if widths:
        told = np.column_stack([[levels(len(one)) for one in shards], told])
    powers = reduction.maximum(told)
    largest, powers = (int(powers[0]), powers[1:]) if widths else (0, powers)
    found = np.exp2(np.where(np.isfinite(powers), powers, 0.0))
    size = float(found[-2] if deviation else found[-1])
    varied = deviation and bool(np.isfinite(powers[-1]))
    reach = found[: shards[0].dimension] if widths else np.empty(0)
    return Magnitudes(reach, size, float(found[-1]) if varied else size, largest)


def default_starts(magnitudes: Magnitudes, agents: int, kernel: Kernel) -> Array:
    """log theta of the default starts, (S, P), from how wide the agents' data are and how large."""
    reach, size = reach_of(magnitudes, agents), magnitudes.size
    return np.log([[*kernel.start(reach, span, size), *[NOISE * size] * kernel.noise_count] for span in SPANS])


def reach_of(magnitudes: Magnitudes, agents: int) -> Array:
    """How far the fleet's data reach, (D,).

    An agent's width may be the fleet's (data from everywhere) or an M-th of it (stripes): the reach is taken
    between the two.
    """
    return np.asarray(magnitudes.widths * np.sqrt(np.sqrt(agents) * len(magnitudes.widths)))


def different(starts: Array) -> Array:
    """One start instead of several that bounds have made the same."""
    return starts[:1] if (starts == starts[0]).all() else starts


def power_of_two(x: Array) -> Array:
    """The exponent of the power of two at or above x; minus infinity for zero."""
    return np.ceil(np.log2(x, out=np.full_like(x, -np.inf), where=x > 0.0))


def best_start(reduction: Reduction, nll: Array) -> tuple[int, Array]:
    """The start with the smallest total NLL, and all totals (S,); nll is (A, S), infinite where diverged.

    Every agent adds the same numbers in the same order, so no two agents can choose differently.
    """
    totals = reduction.total(np.where(np.isfinite(nll), nll, 1e300))
    totals = np.where(totals < 1e299, totals, np.inf)
    return int(np.argmin(totals)), totals
