"""A floor under sigma_eps: one lower bound on the last coordinate of x = log theta, the same at every agent.

On data without noise the likelihood rises for ever as sigma_eps falls, and a training has nowhere to converge to.
With the floor every trainer solves the same problem with one bound, x_P >= log floor. Means of feasible points are
feasible, so the agents' agreement does not have to know of it: only local steps and the test of stationarity do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array


@dataclass(frozen=True)
class Floor:
    """log: the lower bound on log sigma_eps; minus infinity for none."""

    log: float = -np.inf

    @classmethod
    def of(cls, sigma_eps: float) -> Floor:
        """At a sigma_eps; none for 0.

        >>> Floor.of(0.0), Floor.of(1.0)
        (Floor(log=-inf), Floor(log=0.0))
        """
        return cls(float(np.log(sigma_eps))) if sigma_eps > 0.0 else cls()

    def lifted(self, x: Array) -> Array:
        """x (.., P) with log sigma_eps at the floor where it was below.

        >>> Floor(-3.0).lifted(np.array([[1.0, -5.0], [-5.0, 1.0]])).tolist()
        [[1.0, -3.0], [-5.0, 1.0]]
        """
        if self.log == -np.inf:
            return x
        lifted = x.copy()
        lifted[..., -1] = np.maximum(x[..., -1], self.log)
        return lifted

    def cut(self, x: Array, step: Array) -> Array:
        """As much of a step down, x - step, as the floor allows.

        With a gradient over its curvature for the step it is how far x is from a stationary point: zero if and only
        if no gradient is left, or x stands at the floor and the gradient only pushes against it.

        >>> Floor(-3.0).cut(np.array([1.0, -2.5]), np.array([4.0, 4.0])).tolist()
        [4.0, 0.5]
        """
        if self.log == -np.inf:
            return step
        cut = step.copy()
        cut[..., -1] = np.minimum(step[..., -1], x[..., -1] - self.log)
        return cut

    def best_move(self, x: Array, system: Array, gradient: Array) -> Array:
        """The minimizer over m of gradient'm + m'system m / 2 with x + m at or above the floor, (.., P).

        If it is below without the floor, it is at the floor with it: the quadratic is convex and the bound is one.

        >>> Floor(-3.0).best_move(np.array([1.0, -2.5]), np.eye(2), np.array([0.5, 4.0])).tolist()
        [-0.5, -0.5]
        """
        move = np.asarray(-np.linalg.solve(system, gradient[..., None])[..., 0], dtype=float)
        below = x[..., -1] + move[..., -1] < self.log
        if not below.any():
            return move
        held, right = system.copy(), -gradient
        held[..., -1, :] = np.eye(x.shape[-1])[-1]
        right[..., -1] = self.log - x[..., -1]
        return np.asarray(np.where(below[..., None], np.linalg.solve(held, right[..., None])[..., 0], move))
