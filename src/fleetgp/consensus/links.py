"""Sums and maxima over the links into each cell, fast for many cells with few links each."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from fleetgp.arrays import Array, IntArray


class Links:
    """Link l brings a value to the cell receivers[l]; a cell's links count in their order, whoever else is hosted.

    >>> links = Links(np.array([0, 2, 0]), cells=3)
    >>> links.reduce(np.maximum, np.array([[1.0], [5.0], [2.0]]), 0.0).tolist()
    [[2.0], [0.0], [5.0]]
    """

    def __init__(self, receivers: IntArray, cells: int) -> None:
        self.receivers = receivers
        self._count = np.bincount(receivers, minlength=cells)
        self._order = np.argsort(receivers, kind="stable")

    def reduce(self, operation: np.ufunc, values: Array, empty: float) -> Array:
        """operation over each cell's links, (L, ...) -> (C, ...): all first links at once, then all second ones."""
        reduced = np.full((len(self._count), *values.shape[1:]), empty)
        for rank, (cells, links) in enumerate(self._ranks):
            heard = values.take(links, axis=0)
            reduced[cells] = operation(reduced.take(cells, axis=0), heard) if rank else heard
        return reduced

    def weighted_sum(self, weights: Array, values: Array) -> Array:
        """The sum of weights[l] values[l] over each cell's links, (L,) and (L, K) -> (C, K)."""
        starts = np.concatenate([[0], np.cumsum(self._count)])
        table = csr_array((weights[self._order], self._order, starts), shape=(len(self._count), len(weights)))
        return np.asarray(table @ values)

    @cached_property
    def _ranks(self) -> list[tuple[IntArray, IntArray]]:
        """For r = 0, 1, ..: the cells that have more than r links, and the r-th link of each."""
        starts = np.cumsum(self._count) - self._count
        ranks = []
        for rank in range(int(self._count.max(initial=0))):
            cells = np.flatnonzero(self._count > rank)
            ranks.append((cells, self._order[starts[cells] + rank]))
        return ranks
