"""All data in one place: for the methods that only a central node can run."""

from __future__ import annotations

from collections.abc import Sequence

from fleetgp.model.observations import Observations
from fleetgp.network import Network


def gather_data(network: Network, shards: Sequence[Observations]) -> list[Observations]:
    """Every agent's data at the central node, in the order of the agents."""
    with network.phase("pool"):
        sent = network.gather(
            {"inputs": [one.packed for one in shards], "observations": [one.values for one in shards]}
        )
    rows = zip(sent["inputs"], sent["observations"], strict=True)
    return [shards[0].unpacked(*own) for own in rows]
