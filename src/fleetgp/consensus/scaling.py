"""Centre and scale the observations by the fleet's own mean and standard deviation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.consensus.reductions import Reduction
from fleetgp.data.partition import Shard
from fleetgp.data.streamed import Shards, Streamed, summaries_of
from fleetgp.gp.kernels import OBSERVED
from fleetgp.network import Merge


@dataclass(frozen=True)
class Scaling:
    """y = offset + scale * y', the same at every agent. The model is for y'; theta is told in units of y."""

    offset: float = 0.0
    scale: float = 1.0

    def apply(self, shards: Sequence[Shard]) -> Shards:
        if isinstance(shards, Streamed):
            return shards.rescaled(self.offset, self.scale)
        return [(x, (y - self.offset) / self.scale) for x, y in shards]

    def shift(self, units: IntArray) -> Array:
        """What to add to log theta' (of y') for log theta (of y), (P,): sigma_f and sigma_eps carry the units of y.

        units: what each hyperparameter is measured in, as a kernel tells.
        """
        return np.where(units == OBSERVED, np.log(self.scale), 0.0)


def agree_on_scaling(reduction: Reduction, shards: Sequence[Shard]) -> Scaling:
    """The fleet's mean and standard deviation, in one reduction."""
    own = [[float(one.count), one.mean, one.squares] for one in summaries_of(shards)]
    ((count, mean, squares),) = reduction.merged(np.array(own)[:, None], DEVIATIONS)
    spread = float(np.sqrt(squares / count))
    return Scaling(float(mean), spread if spread > 0.0 else 1.0)


def _merged_deviations(one: Array, other: Array) -> Array:
    """Rows (count, mean, sum of squared deviations from it) of two data sets as those of both (Chan et al., 1979).

    >>> rows = [np.array([[len(y), y.mean(), ((y - y.mean()) ** 2).sum()]]) for y in np.split(np.arange(6.0), [2])]
    >>> _merged_deviations(*rows).tolist()
    [[6.0, 2.5, 17.5]]
    """
    (n, mean, squares), (m, other_mean, other_squares) = np.moveaxis(one, -1, 0), np.moveaxis(other, -1, 0)
    count, apart = n + m, other_mean - mean
    share = m / np.where(count == 0.0, 1.0, count)
    return np.stack([count, mean + apart * share, squares + other_squares + apart**2 * n * share], axis=-1)


DEVIATIONS = Merge(_merged_deviations, 0.0, finite=True)
