"""What the costs of a fleet's methods depend on: rows, inputs, links and the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fleetgp.consensus.agreements import MeanName
from fleetgp.data.transforms import CoordinateRule, seen_by
from fleetgp.errors import InputError, shortened
from fleetgp.fleet import Fleet
from fleetgp.fleet.shards import check_shards, places_of
from fleetgp.graph import Topology, as_topology
from fleetgp.kernels.composite import with_noise
from fleetgp.kernels.expression import AUTO, Kernels, as_kernels
from fleetgp.kernels.stationary import Kernel
from fleetgp.model.noise import NoiseModel
from fleetgp.options import ModelOptions
from fleetgp.validation import check_whole


@dataclass(frozen=True)
class Facts:
    """sizes: (M,) rows of each agent.  dimension: D.

    kernels: those that a training compares, or the only one, as the coordinates of the model see them.
    normalize: whether the fleet agrees on a mean and a scale first.  mean: its mean function.
    coordinates: of the inputs.  labels: the agents' names, if they have such.
    """

    sizes: tuple[int, ...]
    dimension: int
    topology: Topology
    kernels: Kernels
    normalize: bool = ModelOptions.normalize
    mean: MeanName = ModelOptions.mean
    coordinates: CoordinateRule = field(default_factory=CoordinateRule)
    labels: tuple[str, ...] = ()

    @property
    def agents(self) -> int:
        return len(self.sizes)

    @property
    def rows(self) -> int:
        return sum(self.sizes)

    @property
    def kernel(self) -> Kernel | None:
        """None if it is not known yet."""
        return self.kernels[0] if len(self.kernels) == 1 else None

    @property
    def noise_model(self) -> NoiseModel:
        return self.kernels[0].noise_model

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
    if isinstance(data, Fleet):
        if graph is not None or dimension is not None:
            raise InputError("a Fleet has its graph and its inputs: leave out graph and dimension")
        kernels = data.kernels
        if kernel is not None:
            inputs = data.inputs or data.dimension
            seen = seen_by(data.coordinates, as_kernels(kernel, inputs), inputs, data.mean)
            kernels = tuple(with_noise(one, data.noise_model) for one in seen)
        flag = data.normalize if normalize is None else normalize
        sizes = tuple(data.data.counts)
        return Facts(sizes, data.dimension, data.graph, kernels, flag, data.mean, data.coordinates, data.labels)
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
        sizes, width = tuple(shards.counts), shards[0].dimension
        places = places_of(shards, CoordinateRule())
        if dimension not in (None, width):
            raise InputError(f"dimension: expected {width}, as the data have, got {dimension}: leave it out")
    topology = as_topology("path" if graph is None else graph, len(sizes), places=places)
    kernels = as_kernels(AUTO if kernel is None else kernel, width)
    return Facts(sizes, width, topology, kernels, ModelOptions.normalize if normalize is None else normalize)
