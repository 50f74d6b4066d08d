"""Data on a box as a weighted Chebyshev grid, and the small system that takes the place of the covariance.

A sum over data of a polynomial of known degree is a sum over a grid with the right signed weights, one per node: the
data are read once (`sums.py`), and the grid stands for them afterwards. Sums of products of two functions of a basis
are computed in one of three ways, depending on the numbers of axes and functions: in one matrix product, by tables of
pairs of the axes' functions, and by blocks of functions that differ along the last axis alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import pairwise

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.engines.base import Trend
from fleetgp.engines.basis import Basis, Box, nodes, to_nodes
from fleetgp.engines.moments.fleet import FleetMoments
from fleetgp.engines.moments.sums import ChebyshevSums
from fleetgp.linalg import cholesky

#: Longer bases use blocks: so many look-ups in a table cost more than computing the sums in order.
LONGEST_IN_PAIRS = 2000
#: So do bases whose tables of pairs would have more elements: 32 MB.
LARGEST_TABLE = 4_000_000


def products(kept: IntArray, functions: Sequence[Array]) -> OneAxis | Pairs | Blocks:
    """Of the kept products of the axes' functions, without their common factor, in the fastest of three ways.

    Each has `sums`, of weights on the nodes: sum_g weight_g phi_i phi_j, (r, r); and `quadratic`, of a symmetric matrix
    (r, r): phi' matrix phi at the nodes.

    kept: (D, r), in ascending order.  functions: (n_d, r_d) values on the nodes of each axis.
    """
    if len(functions) == 1:
        return OneAxis(kept, functions)
    return Pairs(kept, functions) if by_pairs(kept.max(axis=1) + 1.0, kept.shape[1]) else Blocks(kept, functions)


def by_pairs(used: Array, rank: float) -> bool:
    """Whether tables of pairs are the better way for so many functions in use along each axis."""
    return bool(rank <= LONGEST_IN_PAIRS and (0.5 * used * (used + 1.0)).prod() <= LARGEST_TABLE)


def contract(tensor: Array, matrices: Sequence[Array]) -> Array:
    """(n_1, .., n_D) with one (n_d, q_d) for each axis -> (q_1, .., q_D); never a Kronecker product."""
    for matrix in matrices:
        tensor = np.tensordot(tensor, matrix, axes=(0, 0))
    return tensor


class OneAxis:
    """All in one matrix product."""

    def __init__(self, kept: IntArray, functions: Sequence[Array]) -> None:
        self._functions = functions[0][:, kept[0]]

    def sums(self, weights: Array) -> Array:
        return np.asarray(self._functions.T @ (weights[:, None] * self._functions))

    def quadratic(self, matrix: Array) -> Array:
        return np.asarray(((self._functions @ matrix) * self._functions).sum(axis=1))


@cache
def _pairs(rank: int) -> tuple[IntArray, IntArray, IntArray]:
    """The unordered pairs (a, b), a <= b, of a rank, and the (rank, rank) table of their positions."""
    first, second = np.triu_indices(rank)
    table = np.empty((rank, rank), dtype=np.intp)
    table[first, second] = table[second, first] = np.arange(len(first))
    return first, second, table


@lru_cache(maxsize=8)
def _gathering(kept_bytes: bytes, ranks: tuple[int, ...]) -> IntArray:
    """(r, r): where the pairs of kept products are among the products of pairs."""
    chosen = np.frombuffer(kept_bytes, dtype=np.intp).reshape(len(ranks), -1)
    index = np.zeros((chosen.shape[1],) * 2, dtype=np.intp)
    for row, rank in zip(chosen, ranks, strict=True):
        first, _, table = _pairs(rank)
        index *= len(first)
        index += table[np.ix_(row, row)]
    return index


class Pairs:
    """Contractions over one axis after the other with tables of unordered pairs, and a look-up."""

    def __init__(self, kept: IntArray, functions: Sequence[Array]) -> None:
        used = tuple((kept.max(axis=1) + 1).tolist())
        self._pairs = []
        for values, rank in zip(functions, used, strict=True):
            first, second, _ = _pairs(rank)
            self._pairs.append(values[:, first] * values[:, second])
        self._index = _gathering(np.ascontiguousarray(kept, dtype=np.intp).tobytes(), used)

    def sums(self, weights: Array) -> Array:
        return np.asarray(contract(weights, self._pairs).ravel().take(self._index))

    def quadratic(self, matrix: Array) -> Array:
        shape = tuple(pair.shape[1] for pair in self._pairs)
        sums = np.bincount(self._index.ravel(), matrix.ravel(), minlength=int(np.prod(shape)))
        return contract(sums.reshape(shape), [pair.T for pair in self._pairs])


class Blocks:
    """Functions that differ along the last axis alone are neighbours: a block of rows is one matrix product.

    Some n_D r^2 operations for n_D nodes along the last axis, fewer than a Cholesky of r rows; tables of at most n_D r.
    """

    def __init__(self, kept: IntArray, functions: Sequence[Array]) -> None:
        leading = kept[:-1]
        differ = leading[:, 1:] != leading[:, :-1]
        changes = np.flatnonzero(differ.any(axis=0)) + 1
        self._changed = [0, *differ[:, changes - 1].argmax(axis=0).tolist()]  # the first axis that does, of each group
        self._starts = np.concatenate([[0], changes])
        self._ends = np.concatenate([changes, [kept.shape[1]]])
        self._members = np.repeat(np.arange(len(self._starts)), self._ends - self._starts)
        self._groups = leading[:, self._starts]
        self._leading = [values[:, : row.max() + 1] for values, row in zip(functions, leading, strict=False)]
        self._last = functions[-1][:, kept[-1]]

    def sums(self, weights: Array) -> Array:
        rank = self._last.shape[1]
        result = np.empty((rank, rank))
        for group, over in enumerate(self._contracted(weights)):
            start, end = self._starts[group], self._ends[group]
            others = over[:, *self._groups[:, group:]][:, self._members[start:] - group]
            others *= self._last[:, start:]
            block = self._last[:, start:end].T @ others
            result[start:end, start:] = block
            result[end:, start:end] = block[:, end - start :].T
        return result

    def _contracted(self, weights: Array) -> Iterator[Array]:
        """(n_D, r_1, .., r_(D-1)) for each group: sums over all axes but the last of its functions with all others.

        What neighbouring groups share along the first axes is contracted once.
        """
        known = [weights]
        for group, changed in enumerate(self._changed):
            del known[changed + 1 :]
            for values, chosen in zip(self._leading[changed:], self._groups[changed:, group], strict=True):
                weighed = known[-1] * values[:, chosen].reshape(-1, *[1] * (weights.ndim - 1))
                known.append(np.tensordot(weighed, values, axes=(0, 0)))
            yield known[-1]

    def quadratic(self, matrix: Array) -> Array:
        """The sums in reverse."""
        return self._expanded(matrix, 0, range(len(self._starts)))

    def _expanded(self, matrix: Array, axis: int, groups: range) -> Array:
        """(r_1, .., r_axis, n_(axis+1), .., n_D) from groups with the same functions along the first axes."""
        if axis == len(self._leading):
            return self._within(matrix, groups[0])
        values = self._leading[axis]
        total: Array | float = 0.0
        starts = [group for group in groups if group == groups[0] or self._changed[group] <= axis]
        for first, end in pairwise([*starts, groups.stop]):
            inner = self._expanded(matrix, axis + 1, range(first, end))
            on_nodes = np.moveaxis(np.tensordot(values, inner, axes=(1, axis)), 0, axis)
            shared = values[:, self._groups[axis, first]]
            total = total + on_nodes * shared.reshape(-1, *[1] * (on_nodes.ndim - axis - 1))
        return np.asarray(total)

    def _within(self, matrix: Array, group: int) -> Array:
        """(r_1, .., r_(D-1), n_D): of one group with itself and, twice, with the later ones."""
        start, end = self._starts[group], self._ends[group]
        block = self._last[:, start:end] @ matrix[start:end, start:]
        block *= self._last[:, start:]
        sums = np.add.reduceat(block, self._starts[group:] - start, axis=1)
        sums[:, 1:] *= 2.0
        result = np.zeros((*(values.shape[1] for values in self._leading), len(self._last)))
        result[*self._groups[:, group:]] = sums.T
        return result


@dataclass(frozen=True)
class Moments:
    """Data on a box as a weighted Chebyshev grid.

    sum_n f(x_n) = sum_g weights_g f(node_g) and sum_n y_n f(x_n) = sum_g responses_g f(node_g) for every
    polynomial f of degree below the grid's along each axis.

    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.uniform(0, 3, (500, 1)), rng.standard_normal(500)
    >>> from fleetgp.engines.moments.sums import ChebyshevSums
    >>> m = Moments.of(ChebyshevSums(x, y), (9,))
    >>> grid = m.box.centre + m.box.half * nodes(9)
    >>> bool(abs(m.weights @ grid**8 - (x**8).sum()) < 1e-9 * (x**8).sum())
    True
    """

    box: Box
    weights: Array
    responses: Array
    squares: float
    count: int

    @classmethod
    def of(cls, data: ChebyshevSums | FleetMoments, sizes: Sequence[int]) -> Moments:
        """On a grid of these sizes."""
        maps = [to_nodes(size).T for size in sizes]
        weights, responses = (contract(sums, maps) for sums in data.up_to(sizes))
        return cls(data.box, weights, responses, data.squares, data.count)

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.weights.shape


class Grid:
    """A basis on the grid of some moments: sums over the data of its functions and of their products."""

    def __init__(self, basis: Basis, moments: Moments) -> None:
        self.basis = basis
        self.moments = moments
        self.positions = [nodes(size) for size in moments.sizes]
        self.functions = [axis.on(size) for axis, size in zip(basis.axes, moments.sizes, strict=True)]
        self._products = products(basis.kept, self.functions)

    def along(self, axis: int, power: int, tensor: Array) -> Array:
        """The tensor times a power of the position along an axis."""
        shape = [1] * tensor.ndim
        shape[axis] = -1
        return np.asarray(tensor * (self.positions[axis] ** power).reshape(shape))

    def products(self, weights: Array) -> Array:
        """sum_n phi_i phi_j, with weights in place of the data's, (r, r)."""
        result = self._products.sums(weights)
        result *= self.basis.signal**2
        return result

    def quadratic(self, matrix: Array) -> Array:
        """phi' matrix phi at the nodes of the grid."""
        return self.basis.signal**2 * self._products.quadratic(matrix)

    def sums(self, weights: Array) -> Array:
        """sum_n phi_i, of all products of the axes' functions, dropped ones too, flat."""
        return np.asarray(self.basis.signal * contract(weights, self.functions).ravel())

    def combination(self, coefficients: Array) -> Array:
        """sum_i coefficient_i phi_i at the nodes of the grid."""
        whole = np.zeros(self.basis.ranks)
        whole.flat[self.basis.flat] = coefficients
        return self.basis.signal * contract(whole, [functions.T for functions in self.functions])

    @property
    def largest(self) -> Array:
        """(r,) the largest |phi_i| on the grid."""
        peak = np.full(self.basis.rank, self.basis.signal)
        for row, functions in zip(self.basis.kept, self.functions, strict=True):
            peak *= np.abs(functions).max(axis=0)[row]
        return peak


@dataclass(frozen=True)
class Solution:
    """Of some data at some theta; the arrays are not changed.

    lower: (r, r) L, in the lower triangle.  gram: (r, r) Phi'Phi.  phi_y: (r,) Phi'y.  coefficients: (r,) u.
    residuals: y - Phi u as weights on the grid.
    """

    grid: Grid
    noise: float
    lower: Array
    gram: Array
    phi_y: Array
    coefficients: Array
    residuals: Array

    @classmethod
    def of(cls, grid: Grid, noise: float) -> Solution | None:
        """None where A is not positive definite to rounding."""
        m = grid.moments
        gram = grid.products(m.weights)
        lower = gram.copy().T
        lower.flat[:: len(lower) + 1] += noise**2
        if not (np.isfinite(gram[0, 0]) and cholesky.cholesky_in_place(lower)):
            return None
        phi_y = grid.sums(m.responses)[grid.basis.flat]
        u = phi_y.copy()
        cholesky.solve_in_place(lower, u)
        return cls(grid, noise, lower, gram, phi_y, u, m.responses - m.weights * grid.combination(u))

    @cached_property
    def misfit(self) -> float:
        """|y - Phi u|^2."""
        u = self.coefficients
        return max(float(self.grid.moments.squares - 2.0 * (self.phi_y @ u) + u @ self.gram @ u), 0.0)

    @cached_property
    def dropped(self) -> float:
        """A bound on what the dropped products would change in the likelihood, see `certificate`."""
        m, basis = self.grid.moments, self.grid.basis
        missing = max(m.count * basis.signal**2 - float(np.trace(self.gram)), 0.0)
        unexplained = self.correlations(self.residuals)
        unexplained[basis.flat] = 0.0
        return 0.5 * max(missing / self.noise**2, float(unexplained @ unexplained))

    def correlations(self, residuals: Array) -> Array:
        """Phi'C^-1 y of all products, dropped ones too, flat; of residuals times positions, Phi'X C^-1 y."""
        return self.grid.sums(residuals) / self.noise**2


def trend_products(s: Solution, trend: Trend) -> Array:
    """Z'C^-1 Z for Z = (H, y), (count + 1, count + 1).

    As the likelihood's own y'C^-1 y: with U = A^-1 Phi'Z it is (|Z - Phi U|^2 + sigma^2 |U|^2) / sigma^2.
    """
    m, flat, box = s.grid.moments, s.grid.basis.flat, s.grid.moments.box
    nodes = np.stack(np.meshgrid(*s.grid.positions, indexing="ij"), axis=-1)
    h = np.moveaxis(trend.columns(box.centre + box.half * nodes), -1, 0)
    sums = [m.weights * column for column in h] + [m.responses]
    phi_z = np.stack([s.grid.sums(weights)[flat] for weights in sums], axis=1)
    own = np.empty((len(sums), len(sums)))
    own[:-1, :] = [[float((column * weights).sum()) for weights in sums] for column in h]
    own[-1, :-1], own[-1, -1] = own[:-1, -1], m.squares
    u = np.asfortranarray(phi_z)
    cholesky.solve_in_place(s.lower, u)
    mixed = u.T @ phi_z
    return np.asarray((own - mixed - mixed.T + u.T @ s.gram @ u) / s.noise**2 + u.T @ u)


def without_trend(moments: FleetMoments, trend: Trend, coefficients: Sequence[float]) -> FleetMoments:
    """The moments of y_n - h(x_n)'coefficients, from those of y_n alone."""
    box, sums, low = moments.box, moments.sums, moments.responses.shape
    slopes = np.array([*coefficients[1:], *[0.0] * (len(box.centre) if not trend.linear else 0)])
    # Sums one by one, for the same bits on every processor.
    constant = float(coefficients[0]) + sum((slopes * (box.centre - trend.centre)).tolist())
    # The mean function in positions, constant + sum_d steep_d t_d, and t T_j = (T_j+1 + T_|j-1|) / 2.
    steep = slopes * box.half
    corner = tuple(slice(0, size) for size in low)
    taken = constant * sums[corner]
    for d, slope in enumerate(steep):
        taken = taken + slope * _times_position(sums, d, low)
    responses = moments.responses - taken
    first = [np.eye(len(low), dtype=np.int64)[d] for d in range(len(low))]
    # |y - m|^2 = |y|^2 - m'(y + (y - m))
    both = moments.responses + responses
    weighed = constant * both.flat[0] + sum(slope * both[tuple(one)] for slope, one in zip(steep, first, strict=True))
    return FleetMoments(box, sums, responses, max(float(moments.squares - weighed), 0.0))


def _times_position(sums: Array, axis: int, low: Sequence[int]) -> Array:
    """The sums of t_d T_j(x_n), of degrees below `low`, which need no sums beyond those given."""
    degrees = np.arange(low[axis])
    along = 0.5 * (
        np.take(sums, np.minimum(degrees + 1, sums.shape[axis] - 1), axis) + np.take(sums, np.abs(degrees - 1), axis)
    )
    return np.asarray(along[tuple(slice(0, size) for size in low)])
