"""The one pass over the data: sums over them of Chebyshev polynomials, from which every grid is made.

The sums of T_j(x_n) and of y_n T_j(x_n), j the degrees along the axes, are kept in tiles of neighbouring degrees. A
tile is read from the data when a grid first needs it, always by the same operations in the same order, so that its
bits depend on the data alone: not on what was asked before, and not on the batches in which the data came.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from fleetgp.arrays import Array
from fleetgp.gp.basis import Box
from fleetgp.gp.chebyshev import polynomials

#: The most nodes of a grid, and the most sums that stand for data: 32 MB.
LARGEST_GRID = 4_000_000
#: Rows are read so many at a time: their polynomials stay in cache.
CHUNK = 1024
#: Degrees of a tile along an axis, by dimension: few enough that little is read in vain, enough for matrix products.
#: In more dimensions the grids are small, and a tile is a whole grid.
EDGES = {1: 64, 2: 32, 3: 8}
#: Tiles that hold more sums than this are forgotten, except those in use.
MOST_SUMS = 2 * LARGEST_GRID


@dataclass(frozen=True)
class Tile:
    """Degrees first_d, .., first_d + shape_d - 1 along each axis d."""

    shape: tuple[int, ...]
    first: tuple[int, ...]


@dataclass(frozen=True)
class Sums:
    """Of a tile, (2, *shape): without and with y_n. chunks: over whole chunks of rows; rows: over all rows."""

    chunks: Array
    rows: Array


class ChebyshevSums:
    """Sums over rows of data of Chebyshev polynomials on their box."""

    def __init__(self, inputs: Array, observations: Array) -> None:
        self.inputs = inputs
        self.observations = observations
        self.box = Box.around(inputs)
        self.passes = 0
        self._tiles: dict[Tile, Sums] = {}

    def append(self, inputs: Array, observations: Array) -> None:
        """More rows: only they are read, unless the box grows, which changes every sum."""
        before = len(self.observations)
        self.inputs = np.concatenate([self.inputs, inputs])
        self.observations = np.concatenate([self.observations, observations])
        box = Box.around(self.inputs)
        if not np.array_equal([box.centre, box.half], [self.box.centre, self.box.half]):
            self.box = box
            self._tiles.clear()
        self._read(list(self._tiles), before)

    def up_to(self, sizes: Sequence[int]) -> Array:
        """(2, *sizes): the sums of all degrees below the sizes, without and with y_n."""
        shape = tuple(EDGES.get(len(sizes), size) for size in sizes)
        firsts = product(*(range(0, size, edge) for size, edge in zip(sizes, shape, strict=True)))
        needed = [Tile(shape, first) for first in firsts]
        missing = [tile for tile in needed if tile not in self._tiles]
        if missing:
            if sum(sums.rows[0].size for sums in self._tiles.values()) > MOST_SUMS:
                self._tiles = {tile: self._tiles[tile] for tile in needed if tile in self._tiles}
            self._read(missing, 0)
            self.passes += 1
        found = np.empty((2, *sizes))
        for tile in needed:
            into = found[:, *(slice(first, first + edge) for first, edge in zip(tile.first, shape, strict=True))]
            into[...] = self._tiles[tile].rows[:, *(slice(0, size) for size in into.shape[1:])]
        return found

    def _read(self, tiles: Iterable[Tile], before: int) -> None:
        """Rows into tiles that know the first `before` of them; those that are new know none."""
        columns: dict[tuple[int, ...], dict[tuple[int, ...], list[Tile]]] = defaultdict(lambda: defaultdict(list))
        for tile in tiles:
            columns[tile.shape][tile.first[1:]].append(tile)
        for shape, column in columns.items():
            chunk = max(16, min(CHUNK, LARGEST_GRID // int(np.prod(shape[1:], dtype=np.int64))))
            self._read_columns(shape, column, before - before % chunk, chunk)

    def _read_columns(
        self, shape: tuple[int, ...], columns: dict[tuple[int, ...], list[Tile]], start: int, chunk: int
    ) -> None:
        """Columns of tiles, which differ in the degree along the first axis alone, in chunks of rows from a start."""
        none = Sums(*[np.zeros((2, *shape))] * 2)
        chunks = {c: np.stack([self._tiles.get(t, none).chunks for t in column]) for c, column in columns.items()}
        rows = dict(chunks)
        tiles = [tile for column in columns.values() for tile in column]
        degrees = [max(tile.first[d] for tile in tiles) + edge for d, edge in enumerate(shape)]
        for at in range(start, len(self.inputs), chunk):
            positions, y = self.box.positions(self.inputs[at : at + chunk]), self.observations[at : at + chunk]
            tables = [polynomials(positions[:, d], count) for d, count in enumerate(degrees)]
            along = tables[0].reshape(-1, 1, shape[0], len(y))
            leading = np.concatenate([along, along * y], axis=1).reshape(-1, 2 * shape[0], len(y))
            for c, column in columns.items():
                others = np.ones((1, len(y)))
                for table, first, edge in zip(tables[1:], c, shape[1:], strict=True):
                    others = (others[:, None] * table[first : first + edge]).reshape(-1, len(y))
                low = column[0].first[0] // shape[0]
                part = (leading[low : low + len(column)] @ others.T).reshape(chunks[c].shape)
                rows[c] = chunks[c] + part
                if len(y) == chunk:
                    chunks[c] = rows[c]
        for c, column in columns.items():
            self._tiles.update(zip(column, map(Sums, chunks[c], rows[c]), strict=True))
