"""Where training starts, and which of several starts wins. Both are agreed by the fleet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus.reductions import Reduction
from fleetgp.gp.kernels import Kernel
from fleetgp.model.observations import Observations
from fleetgp.training.samples import levels

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
