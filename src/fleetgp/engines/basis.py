"""A short orthogonal basis of the squared exponential on a box: k(x, x') = sum_i phi_i(x) phi_i(x').

On an interval the kernel exp(-h^2 (t - t')^2), h = half the interval's width over the length-scale, is to any accuracy
a short expansion T(t) A T(t')' in Chebyshev polynomials. Per axis the kernel on the Chebyshev nodes of the box has few
eigenvectors above rounding; their products over the axes, without small ones, make the basis. It depends on theta and
the box alone, so agents that know both have the same one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import scipy
from scipy.linalg import lapack, solve_triangular

from fleetgp.arrays import Array, IntArray
from fleetgp.model.hyperparameters import Hyperparameters


def nodes(count: int) -> Array:
    """The Chebyshev nodes of the first kind on [-1, 1]."""
    return np.cos(np.pi * (np.arange(count) + 0.5) / count)


def polynomials(positions: Array, count: int) -> Array:
    """T_0 .. T_(count-1) at positions in [-1, 1], (count, N), by a recurrence for their differences.

    T_k+1 - T_k = T_k - T_k-1 + 2 (t - 1) T_k keeps all digits near t = 1, and by the parity of T_k near t = -1; the
    usual recurrence for T_k loses k^2 units in the last place there.

    >>> t = -1 + 1e-4
    >>> bool(abs(polynomials(np.array([t]), 181)[180, 0] - np.cos(180 * np.arccos(np.longdouble(t)))) < 1e-14)
    True
    """
    values = np.empty((count, len(positions)))
    values[0] = 1.0
    if count > 1:
        distance = np.abs(positions) - 1.0
        difference = distance.copy()
        values[1] = np.abs(positions)
        step = np.empty_like(distance)
        distance *= 2.0
        for k in range(2, count):
            np.multiply(distance, values[k - 1], out=step)
            difference += step
            np.add(values[k - 1], difference, out=values[k])
        values[1::2] *= np.where(positions < 0.0, -1.0, 1.0)
    return values


def coefficients(values: Array) -> Array:
    """Values of a function of two variables on the nodes, (p, p) -> its Chebyshev coefficients."""
    count = len(values)
    both = scipy.fft.dct(scipy.fft.dct(values, axis=0), axis=1) / count**2
    both[0] *= 0.5
    both[:, 0] *= 0.5
    return np.asarray(both, dtype=float)


@lru_cache(maxsize=256)
def at_nodes(count: int, fine: int) -> Array:
    """(fine, count): T_0 .. T_(count-1) on `fine` nodes, from the nodes' exact angles.

    T_k has slopes of up to k^2, which would amplify the rounding of a node.
    """
    turns = np.outer(2 * np.arange(fine) + 1, np.arange(count)) % (4 * fine)
    return np.asarray(np.cos(turns * (np.pi / (2 * fine))))


@lru_cache(maxsize=256)
def to_nodes(count: int) -> Array:
    """(count, count): Chebyshev moments sum_n T_k(t_n) -> weights on the nodes with the same moments.

    A polynomial f of degree below `count` then has sum_n f(t_n) = sum_i weight_i f(node_i).
    """
    matrix = at_nodes(count, count) * (2.0 / count)
    matrix[:, 0] *= 0.5
    return matrix


@lru_cache(maxsize=256)
def interpolation(coarse: int, fine: int) -> Array:
    """(fine, coarse): values of a polynomial on `coarse` nodes -> its values on `fine` nodes."""
    return np.asarray(at_nodes(coarse, fine) @ to_nodes(coarse).T)


@lru_cache(maxsize=256)
def fejer_weights(count: int) -> Array:
    """Quadrature weights of the nodes for the uniform distribution on [-1, 1]; they sum to 1."""
    k = np.arange(0, count, 2)
    return np.asarray(to_nodes(count)[:, k] @ (1.0 / (1.0 - k**2)))


#: Semi-axes b and b' of the Bernstein ellipses over which the bound below is minimized.
_WIDE = np.geomspace(1e-3, 1e3, 241)[:, None]
_NARROW = np.geomspace(1e-3, 10.0, 41)[None, :]
_SQUARES = (_WIDE + _NARROW) ** 2
#: log rho of the wide ellipses, and log of the geometric sums of rho^-j and rho'^-k.
_LOG_RHO = np.arcsinh(_WIDE)
_LOG_SUMS = -np.log1p(-np.exp(-_LOG_RHO)) - np.log1p(-np.exp(-np.arcsinh(_NARROW)))
#: The logarithm of the largest bound: far above any use, and far below overflow.
_LARGEST = 600.0


def expansion_error(count: int, h: float) -> float:
    """A bound on the sum of |coefficients| of what p = count nodes miss of exp(-h^2 (t - t')^2).

    The kernel is entire; on the ellipses with semi-axes b, b' in the imaginary direction (rho = b + sqrt(b^2 + 1))
    it is at most exp(h^2 (b + b')^2), so its coefficients are at most 4 exp(h^2 (b + b')^2) rho^-j rho'^-k.
    Interpolation folds back what lies beyond p in either direction, hence twice the tail of both.

    >>> expansion_error(40, 2.0) < 1e-15 < expansion_error(20, 2.0)
    True
    """
    if h == 0.0:
        return 0.0
    tail = h**2 * _SQUARES - count * _LOG_RHO + _LOG_SUMS
    return float(16.0 * np.exp(min(tail.min(), _LARGEST)))


def degree_for(h: float, error: float) -> int:
    """The smallest number of nodes whose `expansion_error` is at most `error`.

    >>> degree_for(0.0, 1e-18), degree_for(2.0, 1e-15) < degree_for(4.0, 1e-15) < degree_for(4.0, 1e-20)
    (1, True)
    """
    if h == 0.0:
        return 1
    low, high = 1, 8
    while expansion_error(high, h) > error:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if expansion_error(middle, h) <= error else (middle, high)
    return high


#: Pivots of a 1-D kernel (the first is 1) below this are rounding.
ROUNDING = 4e-16
#: The narrowest box relative to the distance from the origin, as inputs closer together differ by rounding; and around
#: the origin, so that squares of its inverse do not overflow.
NARROWEST, SMALLEST = 1e-12, 1e-150


@dataclass(frozen=True)
class Box:
    """The cuboid that holds some inputs: centre and half the width along each axis, which is positive."""

    centre: Array
    half: Array

    @classmethod
    def around(cls, inputs: Array) -> Box:
        """Positions are at most 1, however the centre is rounded."""
        low, high = inputs.min(axis=0), inputs.max(axis=0)
        centre = 0.5 * low + 0.5 * high
        half = np.maximum(high - centre, centre - low)
        return cls(centre, np.maximum(half, np.maximum(NARROWEST * np.abs(centre), SMALLEST)))

    def positions(self, inputs: Array) -> Array:
        """Inputs as positions in [-1, 1], (N, D); queries may be anywhere."""
        return np.asarray((inputs - self.centre) / self.half)

    def holds(self, inputs: Array) -> bool:
        """Whether all of them lie in it."""
        return bool((np.abs(self.positions(inputs)) <= 1.0).all())

    def same(self, other: Box) -> bool:
        return np.array_equal([self.centre, self.half], [other.centre, other.half])


@dataclass(frozen=True)
class Axis:
    """phi_a along one axis: exp(-h^2 (t - t')^2) = sum_a phi_a(t) phi_a(t') for t, t' in [-1, 1].

    spectrum: (r,) the mean of phi_a^2 over the interval, descending.
    """

    h: float
    nodes: Array
    pivots: IntArray
    triangle: Array
    rotation: Array
    at_nodes: Array
    spectrum: Array

    @classmethod
    def of(cls, h: float, count: int) -> Axis:
        """From `count` nodes: a pivoted Cholesky finds the rank, where pivots reach rounding; an eigenproblem of that
        size, faster than one of all nodes, sorts the functions by their mean square on the interval.
        """
        t = nodes(count)
        matrix = np.exp(-((h * (t[:, None] - t)) ** 2))
        factor, pivots, rank, _ = lapack.dpstrf(matrix, lower=1, tol=ROUNDING, overwrite_a=1)
        rows = pivots - 1
        lower = np.tril(factor[:, :rank])
        columns = np.empty_like(lower)
        columns[rows] = lower
        spectrum, rotation = np.linalg.eigh(columns.T @ (fejer_weights(count)[:, None] * columns))
        order = np.arange(rank)[::-1]
        rotation = rotation[:, order]
        return cls(
            h, t, rows[:rank], lower[:rank], rotation, columns @ rotation, np.maximum(spectrum[order], ROUNDING**2)
        )

    def on(self, fine: int) -> Array:
        """phi at `fine` Chebyshev nodes, (fine, r)."""
        return np.asarray(interpolation(len(self.nodes), fine) @ self.at_nodes)

    def at(self, positions: Array) -> Array:
        """phi anywhere, inside the interval or not, (N, r): the coordinates of k(t, .) on the interval."""
        return self._coordinates(np.exp(-((self.h * self._apart(positions)) ** 2)))

    def slope(self, positions: Array) -> Array:
        """d phi / dt, (N, r)."""
        apart = self._apart(positions)
        return self._coordinates(2.0 * self.h**2 * apart * np.exp(-((self.h * apart) ** 2)))

    def _apart(self, positions: Array) -> Array:
        return np.asarray(self.nodes[self.pivots, None] - positions)

    def _coordinates(self, cross: Array) -> Array:
        return np.asarray(solve_triangular(self.triangle, cross, lower=True, check_finite=False).T @ self.rotation)


class Basis:
    """Products of the axes' functions, all but `drop` of k(x, x) on average over the box."""

    def __init__(self, h: Hyperparameters, box: Box, counts: tuple[int, ...], drop: float) -> None:
        self.signal = h.signal
        self.box = box
        self.counts = counts
        scaled = box.half / np.asarray(h.length_scales)
        self.axes = tuple(Axis.of(float(ratio), count) for ratio, count in zip(scaled, counts, strict=True))
        self.kept = kept(tuple(axis.spectrum for axis in self.axes), drop)

    @property
    def rank(self) -> int:
        return int(self.kept.shape[1])

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        return tuple(len(axis.spectrum) for axis in self.axes)

    @cached_property
    def flat(self) -> IntArray:
        """(r,) the kept products as positions in the whole grid of products."""
        return np.asarray(np.ravel_multi_index(tuple(self.kept), self.ranks), dtype=np.int64)

    def at(self, points: Array) -> Array:
        """phi at points anywhere, (N, r)."""
        return self._product(points, None)

    def slopes(self, points: Array) -> Array:
        """d phi / dx along each axis, (D, N, r)."""
        return np.stack([self._product(points, along) / self.box.half[along] for along in range(len(self.axes))])

    def _product(self, points: Array, along: int | None) -> Array:
        """phi, or its derivative by the position along one axis."""
        positions = self.box.positions(points)
        product = self.signal * np.ones((len(points), 1))
        for d, axis in enumerate(self.axes):
            one = axis.slope if d == along else axis.at
            product = product * one(positions[:, d])[:, self.kept[d]]
        return np.asarray(product)


def kept(spectra: tuple[Array, ...], drop: float) -> IntArray:
    """(D, r): the products of eigenvalues to keep, so that the dropped ones sum to at most `drop` of the whole."""
    products = spectra[0]
    for spectrum in spectra[1:]:
        products = np.multiply.outer(products, spectrum)
    flat = products.ravel()
    ascending = np.argsort(flat)
    dropped = int(np.searchsorted(np.cumsum(flat[ascending]), drop * flat.sum(), side="right"))
    chosen = np.sort(ascending[min(dropped, len(flat) - 1) :])
    return np.stack(np.unravel_index(chosen, products.shape))
