"""DAC: discrete-time average consensus, eq. (dac)."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus.iterate import NeighbourRule, Outcome, iterate
from fleetgp.consensus.stopping import Maximin, Watch
from fleetgp.errors import unknown_name
from fleetgp.graph import Topology, perron_epsilon
from fleetgp.network import Incoming, Network

Weights = Literal["metropolis", "perron"]


class AverageRule(NeighbourRule[Array]):
    r"""w_i <- w_i + sum_j W_ij (w_j - w_i).

    Metropolis weights 1/(1 + max(d_i, d_j)) by default: each agent computes them from its neighbours'
    degrees, and they keep the average on time-varying graphs. "perron" is the paper's constant epsilon.
    """

    def __init__(self, kind: str, epsilon: float | None = None) -> None:
        self.kind = kind
        self.epsilon = epsilon

    def message(self, state: Array) -> Array:
        return state

    def update(self, state: Array, received: Array, incoming: Incoming) -> Array:
        if self.epsilon is None:
            degrees = np.maximum(incoming.degrees[incoming.receivers], incoming.sender_degrees)
            weights = (1.0 / (1.0 + degrees)).reshape(-1, *[1] * (state.ndim - 1))
        else:
            weights = np.array(self.epsilon)
        return state + incoming.reduce(np.add, weights * (received - state[incoming.receivers]), 0.0)

    def watch(self, state: Array) -> Watch:
        return Watch(state if state.ndim > 1 else state[:, None])


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
    stopping = Maximin(network.diameter, tol) if tol > 0 else None
    return iterate(rule, x, network, rounds=rounds, stopping=stopping)


def _smallest_epsilon(topology: Topology, epsilon: float | None) -> float:
    return min(perron_epsilon(topology.at(t), epsilon) for t in range(topology.period))
