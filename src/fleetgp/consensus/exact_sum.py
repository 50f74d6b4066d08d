"""Exact sums by flooding: unlike an average consensus, every agent ends with the same bits.

Use it where agents must take the same decision from the sum, or share constants of a model.
"""

from __future__ import annotations

import numpy as np

from fleetgp.arrays import Array
from fleetgp.network import Network
from fleetgp.network.peer_checks import check_from_peers


def total(network: Network, x: Array, *, kind: str = "statistics") -> Array:
    """The sum of x over the fleet, (A, ...) -> (...), added in the order of the agents' ids.

    >>> from fleetgp.graph import Graph
    >>> from fleetgp.network import InProcess
    >>> total(InProcess(Graph.path(3)), np.array([1.0, 5.0, 2.0])).item()
    8.0
    """
    told, shape = network.flood(x, kind), x.shape[1:]
    check_from_peers(
        told, lambda _, value: value.shape == shape and bool(np.isfinite(value).all()), f"{shape} finite numbers"
    )
    return np.asarray(np.sum(told, axis=0))
