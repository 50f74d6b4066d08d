"""What a fleet is conditioned on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus.scaling import Scaling
from fleetgp.data.partition import Shard
from fleetgp.gp.kernels import Kernel
from fleetgp.gp.moments.fleet import FleetMoments
from fleetgp.graph import Topology


@dataclass(frozen=True)
class Source:
    """What a fleet is conditioned on: its data, and where the hyperparameters come from.

    theta: one for all agents, (P,); or every agent's estimate, (M, P): they agree on the mean before they predict.
    scaling: that of the training; None if the agents have yet to agree on it.
    moments: those of all data, if every agent has them from the training.
    """

    shards: Sequence[Shard]
    inputs: Sequence[str] | None
    graph: Topology
    kernel: Kernel
    theta: Array
    scaling: Scaling | None
    seed: int
    moments: FleetMoments | None = None

    def same(self, other: Source) -> bool:
        """Whether these are the same data (the same arrays, which nobody may write to) and the same model."""
        shards = [array for shard in self.shards for array in shard]
        others = [array for shard in other.shards for array in shard]
        return (
            [id(array) for array in shards] == [id(array) for array in others]
            and np.array_equal(self.theta, other.theta)
            and self.graph is other.graph
            and self.moments is other.moments
            and (self.inputs, self.kernel, self.scaling, self.seed)
            == (other.inputs, other.kernel, other.scaling, other.seed)
        )
