"""What the costs of a fleet's methods depend on, and stand-ins for its agents.

Trainers and predictors run on stand-ins unchanged, and send what they would send for real agents: that depends on
shapes, and on which agents have data near the queries. A stand-in has as many rows as the real agent, at chosen places,
and a GP that costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.consensus.agreements import MeanName
from fleetgp.data.dataset import Dataset, InMemory
from fleetgp.data.transforms import CoordinateRule, Coordinates, kernels_in_coordinates
from fleetgp.engines.base import DataEngine, Evaluation, Posterior, Slopes, Trend
from fleetgp.engines.basis import Basis, Box
from fleetgp.engines.expert import MOST_DENSE, OtherEngine
from fleetgp.engines.moments.fleet import FleetMoments
from fleetgp.engines.moments.sums import ChebyshevSums
from fleetgp.engines.vecchia.engine import AROUND
from fleetgp.errors import InputError, shortened
from fleetgp.fleet import Fleet
from fleetgp.fleet.shards import check_shards, places_of
from fleetgp.graph import Topology, as_topology
from fleetgp.kernels.composite import with_noise
from fleetgp.kernels.expression import AUTO, Kernels, as_kernels
from fleetgp.kernels.stationary import Kernel
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.noise import NoiseModel
from fleetgp.model.observations import Observations, Summary
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
            seen = kernels_in_coordinates(data.coordinates, as_kernels(kernel, inputs), inputs, data.mean)
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


#: Rows of an agent that are really there, besides those that matter.
APART = 50
#: What an agent explains of the prior variance at its first row.
EXPLAINED = 0.9
#: Where the first rows are, and where no row is.
HERE, NOWHERE = 0.0, 1.0


# ---- the data ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class StandIns(Observations):
    """Interchangeable observations. more: how many there are besides those in the arrays."""

    more: int = 0

    def __len__(self) -> int:
        return len(self.values) + self.more

    def rows(self, chosen: Any) -> Observations:
        if not self.more:
            return super().rows(chosen)
        return self._with(0).rows(np.arange(len(self))[chosen] % len(self.values))

    def drawn(self, count: int, seed: int) -> IntArray:
        return np.arange(min(count, len(self)))

    def followed_by(self, others: Sequence[Observations]) -> Observations:
        result = super().followed_by(others)
        assert isinstance(result, StandIns)
        return result._with(sum(one.more for one in (self, *others) if isinstance(one, StandIns)))

    def _with(self, more: int) -> StandIns:
        return replace(self, more=more)


@dataclass(frozen=True)
class Scene:
    """shards: each agent's rows.  queries: (T, D)."""

    shards: InMemory
    queries: Array


def gathered(facts: Facts, kernel: Kernel, queries: int, here: BoolArray | None = None, at: float = HERE) -> Scene:
    """Ask all queries at one place, `at`. here: (M,) which agents have a row at HERE; None: all."""
    rng, shards = np.random.default_rng(0), []
    for agent, size in enumerate(facts.sizes):
        inputs = rng.uniform(0.25, 0.75, (min(size, APART), facts.dimension))
        if here is None or here[agent]:
            inputs[:1] = HERE
        shards.append(_observed(kernel, inputs, size, agent))
    return Scene(InMemory(shards), np.full((queries, facts.dimension), at))


def spread(facts: Facts, kernel: Kernel, queries: int, near: Sequence[int], first: Sequence[int], most: int) -> Scene:
    """Ask each query at a place of its own, with up to `most` rows of an agent there, and all other rows far away.

    near: (M,) how many rows of each agent are near a query.  first: (M,) the query with which an agent begins.
    """
    rng, shards = np.random.default_rng(0), []
    places = rng.uniform(0.0, 1.0, (queries, facts.dimension))
    places[:, 0] = 1.0 + np.arange(queries) / queries
    for agent, size in enumerate(facts.sizes):
        count = min(size, near[agent])
        inputs = rng.uniform(0.0, 1.0, (min(size, count + APART), facts.dimension))
        inputs[:, 0] = -np.arange(len(inputs)) / len(inputs)
        inputs[:count] = places[(first[agent] + np.arange(count) // most) % queries]
        shards.append(_observed(kernel, inputs, size, agent))
    return Scene(InMemory(shards), places)


def _observed(kernel: Kernel, inputs: Array, size: int, agent: int) -> Observations:
    """So many rows, of which the first have these inputs."""
    noise = kernel.noise_model
    if noise.robust:  # every row has a weight of its own
        inputs = np.resize(inputs, (size, inputs.shape[1]))
    values = np.where(np.arange(len(inputs)) % 2, 1.0, -1.0) + 0.01 * agent
    known = np.full(len(inputs), 0.1) if noise.known else None
    result = noise.observed(Observations(inputs, values, known), agent % max(1, len(noise.groups)))
    return StandIns(inputs, values, result.noise_std, result.group, result.weight, more=size - len(inputs))


class Counted(Dataset):
    """Data of which a training uses sums alone: sums over a few rows, with the true number of rows."""

    def __init__(self, facts: Facts, summaries: Sequence[Summary] | None = None) -> None:
        self.names = tuple(map(str, range(facts.agents)))
        self._facts = facts
        ends = np.stack([np.zeros(facts.dimension), np.ones(facts.dimension)])
        self._summaries = summaries or [_summary(ends, size) for size in facts.sizes]

    @property
    def summaries(self) -> Sequence[Summary]:
        return self._summaries

    def load(self) -> list[Observations]:
        raise InputError("there are no rows, only sums over them")

    def first_rows(self) -> list[Observations]:
        raise InputError("there are no rows, only sums over them")

    def moments(self, box: Box, sizes: tuple[int, ...]) -> list[FleetMoments]:
        corners = np.stack([one.low for one in self.summaries] + [one.high for one in self.summaries])
        values = np.where(np.arange(len(corners)) % 2, 1.0, -1.0)
        result = FleetMoments.of(ChebyshevSums(corners, values, box), sizes)
        return [result] * len(self.summaries)

    def rescaled(self, scaling: Any) -> Dataset:
        return self

    def moved(self, coordinates: Coordinates) -> Dataset:
        return Counted(self._facts, [coordinates.summary(one) for one in self.summaries])


def _summary(ends: Array, size: int) -> Summary:
    width = ends.shape[1]
    return Summary(ends[0], ends[1], ends.mean(axis=0), size, 0.0, float(size), size * np.eye(width), np.zeros(width))


# ---- the GP --------------------------------------------------------------------------------------------------------


class StandInEngine(DataEngine):
    """A convex likelihood that does not depend on the data, and posteriors that know f at the first row alone.

    near: how many rows count for a query, where not all do; None where all do.
    """

    name = "dense"

    def __init__(self, data: Observations, kernel: Kernel, agent: int | None, near: int | None, each: bool) -> None:
        super().__init__(data, kernel, agent)
        self.near, self.each = near, each

    def cost(self, theta: Array) -> float:
        return 0.0

    def evaluate(self, log_theta: Array) -> Evaluation:
        """exp(u) - u of each hyperparameter: no trainer reaches the minimum within a few rounds."""
        u = np.clip(log_theta - 0.1 * ((self.agent or 0) % 3), -30.0, 30.0)
        return Evaluation(float((np.exp(u) - u).sum()), np.exp(u) - 1.0, 0.0)

    def condition(self, theta: Array, before: Posterior | None = None) -> Posterior:
        return StandInPosterior(self, Hyperparameters.from_theta(theta))

    def products(self, theta: Array, trend: Trend) -> Array:
        return np.eye(trend.count + 1)


class StandInPosterior:
    """See `StandInEngine`."""

    engine, jitter = "dense", 0.0

    def __init__(self, of: StandInEngine, h: Hyperparameters) -> None:
        self._of, self.hyperparameters = of, h

    def mean_and_variance(self, queries: Array) -> tuple[Array, Array]:
        prior = self._of.kernel.variance(queries, self.hyperparameters)
        return np.zeros(len(queries)), prior - self._known(queries) * prior

    def explained_variance(self, queries: Array) -> Array:
        return self._known(queries) * self._of.kernel.variance(queries, self.hyperparameters)

    def _known(self, queries: Array) -> Array:
        if not self._of.size:
            return np.zeros(len(queries))
        here = np.isclose(queries, self._of.data.inputs[0], rtol=1e-9, atol=1e-9).all(axis=1)
        return np.where(here, EXPLAINED, 0.0)

    def mean_and_covariance(self, queries: Array) -> tuple[Array, Array]:
        raise AssertionError("nobody asks for it")

    def slopes(self, queries: Array) -> Slopes:
        raise AssertionError("nobody asks for it")

    def projected(self, basis: Basis, queries: Array) -> Array:
        return np.broadcast_to(0.0, (basis.rank, len(queries)))

    def weighted(self, queries: Array) -> tuple[Observations, Array]:
        size = self._of.size
        if self._of.near is not None:
            size = min(size, self._of.near * (len(queries) if self._of.each else 1))
        return self._of.data.rows(slice(size)), np.broadcast_to(0.0, (size, len(queries)))

    def left_out(self) -> tuple[Array, Array]:
        return np.zeros(self._of.size), np.ones(self._of.size)


def stand_in(engine: str, n_neighbours: int, *, apart: bool = True) -> OtherEngine:
    """The stand-in behind the name of a real engine. apart: whether the rows near one query are near no other."""

    def make(data: Observations, kernel: Kernel, agent: int | None) -> StandInEngine:
        all_of_them = engine == "dense" or (engine != "vecchia" and len(data) <= MOST_DENSE)
        return StandInEngine(data, kernel, agent, None if all_of_them else AROUND * n_neighbours, apart)

    return OtherEngine.of(engine, make)


@dataclass(frozen=True)
class StandInBasis:
    """A basis of which only the number of functions is used."""

    rank: int


def theta_for(kernel: Kernel, reach: Array, span: float) -> Array:
    """Hyperparameters (P,) whose length-scales are this share of the reach of the data, (D,)."""
    return np.array([*kernel.start(reach, span, 1.0), *[0.3] * kernel.noise_count])


def shared_out(count: int, sizes: Sequence[int]) -> IntArray:
    """Divide a count into whole numbers in proportion to the sizes."""
    ends = np.rint(count * np.cumsum([0, *sizes]) / sum(sizes))
    return np.diff(ends).astype(np.int64)
