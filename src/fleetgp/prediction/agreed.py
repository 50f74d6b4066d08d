"""What the agents tell each other before any query: samples, the box of their data, or all of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fleetgp.consensus.fleet_moments import agree_on_moments
from fleetgp.consensus.pool import gather_data, pooled
from fleetgp.consensus.reductions import ByServer, ByTree, total
from fleetgp.consensus.samples import communication_data
from fleetgp.data.partition import Shard
from fleetgp.data.streamed import Streamed, load_instead
from fleetgp.errors import NumericalError
from fleetgp.gp.basis import Basis
from fleetgp.gp.fleet_expert import FleetExpert, has_moments, refuse_rough
from fleetgp.gp.hyperparameters import Hyperparameters
from fleetgp.gp.kernels import Kernel, SquaredExponential
from fleetgp.gp.moments.fleet import FleetMoments
from fleetgp.network import Network
from fleetgp.prediction.cross import common_basis
from fleetgp.prediction.methods import PredictionMethod
from fleetgp.prediction.options import PredictionOptions


@dataclass(frozen=True)
class Agreed:
    """What a method needs from the other agents, whatever is asked. It is the same at every agent.

    samples: every agent's, for grBCM.  basis: on the box of the whole fleet, for NPAE without inputs that travel.
    pool: all data at the central node, for the exact GP.  moments: of all data, for the exact GP at every agent, or
        at the central node.
    size: how many observations there are, for dec-nearest.
    """

    samples: tuple[Shard, ...] = ()
    basis: Basis | None = None
    pool: Shard | None = None
    moments: FleetMoments | None = None
    size: int = 0


def agree(
    network: Network,
    method: PredictionMethod,
    shards: Sequence[Shard],
    kernel: Kernel,
    h: Hyperparameters,
    options: PredictionOptions,
    moments: FleetMoments | None = None,
) -> Agreed:
    """Let the agents agree on what this method needs; nothing is sent for the methods that need nothing.

    moments: those that whoever needs them holds already, of the same data. If they are enough for theta, nothing is
        sent.
    """
    if method.rule == "full-gp" and method.decentralized:
        refuse_rough(kernel, options.engine)
        if moments is None or not FleetExpert(moments).covers(h.theta):
            moments = agree_on_moments(network, shards, h.theta)
        return Agreed(moments=moments)
    if method.rule == "full-gp":
        return _at_server(network, shards, kernel, h, options, moments)
    if method.rule == "nearest":
        with network.phase("size"):
            return Agreed(size=int(total(network, np.array([float(len(y)) for _, y in shards]))))
    if method.rule == "grbcm":
        with network.phase("augment"):
            samples = communication_data(network, shards, options.seed, central=not method.decentralized)
        return Agreed(samples=tuple(samples))
    if method.rule == "npae" and options.engine != "dense" and isinstance(kernel, SquaredExponential):
        reduction = ByTree(network) if method.decentralized else ByServer(network)
        with network.phase("box"):
            return Agreed(basis=common_basis([x for x, _ in shards], h, reduction))
    return Agreed()


def _at_server(
    network: Network,
    shards: Sequence[Shard],
    kernel: Kernel,
    h: Hyperparameters,
    options: PredictionOptions,
    moments: FleetMoments | None,
) -> Agreed:
    """All data at a central node: by their moments where they are in files, and moments will do."""
    if isinstance(shards, Streamed) and has_moments(kernel, options.engine):
        try:
            if moments is None or not FleetExpert(moments).covers(h.theta):
                moments = agree_on_moments(network, shards, h.theta, central=True)
            FleetExpert(moments).condition(h.theta)  # or an error
            return Agreed(moments=moments)
        except NumericalError as why:
            load_instead(shards, why)
    return Agreed(pool=pooled(gather_data(network, shards)))


def agreement_key(method: PredictionMethod, options: PredictionOptions) -> tuple[object, ...]:
    """Two questions with the same key need the same to be agreed on, by the same messages."""
    seed = options.seed if method.rule == "grbcm" else None
    return method.rule, method.decentralized, seed, options.engine
