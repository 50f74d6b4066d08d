"""The model of a fleet as it is now: data, hyperparameters, and how the model sees the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.consensus.agreements import MeanName, Scaling
from fleetgp.data.dataset import Dataset
from fleetgp.data.transforms import AS_GIVEN, CoordinateRule, Coordinates, Points, names_of
from fleetgp.engines.moments.fleet import FleetMoments
from fleetgp.fleet.privacy import PrivateRows
from fleetgp.graph import Topology
from fleetgp.kernels.stationary import Kernel
from fleetgp.training import Fit

NONE: IntArray = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class ModelSnapshot:
    """What a fleet is conditioned on: its data, and where the hyperparameters come from.

    theta: one for all agents, (P,); or every agent's estimate, (M, P): they agree on the mean before they predict.
    scaling, coordinates: those of the training; None if the agents have yet to agree on them.
    mean, normalize, rule: how, then.
    rows: (M,) how many each agent has.
    held: (M,) how many observations each agent had where the data are a sample of them; empty if they are all.
    units, target: of inputs and target by name, where they are known, and what the target is called.
    labels: what the agents are called.
    private: "rows" if these must stay at home.
    moments: those of the data of the training, if every agent has them from there, or the central node has (`central`).
    trained: (M,) of how many rows of each agent they are: the first ones.
    """

    shards: Dataset
    inputs: Sequence[str] | None
    graph: Topology
    kernel: Kernel
    theta: Array
    scaling: Scaling | None
    seed: int
    rows: tuple[int, ...]
    moments: FleetMoments | None = None
    trained: tuple[int, ...] = ()
    mean: MeanName = "zero"
    normalize: bool = False
    coordinates: Coordinates | None = AS_GIVEN
    rule: CoordinateRule = field(default_factory=CoordinateRule)
    central: bool = False
    held: IntArray = field(default_factory=lambda: NONE)
    units: Mapping[str, str] = field(default_factory=dict)
    target: str = "y"
    labels: tuple[str, ...] = ()
    private: PrivateRows | None = None

    @property
    def fewest_rows(self) -> int:
        """The rows of the smallest agent, or the fewest new ones of an agent, since moments of these are sent apart."""
        new = [now - before for now, before in zip(self.rows, self.trained, strict=False) if now > before]
        return min([*self.rows, *(new if self.moments is not None else [])])

    @property
    def mean_theta(self) -> Array:
        """(P,) the one theta, or the geometric mean of the agents' estimates."""
        return self.theta if self.theta.ndim == 1 else np.asarray(np.exp(np.log(self.theta).mean(axis=0)))

    def points(self, values: Array) -> Points:
        """Queries (T, D) with the names of the inputs."""
        return Points(values, names_of(self.inputs, values.shape[1]), self.units, self.target)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the hyperparameters."""
        return self.kernel.names(self.inputs or self.shards.dimension)

    def same(self, other: ModelSnapshot) -> bool:
        """Whether these are the same data (the same arrays, which nobody may write to) and the same model."""
        return self.shards.same(other.shards) and self._same_model(other)

    def grown_from(self, other: ModelSnapshot) -> bool:
        """Whether this is the same model, of which nothing follows from the data, with more rows after the old ones."""
        known = self.scaling is not None and self.coordinates is not None
        return known and self._same_model(other) and self.shards.added_since(other.shards) is not None

    def _same_model(self, other: ModelSnapshot) -> bool:
        return (
            np.array_equal(self.theta, other.theta)
            and self.graph is other.graph
            and (self.moments is other.moments and self.central == other.central)
            and self._model == other._model
        )

    @property
    def _model(self) -> tuple[object, ...]:
        agreed = self.scaling, self.coordinates, self.mean, self.normalize, self.rule
        return (self.inputs, self.units, self.target, self.labels, self.kernel, self.seed, *agreed)


def held_by(shards: Dataset, fit: Fit | None) -> IntArray:
    """(M,) how many observations each agent has, where its rows in memory are a sample of them; empty if they are all.

    The rows of a model that was read are what it was trained on, and what came later. Files tell themselves.
    """
    if fit is None or not len(fit.held) or not shards.in_memory:
        return NONE
    return np.asarray(fit.held + np.array(shards.counts) - fit.drawn)
