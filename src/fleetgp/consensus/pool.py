"""All data in one place: for the methods that only a central node can run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fleetgp.data.partition import Shard
from fleetgp.network import Network


def pooled(shards: Sequence[Shard]) -> Shard:
    """Several data sets as one, in their order."""
    return np.concatenate([x for x, _ in shards]), np.concatenate([y for _, y in shards])


def gather_data(network: Network, shards: Sequence[Shard]) -> list[Shard]:
    """Every agent's data at the central node, in the order of the agents."""
    with network.phase("pool"):
        sent = network.gather({"inputs": [x for x, _ in shards], "observations": [y for _, y in shards]})
    return list(zip(sent["inputs"], sent["observations"], strict=True))
