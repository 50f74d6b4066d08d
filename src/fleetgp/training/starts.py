"""Where training starts, and which of several starts wins. Both are agreed by the fleet."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fleetgp.arrays import Array
from fleetgp.data.partition import Shard
from fleetgp.training.reductions import Reduction

#: Length-scales of the default starts, as fractions of the reach of the data.
SPANS = (0.5, 0.15, 0.05)
#: Noise of the default starts, as a fraction of the observations' size.
NOISE = 0.3


def default_starts(reduction: Reduction, shards: Sequence[Shard], agents: int) -> Array:
    """log theta of the default starts, (S, P), from how wide the agents' data are and how large.

    Only the fleet's maxima of rounded magnitudes are agreed: the power of two above each agent's width along
    each axis, and above its root mean square. No coordinate and no observation can be read from them. An
    agent's width may be the fleet's (data from everywhere) or an M-th of it (stripes): the reach is taken
    between the two.
    """
    widths = np.stack([np.ptp(x, axis=0) for x, _ in shards])
    sizes = np.array([[np.sqrt((y**2).mean())] for _, y in shards])
    powers = reduction.maximum(_power_of_two(np.concatenate([widths, sizes], axis=1)))
    powers = np.where(np.isfinite(powers), powers, 0.0)
    *reach, size = np.exp2(powers)
    dimension = len(reach)
    reach = np.array(reach) * np.sqrt(np.sqrt(agents) * dimension)
    return np.log([[*(span * reach), size, NOISE * size] for span in SPANS])


def _power_of_two(x: Array) -> Array:
    """The exponent of the power of two at or above x; minus infinity for zero."""
    return np.ceil(np.log2(x, out=np.full_like(x, -np.inf), where=x > 0.0))


def best_start(reduction: Reduction, nll: Array) -> tuple[int, Array]:
    """The start with the smallest total NLL, and all totals (S,); nll is (A, S), infinite where diverged.

    Every agent adds the same numbers in the same order, so no two agents can choose differently.
    """
    totals = reduction.total(np.where(np.isfinite(nll), nll, 1e300))
    totals = np.where(totals < 1e299, totals, np.inf)
    return int(np.argmin(totals)), totals
