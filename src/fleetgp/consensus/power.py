"""The power method over a fleet, its shifted second run, and JOR's optimal relaxation from both."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.consensus.batch import FloodRule, iterate_flooded
from fleetgp.consensus.jor import own_diagonal
from fleetgp.consensus.stopping import Status
from fleetgp.network import Network

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
