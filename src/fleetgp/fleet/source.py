"""What a fleet is conditioned on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus.scaling import MeanName, Scaling
from fleetgp.data.coordinates import AS_GIVEN, CoordinateRule, Coordinates
from fleetgp.data.partition import Shard
from fleetgp.data.streamed import as_they_are, dimension_of, visible_of
from fleetgp.errors import InputError
from fleetgp.fleet.shards import same_shards
from fleetgp.fleet.thetas import check_theta_of
from fleetgp.gp.kernels import Kernel
from fleetgp.gp.moments.fleet import FleetMoments
from fleetgp.graph import Topology

if TYPE_CHECKING:
    from fleetgp.fleet.fleet import Fleet


@dataclass(frozen=True)
class Source:
    """What a fleet is conditioned on: its data, and where the hyperparameters come from.

    theta: one for all agents, (P,); or every agent's estimate, (M, P): they agree on the mean before they predict.
    scaling, coordinates: those of the training; None if the agents have yet to agree on them.
    mean, normalize, rule: how, then.
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
    mean: MeanName = "zero"
    normalize: bool = False
    coordinates: Coordinates | None = AS_GIVEN
    rule: CoordinateRule = field(default_factory=CoordinateRule)

    @property
    def seen(self) -> Sequence[Shard]:
        """The data without what tells of their noise."""
        return visible_of(self.shards, self.kernel.noises)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the hyperparameters."""
        return self.kernel.names(self.inputs or dimension_of(self.shards))

    def same(self, other: Source) -> bool:
        """Whether these are the same data (the same arrays, which nobody may write to) and the same model."""
        return (
            same_shards(self.shards, other.shards)
            and np.array_equal(self.theta, other.theta)
            and self.graph is other.graph
            and self.moments is other.moments
            and self._model == other._model
        )

    @property
    def _model(self) -> tuple[object, ...]:
        agreed = self.scaling, self.coordinates, self.mean, self.normalize, self.rule
        return (self.inputs, self.kernel, self.seed, *agreed)


def source_of(fleet: Fleet, theta: Sequence[float] | Array | None, trained: Sequence[Shard]) -> Source:
    """What predictions are from: with the theta that was given, or that of the fleet. trained: its fit is of these."""
    fit = fleet.fit
    if theta is not None:
        model = check_theta_of(fleet.shards, theta, fleet.names)
    elif fleet.theta is None:
        why = "call train first" if fit is None else f"{fit.method} diverged, train in another way"
        raise InputError(f"the fleet has no hyperparameters yet: {why}, or give theta")
    elif fit is None or fit.status == "diverged" or not np.array_equal(fleet.theta, fit.theta):
        model = check_theta_of(fleet.shards, fleet.theta, fleet.names)  # as it was set
    else:
        model = fit.thetas if fit.moments is None else fit.thetas[0]  # with moments comes an agreed theta
    agreed = fleet.normalize or fleet.mean != "zero"
    scaling = fit.scaling if fit is not None else None if agreed else Scaling()
    coordinates = fit.coordinates if fit is not None else None if fleet.coordinates.name != "as-given" else AS_GIVEN
    moments = fit.moments if fit is not None and same_shards(fleet.shards, trained) else None
    data = as_they_are(fleet.shards)
    return Source(
        data,
        fleet.inputs,
        fleet.graph,
        fleet.kernel,
        model,
        scaling,
        fleet.seed,
        moments,
        fleet.mean,
        fleet.normalize,
        coordinates,
        fleet.coordinates,
    )
