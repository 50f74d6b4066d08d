"""What a verification looks at: a fleet's own data and model, of which large parts are sampled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.consensus.samples import augmented, communication_data
from fleetgp.data.holdout import drawn
from fleetgp.data.scaling import View
from fleetgp.data.streamed import Streamed, counts_of, dimension_of
from fleetgp.engines.expert import Expert
from fleetgp.errors import InputError, shortened
from fleetgp.fleet import ConditionedFleet, Fleet
from fleetgp.fleet.answering import agree_on_model, current_calibration
from fleetgp.fleet.privacy import predictor_of, refuse_private
from fleetgp.fleet.source import Source, source_of
from fleetgp.graph import Graph
from fleetgp.model.observations import Observations
from fleetgp.network import InProcess
from fleetgp.prediction import PredictionOptions, prediction_method
from fleetgp.training import training_method
from fleetgp.training.outer_loops import reweighed_experts

#: Rows of all agents together on which answers are compared, and the fewest of an agent.
MOST_ROWS, FEWEST_ROWS = 3000, 20
#: Rows of all agents together beyond which no likelihood of them all is evaluated.
MOST_LIKELY = 20_000
#: Points at which answers are compared.
QUERIES = 40


@dataclass(frozen=True)
class Subject:
    """source: the fleet with a sample of its rows.  methods: of prediction.  hold: the share of rows that is hidden."""

    fleet: Fleet
    source: Source
    methods: tuple[str, ...]
    hold: float
    seed: int

    @classmethod
    def of(cls, fleet: Fleet, methods: tuple[str, ...], hold: float, seed: int) -> Subject:
        whole = source_of(fleet, None, ())
        shards = fleet.data.first_rows() if isinstance(fleet.data, Streamed) else fleet.data
        sample = _drawn(shards, max(FEWEST_ROWS, MOST_ROWS // fleet.agents), seed)
        return cls(fleet, replace(whole, shards=sample, private=None), methods, hold, seed)

    def part(self, most: int) -> list[Observations]:
        """At most so many rows of each agent."""
        return _drawn(self.source.shards, most, self.seed)

    @property
    def sampled(self) -> tuple[str, ...]:
        """What is said of the sample."""
        rows, every = sum(counts_of(self.source.shards)), sum(counts_of(self.fleet.data))
        of = "all" if rows == every else f"a random sample of {rows:,} of the"
        return (f"Answers were compared at {QUERIES} points, with {of} {every:,} rows.",)

    # ---- answers ---------------------------------------------------------------------------------------------

    def conditioned(self, shards: Sequence[Observations] | None = None) -> ConditionedFleet:
        """The fleet at its theta, in this process, without anything kept from before, and not calibrated."""
        return ConditionedFleet(self.source if shards is None else replace(self.source, shards=shards))

    def calibrated(self, shards: Sequence[Observations], method: str) -> ConditionedFleet:
        """The same with the fleet's calibration, if it is one for this method."""
        found, calibration = self.conditioned(shards), current_calibration(self.fleet, None)
        if calibration is not None and calibration.method == method:
            found.calibration = calibration
        return found

    def alone(self) -> ConditionedFleet:
        """One agent with the rows of all."""
        rows, theta = Observations.joined(self.source.shards), self.source.theta
        one = theta if theta.ndim == 1 else np.exp(np.log(theta).mean(axis=0))
        return ConditionedFleet(replace(self.source, shards=[rows], theta=one, graph=Graph.path(1)))

    @cached_property
    def points(self) -> Array:
        """(T, D) inputs of rows, and places between them."""
        rng, seen = np.random.default_rng(self.seed), Observations.joined(self.source.shards).inputs
        own = seen[rng.choice(len(seen), min(len(seen), QUERIES // 2), replace=False)]
        pairs = seen[rng.integers(0, len(seen), (2, QUERIES - len(own)))]
        return np.concatenate([own, pairs.mean(axis=0)])

    def hidden(self) -> list[BoolArray]:
        """Which rows each agent hides."""
        found = []
        for agent, count in enumerate(counts_of(self.source.shards)):
            rows = np.random.default_rng([self.seed, agent]).permutation(count)[: int(self.hold * count)]
            found.append(np.isin(np.arange(count), rows))
        return found

    # ---- likelihoods -----------------------------------------------------------------------------------------

    @cached_property
    def model(self) -> tuple[View, Array]:
        """How the model sees the data, and its theta (P,) in its coordinates, for scaled observations."""
        network, row = InProcess(self.source.graph), prediction_method("dec-poe")
        view, theta = agree_on_model(network, self.source, row, PredictionOptions())
        units = self.source.kernel.units(dimension_of(self.source.shards))
        return view, np.asarray(theta / np.exp(view.scaling.shift(units)))

    def experts(self, shards: Sequence[Observations], engine: str = "auto") -> list[Expert]:
        """Each agent's, of these rows."""
        view, theta = self.model
        kernel = self.source.kernel
        data = view.scaling.apply(view.coordinates.apply(shards))
        found = [Expert(own, kernel, agent, engine) for agent, own in enumerate(data)]
        return reweighed_experts(found, np.tile(np.log(theta), (len(found), 1))) if kernel.noise_model.robust else found

    def trained_on(self) -> list[Observations]:
        """What each agent's likelihood was of: its own rows, and for some methods samples of the others."""
        fit = self.fleet.fit
        shards = list(self.fleet.data)
        if fit is None or not training_method(fit.method).augmented:
            return shards
        samples = communication_data(InProcess(self.fleet.graph), shards, self.fleet.seed, central=False)
        return [augmented(shard, agent, samples) for agent, shard in enumerate(shards)]


def _drawn(shards: Sequence[Observations], most: int, seed: int) -> list[Observations]:
    return [own.rows(drawn(np.arange(len(own)), most, own.inputs, own.values, seed)) for own in shards]


def check_methods(methods: object, fleet: Fleet) -> tuple[str, ...]:
    """The methods of prediction that are looked at, or one clear error."""
    if methods is None:
        fit, calibration = fleet.fit, fleet.calibration
        first = "dec-full-gp" if fit is not None and fit.method == "dec-full-gp" else predictor_of(fleet.private).name
        more = () if calibration is None or calibration.method == first else (calibration.method,)
        return (first, *more)
    if isinstance(methods, str) or not isinstance(methods, Sequence) or not len(methods):
        raise InputError(f"methods: expected a list of prediction methods, got {shortened(methods)}")
    rows = [prediction_method(name) for name in methods]
    for row in rows:
        refuse_private(row, fleet.private, fleet.kernel, rows=min(counts_of(fleet.data)))
    return tuple(row.name for row in rows)
