"""What is asked of the agents at one block of queries, and what they answer.

What the agents tell each other before any query: samples, the box of their data, or all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.consensus import BatchOutcome
from fleetgp.consensus.agreements import SPARE, agree_on_moments, grown_moments
from fleetgp.consensus.reductions import ByServer, ByTree, gather_data, total
from fleetgp.consensus.samples import Drawn, communication_data
from fleetgp.data.dataset import Dataset
from fleetgp.engines.basis import Basis
from fleetgp.engines.expert import FleetExpert, has_moments, refuse_rough
from fleetgp.engines.moments.fleet import FleetMoments
from fleetgp.errors import NumericalError
from fleetgp.kernels.stationary import Kernel
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations
from fleetgp.network import Network
from fleetgp.options import PredictionOptions
from fleetgp.prediction.cross import common_basis
from fleetgp.prediction.methods import PredictionMethod
from fleetgp.prediction.rules import PAPER_GRBCM, RULES, Rule


@dataclass(frozen=True)
class Agreed:
    """What a method needs from the other agents, whatever is asked. It is the same at every agent.

    samples: every agent's, for grBCM.  basis: on the box of the whole fleet, for NPAE without inputs that travel.
    pool: all data at the central node, for the exact GP.  moments: of all data, for the exact GP at every agent, or
        at the central node.
    size: how many observations there are, for dec-nearest.
    """

    samples: tuple[Observations, ...] = ()
    basis: Basis | None = None
    pool: Observations | None = None
    moments: FleetMoments | None = None
    size: int = 0


@dataclass(frozen=True)
class Earlier:
    """What was agreed on when the agents had fewer rows, or the same. rows: (A,) how many each hosted agent had.

    all: whether nobody in the fleet has got any since.
    """

    agreed: Agreed
    rows: Sequence[int]
    all: bool

    def since(self, shards: Dataset) -> list[Observations]:
        """What each hosted agent has got since."""
        return [own.rows(slice(n, None)) for own, n in zip(shards, self.rows, strict=True)]


def agree(
    network: Network,
    method: PredictionMethod,
    shards: Dataset,
    kernel: Kernel,
    h: Hyperparameters,
    options: PredictionOptions,
    before: Earlier | None = None,
) -> Agreed:
    """Let the agents agree on what this method needs; nothing is sent for the methods that need nothing.

    before: what all agents hold, of the same model: only what has come since is sent. Of the box of all inputs, and of
        how many rows there are, that is everything.
    """
    if method.rule == "full-gp" and method.decentralized:
        refuse_rough(kernel, options.engine)
        return Agreed(moments=_moments(network, shards, h.theta, before))
    if method.rule == "full-gp":
        return _at_server(network, shards, kernel, h, options, before)
    if method.rule == "nearest":
        with network.phase("size"):
            return Agreed(size=int(total(network, np.array([float(len(own)) for own in shards]))))
    if method.rule == "grbcm":
        drawn = None if before is None else Drawn(before.agreed.samples, before.rows)
        central, known = not method.decentralized, None if kernel.noise_model.robust else drawn
        with network.phase("augment"):
            samples = communication_data(network, shards, options.seed, central=central, before=known)
        return Agreed(samples=tuple(samples))
    if method.rule == "npae" and options.engine != "dense" and kernel.has_moments:
        reduction = ByTree(network) if method.decentralized else ByServer(network)
        with network.phase("box"):
            return Agreed(basis=common_basis([own.inputs for own in shards], h, reduction))
    return Agreed()


def _moments(network: Network, shards: Dataset, theta: Array, before: Earlier | None) -> FleetMoments:
    """Of all data: those that there are, with those of new rows, or all anew where that will not do."""
    found = None if before is None else before.agreed.moments
    if found is not None and before is not None and not before.all:
        found = grown_moments(network, found, before.since(shards))
    if found is None or not FleetExpert(found).covers(theta):
        return agree_on_moments(network, shards, theta, spare=1 if before is None else SPARE)
    return found


def _at_server(
    network: Network,
    shards: Dataset,
    kernel: Kernel,
    h: Hyperparameters,
    options: PredictionOptions,
    before: Earlier | None,
) -> Agreed:
    """All data at a central node: by their moments where they are in files, and moments will do."""
    if not shards.in_memory and has_moments(kernel, options.engine):
        try:
            moments = None if before is None else before.agreed.moments
            if moments is None or not FleetExpert(moments).covers(h.theta):
                moments = agree_on_moments(network, shards, h.theta, central=True)
            FleetExpert(moments).condition(h.theta)  # or an error
            return Agreed(moments=moments)
        except NumericalError as why:
            shards.load_instead(why)
    known = None if before is None or kernel.noise_model.robust else before.agreed.pool
    if before is None or known is None:
        return Agreed(pool=Observations.joined(gather_data(network, shards)))
    return Agreed(pool=Observations.joined([known, *gather_data(network, before.since(shards))]))


def agreement_key(method: PredictionMethod, options: PredictionOptions) -> tuple[object, ...]:
    """Two questions with the same key need the same to be agreed on, by the same messages."""
    seed = options.seed if method.rule == "grbcm" else None
    return method.rule, method.decentralized, seed, options.engine


@dataclass(frozen=True)
class Task:
    """thetas: (A, P) of the hosted agents, for the scaled observations.  queries: (T, D).  prior: (A, T) k(x*, x*).

    to: the only agent that is told the answer, where it comes along the tree; None: all.
    """

    method: PredictionMethod
    network: Network
    thetas: Array
    prior: Array
    agreed: Agreed
    queries: Array
    options: PredictionOptions
    to: int | None = None

    @property
    def along_tree(self) -> bool:
        return self.method.decentralized and self.options.consensus == "tree"

    @property
    def rule(self) -> Rule:
        """The aggregation rule. A fleet of one agent answers with its posterior, whatever the method."""
        if self.network.agents == 1:
            return RULES["poe"]
        paper = self.method.rule == "grbcm" and self.options.beta == "paper"
        return PAPER_GRBCM if paper else RULES[self.method.rule]

    @property
    def everyone(self) -> BoolArray:
        return np.ones((self.network.agents, len(self.queries)), dtype=bool)


@dataclass(frozen=True)
class Answer:
    """means, variances: (A, T) of f; NaN at agents that are not told.  participants: (M, T), likewise.

    averaging, solving: how the agents came by them; along the tree, rounds: (T,) how many it took.
    """

    means: Array
    variances: Array
    participants: BoolArray
    averaging: BatchOutcome | None = None
    solving: BatchOutcome | None = None
    engine: tuple[str, ...] = ()
    jitter: float = 0.0
    rounds: IntArray | None = None

    @classmethod
    def told(cls, task: Task, answers: Array | None, participants: BoolArray, rounds: IntArray, **facts: Any) -> Answer:
        """From the answers (T, 2), mean and variance, that came along the tree; None where nobody here was told."""
        shape = len(task.network.hosted), len(task.queries)
        means, variances = np.full(shape, np.nan), np.full(shape, np.nan)
        if answers is not None:
            rows = [i for i, agent in enumerate(task.network.hosted) if task.to in (None, agent)]
            means[rows], variances[rows] = answers.T
        return cls(means, variances, participants, rounds=rounds, **facts)
