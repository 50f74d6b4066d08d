"""Curvature of the local likelihoods: one positive definite P x P matrix per agent, measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.training.objective import Objective, Values

#: Step of the forward differences, and the smallest eigenvalue relative to the largest.
STEP = 1e-4
FLOOR = 1e-3
#: The smallest eigenvalue of all, where a likelihood is flat in every direction.
FLATTEST = 1e-6


@dataclass(frozen=True)
class Curvature:
    """matrix: (A, P, P) positive definite, |Hessian|.  concavity: (A, P), the diagonal of its negative part.

    measured_at: (A, P), the log theta at which it was measured.
    """

    matrix: Array
    concavity: Array
    measured_at: Array

    @classmethod
    def constant(cls, value: float, x: Array) -> Curvature:
        """value * I for every agent: nothing is measured."""
        width = x.shape[1]
        return cls(np.tile(value * np.eye(width), (len(x), 1, 1)), np.zeros_like(x), np.full_like(x, np.inf))

    def replaced(self, where: BoolArray, other: Curvature) -> Curvature:
        return Curvature(
            np.where(where[:, None, None], other.matrix, self.matrix),
            np.where(where[:, None], other.concavity, self.concavity),
            np.where(where[:, None], other.measured_at, self.measured_at),
        )


def measure_hessian(objective: Objective, x: Array, values: Values, where: BoolArray) -> Array:
    """The Hessians at x (A, P) by forward differences of the gradient, symmetric, (A, P, P); P evaluations.

    Fewer for agents whose data do not depend on all of x: along such coordinates only the priors bend. They hold no
    meaning for agents that are not in `where`, and are not finite where a likelihood nearby is not.
    """
    silent = objective.silent
    rows, columns = np.nonzero(where[:, None] & ~silent)
    shifted = objective.at(rows, x[rows] + STEP * np.eye(x.shape[1])[columns])
    return _from_slopes(objective, silent, (rows, columns), shifted.gradient - values.gradient[rows])


def evaluate_with_hessian(objective: Objective, x: Array) -> tuple[Values, Array]:
    """The likelihoods at x (A, P), and their Hessians as `measure_hessian` has them, (A, P, P).

    All evaluations are asked for at once, so that they run side by side: an agent that is alone in its process then
    uses all cores without threads inside BLAS, which wait for each other as soon as other work needs a core.
    """
    silent, agents = objective.silent, np.arange(len(x))
    rows, columns = np.nonzero(~silent)
    shifted = x[rows] + STEP * np.eye(x.shape[1])[columns]
    found = objective.at(np.concatenate([agents, rows]), np.concatenate([x, shifted]))
    values, around = found.part(slice(len(x))), found.part(slice(len(x), None))
    slopes = around.gradient - values.gradient[rows]
    return values, _from_slopes(objective, silent, (rows, columns), slopes)


def _from_slopes(objective: Objective, silent: BoolArray, places: tuple[IntArray, IntArray], slopes: Array) -> Array:
    """Hessians (A, P, P) from differences of gradients (K, P) along one coordinate of one agent each."""
    agents, width = silent.shape
    hessian = np.zeros((agents, width, width))
    bend = np.broadcast_to(objective.bend, width)
    for i, k in np.argwhere(silent):
        hessian[i, k, k] = bend[k]
    hessian[places] = slopes / STEP
    return np.asarray(0.5 * (hessian + np.swapaxes(hessian, 1, 2)))


def measure_curvature(objective: Objective, x: Array, values: Values, where: BoolArray) -> Curvature:
    """The Hessians at x (A, P), made positive.

    P evaluations for the agents in `where`; the others hold no meaning. Eigenvalues are taken by magnitude,
    so that a saddle direction counts as stiff as it is, and floored. (Secant updates would be free, but on
    this likelihood they overshoot the true curvature by factors of a hundred before they settle.)
    """
    hessian = measure_hessian(objective, x, values, where)
    usable = where & np.isfinite(hessian).all(axis=(1, 2))
    hessian = np.where(usable[:, None, None], hessian, np.eye(x.shape[1]))
    eigenvalues, vectors = np.linalg.eigh(hessian)
    magnitude = np.abs(eigenvalues)
    bounded = np.maximum(magnitude, np.maximum(FLOOR * magnitude.max(axis=1, keepdims=True), FLATTEST))
    matrix = (vectors * bounded[:, None, :]) @ np.swapaxes(vectors, 1, 2)
    concavity = (vectors**2 * np.maximum(-eigenvalues, 0.0)[:, None, :]).sum(axis=2)
    return Curvature(matrix, concavity, x)
