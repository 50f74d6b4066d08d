"""Data on a box as a weighted Chebyshev grid, and sums over them of the functions of a basis.

A sum over data of a polynomial of known degree is a sum over a grid with the right signed weights, one weight a
node: the data are read once (`sums.py`), and the grid stands for them afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array
from fleetgp.gp.basis import Basis, Box
from fleetgp.gp.chebyshev import nodes, to_nodes
from fleetgp.gp.moments.products import contract, products
from fleetgp.gp.moments.sums import DataSums


@dataclass(frozen=True)
class Moments:
    """Data on a box as a weighted Chebyshev grid.

    sum_n f(x_n) = sum_g weights_g f(node_g) and sum_n y_n f(x_n) = sum_g responses_g f(node_g) for every
    polynomial f of degree below the grid's along each axis.

    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.uniform(0, 3, (500, 1)), rng.standard_normal(500)
    >>> from fleetgp.gp.moments.sums import ChebyshevSums
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
    def of(cls, data: DataSums, sizes: Sequence[int]) -> Moments:
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
        found = self._products.sums(weights)
        found *= self.basis.signal**2
        return found

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
