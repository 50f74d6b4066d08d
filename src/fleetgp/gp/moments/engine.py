r"""The moments engine: after one pass over the data, nothing costs anything that grows with N.

On a box the squared exponential is k(x, x') = Phi(x) Phi(x')' with r polynomials (`basis`). The likelihood needs
sums over the data of products of two of them, times at most a square of a coordinate: sums of polynomials of a
known degree. Such sums are the same over the data and over a Chebyshev grid with the right weights, one weight a
node (`grid.py`). So the agent's data become a weighted grid, once, and theta may do what it likes afterwards.

With A = Phi'Phi + sigma^2 I (r x r) and u = A^-1 Phi'y:

    y'C^-1 y = (|y - Phi u|^2 + sigma^2 |u|^2) / sigma^2      log|C| = log|A| + (N - r) log sigma^2
    Phi'C^-1 = A^-1 Phi'        Phi'C^-1 y = u                tr C^-1 = (N - r) / sigma^2 + tr A^-1

and since dK/d log l_d = 2 h^2 (X^2 K + K X^2 - 2 X K X), X the positions along axis d, the gradient needs only
Phi'X Phi, Phi'X^2 Phi and the like. The weighted grid gives them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from fleetgp.arrays import Array
from fleetgp.gp.basis import ROUNDING, Basis, Box
from fleetgp.gp.chebyshev import at_nodes, degree_for, expansion_error
from fleetgp.gp.engine import Engine
from fleetgp.gp.evaluation import LARGEST_LOG, Evaluation
from fleetgp.gp.hyperparameters import Hyperparameters
from fleetgp.gp.moments.cost import expected_seconds
from fleetgp.gp.moments.grid import LARGEST_GRID, Grid, Moments, contract
from fleetgp.linalg import lapack

#: Rounding, in the certificate, is taken for this many units in the last place.
ULPS = 32.0
#: The longest basis: its matrices have 72 MB.
LONGEST = 3000
#: Degrees are chosen for length-scales this much shorter than those at hand.
HEADROOM = 1.25
#: A grid for length-scales this much shorter, along every axis, is exchanged for a coarser one.
WASTE = 1.6


def negligible(size: int) -> float:
    """What dropping small products may do to the likelihood of so many points. (A posterior feels it squared.)"""
    return 1e-7 * max(1.0, size / 1e4)


@dataclass(frozen=True)
class Solution:
    """A = Phi'Phi + sigma^2 I = L L' and u = A^-1 Phi'y, for some data at some theta."""

    grid: Grid
    noise: float
    lower: Array
    gram: Array
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
        u = grid.sums(m.responses)[grid.basis.flat]
        lapack.solve_in_place(lower, u)
        return cls(grid, noise, lower, gram, u, m.responses - m.weights * grid.combination(u))

    @property
    def misfit(self) -> float:
        """|y - Phi u|^2."""
        b = self.grid.sums(self.grid.moments.responses)[self.grid.basis.flat]
        u = self.coefficients
        return max(float(self.grid.moments.squares - 2.0 * (b @ u) + u @ self.gram @ u), 0.0)

    @cached_property
    def dropped(self) -> float:
        """A bound on what dropping small products does to the likelihood, see `_certificate`."""
        m, basis = self.grid.moments, self.grid.basis
        missing = max(m.count * basis.signal**2 - float(np.trace(self.gram)), 0.0)
        unheard = self.correlations()
        unheard[basis.flat] = 0.0
        return 0.5 * max(missing / self.noise**2, float(unheard @ unheard))

    def correlations(self, weights: Array | None = None) -> Array:
        """Phi'C^-1 y of all products, dropped ones too, flat; with the residuals' weights changed, Phi'X C^-1 y."""
        return self.grid.sums(self.residuals if weights is None else weights) / self.noise**2


class MomentsExpert(Engine):
    """The GP of one agent's data by its moments: the squared exponential, in few dimensions."""

    name = "moments"

    def __init__(self, inputs: Array, observations: Array, agent: int) -> None:
        self.inputs = inputs
        self.observations = observations
        self.agent = agent
        self.box = Box.around(inputs)
        self.moments: Moments | None = None
        self.passes = 0
        self._finest: Moments | None = None
        self._reach = np.zeros(inputs.shape[1])
        self._target = np.inf
        self._strict = 1.0

    def append(self, inputs: Array, observations: Array) -> None:
        """More observations: their moments are added. Outside the box the grid moves to a larger one first."""
        self.inputs = np.concatenate([self.inputs, inputs])
        self.observations = np.concatenate([self.observations, observations])
        if self._finest is None:
            self.box = Box.around(self.inputs)
            return
        if not self.box.contains(inputs):
            self.box = self.box.joined(Box.around(inputs))
            self._finest = self._finest.moved(self.box)
        self._finest += Moments.of(self.box, self._finest.sizes, inputs, observations)
        self.moments = None

    def cost(self, theta: Array) -> float:
        """What `evaluate` is expected to cost, in seconds on one core; inf where it cannot answer."""
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            exponent = np.log10(negligible(self.size) / self.size) - 2.0 * np.log10(theta[-2] / theta[-1])
            return expected_seconds(self.box.half / theta[:-2], float(exponent))

    def counts(self, h: Hyperparameters) -> tuple[int, ...] | None:
        """The nodes per axis that these hyperparameters need; None where no grid of a sensible size would do."""
        return _counts(tuple((HEADROOM * self.box.half / np.asarray(h.length_scales)).tolist()), 1e-2 * self._needed(h))

    def _needed(self, h: Hyperparameters) -> float:
        """The expansion error of an axis at which its share of the certificate is negligible."""
        if h.noise == 0.0:
            return 0.0
        others = 1e5 ** (len(h.length_scales) - 1)  # what `_expansion` lets the other axes amplify
        return 1e-9 / (others * self.size**2 * (1.0 + (h.signal / h.noise) ** 2))

    def prepare(self, h: Hyperparameters) -> Moments | None:
        """Moments on a grid that fits these hyperparameters: the one at hand, a coarser one of the finest there is, or,
        if that is too coarse, from another pass over the data.
        """
        reach, needed = self.box.half / np.asarray(h.length_scales), self._needed(h)
        fits = (reach <= self._reach).all() and needed >= self._target
        if self.moments is not None and fits and (self._reach <= WASTE * reach).any():
            return self.moments
        counts = self.counts(h)
        if counts is None:
            return None
        sizes = np.array([2 * count + 1 for count in counts])
        if self._finest is None or (sizes > self._finest.sizes).any():
            finest = sizes if self._finest is None else np.maximum(sizes, self._finest.sizes)
            finest = finest if finest.prod() <= LARGEST_GRID else sizes
            self._finest = Moments.of(self.box, finest.tolist(), self.inputs, self.observations)
            self.passes += 1
        self._reach, self._target = HEADROOM * reach, 1e-2 * needed
        self.moments = self._finest.coarser(sizes.tolist())
        return self.moments

    def solve(self, h: Hyperparameters, drop: float) -> Solution | None:
        moments = self.prepare(h)
        if moments is None:
            return None
        basis = Basis(h, self.box, tuple((size - 1) // 2 for size in moments.sizes), drop)
        pairs = 0.5 * (basis.kept.max(axis=1) + 1.0) * (basis.kept.max(axis=1) + 2.0)
        tables = [pairs.prod(), *(pairs * moments.sizes)] if len(pairs) > 1 else [0.0]
        if basis.rank > min(2 * self.size + 100, LONGEST) or max(tables) > LARGEST_GRID:
            return None  # more functions than data, or than it is worth
        return Solution.of(Grid(basis, moments), h.noise)

    def evaluate(self, log_theta: Array) -> Evaluation | None:
        """NLL and log-gradient, with the certificate as `error`; None where the grid or the numbers do not allow it."""
        if not (np.abs(log_theta) < LARGEST_LOG).all():
            return None
        h = Hyperparameters.from_log(log_theta)
        ratio = self.size * (h.signal / h.noise) ** 2
        if not ULPS * np.finfo(float).eps * ratio < 1e-3:  # nothing can be certified
            return None
        allowed = negligible(self.size)
        while (s := self.solve(h, self._strict * allowed / ratio)) is not None and s.dropped > allowed:
            if self._strict * allowed < 1e-20 * ratio:
                break  # nothing is dropped any more
            # These data weigh on what was dropped more than data like the model's: keep more, now and later.
            self._strict *= min(max(0.1 * allowed / s.dropped, 1e-6), 0.1)
        if s is not None and s.dropped < 1e-3 * allowed:
            self._strict = min(1.0, 10.0 * self._strict)
        return None if s is None else _evaluation(s, h, _expansion(s.grid.basis.counts, tuple(self._reach.tolist())))

    def condition(self, theta: Array) -> MomentsPosterior | None:
        """The posterior at fixed hyperparameters; None where it cannot be certified."""
        h = Hyperparameters.from_theta(theta)
        if not (theta > 0.0).all() or not (np.abs(np.log(theta)) < LARGEST_LOG).all():
            return None
        ratio = self.size * (h.signal / h.noise) ** 2
        large = max(1.0, float(np.sqrt(np.mean(self.observations**2))) / h.signal)
        if not ULPS * np.finfo(float).eps * ratio * large < 1e-5:  # the mean would be off by more, in units of sigma_f
            return None
        solution = self.solve(h, 1e-4 * negligible(self.size) / ratio)
        return None if solution is None else MomentsPosterior(h, solution)


@lru_cache(maxsize=65536)
def _expansion(counts: tuple[int, ...], reach: tuple[float, ...]) -> float:
    """The error of the product of the axes' expansions: a sum over the axes, times what the others may amplify."""
    others = [4.0 * count**2 for count in counts]
    errors = [expansion_error(count, r) / other for count, r, other in zip(counts, reach, others, strict=True)]
    return float(np.prod(others) * sum(errors))


@lru_cache(maxsize=65536)
def _counts(reach: tuple[float, ...], error: float) -> tuple[int, ...] | None:
    if error <= 0.0 or max(reach) > 300.0:
        return None
    counts = tuple(degree_for(r, error) for r in reach)
    return counts if np.prod([2.0 * count + 1.0 for count in counts]) <= LARGEST_GRID else None


def _evaluation(s: Solution, h: Hyperparameters, expansion: float) -> Evaluation:
    grid, m, u = s.grid, s.grid.moments, s.coefficients
    count, rank, noise2 = m.count, grid.basis.rank, h.noise**2
    log_determinant = 2.0 * float(np.log(np.diagonal(s.lower)).sum()) + (count - rank) * 2.0 * np.log(h.noise)
    misfit = s.misfit
    nll = 0.5 * (misfit / noise2 + float(u @ u) + log_determinant)

    lapack.invert_triangle_in_place(s.lower)
    dimension = len(m.sizes)
    spread = np.empty(dimension)
    for d in range(dimension):
        first = grid.products(grid.along(d, 1, m.weights)).T
        lapack.multiply_triangle_in_place(s.lower, first)
        spread[d] = np.einsum("ij,ij->", first, first) / noise2
    lapack.square_triangle_in_place(s.lower)
    inverse = np.tril(s.lower)
    inverse += np.tril(inverse, -1).T
    trace = float(np.trace(inverse))
    # sum_n x^2 phi'(I / sigma^2 - A^-1) phi, at once for all axes
    certain = m.weights * grid.quadratic(np.eye(rank) / noise2 - inverse)
    scales = np.empty(dimension)
    for d in range(dimension):
        first = s.correlations(grid.along(d, 1, s.residuals))
        second = s.correlations(grid.along(d, 2, s.residuals))[grid.basis.flat] @ u
        explained = float(first[grid.basis.flat] @ first[grid.basis.flat])
        ratio = (grid.basis.axes[d].h) ** 2
        scales[d] = 2.0 * ratio * (spread[d] - grid.along(d, 2, certain).sum() - second + explained)
    signal = rank - noise2 * trace - float(u @ u)
    noise = count - rank + noise2 * trace - misfit / noise2
    error = _certificate(s, h, expansion, inverse, misfit, nll)
    return Evaluation(nll, np.array([*scales, signal, noise]), 0.0, "moments", error)


def _certificate(s: Solution, h: Hyperparameters, expansion: float, inverse: Array, misfit: float, nll: float) -> float:
    r"""A bound on the error of the NLL, by its three causes.

    Dropped products: with E = K - Phi Phi' positive semidefinite, log|C| is short by at most tr E / sigma^2 and
    y'C^-1 y long by at most a'Ea; both are known. Expansion: |E_ij| sums to at most its bound. Rounding, which is
    not a bound but an estimate with a wide margin: entries of Phi'Phi are off by some units in the last place of N
    times the largest values of the two functions, independently.
    """
    grid, m = s.grid, s.grid.moments
    noise2, signal2, count = h.noise**2, h.signal**2, m.count
    weight = misfit / noise2**2
    expanded = 0.6 * expansion * signal2 * count * (1.0 / noise2 + weight)
    largest = grid.largest
    spread = np.linalg.norm(largest[:, None] * inverse * largest) + ((largest * s.coefficients) ** 2).sum() / noise2
    rounding = count * spread + m.squares / noise2 + signal2 * (count / noise2 + weight)
    # What the axes' functions miss of the kernel, where their pivots end, is smooth: it meets what is smooth in C^-1 y.
    tables = [at_nodes(size // 2, size) for size in m.sizes]
    smooth = contract(s.residuals, tables).ravel() / noise2
    missed = 1.0 + len(tables) * ROUNDING / np.finfo(float).eps
    rounding += (missed * signal2 * float(smooth @ smooth) + abs(nll) + count * abs(np.log(noise2))) / ULPS
    return float(s.dropped + expanded + ULPS * np.finfo(float).eps * rounding)


class MomentsPosterior:
    """f | D_i at fixed theta, from the moments of the data."""

    engine = "moments"
    jitter = 0.0

    def __init__(self, h: Hyperparameters, solution: Solution) -> None:
        self.hyperparameters = h
        self.basis = solution.grid.basis
        self._solution = solution

    def mean_and_variance(self, queries: Array) -> tuple[Array, Array]:
        """Mean and variance of f at the queries, (T,) and (T,); the variance is never negative."""
        explained = self.explained_variance(queries)
        return self._mean(queries), np.maximum(self.hyperparameters.signal**2 - explained, 0.0)

    def projected(self, basis: Basis, queries: Array) -> Array:
        """Phi_o' C_i^-1 k_i*, (r_o, T), for another basis phi_o on a box that holds this one."""
        parts = self._parts(queries, self._solution.grid.moments.weights.size)
        return np.concatenate([np.zeros((basis.rank, 0)), *(self._projected(basis, part) for part in parts)], axis=1)

    def _projected(self, basis: Basis, queries: Array) -> Array:
        """The weights C_i^-1 k_i* = (k_i* - Phi A^-1 Phi'k_i*) / sigma^2 as weights on the grid, summed there."""
        s, box = self._solution, self.basis.box
        solved = self._heard(queries)
        lapack.solve_in_place(s.lower, solved)
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

    def _to_grid(self, queries: Array) -> list[Array]:
        """k_d(x*, node) along each axis, (T, n_d); the first carries sigma_f^2."""
        grid = self._solution.grid
        positions = self.basis.box.positions(queries)
        found = [
            np.exp(-((axis.h * (positions[:, d, None] - grid.positions[d])) ** 2))
            for d, axis in enumerate(self.basis.axes)
        ]
        found[0] *= self.basis.signal**2
        return found

    def _mean(self, queries: Array) -> Array:
        """k*' C^-1 y: the residuals' grid stands for C^-1 y."""
        found = self._to_grid(queries)
        residuals = self._solution.residuals
        values = found[0] @ residuals.reshape(len(residuals), -1)
        for cross in found[1:]:
            rest = values.shape[1] // cross.shape[1]
            values = np.einsum("tn,tnm->tm", cross, values.reshape(*cross.shape, rest))
        return np.asarray(values[:, 0] / self._solution.noise**2)

    def _heard(self, queries: Array) -> Array:
        """Phi' k*, (r, T), Fortran-ordered."""
        grid = self._solution.grid
        sizes = grid.moments.sizes
        values = grid.moments.weights.reshape(1, 1, sizes[0], -1)
        for d, kernel in enumerate(self._to_grid(queries)):
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
        parts = self._parts(queries, self.basis.ranks[0] * int(np.prod(self._solution.grid.moments.sizes[1:])))
        return np.concatenate([np.zeros(0), *(self._explained(part) for part in parts)])

    def _explained(self, queries: Array) -> Array:
        c = np.asfortranarray(self.basis.at(queries).T)
        solved = c.copy(order="F")
        lapack.solve_in_place(self._solution.lower, solved)
        alone = np.einsum("rt,rt->t", c, c - self._solution.noise**2 * solved)
        found = 2.0 * np.einsum("rt,rt->t", self._heard(queries), solved) - alone
        return np.asarray(np.clip(found, 0.0, self.hyperparameters.signal**2))
