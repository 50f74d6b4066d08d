"""Likelihoods whose steps are known in closed form: l_i(x) = (x - a_i)' H_i (x - a_i) / 2 + 7."""

from __future__ import annotations

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.training.objective import Objective, Values


class Quadratics(Objective):
    """matrix H (A, P, P), centre a (A, P). evaluated: how often each agent's was."""

    def __init__(self, matrix: Array, centre: Array) -> None:
        super().__init__([])
        self.matrix, self.centre = matrix, centre
        self.evaluated = np.zeros(len(centre), dtype=int)

    def __call__(self, log_thetas: Array, agents: IntArray | None = None) -> Values:
        rows = np.arange(len(self.centre)) if agents is None else agents
        self.evaluated += np.bincount(rows, minlength=len(self.centre))
        away = log_thetas - self.centre[rows]
        gradient = (self.matrix[rows] @ away[..., None])[..., 0]
        zeros = np.zeros(len(rows))
        return Values(0.5 * (away * gradient).sum(axis=1) + 7.0, gradient, zeros, zeros.astype(bool))

    @property
    def silent(self) -> BoolArray:
        return np.zeros(self.centre.shape, dtype=bool)


def quadratics(agents: int, seed: int = 1, stiffness: float = 20.0) -> Quadratics:
    """Convex ones, with axes that are not those of x, and centres within 0.3 of the origin."""
    rng = np.random.default_rng(seed)
    vectors = np.linalg.qr(rng.standard_normal((agents, 3, 3)))[0]
    values = stiffness * rng.uniform(0.2, 1.0, (agents, 3))
    matrix = (vectors * values[:, None, :]) @ np.swapaxes(vectors, 1, 2)
    return Quadratics(matrix, rng.uniform(-0.3, 0.3, (agents, 3)))
