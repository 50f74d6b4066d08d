"""The moments engine: after one pass over the data no cost grows with N.

On a box the squared exponential is k(x, x') = Phi(x) Phi(x')' with r polynomials (`basis`). The likelihood needs sums
over the data of products of two of them, times at most a square of a coordinate: polynomials of a known degree. Their
sums over the data equal those over a Chebyshev grid with the right weights, one per node (`grid.py`). So the data
become a weighted grid once, for all theta.

With A = Phi'Phi + sigma^2 I (r x r) and u = A^-1 Phi'y:

    y'C^-1 y = (|y - Phi u|^2 + sigma^2 |u|^2) / sigma^2      log|C| = log|A| + (N - r) log sigma^2
    Phi'C^-1 = A^-1 Phi'        Phi'C^-1 y = u                tr C^-1 = (N - r) / sigma^2 + tr A^-1

and since dK/d log l_d = 2 h^2 (X^2 K + K X^2 - 2 X K X), X the positions along axis d, the gradient needs only
Phi'X Phi, Phi'X^2 Phi and the like. The weighted grid gives them all.

The result at a theta depends on the data and that theta alone, to the bit, not on earlier calls.
"""

from __future__ import annotations

from functools import cache, lru_cache

import numpy as np

from fleetgp.arrays import Array
from fleetgp.engines.base import LARGEST_LOG, Engine, Evaluation, Posterior, Slopes, Trend, joined, symmetric
from fleetgp.engines.basis import ROUNDING, Axis, Basis, at_nodes, expansion_error
from fleetgp.engines.moments.fleet import FleetMoments, axis_error, sizes_for, stepped
from fleetgp.engines.moments.grid import Grid, Moments, Solution, by_pairs, contract, trend_products
from fleetgp.engines.moments.sums import LARGEST_GRID, ChebyshevSums
from fleetgp.kernels.stationary import SquaredExponential
from fleetgp.linalg import cholesky
from fleetgp.linalg.threads import scratch
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations

# ---- the posterior -------------------------------------------------------------------------------------------------


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
        phi_k = np.concatenate([np.zeros((len(c), 0)), *(self._phi_k(part) for part in parts)], axis=1)
        both = phi_k.T @ solved
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
        phi_k, more = self._phi_k(queries), [self._phi_k(queries, d) for d in range(dimension)]
        mean, explained = steps @ s.coefficients, np.empty((dimension, len(queries)))
        outside = np.flatnonzero((np.abs(self.basis.box.positions(queries)) > 1.0).any(axis=1))
        known = np.empty((len(queries), dimension, dimension))
        for d, step in enumerate(steps):
            if outside.size:
                mean[d, outside] = self._with_residuals(self._to_grid(queries[outside], d))
                mean[d, outside] += step[outside] @ self._slip
            explained[d] = 2.0 * np.einsum("rt,rt->t", more[d], solved) + 2.0 * np.einsum("rt,rt->t", phi_k, ahead[d])
            explained[d] -= 2.0 * np.einsum("tr,rt->t", step, c - s.noise**2 * solved)
            for e, other in enumerate(steps):
                known[:, d, e] = np.einsum("rt,rt->t", more[d], ahead[e]) + np.einsum("rt,rt->t", more[e], ahead[d])
                known[:, d, e] -= np.einsum("tr,rt->t", step, other.T - s.noise**2 * ahead[e])
        _, bends = SquaredExponential().curvature(queries, self.hyperparameters)
        return Slopes(mean.T, -explained.T, bends - known)

    def projected(self, basis: Basis, queries: Array) -> Array:
        """Phi_o' C_i^-1 k_i*, (r_o, T), for another basis phi_o on a box that holds this one."""
        parts = self._parts(queries, self._solution.grid.moments.weights.size)
        return np.concatenate([np.zeros((basis.rank, 0)), *(self._projected(basis, part) for part in parts)], axis=1)

    def _projected(self, basis: Basis, queries: Array) -> Array:
        """From C_i^-1 k_i* = (k_i* - Phi A^-1 Phi'k_i*) / sigma^2 as weights on the grid."""
        s, box = self._solution, self.basis.box
        solved = self._phi_k(queries)
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
        """The queries in parts that keep memory (doubles per query) in bounds."""
        step = max(1, LARGEST_GRID // memory)
        return [queries[start : start + step] for start in range(0, len(queries), step)]

    @property
    def _largest(self) -> int:
        """Doubles per query on the way to `_phi_k`."""
        return self.basis.ranks[0] * int(np.prod(self._solution.grid.moments.sizes[1:]))

    def _to_grid(self, queries: Array, along: int | None = None) -> list[Array]:
        """k_d(x*, node) along each axis, (T, n_d); the first carries sigma_f^2. Or its derivative along one of them."""
        grid = self._solution.grid
        positions = self.basis.box.positions(queries)
        result = [
            np.exp(-((axis.h * (positions[:, d, None] - grid.positions[d])) ** 2))
            for d, axis in enumerate(self.basis.axes)
        ]
        result[0] *= self.basis.signal**2
        if along is not None:
            apart = positions[:, along, None] - grid.positions[along]
            result[along] *= -2.0 * self.basis.axes[along].h ** 2 * apart / self.basis.box.half[along]
        return result

    def _mean(self, queries: Array) -> Array:
        """k*' C^-1 y. With c the coordinates of a query and k* = Phi c + e, as in `explained_variance`, it is
        c'u + e'C^-1 y.

        Inside the box e is no more than rounding, and left out: as the difference of two sums over all data it would
        add their rounding, some N (sigma_f / sigma_eps)^2 units of it, and nothing else.
        """
        mean = self.basis.at(queries) @ self._solution.coefficients
        outside = np.flatnonzero((np.abs(self.basis.box.positions(queries)) > 1.0).any(axis=1))
        if outside.size:
            queries = queries[outside]
            mean[outside] = self._with_residuals(self._to_grid(queries)) + self.basis.at(queries) @ self._slip
        return np.asarray(mean)

    def _with_residuals(self, result: list[Array]) -> Array:
        """k*'C^-1 y but for the slip, from k* along each axis, or a derivative of it."""
        residuals = self._solution.residuals
        values = result[0] @ residuals.reshape(len(residuals), -1)
        for cross in result[1:]:
            rest = values.shape[1] // cross.shape[1]
            values = np.einsum("tn,tnm->tm", cross, values.reshape(*cross.shape, rest))
        return np.asarray(values[:, 0] / self._solution.noise**2)

    def _phi_k(self, queries: Array, along: int | None = None) -> Array:
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

        With c the coordinates of a query and e = k* - Phi c, which is rounding inside the box and small outside, it is
        c'Phi'C^-1 Phi c + 2 e'C^-1 Phi c to first order in e, without cancellation.
        """
        parts = self._parts(queries, self._largest)
        return np.concatenate([np.zeros(0), *(self._explained(part) for part in parts)])

    def _explained(self, queries: Array) -> Array:
        c = np.asfortranarray(self.basis.at(queries).T)
        solved = c.copy(order="F")
        cholesky.solve_in_place(self._solution.lower, solved)
        alone = np.einsum("rt,rt->t", c, c - self._solution.noise**2 * solved)
        result = 2.0 * np.einsum("rt,rt->t", self._phi_k(queries), solved) - alone
        return np.asarray(np.clip(result, 0.0, self.hyperparameters.signal**2))


# ---- the expected cost -----------------------------------------------------------------------------------------------

#: Seconds per axis for some hundred calls of NumPy.
CALLS = 7e-4
#: Floating-point operations per second: of triangular routines on a few hundred rows, and of mostly thin products.
TRIANGLES, PRODUCTS = 2.5e10, 1.8e10
#: Seconds to gather an element of Phi'Phi from the table of pairs.
GATHER = 5e-9
#: Seconds per element of an axis's kernel matrix: an exponential and a pivoted Cholesky that stops early.
AXIS = 1.7e-8
#: Spectra are tabulated over h in steps of this factor.
STEP = 1.1
#: Above this h an axis's spectrum is nearly flat; it is guessed, not computed.
FLAT = 40.0
#: The engine refuses more products of the axes' functions than this.
MOST_PRODUCTS = 1_000_000
#: The longest basis: its matrices have 200 MB.
LONGEST = 5000


def expected_seconds(reach: Array, drop_exponent: float) -> float:
    """Seconds for a likelihood with its gradient; inf where the engine cannot answer.

    reach: (D,) half the box over the length-scale along each axis.
    drop_exponent: log10 of the part of k(x, x) that may be dropped.
    """
    if not (np.isfinite(drop_exponent) and np.isfinite(reach).all()):
        return np.inf
    return _tabulated(tuple(_step(h) for h in reach.tolist()), int(np.ceil(drop_exponent)))


def _step(h: float) -> int:
    """Where h is in the table of spectra."""
    return int(np.ceil(np.log(min(max(h, 1e-2), 1e3)) / np.log(STEP)))


@cache
def _spectrum(step: int) -> Array:
    """The spectrum of an axis with h at a step of the table."""
    h = STEP**step
    # 24 + 15 h nodes resolve the kernel to rounding. A nearly flat spectrum has 8.5 h values that sum to a constant.
    return Axis.of(h, int(np.ceil(24 + 15 * h))).spectrum if h < FLAT else np.full(int(8.5 * h), 1.0 / h)


@lru_cache(maxsize=65536)
def _tabulated(steps: tuple[int, ...], drop_exponent: int) -> float:
    spectra = [_spectrum(step) for step in steps]
    products = spectra[0]
    for spectrum in spectra[1:]:
        products = np.multiply.outer(products, spectrum)
        if products.size > MOST_PRODUCTS:
            return np.inf
    rank = float(np.count_nonzero(products > 10.0 ** (drop_exponent - 1)))
    # Fits to the sizes that the engine chooses: nodes of the grid, and unordered pairs of the functions in use.
    nodes = [float(len(spectrum)) * 4.5 + 20.0 for spectrum in spectra]
    pairs = [0.3 * len(spectrum) ** 2 for spectrum in spectra]
    if rank > LONGEST or float(np.prod(nodes)) > LARGEST_GRID:
        return np.inf
    dimension = len(steps)
    if dimension == 1:
        contraction = nodes[0] * rank**2
    elif by_pairs(np.sqrt(2.0 * np.array(pairs)), rank):
        contraction = _contraction(pairs, nodes) + 0.5 * PRODUCTS * GATHER * rank**2
    else:
        contraction = _contraction([2.0 * p for p in pairs[:-1]], nodes) + 0.5 * nodes[-1] * rank**2
    return float(
        dimension * CALLS
        + (1 + dimension) * rank**3 / TRIANGLES
        + (2 + dimension) * 2.0 * contraction / PRODUCTS
        + sum(AXIS * n * n for n in nodes)
    )


def _contraction(functions: list[float], nodes: list[float]) -> float:
    """Multiplications to contract a grid with so many functions along the first axes, one after the other."""
    return float(sum(np.prod(functions[: d + 1]) * np.prod(nodes[d:]) for d in range(len(functions))))


# ---- the likelihood and its certificate ------------------------------------------------------------------------------

#: A unit of rounding.
EPS = float(np.finfo(float).eps)
#: The assumed rounding of a sum, in units in the last place of its largest terms.
ULPS = 32.0
#: A margin for the higher orders of the expansion error, whose effect is bounded to first order.
HIGHER_ORDERS = 1.2


def negligible(size: int) -> float:
    """The largest error of the NLL, in nats, that dropping small products may cause: a tenth of the smallest tolerance
    of an expert, and more for many rows, whose likelihood is rounded more.
    """
    return 1e-7 * max(1.0, size / 1e4)


def certificate(s: Solution, expansion: float, inverse: Array, nll: float) -> float:
    r"""A bound on the error of the NLL, by its three causes.

    Dropped products: with E = K - Phi Phi' positive semidefinite, log|C| is short by at most tr E / sigma^2 and
    y'C^-1 y long by at most a'Ea, a = C^-1 y; both are known. Expansion: |E_ij| sums to at most its bound.
    Rounding is not bounded but estimated with a wide margin, see `_rounding`.
    """
    noise2, signal2, m = s.noise**2, s.grid.basis.signal**2, s.grid.moments
    expanded = 0.5 * HIGHER_ORDERS * expansion * signal2 * m.count * (1.0 / noise2 + s.misfit / noise2**2)
    return float(s.dropped + expanded + EPS * _rounding(s, inverse, nll))


def _rounding(s: Solution, inverse: Array, nll: float) -> float:
    """In units of EPS.

    The sums: entries of Phi'Phi are off by ULPS of N times the largest values of the two functions, independently.
    The axes: a basis ends where its pivots reach `ROUNDING`, so a multiple of rounding of the kernel is left out. That
    rest is smooth, of low degree: it changes y'C^-1 y by at most the multiple times the squares of the low Chebyshev
    moments of C^-1 y.
    """
    grid, m = s.grid, s.grid.moments
    noise2, signal2, count = s.noise**2, grid.basis.signal**2, m.count
    largest = grid.largest
    spread = np.linalg.norm(largest[:, None] * inverse * largest) + ((largest * s.coefficients) ** 2).sum() / noise2
    sums = count * spread + m.squares / noise2 + signal2 * (count / noise2 + s.misfit / noise2**2)
    low_degrees = [at_nodes(size // 2, size) for size in m.sizes]
    smooth = contract(s.residuals, low_degrees).ravel() / noise2
    left_out = 1.0 + len(m.sizes) * ROUNDING / EPS
    axes = left_out * signal2 * float(smooth @ smooth)
    return float(ULPS * sums + axes + abs(nll) + count * abs(np.log(noise2)))


@lru_cache(maxsize=65536)
def expansion_bound(counts: tuple[int, ...], reach: tuple[float, ...]) -> float:
    """The error of the product of the axes' expansions: a sum over the axes, times what the others may amplify."""
    others = [4.0 * count**2 for count in counts]
    errors = [expansion_error(count, r) / other for count, r, other in zip(counts, reach, others, strict=True)]
    return float(np.prod(others) * sum(errors))


def evaluation(s: Solution, expansion: float) -> Evaluation:
    """The negative log-likelihood, its gradient in log theta, and the certificate as `error`.

    expansion: what the polynomials on the grid may miss of the kernel, as a part of sigma_f^2.
    """
    u, count, rank, noise2 = s.coefficients, s.grid.moments.count, s.grid.basis.rank, s.noise**2
    log_determinant = 2.0 * float(np.log(np.diagonal(s.lower)).sum()) + (count - rank) * np.log(noise2)
    nll = 0.5 * (s.misfit / noise2 + float(u @ u) + log_determinant)

    (work,) = scratch((rank, rank))
    inverse_lower = work.T
    np.copyto(inverse_lower, s.lower)
    cholesky.invert_triangle_in_place(inverse_lower)
    spread = _spread(s, inverse_lower)
    cholesky.square_triangle_in_place(inverse_lower)
    inverse = np.tril(inverse_lower)
    inverse += np.tril(inverse, -1).T
    trace = float(np.trace(inverse))

    scales = 2.0 * np.array([axis.h**2 for axis in s.grid.basis.axes]) * (spread - _weighed(s, inverse))
    signal = rank - noise2 * trace - float(u @ u)
    noise = count - rank + noise2 * trace - s.misfit / noise2
    error = certificate(s, expansion, inverse, nll)
    return Evaluation(nll, np.array([*scales, signal, noise]), 0.0, "moments", error)


def _spread(s: Solution, inverse_lower: Array) -> Array:
    """(D,) tr(Phi'X Phi A^-1 Phi'X Phi) / sigma^2 = |L^-1 Phi'X Phi|^2 / sigma^2."""
    result = []
    for d in range(len(s.grid.positions)):
        first = s.grid.products(s.grid.along(d, 1, s.grid.moments.weights)).T
        cholesky.multiply_triangle_in_place(inverse_lower, first)
        result.append(np.einsum("ij,ij->", first, first) / s.noise**2)
    return np.array(result)


def _weighed(s: Solution, inverse: Array) -> Array:
    """(D,) tr(X^2 Phi (I / sigma^2 - A^-1) Phi') + a'X^2 Phi u - |Phi'X a|^2, with a = C^-1 y."""
    grid, kept = s.grid, s.grid.basis.flat
    rest = -inverse
    rest.flat[:: len(rest) + 1] += 1.0 / s.noise**2
    certain = grid.moments.weights * grid.quadratic(rest)
    result = []
    for d in range(len(grid.positions)):
        first = s.correlations(grid.along(d, 1, s.residuals))[kept]
        second = s.correlations(grid.along(d, 2, s.residuals))[kept] @ s.coefficients
        result.append(grid.along(d, 2, certain).sum() + second - first @ first)
    return np.array(result)


# ---- the engine ----------------------------------------------------------------------------------------------------

#: A basis may be this much longer than twice the data. Beyond, the dense engine's matrices are far smaller.
SPARE = 100
#: The search for what may be dropped starts at this part of what is negligible: data like the model's amplify what is
#: dropped up to three times, and too high a start costs another solution.
START = 0.3
#: The search ends where less than this part of k(x, x) is dropped: that is no product at all.
NOTHING = 1e-20
#: If rounding may exceed so many nats, and so many per row, the likelihood is not computed: no tolerance admits it.
UNCERTAIN_LIKELIHOOD, UNCERTAIN_EACH = 1e-3, 1e-9
#: The same of a posterior's mean, in units of sigma_f, and in units of its standard deviation, which shrinks with the
#: data.
UNCERTAIN_MEAN, UNCERTAIN_SHARE = 1e-5, 0.5
#: The assumed rounding of the mean in units of N (sigma_f / sigma_eps)^2, on the box of the data. Measured against
#: extended precision, with up to 10^10 rows spread over the box, it is 0.001 to 0.07; in an empty part of the box it is
#: more, but at most a hundredth of the standard deviation there.
MEAN_ULPS = 0.1
#: A posterior drops this part of what a likelihood may drop, without a search.
POSTERIOR = 1e-4


class SumsEngine(Engine):
    """The GP of data that are known by their sums: the squared exponential, in few dimensions.

    longest: the longest basis.
    """

    name = "moments"

    def __init__(self, data: ChebyshevSums | FleetMoments, agent: int | None, longest: int = LONGEST) -> None:
        self.agent, self.data = agent, data
        self._renew(longest)

    def _renew(self, longest: int) -> None:
        """The data have changed."""
        self._longest = longest
        self._mean_square = self.data.squares / self.data.count
        self._latest: Moments | None = None

    @property
    def size(self) -> int:
        return self.data.count

    def grow(self, data: Observations) -> None:
        raise NotImplementedError("sums take no observations: add the sums over them")

    def cost(self, theta: Array) -> float:
        """What `evaluate` is expected to cost, in seconds on one core; inf where it cannot answer."""
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            exponent = np.log10(negligible(self.size) / self.size) - 2.0 * np.log10(theta[-2] / theta[-1])
            return expected_seconds(self.data.box.half / theta[:-2], float(exponent))

    def evaluate(self, log_theta: Array) -> Evaluation | None:
        """NLL and log-gradient, with the certificate as `error`; None where the grid or the numbers do not allow it."""
        if not (np.abs(log_theta) < LARGEST_LOG).all():
            return None
        h = Hyperparameters.from_log(log_theta)
        ratio = self.size * (h.signal / h.noise) ** 2
        if not ULPS * EPS * ratio < max(UNCERTAIN_LIKELIHOOD, UNCERTAIN_EACH * self.size):
            return None
        allowed = negligible(self.size)
        # Data larger than the model says amplify what is dropped by the square of their size.
        drop = START * allowed / (ratio * max(1.0, self._mean_square / (h.signal**2 + h.noise**2)))
        while (s := self.solve(h, drop)) is not None and s.dropped > allowed and drop > NOTHING:
            drop *= min(max(0.1 * allowed / s.dropped, 1e-6), 0.1)  # well below, but never all the way in one step
        return None if s is None else evaluation(s, expansion_bound(s.grid.basis.counts, self._reach(h)))

    def condition(self, theta: Array, before: Posterior | None = None) -> MomentsPosterior | None:
        """The posterior at fixed hyperparameters; None where it cannot be certified."""
        s = self._certified(theta)
        return None if s is None else MomentsPosterior(Hyperparameters.from_theta(theta), s)

    def products(self, theta: Array, trend: Trend) -> Array | None:
        s = self._certified(theta)
        return None if s is None else trend_products(s, trend)

    def _certified(self, theta: Array) -> Solution | None:
        """None where the posterior cannot be certified."""
        h = Hyperparameters.from_theta(theta)
        if not (theta > 0.0).all() or not (np.abs(np.log(theta)) < LARGEST_LOG).all():
            return None
        ratio = self.size * (h.signal / h.noise) ** 2
        large = max(1.0, float(np.sqrt(self._mean_square)) / h.signal)
        rounding = MEAN_ULPS * EPS * ratio * large
        if not rounding < UNCERTAIN_LIKELIHOOD:
            return None
        s = self.solve(h, POSTERIOR * negligible(self.size) / ratio)
        if s is None or rounding > max(UNCERTAIN_MEAN, UNCERTAIN_SHARE * np.sqrt(s.grid.basis.rank / ratio)):
            return None
        return s

    def solve(self, h: Hyperparameters, drop: float) -> Solution | None:
        """A and u, where at most `drop` of k(x, x) is dropped; None where the basis is too long."""
        moments = self.prepare(h)
        if moments is None:
            return None
        basis = Basis(h, self.data.box, tuple((size - 1) // 2 for size in moments.sizes), drop)
        if basis.rank > self._longest:
            return None
        return Solution.of(Grid(basis, moments), h.noise)

    def prepare(self, h: Hyperparameters) -> Moments | None:
        """The moments on the grid for these hyperparameters; None where it is too large or not there."""
        sizes = self.sizes(h)
        if sizes is None or not self.data.covers(sizes):
            return None
        if self._latest is None or self._latest.sizes != sizes:
            self._latest = Moments.of(self.data, sizes)
        return self._latest

    def sizes(self, h: Hyperparameters) -> tuple[int, ...] | None:
        """The grid's for these hyperparameters; None where it is too large."""
        return sizes_for(self._reach(h), axis_error(len(h.length_scales), self.size, (h.signal / h.noise) ** 2))

    def _reach(self, h: Hyperparameters) -> tuple[float, ...]:
        """(D,) half the box over the length-scale, rounded up to the next step."""
        return stepped(self.data.box.half / np.asarray(h.length_scales))


class MomentsEngine(SumsEngine):
    """The GP of one agent's data by its moments."""

    data: ChebyshevSums

    def __init__(self, data: Observations, agent: int | None) -> None:
        if data.points is not None or data.weight is not None:
            raise ValueError("expected observations at single places with one noise")
        super().__init__(ChebyshevSums(data.inputs, data.values), agent, _longest(len(data)))

    def grow(self, data: Observations) -> None:
        """Old rows are read again only if new ones lie outside their box."""
        self.data.grow(data.inputs, data.values)
        self._renew(_longest(self.size))


def _longest(size: int) -> int:
    return min(2 * size + SPARE, LONGEST)
