"""JOR: Jacobi over-relaxation for H q = b, one row per agent, eq. (jor)."""

from __future__ import annotations

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.consensus.batch import BatchOutcome, FloodRule, iterate_flooded
from fleetgp.network import Network


class JorRule(FloodRule):
    r"""q_i <- (1 - w) q_i + (w / h_ii) (b_i - sum_{j != i} h_ij q_j) = q_i + (w / h_ii) (b_i - H_i q).

    It needs everyone's entry in every iteration: one round on a complete graph, a flood elsewhere.
    """

    def __init__(self, rows: Array, right: Array, diagonal: Array, omega: Array, kind: str) -> None:
        self.rows, self.right, self.diagonal, self.omega, self.kind = rows, right, diagonal, omega, kind

    def message(self, state: Array) -> Array:
        return state

    def update(self, state: Array, everyone: Array) -> Array:
        # matmul over stacked rows: one agent's arithmetic does not depend on who else is hosted.
        product = (self.rows[:, :, None, :] @ np.moveaxis(everyone, 0, 1))[:, :, 0, :]
        return state + self.omega[:, None] / self.diagonal[..., None] * (self.right - product)

    def settling(self, everyone: Array) -> Array:
        return everyone

    def narrow(self, keep: BoolArray) -> JorRule:
        return JorRule(self.rows[:, keep], self.right[:, keep], self.diagonal[:, keep], self.omega[keep], self.kind)


def own_diagonal(network: Network, rows: Array) -> Array:
    """h_ii of each hosted agent, (A, T)."""
    return rows[np.arange(len(network.hosted)), :, list(network.hosted)]


def jor(
    network: Network,
    rows: Array,
    right: Array,
    *,
    omega: float | Array | None = None,
    kind: str = "predictions",
    tol: float = 1e-6,
    rounds: int = 100_000,
) -> BatchOutcome:
    """Each agent's entries of the solutions of T systems: rows (A, T, M), right (A, T, K) -> (A, T, K).

    The relaxation must stay below 2/M for any positive definite H; the default 2/(M + 1) is strictly
    inside (the paper's 2/M is on the boundary). One omega per system is allowed, (T,).
    """
    relaxation = np.broadcast_to(2.0 / (network.agents + 1) if omega is None else omega, rows.shape[1:2])
    diagonal = own_diagonal(network, rows)
    rule = JorRule(rows, right, diagonal, relaxation, kind)
    return iterate_flooded(rule, right / diagonal[..., None], network, rounds=rounds, tol=tol)
