"""Sums over data of Chebyshev polynomials, directly: products of tables of polynomials, chunk by chunk.

The sums are kept in tiles of neighbouring degrees. A tile is read from the data when a grid first needs it, always by
the same operations in the same order, so that its bits depend on the data alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from fleetgp.arrays import Array
from fleetgp.gp.chebyshev import polynomials
from fleetgp.gp.moments.rows import LARGEST_GRID, MOST_SUMS, Rows

#: Rows are read so many at a time: their polynomials stay in cache.
CHUNK = 1024
#: The shape of a tile, by dimension: small enough that little is read in vain, large enough for fast matrix products.
#: In more dimensions grids have few nodes along an axis, and a tile is a whole grid.
TILES = {1: (64,), 2: (16, 32), 3: (24, 8, 8)}


@dataclass(frozen=True)
class Tile:
    """Degrees first_d, .., first_d + shape_d - 1 along each axis d."""

    shape: tuple[int, ...]
    first: tuple[int, ...]


@dataclass(frozen=True)
class Sums:
    """Of a tile, (shape_1, 2, shape_2, ..), without and with y_n: over whole chunks of rows, and over all rows."""

    chunks: Array
    rows: Array


class Tiles:
    """Tiles of sums over the first rows of some data.

    passes: how often rows were read for new tiles.
    """

    def __init__(self) -> None:
        self.passes = 0
        self._tiles: dict[Tile, Sums] = {}
        self._count = 0

    def up_to(self, rows: Rows, sizes: Sequence[int]) -> Array:
        """(2, *sizes): the sums of all degrees below the sizes. Rows may have come since, but none may have changed."""
        if self._count < rows.count:
            self._read(rows, list(self._tiles), self._count)
            self._count = rows.count
        shape = TILES.get(len(sizes), tuple(sizes))
        firsts = product(*(range(0, size, edge) for size, edge in zip(sizes, shape, strict=True)))
        needed = [Tile(shape, first) for first in firsts]
        missing = [tile for tile in needed if tile not in self._tiles]
        if missing:
            if sum(sums.rows.size // 2 for sums in self._tiles.values()) > MOST_SUMS:
                self._tiles = {tile: self._tiles[tile] for tile in needed if tile in self._tiles}
            self._read(rows, missing, 0)
            self.passes += 1
        found = np.empty((2, *sizes))
        for tile in needed:
            into = found[:, *(slice(first, first + edge) for first, edge in zip(tile.first, shape, strict=True))]
            into[...] = self._tiles[tile].rows.swapaxes(0, 1)[:, *(slice(0, size) for size in into.shape[1:])]
        return found

    def _read(self, rows: Rows, tiles: Iterable[Tile], before: int) -> None:
        """Rows into tiles that know the first `before` of them; those that are new know none."""
        columns: dict[tuple[int, ...], dict[tuple[int, ...], list[Tile]]] = defaultdict(lambda: defaultdict(list))
        for tile in tiles:
            columns[tile.shape][tile.first[1:]].append(tile)
        for shape, column in columns.items():
            chunk = max(16, min(CHUNK, LARGEST_GRID // int(np.prod(shape[1:], dtype=np.int64))))
            self._read_columns(rows, shape, column, before - before % chunk, chunk)

    def _read_columns(
        self, rows: Rows, shape: tuple[int, ...], columns: dict[tuple[int, ...], list[Tile]], start: int, chunk: int
    ) -> None:
        """Columns of tiles, which differ in the degree along the first axis alone, in chunks of rows from a start."""
        none = Sums(*[np.zeros((shape[0], 2, *shape[1:]))] * 2)
        chunks = {c: np.stack([self._tiles.get(t, none).chunks for t in column]) for c, column in columns.items()}
        sums = dict(chunks)
        tiles = [tile for column in columns.values() for tile in column]
        degrees = [max(tile.first[d] for tile in tiles) + edge for d, edge in enumerate(shape)]
        for at in range(start, rows.count, chunk):
            positions, y = rows.part(at, chunk)
            tables = [polynomials(positions[:, d], count) for d, count in enumerate(degrees)]
            leading, ones_and_y = tables[0].reshape(-1, shape[0], len(y)), np.stack([np.ones(len(y)), y])
            for c, column in columns.items():
                others = ones_and_y
                for table, first, edge in zip(tables[1:], c, shape[1:], strict=True):
                    others = (others[:, None] * table[first : first + edge]).reshape(-1, len(y))
                low = column[0].first[0] // shape[0]
                part = leading[low : low + len(column)] @ others.T
                sums[c] = chunks[c] + part.reshape(chunks[c].shape)
                if len(y) == chunk:
                    chunks[c] = sums[c]
        for c, column in columns.items():
            self._tiles.update(zip(column, map(Sums, chunks[c], sums[c]), strict=True))
