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
from typing import Protocol

import numpy as np

from fleetgp.arrays import Array
from fleetgp.errors import InputError
from fleetgp.gp.basis import Box
from fleetgp.gp.chebyshev import polynomials

#: The most nodes of a grid, and the most sums that stand for data: 32 MB.
LARGEST_GRID = 4_000_000
#: Rows are read so many at a time: their polynomials stay in cache.
CHUNK = 1024
#: The shape of a tile, by dimension: small enough that little is read in vain, large enough for fast matrix products.
#: In more dimensions grids have few nodes along an axis, and a tile is a whole grid.
TILES = {1: (64,), 2: (16, 32), 3: (24, 8, 8)}
#: Tiles that hold more sums than this are forgotten, except those in use.
MOST_SUMS = 2 * LARGEST_GRID


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


class DataSums(Protocol):
    """What the moments engine needs to know of data: sums over them of Chebyshev polynomials on a box that holds them.

    squares: sum_n y_n^2.
    """

    @property
    def box(self) -> Box: ...

    @property
    def count(self) -> int: ...

    @property
    def squares(self) -> float: ...

    def covers(self, sizes: Sequence[int]) -> bool:
        """Whether the sums of all degrees below the sizes are there."""
        ...

    def up_to(self, sizes: Sequence[int]) -> Array:
        """(2, *sizes): the sums of all degrees below the sizes, without and with y_n."""
        ...


class ChebyshevSums:
    """Sums over rows of data of Chebyshev polynomials on their box, or on a given one that holds them."""

    def __init__(self, inputs: Array, observations: Array, box: Box | None = None) -> None:
        self.inputs = inputs
        self.observations = observations
        self.box = Box.around(inputs) if box is None else box
        self.passes = 0
        self._tiles: dict[Tile, Sums] = {}
        self._given = box
        self._check_inside(inputs)

    @property
    def count(self) -> int:
        return len(self.observations)

    @property
    def squares(self) -> float:
        return float(self.observations @ self.observations)

    def covers(self, sizes: Sequence[int]) -> bool:
        """Always: the data are here."""
        return True

    def append(self, inputs: Array, observations: Array) -> None:
        """More rows: only they are read, unless the box grows, which changes every sum. A given one does not grow."""
        self._check_inside(inputs)
        before = len(self.observations)
        self.inputs = np.concatenate([self.inputs, inputs])
        self.observations = np.concatenate([self.observations, observations])
        box = self._given or Box.around(self.inputs)
        if not box.same(self.box):
            self.box = box
            self._tiles.clear()
        self._read(list(self._tiles), before)

    def up_to(self, sizes: Sequence[int]) -> Array:
        """(2, *sizes): the sums of all degrees below the sizes, without and with y_n."""
        shape = TILES.get(len(sizes), tuple(sizes))
        firsts = product(*(range(0, size, edge) for size, edge in zip(sizes, shape, strict=True)))
        needed = [Tile(shape, first) for first in firsts]
        missing = [tile for tile in needed if tile not in self._tiles]
        if missing:
            if sum(sums.rows.size // 2 for sums in self._tiles.values()) > MOST_SUMS:
                self._tiles = {tile: self._tiles[tile] for tile in needed if tile in self._tiles}
            self._read(missing, 0)
            self.passes += 1
        found = np.empty((2, *sizes))
        for tile in needed:
            into = found[:, *(slice(first, first + edge) for first, edge in zip(tile.first, shape, strict=True))]
            into[...] = self._tiles[tile].rows.swapaxes(0, 1)[:, *(slice(0, size) for size in into.shape[1:])]
        return found

    def _check_inside(self, inputs: Array) -> None:
        if self._given is not None and not self._given.holds(inputs):
            raise InputError("expected inputs inside the given box, got one outside: sums over it need a larger box")

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
        none = Sums(*[np.zeros((shape[0], 2, *shape[1:]))] * 2)
        chunks = {c: np.stack([self._tiles.get(t, none).chunks for t in column]) for c, column in columns.items()}
        rows = dict(chunks)
        tiles = [tile for column in columns.values() for tile in column]
        degrees = [max(tile.first[d] for tile in tiles) + edge for d, edge in enumerate(shape)]
        for at in range(start, len(self.inputs), chunk):
            positions, y = self.box.positions(self.inputs[at : at + chunk]), self.observations[at : at + chunk]
            tables = [polynomials(positions[:, d], count) for d, count in enumerate(degrees)]
            leading, ones_and_y = tables[0].reshape(-1, shape[0], len(y)), np.stack([np.ones(len(y)), y])
            for c, column in columns.items():
                others = ones_and_y
                for table, first, edge in zip(tables[1:], c, shape[1:], strict=True):
                    others = (others[:, None] * table[first : first + edge]).reshape(-1, len(y))
                low = column[0].first[0] // shape[0]
                part = leading[low : low + len(column)] @ others.T
                rows[c] = chunks[c] + part.reshape(chunks[c].shape)
                if len(y) == chunk:
                    chunks[c] = rows[c]
        for c, column in columns.items():
            self._tiles.update(zip(column, map(Sums, chunks[c], rows[c]), strict=True))
