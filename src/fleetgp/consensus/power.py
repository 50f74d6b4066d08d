"""The power method over a fleet, its shifted second run, and JOR's optimal relaxation from both."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus.iterate import FloodRule, iterate_flooded
from fleetgp.consensus.jor import own_diagonal
from fleetgp.consensus.stopping import Settled, Status
from fleetgp.network import Network


@dataclass(frozen=True)
class _PowerState:
    image: Array
    eigenvalue: Array


class PowerRule(FloodRule[_PowerState]):
    r"""g = R e, e = g / g_max, with g_max the entry of largest magnitude, sign included; eq. (pm).

    The paper divides by the norm. For the shifted matrix, whose dominant eigenvalue is negative, e then
    flips its sign for ever and never settles; with the signed entry it settles, and g_max is the eigenvalue.
    """

    kind = "predictions"

    def __init__(self, rows: Array) -> None:
        self.rows = rows

    def message(self, state: _PowerState) -> Array:
        return state.image

    def update(self, state: _PowerState, everyone: Array) -> _PowerState:
        direction, largest = _normalized(everyone)
        image = (self.rows[:, :, None, :] @ direction.T[:, :, None])[:, :, 0, 0]
        return _PowerState(image, largest)

    def settling(self, everyone: Array) -> Array:
        direction, largest = _normalized(everyone)
        return np.stack([direction, np.broadcast_to(largest, direction.shape)], axis=-1)


@dataclass(frozen=True)
class Eigenvalue:
    """value: (T,) the same at every agent."""

    value: Array
    rounds: int
    status: Status


def power_method(
    network: Network, rows: Array, *, tol: float = 1e-6, rounds: int = 10_000, seed: int = 0
) -> Eigenvalue:
    """The dominant eigenvalue of T matrices of which each agent holds a row, (A, T, M) -> (T,).

    The start is random per agent: from the paper's constant vector an antisymmetric eigenvector, as a
    symmetric fleet has, is never found.
    """
    start = np.stack([np.random.default_rng([seed, i]).uniform(0.5, 1.5, rows.shape[1]) for i in network.hosted])
    state = _PowerState(start, np.full(rows.shape[1], np.nan))
    outcome = iterate_flooded(PowerRule(rows), state, network, rounds=rounds, stopping=Settled(tol))
    return Eigenvalue(outcome.state.eigenvalue, outcome.rounds, outcome.status)


@dataclass(frozen=True)
class Relaxation:
    """omega* = 2 / (largest + smallest eigenvalue of R = diag(H)^-1 H), each (T,)."""

    omega: Array
    largest: Eigenvalue
    smallest: Eigenvalue


def optimal_relaxation(
    network: Network, rows: Array, *, tol: float = 1e-4, rounds: int = 10_000, seed: int = 0
) -> Relaxation:
    """JOR's optimal relaxation for T matrices H, rows (A, T, M); Lemma 3 and Algorithm 9.

    R is not symmetric but similar to a symmetric matrix, so its eigenvalues are real. The second run is on
    B = R - lambda_max I, whose dominant eigenvalue is lambda_min - lambda_max.
    """
    scaled = rows / own_diagonal(network, rows)[..., None]
    largest = power_method(network, scaled, tol=tol, rounds=rounds, seed=seed)
    shifted = scaled.copy()
    shifted[np.arange(len(network.hosted)), :, list(network.hosted)] -= largest.value
    second = power_method(network, shifted, tol=tol, rounds=rounds, seed=seed + 1)
    smallest = Eigenvalue(np.maximum(largest.value + second.value, 0.0), second.rounds, second.status)
    return Relaxation(2.0 / (largest.value + smallest.value), largest, smallest)


def _normalized(everyone: Array) -> tuple[Array, Array]:
    """(M, T) -> the direction, and the signed entry of largest magnitude (T,)."""
    largest = np.take_along_axis(everyone, np.abs(everyone).argmax(axis=0)[None], axis=0)
    return everyone / np.where(largest == 0.0, 1.0, largest), largest[0]
