"""A training before its first round: the data each expert holds, where to start, and the trainer.

All that the fleet has to agree on for it is agreed here: scaling, samples, starts and the floor of sigma_eps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus import Interlude
from fleetgp.consensus.agreements import Scaling, agree_on_scaling
from fleetgp.consensus.reductions import Alone, ByServer, ByTree, Reduction, gather_data
from fleetgp.consensus.samples import augmented, communication_data
from fleetgp.consensus.stopping import NEVER, Deadline
from fleetgp.data.dataset import Dataset, InMemory
from fleetgp.engines.expert import Expert
from fleetgp.kernels.stationary import Kernel
from fleetgp.model.observations import Observations
from fleetgp.network import Network
from fleetgp.training.admm import EdgeAdmm, ServerAdmm
from fleetgp.training.central import CentralMinimizer, Pooled, Shared, TreeNewton
from fleetgp.training.constraints import Bounds, Known
from fleetgp.training.flat import limits_around, limits_of, open_limits, within
from fleetgp.training.methods import TrainingMethod
from fleetgp.training.objective import Objective
from fleetgp.training.options import TrainingOptions
from fleetgp.training.primal import LinearizedStep, NestedStep, Primal
from fleetgp.training.starts import agree_on_magnitudes, default_starts, different, reach_of


@dataclass(frozen=True)
class Setting:
    """bounds, starts: of log theta, (S, P) within them, for the scaled observations.

    known: what the bounds and the priors are from.  floor: the smallest sigma_eps that noise_floor allows; 0 if it does
    not bound it.  shift: what to add to log theta for that in the units of the data, (P,).  levels: of samples of the
    data to be trained on first.  data_at: the data that each expert has, with another mean function.
    noises: how many hyperparameters are of the noise.  limits: those of the bounds that nobody has given, at which the
    likelihood is flat.  offset: how many times the size of the observations is their standard deviation, in powers of
    two; 0 where nobody knows.
    """

    method: TrainingMethod
    network: Network
    reduction: Reduction
    scaling: Scaling
    known: Known
    bounds: Bounds
    floor: float
    objective: Objective
    starts: Array
    shift: Array
    levels: int = 0
    deadline: Deadline = NEVER
    data_at: Callable[[Scaling], Dataset] | None = None
    noises: int = 1
    limits: Bounds = field(default_factory=Bounds)
    offset: float = 0.0

    @property
    def dimension(self) -> int:
        """Of the inputs."""
        return self.objective.experts[0].dimension

    def start(self, number: int) -> Array:
        """One of the starts at every expert, (A, P)."""
        return np.tile(self.starts[number], (len(self.objective.experts), 1))

    def thetas(self, x: Array) -> Array:
        """theta in the units of the data from x = log theta; a diverged one may be infinite, which its status says."""
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray(np.exp(x + self.shift))

    def corrected(self, step: Sequence[float]) -> Setting:
        """With so much more of the mean function."""
        assert self.data_at is not None, "the data are here"
        scaling = self.scaling.corrected(step)
        pairs = zip(self.objective.experts, self.data_at(scaling), strict=True)
        experts = [expert.reobserved(expert.data.with_values(one.values)) for expert, one in pairs]
        return replace(self, scaling=scaling, objective=self.objective.of(experts))


def prepare(
    method: TrainingMethod, shards: Dataset, network: Network, kernel: Kernel, options: TrainingOptions
) -> Setting:
    """Agree on what a training needs, for the hosted agents, whose data are `shards`. Its time begins now."""
    deadline = Deadline.after(options.seconds, network.clock)
    reduction = _reduction(method, network)
    scaling = Scaling()
    if method.meet == "pool":
        shards = InMemory(gather_data(network, shards))
    if options.normalize or options.mean != "zero":
        # Before any sharing of samples, which would count them M times.
        with network.phase("normalize"):
            scaling = agree_on_scaling(reduction, shards, options.mean, normalize=options.normalize, learning=True)
    given = InMemory(_data(method, shards, network, options.seed))
    ids = (None,) if method.meet == "pool" else network.hosted
    chosen = options.engine, options.n_neighbours
    shift = scaling.shift(kernel.units(shards.dimension))  # the scale stays, whatever the mean function
    known = options.known_of(kernel.names(shards.dimension))
    prior = known.prior.shifted(-shift)
    data = given.rescaled(scaling)
    experts = [Expert(own, kernel, agent, *chosen) for own, agent in zip(data, ids, strict=True)]
    objective = Objective(experts, prior, 1.0 if method.meet == "pool" else 1.0 / network.agents)

    def data_at(scaling: Scaling) -> Dataset:
        return given.rescaled(scaling)

    agreed = _starts_and_bounds(reduction, data, network, kernel, options, shift, known)
    starts, bounds, floor, levels, limits, offset = agreed
    found = known, bounds, floor, objective, starts, shift, levels, deadline, data_at, kernel.noise_count
    return Setting(method, network, reduction, scaling, *found, limits, offset)


def minimizer(setting: Setting) -> CentralMinimizer:
    """For full-gp, fact-gp and g-fact-gp."""
    pooled = setting.method.meet == "pool"
    likelihoods = Pooled(setting.objective) if pooled else Shared(setting.objective, setting.network)
    return CentralMinimizer(likelihoods, setting.bounds, lambda: setting.deadline.passed_at_centre(setting.network))


def stepwise(
    setting: Setting, options: TrainingOptions, interlude: Interlude | None = None
) -> EdgeAdmm | ServerAdmm | TreeNewton:
    """For the methods that go round by round."""
    method, objective, bounds, deadline = setting.method, setting.objective, setting.bounds, setting.deadline
    if method.meet == "tree":
        return TreeNewton(setting.network, objective, bounds, interlude, deadline)
    primal: Primal
    if method.step == "nested":
        primal = NestedStep(objective, bounds, step_size=options.step_size, iterations=options.nested_limit)
    elif method.decentralized:
        primal = LinearizedStep(objective, bounds, options.kappa)
    else:
        primal = LinearizedStep(objective, bounds, options.lipschitz, at_anchor=True)
    if method.decentralized:
        return EdgeAdmm(setting.network, primal, options.rho, interlude, deadline)
    return ServerAdmm(setting.network, primal, options.rho, deadline)


def _reduction(method: TrainingMethod, network: Network) -> Reduction:
    if method.meet == "pool":
        return Alone()
    return ByTree(network) if method.decentralized else ByServer(network)


def _data(method: TrainingMethod, shards: Dataset, network: Network, seed: int) -> list[Observations]:
    """The data each expert will hold."""
    if method.meet == "pool":
        return [Observations.joined(shards)]
    if method.augmented:
        with network.phase("augment"):
            samples = communication_data(network, shards, seed, central=not method.decentralized)
        return [augmented(s, i, samples) for s, i in zip(shards, network.hosted, strict=True)]
    return list(shards)


def _starts_and_bounds(
    reduction: Reduction,
    data: Dataset,
    network: Network,
    kernel: Kernel,
    options: TrainingOptions,
    shift: Array,
    known: Known,
) -> tuple[Array, Bounds, float, int, Bounds, float]:
    """Where to start, (S, P), the bounds, and the floor among them, for the scaled observations; on how many levels
    of samples: none where the starts are given, or the rounds; the limits among the bounds; and the offset.

    Scaled observations have a deviation of 1. Otherwise it is the largest of the agents' own, rounded up.
    """
    unbounded = 0.0 in known.lower[-kernel.noise_count :]
    asks = options.noise_floor > 0.0 and not options.normalize and unbounded
    deviation, levels, offset = 1.0, 0, 0.0
    if options.starts is None or asks:
        with network.phase("floor" if options.starts is not None else "starts"):
            found = agree_on_magnitudes(reduction, data, widths=options.starts is None, deviation=asks)
        deviation = found.deviation if asks else 1.0
        offset = found.size / found.deviation if asks else 0.0
    bounds, floor = bounds_and_floor(known, shift, options.noise_floor * deviation, kernel.noise_count)
    dimension = data.dimension
    if options.starts is not None:
        given = bounds.clipped(options.starts - shift)
        limits = open_limits(limits_around(kernel, given, dimension), bounds, known.prior)
        return given, within(limits, bounds), floor, levels, limits, offset
    starts, reach = default_starts(found, network.agents, kernel), reach_of(found, network.agents)
    limits = open_limits(limits_of(kernel, reach, found.size, dimension), bounds, known.prior)
    levels = found.levels if options.tol > 0.0 else 0
    return different(bounds.clipped(starts)), within(limits, bounds), floor, levels, limits, offset


def bounds_and_floor(known: Known, shift: Array, floor: float, noises: int = 1) -> tuple[Bounds, float]:
    """For the scaled observations: the bounds, and the floor if it is one of them, else 0. floor: 0 for none.

    shift: what to add to log theta of these for that in the units of the data.  noises: how many sigma_eps there are.
    """
    own = known.bounds.shifted(-shift)
    if floor == 0.0:
        return own, 0.0
    bounds = own.floored(float(np.log(floor)), noises)
    return bounds, 0.0 if bounds is own else floor
