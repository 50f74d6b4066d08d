"""The posterior of one agent's data by its moments."""

from __future__ import annotations

import numpy as np

from fleetgp.arrays import Array
from fleetgp.engines.base import Slopes, joined, symmetric
from fleetgp.engines.basis import Basis
from fleetgp.engines.moments.grid import Solution
from fleetgp.engines.moments.sums import LARGEST_GRID
from fleetgp.kernels.stationary import SquaredExponential
from fleetgp.linalg import cholesky
from fleetgp.model.hyperparameters import Hyperparameters


class MomentsPosterior:
    """f | D_i at fixed theta, from the moments of the data."""

    engine = "moments"
    jitter = 0.0

    def __init__(self, h: Hyperparameters, solution: Solution) -> None:
        self.hyperparameters = h
        self.basis = solution.grid.basis
        self._solution = solution
        #: u - Phi'C^-1 y, zero but for rounding of the residuals, which sigma amplifies.
        self._slip = solution.coefficients - solution.correlations(solution.residuals)[self.basis.flat]

    def mean_and_variance(self, queries: Array) -> tuple[Array, Array]:
        """Mean and variance of f at the queries, (T,) and (T,); the variance is never negative."""
        explained = self.explained_variance(queries)
        return self._mean(queries), np.maximum(self.hyperparameters.signal**2 - explained, 0.0)

    def mean_and_covariance(self, queries: Array) -> tuple[Array, Array]:
        """Mean and covariance of f at the queries, (T,) and (T, T): as in `explained_variance`, of pairs."""
        c = np.asfortranarray(self.basis.at(queries).T)
        solved = c.copy(order="F")
        cholesky.solve_in_place(self._solution.lower, solved)
        parts = self._parts(queries, self._largest)
        heard = np.concatenate([np.zeros((len(c), 0)), *(self._heard(part) for part in parts)], axis=1)
        both = heard.T @ solved
        explained = both + both.T - c.T @ (c - self._solution.noise**2 * solved)
        prior = SquaredExponential()(queries, None, self.hyperparameters)
        return self._mean(queries), symmetric(prior - explained)

    def slopes(self, queries: Array) -> Slopes:
        """The derivatives of mean and variance by the inputs of the queries."""
        return joined([self._slopes(part) for part in self._parts(queries, self._largest)], queries.shape[1])

    def _slopes(self, queries: Array) -> Slopes:
        """Of what `_mean` and `_explained` are, with c the coordinates of a query."""
        s, dimension = self._solution, queries.shape[1]

        def solve(right: Array) -> Array:
            solution = np.array(right, order="F")
            cholesky.solve_in_place(s.lower, solution)
            return solution

        c, steps = self.basis.at(queries).T, self.basis.slopes(queries)  # (r, T), (D, T, r)
        solved, ahead = solve(c), [solve(step.T) for step in steps]
        heard, more = self._heard(queries), [self._heard(queries, d) for d in range(dimension)]
        mean, explained = steps @ s.coefficients, np.empty((dimension, len(queries)))
        outside = np.flatnonzero((np.abs(self.basis.box.positions(queries)) > 1.0).any(axis=1))
        told = np.empty((len(queries), dimension, dimension))
        for d, step in enumerate(steps):
            if outside.size:
                mean[d, outside] = self._with_residuals(self._to_grid(queries[outside], d))
                mean[d, outside] += step[outside] @ self._slip
            explained[d] = 2.0 * np.einsum("rt,rt->t", more[d], solved) + 2.0 * np.einsum("rt,rt->t", heard, ahead[d])
            explained[d] -= 2.0 * np.einsum("tr,rt->t", step, c - s.noise**2 * solved)
            for e, other in enumerate(steps):
                told[:, d, e] = np.einsum("rt,rt->t", more[d], ahead[e]) + np.einsum("rt,rt->t", more[e], ahead[d])
                told[:, d, e] -= np.einsum("tr,rt->t", step, other.T - s.noise**2 * ahead[e])
        _, bends = SquaredExponential().curvature(queries, self.hyperparameters)
        return Slopes(mean.T, -explained.T, bends - told)

    def projected(self, basis: Basis, queries: Array) -> Array:
        """Phi_o' C_i^-1 k_i*, (r_o, T), for another basis phi_o on a box that holds this one."""
        parts = self._parts(queries, self._solution.grid.moments.weights.size)
        return np.concatenate([np.zeros((basis.rank, 0)), *(self._projected(basis, part) for part in parts)], axis=1)

    def _projected(self, basis: Basis, queries: Array) -> Array:
        """The weights C_i^-1 k_i* = (k_i* - Phi A^-1 Phi'k_i*) / sigma^2 as weights on the grid, summed there."""
        s, box = self._solution, self.basis.box
        solved = self._heard(queries)
        cholesky.solve_in_place(s.lower, solved)
        whole = np.zeros((len(queries), int(np.prod(self.basis.ranks))))
        whole[:, self.basis.flat] = self.basis.signal * solved.T
        known = whole.reshape(-1, *self.basis.ranks)
        for functions in s.grid.functions:
            known = np.tensordot(known, functions, axes=(1, 1))
        values = self._to_grid(queries)
        cross = values[0]
        for value in values[1:]:
            cross = cross[..., None] * value.reshape(len(queries), *[1] * (cross.ndim - 1), -1)
        weights = s.grid.moments.weights * (cross - known) / s.noise**2
        for d, axis in enumerate(basis.axes):
            points = box.centre[d] + box.half[d] * s.grid.positions[d]
            functions = axis.at((points - basis.box.centre[d]) / basis.box.half[d])
            weights = np.tensordot(weights, functions, axes=(1, 0))
        return np.asarray(basis.signal * weights.reshape(len(queries), -1)[:, basis.flat].T)

    def _parts(self, queries: Array, memory: int) -> list[Array]:
        """The queries, in as many parts as keep memory (doubles per query) in bounds; none of no queries."""
        step = max(1, LARGEST_GRID // memory)
        return [queries[start : start + step] for start in range(0, len(queries), step)]

    @property
    def _largest(self) -> int:
        """Doubles per query on the way to what is heard of it."""
        return self.basis.ranks[0] * int(np.prod(self._solution.grid.moments.sizes[1:]))

    def _to_grid(self, queries: Array, along: int | None = None) -> list[Array]:
        """k_d(x*, node) along each axis, (T, n_d); the first carries sigma_f^2. Or its derivative along one of them."""
        grid = self._solution.grid
        positions = self.basis.box.positions(queries)
        found = [
            np.exp(-((axis.h * (positions[:, d, None] - grid.positions[d])) ** 2))
            for d, axis in enumerate(self.basis.axes)
        ]
        found[0] *= self.basis.signal**2
        if along is not None:
            apart = positions[:, along, None] - grid.positions[along]
            found[along] *= -2.0 * self.basis.axes[along].h ** 2 * apart / self.basis.box.half[along]
        return found

    def _mean(self, queries: Array) -> Array:
        """k*' C^-1 y. With c the coordinates of a query and k* = Phi c + e, as in `explained_variance`, it is
        c'u + e'C^-1 y.

        Inside the box e is no more than rounding, and left out: as the difference of two sums over all data it would
        bring in their rounding, some N (sigma_f / sigma_eps)^2 units of it, and be nothing else.
        """
        mean = self.basis.at(queries) @ self._solution.coefficients
        outside = np.flatnonzero((np.abs(self.basis.box.positions(queries)) > 1.0).any(axis=1))
        if outside.size:
            mean[outside] = self._mean_outside(queries[outside])
        return np.asarray(mean)

    def _mean_outside(self, queries: Array) -> Array:
        """With e'C^-1 y, for which the residuals' grid stands."""
        return self._with_residuals(self._to_grid(queries)) + self.basis.at(queries) @ self._slip

    def _with_residuals(self, found: list[Array]) -> Array:
        """k*'C^-1 y but for the slip, from k* along each axis, or a derivative of it."""
        residuals = self._solution.residuals
        values = found[0] @ residuals.reshape(len(residuals), -1)
        for cross in found[1:]:
            rest = values.shape[1] // cross.shape[1]
            values = np.einsum("tn,tnm->tm", cross, values.reshape(*cross.shape, rest))
        return np.asarray(values[:, 0] / self._solution.noise**2)

    def _heard(self, queries: Array, along: int | None = None) -> Array:
        """Phi' k*, (r, T), Fortran-ordered; or its derivative along an axis."""
        grid = self._solution.grid
        sizes = grid.moments.sizes
        values = grid.moments.weights.reshape(1, 1, sizes[0], -1)
        for d, kernel in enumerate(self._to_grid(queries, along)):
            both = grid.functions[d].T * kernel[:, None, :]  # (T, r_d, n_d)
            if d == len(sizes) - 1:
                values = values[..., 0] @ both.swapaxes(1, 2)
            else:
                values = both[:, None] @ values
                values = values.reshape(len(queries), -1, sizes[d + 1], values.shape[3] // sizes[d + 1])
        return np.asfortranarray(self.basis.signal * values.reshape(len(queries), -1)[:, self.basis.flat].T)

    def explained_variance(self, queries: Array) -> Array:
        """[k_A]_i = k_i*' C_i^-1 k_i*, (T,).

        With c the coordinates of a query and e = k* - Phi c, which is no more than rounding inside the box and
        small outside, it is c'Phi'C^-1 Phi c + 2 e'C^-1 Phi c to first order in e, without any cancellation that
        sigma would amplify.
        """
        parts = self._parts(queries, self._largest)
        return np.concatenate([np.zeros(0), *(self._explained(part) for part in parts)])

    def _explained(self, queries: Array) -> Array:
        c = np.asfortranarray(self.basis.at(queries).T)
        solved = c.copy(order="F")
        cholesky.solve_in_place(self._solution.lower, solved)
        alone = np.einsum("rt,rt->t", c, c - self._solution.noise**2 * solved)
        found = 2.0 * np.einsum("rt,rt->t", self._heard(queries), solved) - alone
        return np.asarray(np.clip(found, 0.0, self.hyperparameters.signal**2))
