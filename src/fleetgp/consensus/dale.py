"""DALE: a distributed algorithm for linear equations, over neighbours only, eq. (dale)."""

from __future__ import annotations

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus.iterate import NeighbourRule, Outcome, iterate
from fleetgp.consensus.stopping import Maximin, Watch
from fleetgp.network import Incoming, Network


class DaleRule(NeighbourRule[Array]):
    r"""q_i <- h_i' b_i / |h_i|^2 + P_i avg_i, with avg_i the mean of q over i itself and its neighbours.

    P_i = I - h_i' h_i / |h_i|^2 projects on the kernel of agent i's row, so that every agent's own equation
    always holds. The agent itself belongs to its neighbourhood (as in the algorithm's source): without it,
    bipartite graphs can fail.
    """

    def __init__(self, rows: Array, right: Array, kind: str) -> None:
        self.rows, self.right, self.kind = rows, right, kind
        self._direction = rows / (rows[:, :, None, :] @ rows[..., None])[..., 0]

    def start(self) -> Array:
        """The smallest q that fulfils the agent's own equation, (A, T, M, K)."""
        return self._direction[..., None] * self.right[:, :, None, :]

    def message(self, state: Array) -> Array:
        return state

    def update(self, state: Array, received: Array, incoming: Incoming) -> Array:
        count = (1.0 + incoming.degrees).reshape(-1, 1, 1, 1)
        mean = (state + incoming.reduce(np.add, received, 0.0)) / count
        gap = self.right[:, :, None, :] - self.rows[:, :, None, :] @ mean
        return mean + self._direction[..., None] * gap

    def watch(self, state: Array) -> Watch:
        return Watch(state.reshape(*state.shape[:2], -1))


def dale(
    network: Network,
    rows: Array,
    right: Array,
    *,
    kind: str = "predictions",
    tol: float = 1e-6,
    rounds: int = 100_000,
) -> Outcome[Array]:
    """The whole solution of T systems at every agent: rows (A, T, M), right (A, T, K) -> (A, T, M, K).

    H must have full row rank. Works on time-varying graphs. It is slow where H is ill-conditioned: see the
    status, and never take a capped answer for a converged one.
    """
    rule = DaleRule(rows, right, kind)
    stopping = Maximin(network.diameter, tol) if tol > 0 else None
    return iterate(rule, rule.start(), network, rounds=rounds, stopping=stopping)
