"""A training before its first round: the data each expert holds, and where to start.

All that the fleet has to agree on for it is agreed here: scaling, samples of the augmented methods, starts and the
floor of sigma_eps.

An agent with many observations first trains on some of them: a thousand say much about theta, and their exact
likelihood is cheap. All starts are followed on the smallest sample; the best one continues with eight
times as many, and so on, at last with all.

Along an input without effect the likelihood approaches its limit as the length-scale grows; so does that of rq as alpha
grows, and that of a part of the kernel that is not needed as its sigma_f shrinks. There is no minimum then, and nothing
is wrong: beyond some point all values are equally good. Limits that all agents know stop the search there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.consensus import Interlude
from fleetgp.consensus.agreements import Scaling, agree_on_scaling, augmented, communication_data, has_enough
from fleetgp.consensus.reductions import Alone, Reduction, gather_data, of_fleet
from fleetgp.consensus.stopping import NEVER, Deadline
from fleetgp.data.dataset import Dataset, InMemory
from fleetgp.engines.expert import MOST_DENSE, Expert
from fleetgp.kernels.stationary import OBSERVED, Kernel
from fleetgp.model.observations import Observations
from fleetgp.network import Network
from fleetgp.training.constraints import Bounds, ParameterConstraints
from fleetgp.training.objective import Curvature, Local, Objective
from fleetgp.training.options import TrainingOptions

if TYPE_CHECKING:
    from fleetgp.training.methods import TrainingMethod


@dataclass(frozen=True)
class TrainingProblem:
    """bounds, starts: of log theta, (S, P) within them, for the scaled observations.

    known: what the bounds and the priors are from.  floor: the smallest sigma_eps that noise_floor allows; 0 if it does
    not bound it.  shift: what to add to log theta for that in the units of the data, (P,).  levels: of samples of the
    data to be trained on first.  data_at: the data that each expert has, with another mean function.
    limits: those of the bounds that nobody has given, at which the
    likelihood is flat.  offset: how many times the size of the observations is their standard deviation, in powers of
    two; 0 where nobody knows.  interlude: what the agents may do in between.
    """

    method: TrainingMethod
    kernel: Kernel
    network: Network
    reduction: Reduction
    scaling: Scaling
    known: ParameterConstraints
    bounds: Bounds
    floor: float
    objective: Objective
    starts: Array
    shift: Array
    levels: int = 0
    deadline: Deadline = NEVER
    data_at: Callable[[Scaling], Dataset] | None = None
    limits: Bounds = field(default_factory=Bounds)
    offset: float = 0.0
    interlude: Interlude | None = None

    @property
    def dimension(self) -> int:
        return self.objective.experts[0].dimension

    def evaluate(self, x: Array) -> Local:
        """The likelihoods of the hosted agents, each at its own log theta (A, P)."""
        return Local(x, self.objective(x), Curvature.constant(1.0, x))

    def start(self, number: int) -> Array:
        """One of the starts at every expert, (A, P)."""
        return np.tile(self.starts[number], (len(self.objective.experts), 1))

    def thetas(self, x: Array) -> Array:
        """theta in the units of the data from x = log theta; a diverged one may be infinite, which its status says."""
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray(np.exp(x + self.shift))

    def corrected(self, step: Sequence[float]) -> TrainingProblem:
        """With so much more of the mean function."""
        assert self.data_at is not None, "the data are here"
        scaling = self.scaling.corrected(step)
        pairs = zip(self.objective.experts, self.data_at(scaling), strict=True)
        experts = [expert.reobserved(expert.data.with_values(one.values)) for expert, one in pairs]
        return replace(self, scaling=scaling, objective=self.objective.of(experts))

    def reweighed(self, x: Array) -> TrainingProblem:
        """With weights against outliers for these log theta, (A, P)."""
        return replace(self, objective=self.objective.reweighed(x))

    def parts(self, x: Array) -> list[tuple[TrainingProblem, Array]]:
        """The problem of each output, and its part of log theta (A, P)."""
        return [(self, x)]


def prepare(
    method: TrainingMethod,
    shards: Dataset,
    network: Network,
    kernel: Kernel,
    options: TrainingOptions,
    interlude: Interlude | None = None,
) -> TrainingProblem:
    """Agree on what a training needs, for the hosted agents, whose data are `shards`. Its time begins now."""
    deadline = Deadline.after(options.seconds, network.clock)
    pooled = method.meet == "pool"
    reduction = Alone() if pooled else of_fleet(network, central=not method.decentralized)
    scaling = Scaling()
    if pooled:
        shards = InMemory(gather_data(network, shards))
    if options.normalize or options.mean != "zero":
        # Before any sharing of samples, which would count them M times.
        with network.phase("normalize"):
            scaling = agree_on_scaling(reduction, shards, options.mean, normalize=options.normalize, learning=True)
    given = InMemory(_data(method, shards, network, options.seed))
    shift = scaling.shift(kernel.units(shards.dimension))  # the scale stays, whatever the mean function
    known = options.known_of(kernel.names(shards.dimension))
    data = given.rescaled(scaling)
    experts = [
        Expert(own, kernel, agent, options.engine, options.n_neighbours)
        for own, agent in zip(data, (None,) if pooled else network.hosted, strict=True)
    ]
    region = _search_region(reduction, data, network, kernel, options, shift)
    return TrainingProblem(
        method=method,
        network=network,
        reduction=reduction,
        scaling=scaling,
        known=known,
        bounds=region.bounds,
        floor=region.floor,
        objective=Objective(experts, known.prior.shifted(-shift), 1.0 if pooled else 1.0 / network.agents),
        starts=region.starts,
        shift=shift,
        levels=region.levels,
        deadline=deadline,
        data_at=given.rescaled,
        kernel=kernel,
        limits=region.limits,
        offset=region.offset,
        interlude=interlude,
    )


def _data(method: TrainingMethod, shards: Dataset, network: Network, seed: int) -> list[Observations]:
    if method.meet == "pool":
        return [Observations.joined(shards)]
    if method.augmented:
        with network.phase("augment"):
            samples = communication_data(network, shards, seed, central=not method.decentralized)
        return [augmented(s, i, samples) for s, i in zip(shards, network.hosted, strict=True)]
    return list(shards)


@dataclass(frozen=True)
class SearchRegion:
    """Where a training may go, as `TrainingProblem` has it."""

    starts: Array
    bounds: Bounds
    floor: float
    limits: Bounds
    levels: int = 0
    offset: float = 0.0

    @classmethod
    def of(
        cls,
        kernel: Kernel,
        options: TrainingOptions,
        shift: Array,
        dimension: int,
        agreed: Magnitudes | None,
        agents: int,
    ) -> SearchRegion:
        """For the scaled observations: around the starts that were given, else by the magnitudes of the data.

        shift: what to add to log theta of these for that in the units of the data.
        agreed: None where starts were given, and the floor does not depend on the data.
        """
        known, noises = options.known_of(kernel.names(dimension)), kernel.noise_count
        own = bounds = known.bounds.shifted(-shift)
        floor = options.noise_floor * (1.0 if options.normalize or agreed is None else agreed.deviation)
        if floor > 0.0:
            bounds = own.floored(float(np.log(floor)), noises)
        if options.starts is None:
            assert agreed is not None, "without starts it is asked for"
            reach = reach_of(agreed, agents)
            starts = bounds.clipped(default_starts(agreed, agents, kernel))
            starts = starts[:1] if (starts == starts[0]).all() else starts  # bounds may have made them the same
            base, far = kernel.start(reach, 1.0, agreed.size), kernel.start(reach, LONGEST, agreed.size)
            limits = _limits(kernel, dimension, base, np.where(far == base, LARGEST_SHAPE * base, far), LOUDEST)
        else:
            starts = bounds.clipped(options.starts - shift)
            signals = np.exp(starts[:, : starts.shape[1] - noises])
            limits = _limits(kernel, dimension, signals.min(axis=0), LARGEST_SHAPE * signals.max(axis=0), np.inf)
        # Bounds and priors replace limits.
        free = np.broadcast_to(known.prior.precision == 0.0, limits.lower.shape)
        low = np.where(free & (bounds.lower == -np.inf) & (bounds.upper > limits.lower), limits.lower, -np.inf)
        high = np.where(free & (bounds.upper == np.inf) & (bounds.lower < limits.upper), limits.upper, np.inf)
        within = Bounds(np.maximum(bounds.lower, low), np.minimum(bounds.upper, high))
        return cls(bounds.clipped(starts), within, 0.0 if bounds is own else floor, Bounds(low, high))


def _search_region(
    reduction: Reduction, data: Dataset, network: Network, kernel: Kernel, options: TrainingOptions, shift: Array
) -> SearchRegion:
    """For the scaled observations; samples come first only where neither starts nor rounds are given.

    Scaled observations have a deviation of 1. Otherwise it is the largest of the agents' own, rounded up.
    """
    unbounded = 0.0 in options.known_of(kernel.names(data.dimension)).lower[-kernel.noise_count :]
    floored = options.noise_floor > 0.0 and not options.normalize and unbounded
    agreed = None
    if options.starts is None or floored:
        with network.phase("floor" if options.starts is not None else "starts"):
            agreed = agree_on_magnitudes(reduction, data, widths=options.starts is None, deviation=floored)
    region = SearchRegion.of(kernel, options, shift, data.dimension, agreed, network.agents)
    levels = agreed.levels if agreed is not None and options.tol > 0.0 else 0
    offset = agreed.size / agreed.deviation if agreed is not None and floored else 0.0
    return replace(region, levels=levels, offset=offset)


# ---- where a search ends ------------------------------------------------------------------------------------------

#: The longest length-scale, as a multiple of the reach of the data: the kernel is constant along the input, to 1e-6.
LONGEST = 1e3
#: The largest alpha of rq, which is se by then, and any other hyperparameter without a unit: a multiple of its start.
LARGEST_SHAPE = 1e4
#: The smallest and the largest sigma_f, as multiples of the observations' size. It grows without end, together with
#: the length-scales, where observations without noise follow a straight line.
FAINTEST, LOUDEST = 1e-5, 1e3


def _limits(kernel: Kernel, dimension: int, signals: Array, largest: Array, loudest: float) -> Bounds:
    """On log theta, (P,). signals: the sizes of each sigma_f.  largest: of the other hyperparameters, without noise."""
    noises = kernel.noise_count
    signal = kernel.units(dimension)[:-noises] == OBSERVED
    with np.errstate(divide="ignore"):
        lower = np.where(signal, np.log(FAINTEST * signals), -np.inf)
        upper = np.log(np.where(signal, loudest * signals, largest))
    return Bounds(np.append(lower, np.full(noises, -np.inf)), np.append(upper, np.full(noises, np.inf)))


# ---- samples, and default starts -----------------------------------------------------------------------------------

#: Observations of an agent in the smallest sample, and how many times as many are in the next one.
SMALLEST, TIMES = 1000, 8
#: A sample is taken if all observations are more than so many times as many; the smallest one if they are more than the
#: dense engine takes.
WORTH = 4


def levels(observations: int) -> int:
    """How many samples an agent with so many observations trains on first.

    >>> [levels(n) for n in (1_500, 1_501, 32_000, 32_001, 1_000_000)]
    [0, 1, 1, 2, 3]
    """
    if observations <= MOST_DENSE:
        return 0
    count = 1
    while observations > WORTH * SMALLEST * TIMES**count:
        count += 1
    return count


def first_sizes(observations: IntArray) -> IntArray:
    """How many observations of each agent are in the smallest sample."""
    return np.minimum(observations, SMALLEST)


def sampled(objective: Objective, level: int, seed: int) -> Objective:
    """The likelihoods of a sample with at most as many observations of each agent as the level has.

    level: 0 for the smallest sample.  seed: known to all. Rows are drawn by where they lie (`arrays.py`).
    """
    size = SMALLEST * TIMES**level

    def sample(expert: Expert) -> Expert:
        return expert if expert.size <= size else expert.part(expert.data.drawn(size, seed))

    return objective.changed(sample)


#: Length-scales of the default starts, as fractions of the reach of the data.
SPANS = (0.5, 0.15, 0.05)
#: Noise of the default starts, as a fraction of the observations' size.
NOISE = 0.3


#: For minus infinity, which is of no agent: a power of two below that of any number.
POWER_OF_ZERO = -2000.0


@dataclass(frozen=True)
class Magnitudes:
    """Powers of two, agreed by the fleet: how wide its data are, (D,), how large, and how far they vary.

    levels: of the samples of its data that the largest agent trains on first.
    """

    widths: Array
    size: float
    deviation: float
    levels: int = 0


def agree_on_magnitudes(
    reduction: Reduction, shards: Sequence[Observations], *, widths: bool = False, deviation: bool = False
) -> Magnitudes:
    """What is asked for, in one message; the size comes with either, the levels with the widths.

    Only the fleet's maxima of rounded magnitudes are agreed: the power of two at or above each agent's width along
    each axis, its root mean square, and its standard deviation, and of its size about a power of ten. No coordinate and
    no observation can be read from them. A magnitude of zero counts as 1, a deviation of zero as the size. An agent
    with few rows takes no part, unless all have few.
    """
    values = [one.values for one in shards]
    columns = [np.array([[np.sqrt((y**2).mean()) if len(y) else 0.0] for y in values])]
    if widths:
        nothing = np.zeros(shards[0].dimension)
        columns.insert(0, np.stack([np.ptp(one.inputs, axis=0) if len(one) else nothing for one in shards]))
    if deviation:
        columns.append(np.array([[y.std() if len(y) and np.ptp(y) > 0.0 else 0.0] for y in values]))
    own = power_of_two(np.concatenate(columns, axis=1))
    if widths:
        own = np.column_stack([[levels(len(one)) for one in shards], own])
    enough = np.array([[has_enough(len(one))] for one in shards])
    own = np.maximum(own, POWER_OF_ZERO)
    powers = reduction.maximum(np.where(enough, own, -np.inf))
    if not np.isfinite(powers).all():
        powers = reduction.maximum(own)
    largest, powers = (int(powers[0]), powers[1:]) if widths else (0, powers)
    sizes = np.exp2(np.where(powers > POWER_OF_ZERO, powers, 0.0))
    size = float(sizes[-2] if deviation else sizes[-1])
    varied = deviation and bool(powers[-1] > POWER_OF_ZERO)
    reach = sizes[: shards[0].dimension] if widths else np.empty(0)
    return Magnitudes(reach, size, float(sizes[-1]) if varied else size, largest)


def default_starts(magnitudes: Magnitudes, agents: int, kernel: Kernel) -> Array:
    """log theta of the default starts, (S, P), from how wide the agents' data are and how large."""
    reach, size = reach_of(magnitudes, agents), magnitudes.size
    return np.log([[*kernel.start(reach, span, size), *[NOISE * size] * kernel.noise_count] for span in SPANS])


def reach_of(magnitudes: Magnitudes, agents: int) -> Array:
    """How far the fleet's data reach, (D,).

    An agent's width may be the fleet's (data from everywhere) or an M-th of it (stripes): the reach is taken
    between the two.
    """
    return np.asarray(magnitudes.widths * np.sqrt(np.sqrt(agents) * len(magnitudes.widths)))


def power_of_two(x: Array) -> Array:
    """The exponent of the power of two at or above x; minus infinity for zero."""
    return np.ceil(np.log2(x, out=np.full_like(x, -np.inf), where=x > 0.0))


def best_start(reduction: Reduction, nll: Array) -> tuple[int, Array]:
    """The start with the smallest total NLL, and all totals (S,); nll is (A, S), infinite where diverged.

    Every agent adds the same numbers in the same order, so no two agents can choose differently.
    """
    totals = reduction.total(np.where(np.isfinite(nll), nll, 1e300))
    totals = np.where(totals < 1e299, totals, np.inf)
    return int(np.argmin(totals)), totals
