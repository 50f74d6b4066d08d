"""Centre and scale the observations by the fleet's own mean and standard deviation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus.reductions import Reduction
from fleetgp.data.partition import Shard


@dataclass(frozen=True)
class Scaling:
    """y = offset + scale * y', the same at every agent. The model is for y'; theta is told in units of y."""

    offset: float = 0.0
    scale: float = 1.0

    def apply(self, shards: Sequence[Shard]) -> list[Shard]:
        return [(x, (y - self.offset) / self.scale) for x, y in shards]

    def shift(self, log_theta: Array) -> Array:
        """What to add to log theta' (of y') for log theta (of y): sigma_f and sigma_eps carry the units of y."""
        shift = np.zeros(log_theta.shape[-1])
        shift[-2:] = np.log(self.scale)
        return shift


def agree_on_scaling(reduction: Reduction, shards: Sequence[Shard]) -> Scaling:
    """The fleet's mean and standard deviation, from two sums: of y, then of squared deviations."""
    count, sum_ = reduction.total(np.stack([np.array([float(len(y)), y.sum()]) for _, y in shards]))
    mean = float(sum_ / count)
    squares = reduction.total(np.array([((y - mean) ** 2).sum() for _, y in shards]))
    spread = float(np.sqrt(squares / count))
    return Scaling(mean, spread if spread > 0.0 else 1.0)
