"""A snapshot of a fleet: its data, its hyperparameters, and how the model sees the data."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.consensus.agreements import MeanName, Scaling
from fleetgp.data.dataset import Dataset, corners
from fleetgp.data.times import Moment, moment
from fleetgp.data.transforms import AS_GIVEN, CoordinateRule, Coordinates, Points, names_of
from fleetgp.engines.moments.fleet import FleetMoments
from fleetgp.errors import InputError
from fleetgp.fleet.privacy import PrivateRows
from fleetgp.graph import Topology
from fleetgp.kernels.stationary import Kernel
from fleetgp.prediction.conditioned import SentGroups
from fleetgp.prediction.kept import KeptGroups
from fleetgp.training import Fit

NONE: IntArray = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class ModelSnapshot:
    """What predictions are made from.

    theta: one for all agents, (P,), or every agent's estimate, (M, P): they agree on the mean before they predict.
    scaling, coordinates: those of the training; None if the agents have yet to agree on them, by mean, normalize and
        rule.
    rows: (M,) how many each agent has.
    moments: those of the training, if every agent has them, or the central node (`central`).
    trained: (M,) how many rows of each agent the moments include, the first ones.
    held: (M,) how many observations each agent has if its data are a sample of them; empty if they are all.
    units: of inputs and target by name, where they are known.  target, labels: the names of target and agents.
    time: the input that is the time.
    private: "rows" if rows must not be sent.
    sent: the rows of the groups that the agents have sent; it grows with every summary.
    kept: (M,) every agent's groups of rows that it has forgotten; empty if there are none.
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
    time: str | None = None
    target: str = "y"
    labels: tuple[str, ...] = ()
    private: PrivateRows | None = None
    sent: SentGroups = field(default_factory=dict)
    kept: tuple[KeptGroups, ...] = ()

    @property
    def fewest_rows(self) -> int:
        """The rows of the smallest agent, or the fewest new ones of an agent: their moments are sent separately."""
        new = [now - before for now, before in zip(self.rows, self.trained, strict=False) if now > before]
        return min([*self.rows, *(new if self.moments is not None else [])])

    @property
    def mean_theta(self) -> Array:
        """(P,) theta, or the geometric mean of the agents' estimates."""
        return self.theta if self.theta.ndim == 1 else np.asarray(np.exp(np.log(self.theta).mean(axis=0)))

    def moment(self, at_time: Moment | None) -> float:
        """Return a point in time as a number of the time input; None stands for now."""
        if self.time is None:
            raise InputError('at_time: expected a fleet with a time input (time="day", say), got one without')
        now = newest(self.shards, self.inputs, self.time) if at_time is None else None
        return moment(at_time, self.units.get(self.time), "at_time") if now is None else now

    def points(self, values: Array) -> Points:
        """Return queries (T, D) with the names and units of the inputs."""
        return Points(values, names_of(self.inputs, values.shape[1]), self.units, self.target)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the hyperparameters."""
        return self.kernel.names(self.inputs or self.shards.dimension)

    def same(self, other: ModelSnapshot) -> bool:
        """Whether data (the same read-only arrays) and model are the same."""
        same_kept = len(self.kept) == len(other.kept) and all(map(operator.is_, self.kept, other.kept))
        same_rows = self.moments is other.moments and self.shards.same(other.shards)
        return same_kept and same_rows and self._same_settings(other)

    def same_model(self, other: ModelSnapshot) -> bool:
        """Whether this is the same model, independent of the data; moments may have gone with rows."""
        known = self.scaling is not None and self.coordinates is not None
        return known and (self.moments is None or self.moments is other.moments) and self._same_settings(other)

    def replaced_since(self, other: ModelSnapshot) -> set[int]:
        """Return the agents that have lost rows, and those whose kept groups are others."""
        changed = {agent for agent, rows in self.shards.changes_since(other.shards).items() if rows is None}
        nothing = (None,) * len(self.rows)
        pairs = zip(self.kept or nothing, other.kept or nothing, strict=True)
        return changed | {agent for agent, (mine, its) in enumerate(pairs) if mine is not its}

    def grown_from(self, other: ModelSnapshot) -> bool:
        """Whether this is the same model, independent of the data, with more rows after the old ones."""
        return self.same_model(other) and not self.replaced_since(other)

    def _same_settings(self, other: ModelSnapshot) -> bool:
        return (
            np.array_equal(self.theta, other.theta) and self.graph is other.graph and self._compared == other._compared
        )

    @property
    def _compared(self) -> tuple[object, ...]:
        """The fields of the model that are compared by value."""
        names = self.inputs, self.units, self.time, self.target, self.labels
        agreed = self.scaling, self.coordinates, self.mean, self.normalize, self.rule
        return *names, self.kernel, self.seed, self.central, *agreed


def newest(shards: Dataset, inputs: Sequence[str] | None, time: str | None) -> float | None:
    """Return the time of the newest row of all agents. time: the input that is the time."""
    if inputs is None or time is None:
        return None
    axis = list(inputs).index(time)
    if shards.in_memory:
        return float(max(own.inputs[:, axis].max() for own in shards if len(own)))
    return float(corners(shards.summaries)[1][axis])


def held_by(shards: Dataset, fit: Fit | None) -> IntArray:
    """Return (M,) how many observations each agent has if its rows in memory are a sample; empty if they are all.

    A model that was read from a folder has the rows that it was trained on and later ones. `note_sample` counts files.
    """
    if fit is None or not len(fit.held) or not shards.in_memory:
        return NONE
    return np.asarray(fit.held + np.array(shards.counts) - fit.drawn)
