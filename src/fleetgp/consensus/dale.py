"""DALE: a distributed algorithm for linear equations, over neighbours only, eq. (dale)."""

from __future__ import annotations

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.consensus.batch import BatchOutcome, BatchRule, CellLinks, Scope, iterate_batch
from fleetgp.network import Network


class DaleRule(BatchRule):
    r"""q_i <- h_i' b_i / |h_i|^2 + P_i avg_i, with avg_i the mean of q over i itself and its neighbours.

    P_i = I - h_i' h_i / |h_i|^2 projects on the kernel of agent i's row, so that every agent's own equation
    always holds. The agent itself belongs to its neighbourhood (as in the algorithm's source): without it,
    bipartite graphs can fail. An agent without an equation (a zero row) only averages: a relay.
    """

    def __init__(self, rows: Array, right: Array, kind: str) -> None:
        self.rows, self.right, self.kind = rows, right, kind
        square = (rows[:, None, :] @ rows[:, :, None])[:, 0]
        self._direction = rows / np.where(square == 0.0, 1.0, square)

    def start(self) -> Array:
        """The smallest q that fulfils the agent's own equation, (C, S, K)."""
        return self._direction[..., None] * self.right[:, None, :]

    def update(self, state: Array, received: Array, near: CellLinks) -> Array:
        total = state + near.reduce(np.add, received, 0.0)
        mean = total / (1.0 + near.degrees)[:, None, None]
        gap = self.right[:, None, :] - self.rows[:, None, :] @ mean
        return mean + self._direction[..., None] * gap

    def narrow(self, keep: BoolArray) -> DaleRule:
        return DaleRule(self.rows[keep], self.right[keep], self.kind)


def dale(
    network: Network,
    rows: Array,
    right: Array,
    *,
    kind: str = "predictions",
    tol: float = 1e-6,
    rounds: int = 100_000,
    scope: Scope | None = None,
) -> BatchOutcome:
    """The whole solution of T systems at every agent: rows (A, T, S), right (A, T, K) -> (A, T, S, K).

    H must have full row rank. Works on time-varying graphs. It is slow where H is ill-conditioned: see the
    status, and never take a capped answer for a converged one.
    """
    cells = rows.shape[0] * rows.shape[1]
    rule = DaleRule(rows.reshape(cells, rows.shape[2]), right.reshape(cells, right.shape[2]), kind)
    start = rule.start().reshape(*rows.shape, right.shape[2])
    return iterate_batch(rule, start, network, rounds=rounds, tol=tol, scope=scope)
