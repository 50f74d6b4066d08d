"""How a fleet comes by a sum or a maximum over its agents: along the tree, over a central node, or alone.

Every agent ends with the same bits: agents can take the same decision from them, or share them as constants of a model.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from functools import reduce

import numpy as np

from fleetgp.arrays import Array
from fleetgp.model.observations import Observations
from fleetgp.network import MAXIMUM, SUM, Merge, Network
from fleetgp.network.reduction import Finish


def total(network: Network, x: Array, *, kind: str = "statistics") -> Array:
    """The sum of x over the fleet, (A, ...) -> (...), the same bits at every agent.

    >>> from fleetgp.graph import Graph
    >>> from fleetgp.network import InProcess
    >>> total(InProcess(Graph.path(3)), np.array([1.0, 5.0, 2.0])).item()
    8.0
    """
    return ByTree(network, kind).total(x)


def maximum(network: Network, x: Array, *, kind: str = "statistics") -> Array:
    """The elementwise maximum over the fleet, (A, ...) -> (...).

    >>> from fleetgp.graph import Graph
    >>> from fleetgp.network import InProcess
    >>> maximum(InProcess(Graph.path(3)), np.array([1.0, 5.0, 2.0])).item()
    5.0
    """
    return ByTree(network, kind).maximum(x)


def minimum(network: Network, x: Array, *, kind: str = "statistics") -> Array:
    """The elementwise minimum over the fleet, (A, ...) -> (...)."""
    return -maximum(network, -x, kind=kind)


class Reduction(abc.ABC):
    """(A, ...) -> (...), the same bits at every agent."""

    @abc.abstractmethod
    def merged(
        self, x: Array, merge: Merge, *, finish: Finish | None = None, result_shape: tuple[int, ...] | None = None
    ) -> Array:
        """The fleet's rows, (A, n, ..) -> (n, ..), by an associative operation.

        finish, result_shape: what is made of the total, in one place for all, and the shape of a row of it.
        """

    def whole(self, x: Array, kind: str) -> Array:
        """The sum of rows (A, n) -> (n,) where the whole is worked on: at every agent, or at the central node alone."""
        return self.merged(x, SUM)

    def total(self, x: Array) -> Array:
        return self._elementwise(x, SUM)

    def maximum(self, x: Array) -> Array:
        return self._elementwise(x, MAXIMUM)

    def _elementwise(self, x: Array, merge: Merge) -> Array:
        return self.merged(x.reshape(len(x), -1), merge).reshape(x.shape[1:])


class Alone(Reduction):
    """All data are in one place already."""

    def merged(
        self, x: Array, merge: Merge, *, finish: Finish | None = None, result_shape: tuple[int, ...] | None = None
    ) -> Array:
        total = np.asarray(reduce(merge.function, list(x)))
        return total if finish is None else np.asarray(finish(total, None), dtype=float)


class ByTree(Reduction):
    """Up and down the spanning tree: for the decentralized methods."""

    def __init__(self, network: Network, kind: str = "statistics") -> None:
        self.network, self.kind = network, kind

    def merged(
        self, x: Array, merge: Merge, *, finish: Finish | None = None, result_shape: tuple[int, ...] | None = None
    ) -> Array:
        result = self.network.reduce(x, self.kind, merge, finish=finish, result_shape=result_shape)
        assert result is not None, "every agent gets the result"
        return result

    def whole(self, x: Array, kind: str) -> Array:
        return ByTree(self.network, kind).merged(x, SUM)


class ByServer(Reduction):
    """A gather and its answer: for the centralized baselines."""

    def __init__(self, network: Network) -> None:
        self.network = network

    def merged(
        self, x: Array, merge: Merge, *, finish: Finish | None = None, result_shape: tuple[int, ...] | None = None
    ) -> Array:
        everyone = np.stack(self.network.gather({"statistics": x})["statistics"])
        return np.asarray(self.network.scatter(Alone().merged(everyone, merge, finish=finish), "statistics")[0])

    def whole(self, x: Array, kind: str) -> Array:
        return Alone().merged(np.stack(self.network.gather({kind: x})[kind]), SUM)


def of_fleet(network: Network, *, central: bool) -> Reduction:
    """Along the tree, or over the central node."""
    return ByServer(network) if central else ByTree(network)


class OfRoot(Reduction):
    """Every agent holds the total already, with bits of its own processor: what the root makes of its own goes down."""

    def __init__(self, network: Network) -> None:
        self.network = network

    def merged(
        self, x: Array, merge: Merge, *, finish: Finish | None = None, result_shape: tuple[int, ...] | None = None
    ) -> Array:
        own = Alone().merged(x, merge, finish=finish)
        nothing = np.zeros((len(self.network.hosted), len(own), 1))
        return ByTree(self.network).merged(nothing, SUM, finish=lambda *_: own, result_shape=own.shape[1:])


def gather_data(network: Network, shards: Sequence[Observations]) -> list[Observations]:
    """Every agent's data at the central node, in the order of the agents."""
    with network.phase("pool"):
        sent = network.gather(
            {"inputs": [one.packed for one in shards], "observations": [one.values for one in shards]}
        )
    rows = zip(sent["inputs"], sent["observations"], strict=True)
    return [shards[0].unpacked(*own) for own in rows]
