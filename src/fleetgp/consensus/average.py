"""DAC: discrete-time average consensus, eq. (dac)."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus.batch import BatchOutcome, BatchRule, CellLinks, Scope, iterate_batch
from fleetgp.consensus.iterate import Outcome
from fleetgp.errors import unknown_name
from fleetgp.graph import Topology, perron_epsilon
from fleetgp.network import Network

Weights = Literal["metropolis", "perron"]


class AverageRule(BatchRule):
    r"""w_i <- w_i + sum_j W_ij (w_j - w_i).

    Metropolis weights 1/(1 + max(d_i, d_j)) by default: each agent computes them from its neighbours'
    degrees, and they keep the average on time-varying graphs. "perron" is the paper's constant epsilon.
    """

    def __init__(self, kind: str, epsilon: float | None = None) -> None:
        self.kind = kind
        self.epsilon = epsilon

    def update(self, state: Array, received: Array, near: CellLinks) -> Array:
        change = near.differences(state, received)
        if self.epsilon is None:
            return state + near.metropolis_sum(change)
        return state + near.reduce(np.add, self.epsilon * change, 0.0)


def average_items(
    network: Network, x: Array, *, kind: str, tol: float, rounds: int, scope: Scope | None = None
) -> BatchOutcome:
    """The averages of T items with K values each, (A, T, K); each over its scope, each until it agrees."""
    return iterate_batch(AverageRule(kind), x, network, rounds=rounds, tol=tol, scope=scope)


def average(
    network: Network,
    x: Array,
    *,
    kind: str = "statistics",
    weights: Weights = "metropolis",
    epsilon: float | None = None,
    tol: float = 1e-6,
    rounds: int = 100_000,
) -> Outcome[Array]:
    """The fleet's average of x, (A, ...), at every agent; tol is the relative disagreement that is left.

    `tol=0` runs exactly `rounds` rounds.

    >>> from fleetgp.graph import Graph
    >>> from fleetgp.network import InProcess
    >>> outcome = average(InProcess(Graph.path(3)), np.array([0.0, 3.0, 6.0]), tol=1e-9)
    >>> outcome.status, outcome.state.round(6).tolist()
    ('converged', [3.0, 3.0, 3.0])
    """
    if weights not in ("metropolis", "perron"):
        raise unknown_name("weights", weights, ("metropolis", "perron"))
    rule = AverageRule(kind, _smallest_epsilon(network.topology, epsilon) if weights == "perron" else None)
    found = iterate_batch(rule, x.reshape(len(x), -1, 1), network, rounds=rounds, tol=tol)
    taken = int(found.rounds.max(initial=0))
    return Outcome(found.state.reshape(x.shape), taken, found.status, found.residual[0].reshape(x.shape[1:]))


def _smallest_epsilon(topology: Topology, epsilon: float | None) -> float:
    return min(perron_epsilon(topology.at(t), epsilon) for t in range(topology.period))
