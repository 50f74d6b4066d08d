"""Sums over a weighted grid of products of two functions of a basis, which are products over the axes themselves.

Three ways, by how many axes and functions there are: all sums in one matrix product, tables of pairs of the axes'
functions, and blocks of functions that differ along the last axis alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from typing import Protocol

import numpy as np

from fleetgp.arrays import Array, IntArray

#: Longer bases go by blocks: to look up that many sums in a table costs more than to compute them in order.
LONGEST_IN_PAIRS = 2000
#: So do those whose tables of pairs would have more elements: 32 MB.
LARGEST_TABLE = 4_000_000


class Products(Protocol):
    """Of the kept products of the axes' functions, without their common factor."""

    def sums(self, weights: Array) -> Array:
        """sum_g weight_g phi_i phi_j, (r, r)."""
        ...

    def quadratic(self, matrix: Array) -> Array:
        """phi' matrix phi at the nodes of the grid, of a symmetric matrix (r, r)."""
        ...


def products(kept: IntArray, functions: Sequence[Array]) -> Products:
    """kept: (D, r), in ascending order.  functions: (n_d, r_d) values on the nodes of each axis."""
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
    """No products of products."""

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

    Some n_D r^2 operations, n_D nodes along the last axis: less than a Cholesky of r rows has. No table is longer than
    n_D r.
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
        found = np.empty((rank, rank))
        for group, over in enumerate(self._contracted(weights)):
            start, end = self._starts[group], self._ends[group]
            others = over[:, *self._groups[:, group:]][:, self._members[start:] - group]
            others *= self._last[:, start:]
            block = self._last[:, start:end].T @ others
            found[start:end, start:] = block
            found[end:, start:end] = block[:, end - start :].T
        return found

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
        found = np.zeros((*(values.shape[1] for values in self._leading), len(self._last)))
        found[*self._groups[:, group:]] = sums.T
        return found
