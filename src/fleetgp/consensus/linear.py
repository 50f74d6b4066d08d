"""Averages and linear systems over a network: DAC, JOR, the power method and DALE.

DAC: discrete-time average consensus, eq. (dac).

JOR: Jacobi over-relaxation for H q = b, one row per agent, eq. (jor), and its optimal relaxation from the power method.

DALE: a distributed algorithm for linear equations, over neighbours only, eq. (dale).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.consensus.batch import (
    BatchOutcome,
    BatchRule,
    CellLinks,
    FloodRule,
    Scope,
    iterate_batch,
    iterate_flooded,
)
from fleetgp.consensus.iterate import Outcome
from fleetgp.consensus.stopping import Status
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
    outcome = iterate_batch(rule, x.reshape(len(x), -1, 1), network, rounds=rounds, tol=tol)
    taken = int(outcome.rounds.max(initial=0))
    return Outcome(outcome.state.reshape(x.shape), taken, outcome.status, outcome.residual[0].reshape(x.shape[1:]))


def _smallest_epsilon(topology: Topology, epsilon: float | None) -> float:
    return min(perron_epsilon(topology.at(t), epsilon) for t in range(topology.period))


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


#: How much larger than estimated the largest eigenvalue is taken to be.
MARGIN = 0.01


class PowerRule(FloodRule):
    r"""g = R e, e = g / g_max, with g_max the entry of largest magnitude, sign included; eq. (pm).

    The paper divides by the norm. For the shifted matrix, whose dominant eigenvalue is negative, e then
    flips its sign for ever and never settles; with the signed entry it settles, and g_max is the eigenvalue.
    The state is (g_i, g_max), (A, T, 2).
    """

    kind = "predictions"

    def __init__(self, rows: Array) -> None:
        self.rows = rows

    def message(self, state: Array) -> Array:
        return state[..., 0]

    def update(self, state: Array, everyone: Array) -> Array:
        direction, largest = _normalized(everyone)
        image = (self.rows[:, :, None, :] @ direction.T[:, :, None])[:, :, 0, 0]
        return np.stack([image, np.broadcast_to(largest, image.shape)], axis=-1)

    def settling(self, everyone: Array) -> Array:
        direction, largest = _normalized(everyone)
        return np.stack([direction, np.broadcast_to(largest, direction.shape)], axis=-1)

    def narrow(self, keep: BoolArray) -> PowerRule:
        return PowerRule(self.rows[:, keep])


@dataclass(frozen=True)
class Eigenvalue:
    """value and iterations, (T,), the same at every agent."""

    value: Array
    rounds: IntArray
    status: Status


def power_method(
    network: Network, rows: Array, *, tol: float = 1e-6, rounds: int = 10_000, seed: int = 0
) -> Eigenvalue:
    """The dominant eigenvalue of T matrices of which each agent holds a row, (A, T, M) -> (T,).

    The start is random per agent: from the paper's constant vector an antisymmetric eigenvector, as a
    symmetric fleet has, is never found.
    """
    start = np.stack([np.random.default_rng([seed, i]).uniform(0.5, 1.5, rows.shape[1]) for i in network.hosted])
    state = np.stack([start, np.full_like(start, np.nan)], axis=-1)
    outcome = iterate_flooded(PowerRule(rows), state, network, rounds=rounds, tol=tol)
    return Eigenvalue(outcome.state[0, :, 1], outcome.rounds[0], outcome.status)


@dataclass(frozen=True)
class Relaxation:
    """omega* = 2 / (largest + smallest eigenvalue of R = diag(H)^-1 H), each (T,), less a margin of one percent.

    At omega* itself the stiffest mode, which holds most of the error, decays no faster than the softest, and a
    largest eigenvalue that was estimated from below would even let it grow. The margin costs one percent of
    the iterations, and the stiffest mode decays at once.
    """

    omega: Array
    largest: Eigenvalue
    smallest: Eigenvalue


def optimal_relaxation(
    network: Network, rows: Array, *, tol: float = 1e-4, rounds: int = 10_000, seed: int = 0
) -> Relaxation:
    """JOR's optimal relaxation for T matrices H, rows (A, T, M); Lemma 3 and Algorithm 11.

    R is not symmetric but similar to a symmetric matrix, so its eigenvalues are real. The second run is on
    B = R - lambda_max I, whose dominant eigenvalue is lambda_min - lambda_max.
    """
    scaled = rows / own_diagonal(network, rows)[..., None]
    largest = power_method(network, scaled, tol=tol, rounds=rounds, seed=seed)
    shifted = scaled.copy()
    shifted[np.arange(len(network.hosted)), :, list(network.hosted)] -= largest.value
    second = power_method(network, shifted, tol=tol, rounds=rounds, seed=seed + 1)
    smallest = Eigenvalue(np.maximum(largest.value + second.value, 0.0), second.rounds, second.status)
    return Relaxation(2.0 / (largest.value * (1.0 + MARGIN) + smallest.value), largest, smallest)


def _normalized(everyone: Array) -> tuple[Array, Array]:
    """(M, T) -> the direction, and the signed entry of largest magnitude (T,)."""
    largest = np.take_along_axis(everyone, np.abs(everyone).argmax(axis=0)[None], axis=0)
    return everyone / np.where(largest == 0.0, 1.0, largest), largest[0]


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
