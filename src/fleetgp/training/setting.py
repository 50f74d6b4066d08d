"""A training before its first round: the data each expert holds, where to start, and the trainer.

All that the fleet has to agree on for it is agreed here: scaling, samples, starts and the floor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.consensus import Interlude
from fleetgp.consensus.pool import pool_at_server
from fleetgp.consensus.reductions import Alone, ByServer, ByTree, Reduction
from fleetgp.consensus.samples import augmented, communication_data
from fleetgp.consensus.scaling import Scaling, agree_on_scaling
from fleetgp.data.partition import Shard
from fleetgp.data.streamed import dimension_of
from fleetgp.gp.expert import Expert
from fleetgp.gp.kernels import Kernel
from fleetgp.network import Network
from fleetgp.training.central import CentralMinimizer, Pooled, Shared
from fleetgp.training.deadline import NEVER, Deadline
from fleetgp.training.edges import EdgeAdmm
from fleetgp.training.floor import Floor
from fleetgp.training.methods import TrainingMethod
from fleetgp.training.objective import Objective
from fleetgp.training.options import TrainingOptions
from fleetgp.training.primal import LinearizedStep, NestedStep, Primal
from fleetgp.training.server import ServerAdmm
from fleetgp.training.starts import agree_on_magnitudes, default_starts
from fleetgp.training.tree import TreeNewton


@dataclass(frozen=True)
class Setting:
    """starts: (S, P) log theta, at or above the floor; like the floor for the scaled observations.

    units: what the hyperparameters are measured in.  levels: of samples of the data to be trained on first.
    """

    method: TrainingMethod
    network: Network
    reduction: Reduction
    scaling: Scaling
    floor: Floor
    objective: Objective
    starts: Array
    units: IntArray
    levels: int = 0
    deadline: Deadline = NEVER

    def start(self, number: int) -> Array:
        """One of the starts at every expert, (A, P)."""
        return np.tile(self.starts[number], (len(self.objective.experts), 1))

    def thetas(self, x: Array) -> Array:
        """theta in the units of the data from x = log theta; a diverged one may be infinite, which its status says."""
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray(np.exp(x + self.scaling.shift(self.units)))


def prepare(
    method: TrainingMethod, shards: Sequence[Shard], network: Network, kernel: Kernel, options: TrainingOptions
) -> Setting:
    """Agree on what a training needs, for the hosted agents, whose data are `shards`. Its time begins now."""
    deadline = Deadline.after(options.seconds)
    reduction = _reduction(method, network)
    scaling = Scaling()
    if options.normalize:
        # Before any sharing of samples, which would count them M times.
        with network.phase("normalize"):
            scaling = agree_on_scaling(reduction, shards)
    data = scaling.apply(_data(method, shards, network, options.seed))
    ids = (None,) if method.meet == "pool" else network.hosted
    chosen = options.engine, options.neighbours
    experts = [Expert(x, y, kernel, agent, *chosen) for (x, y), agent in zip(data, ids, strict=True)]
    starts, floor, levels = _starts_and_floor(reduction, data, network, kernel, options, scaling)
    units = kernel.units(dimension_of(shards))
    return Setting(method, network, reduction, scaling, floor, Objective(experts), starts, units, levels, deadline)


def minimizer(setting: Setting) -> CentralMinimizer:
    """For full-gp, fact-gp and g-fact-gp."""
    pooled = setting.method.meet == "pool"
    likelihoods = Pooled(setting.objective) if pooled else Shared(setting.objective, setting.network)
    return CentralMinimizer(likelihoods, setting.floor, setting.deadline)


def stepwise(
    setting: Setting, options: TrainingOptions, interlude: Interlude | None = None
) -> EdgeAdmm | ServerAdmm | TreeNewton:
    """For the methods that go round by round."""
    method, objective, floor, deadline = setting.method, setting.objective, setting.floor, setting.deadline
    if method.meet == "tree":
        return TreeNewton(setting.network, objective, floor, interlude, deadline)
    primal: Primal
    if method.step == "nested":
        primal = NestedStep(objective, floor, step_size=options.step_size, iterations=options.nested_limit)
    elif method.decentralized:
        primal = LinearizedStep(objective, floor, options.kappa)
    else:
        primal = LinearizedStep(objective, floor, options.lipschitz, at_anchor=True)
    if method.decentralized:
        return EdgeAdmm(setting.network, primal, options.rho, interlude, deadline)
    return ServerAdmm(setting.network, primal, options.rho, deadline)


def _reduction(method: TrainingMethod, network: Network) -> Reduction:
    if method.meet == "pool":
        return Alone()
    return ByTree(network) if method.decentralized else ByServer(network)


def _data(method: TrainingMethod, shards: Sequence[Shard], network: Network, seed: int) -> list[Shard]:
    """The data each expert will hold."""
    if method.meet == "pool":
        return [pool_at_server(network, shards)]
    if method.augmented:
        with network.phase("augment"):
            samples = communication_data(network, shards, seed, central=not method.decentralized)
        return [augmented(s, i, samples) for s, i in zip(shards, network.hosted, strict=True)]
    return list(shards)


def _starts_and_floor(
    reduction: Reduction,
    data: Sequence[Shard],
    network: Network,
    kernel: Kernel,
    options: TrainingOptions,
    scaling: Scaling,
) -> tuple[Array, Floor, int]:
    """Where to start, (S, P) at or above the floor, and the floor, both for the scaled observations; and on how many
    levels of samples: none where the starts are given, or the rounds.

    Scaled observations have a deviation of 1. Otherwise it is the largest of the agents' own, rounded up.
    """
    asks = options.noise_floor > 0.0 and not options.normalize
    deviation, levels = 1.0, 0
    if options.starts is None or asks:
        with network.phase("floor" if options.starts is not None else "starts"):
            found = agree_on_magnitudes(reduction, data, widths=options.starts is None, deviation=asks)
        deviation = found.deviation if asks else 1.0
    floor = Floor.of(options.noise_floor * deviation)
    if options.starts is None:
        starts = default_starts(found, network.agents, kernel)
        levels = found.levels if options.tol > 0.0 else 0
    else:
        starts = options.starts - scaling.shift(kernel.units(data[0][0].shape[1]))
    return floor.lifted(starts), floor, levels
