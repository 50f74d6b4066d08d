"""What has to be known of a fleet to say what its methods cost: how many rows, inputs and links, and which kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fleetgp.data.coordinates import CoordinateRule
from fleetgp.data.streamed import counts_of
from fleetgp.errors import InputError, shortened
from fleetgp.fleet import Fleet
from fleetgp.fleet.shards import check_shards, places_of
from fleetgp.given import check_whole
from fleetgp.graph import Topology, as_topology
from fleetgp.kernels.expression import AUTO, CANDIDATES, as_kernel
from fleetgp.kernels.stationary import KERNELS, Kernel
from fleetgp.model.noise import NoiseModel
from fleetgp.options import KERNEL, ModelOptions

#: The kernel on paper of a fleet that has none yet: as many hyperparameters as all plain ones.
UNKNOWN = KERNELS[KERNEL]


@dataclass(frozen=True)
class Facts:
    """sizes: (M,) rows of each agent.  dimension: D.  columns: of a row that is sent: inputs, and what tells of noise.

    kernel: None if it is not known yet: a training then compares as many as `compared` says.
    widest: the largest number of hyperparameters among several kernels that are compared; 0 if they have the usual one.
    normalize: whether the fleet agrees on a mean and a scale first.  labels: the agents' names, if they have such.
    """

    sizes: tuple[int, ...]
    dimension: int
    topology: Topology
    kernel: Kernel | None = None
    normalize: bool = ModelOptions.normalize
    columns: int = 0
    compared: int = 1
    labels: tuple[str, ...] = ()
    widest: int = 0

    @property
    def agents(self) -> int:
        return len(self.sizes)

    @property
    def rows(self) -> int:
        return sum(self.sizes)

    @property
    def width(self) -> int:
        """Of a row's inputs as they are sent."""
        return self.columns or self.dimension

    @property
    def parameters(self) -> int:
        """P, how many hyperparameters there are."""
        return max((self.kernel or UNKNOWN).count(self.dimension), self.widest)

    @property
    def noise_model(self) -> NoiseModel:
        return (self.kernel or UNKNOWN).noise_model

    @property
    def smooth(self) -> bool:
        """Whether the kernel is the one whose data have moments."""
        return self.kernel is not None and self.kernel.has_moments


def facts_of(
    data: Fleet | Sequence[Any],
    graph: object = None,
    *,
    dimension: int | None = None,
    kernel: str | Kernel | None = None,
    normalize: bool | None = None,
) -> Facts:
    """From a fleet, the agents' data, or how many rows each of them has (with dimension).

    kernel: None or "auto" if it is not known; of a fleet its own.
    graph: of a fleet its own; otherwise "path" if none is given.

    >>> facts_of([100, 200, 100], "star", dimension=2).rows
    400
    """
    kernel = None if isinstance(kernel, str) and kernel == AUTO else kernel
    if isinstance(data, Fleet):
        if graph is not None or dimension is not None:
            raise InputError("a Fleet has its graph and its inputs: leave out graph and dimension")
        count = len(data.kernels) if kernel is None else 1
        chosen = kernel if kernel is not None else data.kernels[0] if count == 1 else None
        own = None if chosen is None else as_kernel(chosen, data.inputs or data.dimension)
        width = data.dimension + data.noise_model.terms
        flag = data.normalize if normalize is None else normalize
        sizes, most = tuple(counts_of(data.data)), max(one.count(data.dimension) for one in data.kernels)
        widest = most if own is None else 0
        return Facts(sizes, data.dimension, data.graph, own, flag, width, count, data.labels, widest)
    if not isinstance(data, Sequence) or isinstance(data, str | bytes) or not len(data):
        raise InputError(
            f"expected a Fleet, a list of (X_i, y_i), or of each agent's number of rows, got {shortened(data)}"
        )
    if all(isinstance(one, int | np.integer) and not isinstance(one, bool) for one in data):
        for one in data:
            check_whole("the number of an agent's rows", one, least=1)
        check_whole("dimension, which is needed where only numbers of rows are given,", dimension, least=1, most=1000)
        sizes, width, places = tuple(int(one) for one in data), int(dimension or 1), None
    else:
        shards, _ = check_shards([tuple(one)[:2] if isinstance(one, list | tuple) else one for one in data])
        sizes, width = tuple(counts_of(shards)), shards[0].dimension
        places = places_of(shards, CoordinateRule())
        if dimension not in (None, width):
            raise InputError(f"dimension: expected {width}, as the data have, got {dimension}: leave it out")
    topology = as_topology("path" if graph is None else graph, len(sizes), places=places)
    own = None if kernel is None else as_kernel(kernel, width)
    count = len(CANDIDATES) if kernel is None else 1
    return Facts(
        sizes, width, topology, own, ModelOptions.normalize if normalize is None else normalize, compared=count
    )
