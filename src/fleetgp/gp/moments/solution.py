"""The linear algebra behind likelihood and posterior: A = Phi'Phi + sigma^2 I = L L' and u = A^-1 Phi'y."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fleetgp.arrays import Array
from fleetgp.gp.moments.grid import Grid
from fleetgp.linalg import lapack


@dataclass(frozen=True)
class Solution:
    """Of some data at some theta. Nobody changes its arrays.

    lower: (r, r) L, in the lower triangle.  gram: (r, r) Phi'Phi.  heard: (r,) Phi'y.  coefficients: (r,) u.
    residuals: y - Phi u as weights on the grid.
    """

    grid: Grid
    noise: float
    lower: Array
    gram: Array
    heard: Array
    coefficients: Array
    residuals: Array

    @classmethod
    def of(cls, grid: Grid, noise: float) -> Solution | None:
        """None where A is not positive definite to rounding."""
        m = grid.moments
        gram = grid.products(m.weights)
        lower = gram.copy().T
        lower.flat[:: len(lower) + 1] += noise**2
        if not (np.isfinite(gram[0, 0]) and lapack.cholesky_in_place(lower)):
            return None
        heard = grid.sums(m.responses)[grid.basis.flat]
        u = heard.copy()
        lapack.solve_in_place(lower, u)
        return cls(grid, noise, lower, gram, heard, u, m.responses - m.weights * grid.combination(u))

    @cached_property
    def misfit(self) -> float:
        """|y - Phi u|^2."""
        u = self.coefficients
        return max(float(self.grid.moments.squares - 2.0 * (self.heard @ u) + u @ self.gram @ u), 0.0)

    @cached_property
    def dropped(self) -> float:
        """A bound on what the dropped products would change in the likelihood, see `certificate`."""
        m, basis = self.grid.moments, self.grid.basis
        missing = max(m.count * basis.signal**2 - float(np.trace(self.gram)), 0.0)
        unheard = self.correlations(self.residuals)
        unheard[basis.flat] = 0.0
        return 0.5 * max(missing / self.noise**2, float(unheard @ unheard))

    def correlations(self, residuals: Array) -> Array:
        """Phi'C^-1 y of all products, dropped ones too, flat; of residuals times positions, Phi'X C^-1 y."""
        return self.grid.sums(residuals) / self.noise**2
