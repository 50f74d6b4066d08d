"""Where training starts, and which of several starts wins. Both are agreed by the fleet."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fleetgp.arrays import Array
from fleetgp.data.partition import Shard
from fleetgp.training.reductions import Reduction

#: Length-scales of the default starts, as fractions of the width of the fleet's box.
SPANS = (0.5, 0.2, 0.08)
#: Noise of the default starts, as a fraction of the observations' root mean square.
NOISE = 0.3


def default_starts(reduction: Reduction, shards: Sequence[Shard]) -> Array:
    """log theta of the default starts, (S, P), from the fleet's box and the size of its observations.

    Sends the corners of each agent's box and its sum of squares, as statistics; nothing if theta0 is given.
    """
    corners = np.stack([np.concatenate([x.max(axis=0), -x.min(axis=0)]) for x, _ in shards])
    squares = np.stack([np.array([(y**2).sum(), float(len(y))]) for _, y in shards])
    box = reduction.maximum(corners)
    power, count = reduction.total(squares)
    dimension = len(box) // 2
    width = box[:dimension] + box[dimension:]
    width = np.where(width > 0.0, width, 1.0) * np.sqrt(dimension)
    size = np.sqrt(power / count) if power > 0.0 else 1.0
    return np.log([[*(span * width), size, NOISE * size] for span in SPANS])


def best_start(reduction: Reduction, nll: Array) -> tuple[int, Array]:
    """The start with the smallest total NLL, and all totals (S,); nll is (A, S), infinite where diverged.

    Every agent adds the same numbers in the same order, so no two agents can choose differently.
    """
    totals = reduction.total(np.where(np.isfinite(nll), nll, 1e300))
    totals = np.where(totals < 1e299, totals, np.inf)
    return int(np.argmin(totals)), totals
