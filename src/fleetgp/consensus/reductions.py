"""How a fleet comes by a sum or a maximum over its agents: by consensus, over a central node, or alone."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus import maximum, total
from fleetgp.network import Network


class Reduction(Protocol):
    """(A, ...) -> (...), the same bits at every agent."""

    def maximum(self, x: Array) -> Array: ...

    def total(self, x: Array) -> Array: ...


class ByConsensus:
    """Max-consensus and flooding: for the decentralized methods."""

    def __init__(self, network: Network) -> None:
        self.network = network

    def maximum(self, x: Array) -> Array:
        return np.asarray(maximum(self.network, x)[0])

    def total(self, x: Array) -> Array:
        return total(self.network, x)


class ByServer:
    """A gather and its answer: for the centralized baselines."""

    def __init__(self, network: Network) -> None:
        self.network = network

    def maximum(self, x: Array) -> Array:
        everyone = self.network.gather({"statistics": x})["statistics"]
        return np.asarray(self.network.scatter(np.max(everyone, axis=0), "statistics")[0])

    def total(self, x: Array) -> Array:
        everyone = self.network.gather({"statistics": x})["statistics"]
        return np.asarray(self.network.scatter(np.sum(everyone, axis=0), "statistics")[0])


class Alone:
    """All data are in one place already."""

    def maximum(self, x: Array) -> Array:
        return np.asarray(x.max(axis=0))

    def total(self, x: Array) -> Array:
        return np.asarray(x.sum(axis=0))
