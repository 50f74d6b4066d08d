"""The pass over the data: sums over rows of Chebyshev polynomials on a box, from which every grid is made.

The sums of T_j(x_n) and of y_n T_j(x_n), j the degrees along the axes, come from products of tables or from a Fourier
transform, whichever is faster. Their bits depend on the data and the sizes of the grid alone, not on earlier calls, nor
on the batches in which the data came.

Tables (`Tiles`): sums are kept in tiles of neighbouring degrees, computed when a grid first needs them, always by the
same operations in the same order.

Transforms (with FINUFFT): with x = cos t, T_j(x) = cos(j t), so sums of products of Chebyshev polynomials are the even
part of sums of exp(i j.t), a nonuniform Fourier transform of type 1. Its time per row does not grow with the grid; each
chunk of rows takes one fast Fourier transform. A grid is computed as a whole: chunks have a size that follows from the
grid's, are transformed by one thread each, and are added in their order. No grid is cut out of a larger one, whose last
bits differ.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import frexp, ldexp, prod
from typing import Any

import numpy as np

from fleetgp.arrays import Array
from fleetgp.engines.basis import Box, polynomials
from fleetgp.errors import InputError
from fleetgp.linalg.threads import cores, spread

#: The most nodes of a grid, and the most sums that stand for data: 32 MB.
LARGEST_GRID = 4_000_000
#: More sums than this are not kept, except those in use.
MOST_SUMS = 2 * LARGEST_GRID


@dataclass(frozen=True)
class Rows:
    """inputs: (N, D).  observations: (N,)."""

    inputs: Array
    observations: Array
    box: Box

    @property
    def count(self) -> int:
        return len(self.observations)

    def part(self, start: int, count: int) -> tuple[Array, Array]:
        """So many rows from a start, or as many as there are: positions in [-1, 1] and observations."""
        chosen = slice(start, start + count)
        return self.box.positions(self.inputs[chosen]), self.observations[chosen]


#: Rows at a time: their polynomials stay in cache.
CHUNK = 1024
#: The shape of a tile, by dimension. In more dimensions a tile is a whole grid, with few nodes along an axis.
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
    """Tiles of sums over the first rows of some data. passes: how often rows were read for new tiles."""

    def __init__(self) -> None:
        self.passes = 0
        self._tiles: dict[Tile, Sums] = {}
        self._count = 0

    def up_to(self, rows: Rows, sizes: Sequence[int]) -> Array:
        """(2, *sizes): the sums of all degrees below the sizes. Rows may have been added, none changed."""
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
        result = np.empty((2, *sizes))
        for tile in needed:
            into = result[:, *(slice(first, first + edge) for first, edge in zip(tile.first, shape, strict=True))]
            into[...] = self._tiles[tile].rows.swapaxes(0, 1)[:, *(slice(0, size) for size in into.shape[1:])]
        return result

    def _read(self, rows: Rows, tiles: Iterable[Tile], before: int) -> None:
        """Add rows to tiles that have the first `before` of them; new tiles have none."""
        columns: dict[tuple[int, ...], dict[tuple[int, ...], list[Tile]]] = defaultdict(lambda: defaultdict(list))
        for tile in tiles:
            columns[tile.shape][tile.first[1:]].append(tile)
        for shape, column in columns.items():
            chunk = max(16, min(CHUNK, LARGEST_GRID // int(np.prod(shape[1:], dtype=np.int64))))
            self._read_columns(rows, shape, column, before - before % chunk, chunk)

    def _read_columns(
        self, rows: Rows, shape: tuple[int, ...], columns: dict[tuple[int, ...], list[Tile]], start: int, chunk: int
    ) -> None:
        """Columns of tiles, which differ in the degree along the first axis alone, in chunks of rows from `start`."""
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


#: FINUFFT's tolerance: its widest kernel. Relative to the sum of |weights| errors are some 1e-15 with rows anywhere,
#: and up to 1e-14 with all in one place.
TOLERANCE = 5e-15
#: Nanoseconds on one core: for a row, by dimension; for a node of the oversampled grid; and for the calls.
ROW = {1: 120.0, 2: 300.0, 3: 1500.0}
NODE, CALLS = 40.0, 4e5
#: The same of tiles: for a row, and for a row and a node of the grid.
DIRECT_ROW, DIRECT_NODE = 300.0, 0.3
#: The finest oversampled grid: 270 MB, for each thread.
FINEST = 1 << 24
#: The fewest rows of a chunk: a partial chunk is read again when rows are added.
TRANSFORM_CHUNK = 1 << 16
#: Sums of scaled observations stay finite.
LARGEST_EXPONENT = 1000


@cache
def library() -> Any:
    """FINUFFT; None where it is not installed."""
    try:
        import finufft
    except ImportError:
        return None
    return finufft


def _oversampled(sizes: Sequence[int]) -> float:
    """Nodes of the grid that is transformed: degrees of both signs along each axis, twice as fine."""
    return float(prod(4 * size for size in sizes))


def chunk_for(sizes: Sequence[int]) -> int:
    """Rows of a chunk, a power of two: about as much time for them as for the transform."""
    balanced = int(_oversampled(sizes) * NODE / ROW[len(sizes)])
    return max(TRANSFORM_CHUNK, 1 << balanced.bit_length())


def worthwhile(sizes: Sequence[int], count: int) -> bool:
    """Whether transforms are faster for so many rows: a function of these numbers alone, the same on all hosts."""
    if len(sizes) not in ROW or _oversampled(sizes) > FINEST or library() is None:
        return False
    chunks = -(-count // chunk_for(sizes))
    transformed = count * ROW[len(sizes)] + chunks * (CALLS + NODE * _oversampled(sizes))
    return transformed < count * (DIRECT_ROW + DIRECT_NODE * prod(sizes))


@dataclass(frozen=True)
class GridSums:
    """(2, *sizes), without and with y_n: over whole chunks, and over all of the first `count` rows."""

    count: int
    chunks: Array
    rows: Array


class Transforms:
    """Sums over the first rows of some data, by the sizes of their grids. passes: how often all rows were read."""

    def __init__(self) -> None:
        self.passes = 0
        self._grids: dict[tuple[int, ...], GridSums] = {}

    def up_to(self, rows: Rows, sizes: Sequence[int]) -> Array:
        """(2, *sizes): the sums of all degrees below the sizes. Rows may have been added, none changed."""
        own = tuple(sizes)
        known = self._grids.pop(own, None)
        if known is None:
            self.passes += 1
            known = GridSums(0, *[np.zeros((2, *own))] * 2)
        self._grids[own] = known if known.count == rows.count else _continued(known, rows)
        while len(self._grids) > 1 and sum(prod(kept) for kept in self._grids) > MOST_SUMS:
            del self._grids[next(iter(self._grids))]  # the least recently used
        return self._grids[own].rows.copy()


def _continued(known: GridSums, rows: Rows) -> GridSums:
    """Add the rows since the last whole chunk, as many chunks at a time as there are cores."""
    sizes = known.rows.shape[1:]
    chunk = chunk_for(sizes)
    chunks = total = known.chunks
    starts = range(known.count - known.count % chunk, rows.count, chunk)
    for first in range(0, len(starts), cores()):
        wave = starts[first : first + cores()]
        for start, part in zip(wave, spread(lambda at: cosine_sums(*rows.part(at, chunk), sizes), wave), strict=True):
            total = chunks + part
            if start + chunk <= rows.count:
                chunks = total
    return GridSums(rows.count, chunks, total)


def cosine_sums(positions: Array, y: Array, sizes: Sequence[int]) -> Array:
    """(2, *sizes): sums of products of T_j(x_n), without and with y_n, at positions (N, D) in [-1, 1].

    Both in one transform, of 1 + i y_n: the even part of its exponentials is real. The y_n are scaled by a power of two
    to about 1, so that neither adds to the other's errors.

    >>> result = cosine_sums(np.array([[0.5], [-1.0]]), np.array([3.0, 5.0]), (3,)) if library() else None
    >>> result is None or bool(np.allclose(result, [[2.0, -0.5, 0.5], [8.0, -3.5, 3.5]], atol=1e-13))
    True
    """
    # Negative angles, whose cosines are the same: FINUFFT adds half a turn, and a smaller sum is rounded less.
    angles = -np.arccos(positions.T, order="C")
    scale = _scale(y)
    weights = np.empty(len(y), dtype=complex)
    weights.real, weights.imag = 1.0, y / scale
    transform = getattr(library(), f"nufft{len(sizes)}d1")
    modes = tuple(2 * size - 1 for size in sizes)
    # One thread, since several add up in an order that varies; and no choice is left to FINUFFT.
    options = {"eps": TOLERANCE, "nthreads": 1, "upsampfac": 2.0, "spread_sort": 1}
    result = transform(*angles, weights, modes if len(modes) > 1 else modes[0], **options)
    for axis, size in enumerate(sizes):
        result = np.moveaxis(result, axis, 0)
        result = np.moveaxis(0.5 * (result[size - 1 :] + result[size - 1 :: -1]), 0, axis)
    return np.stack([result.real, scale * result.imag])


def _scale(y: Array) -> float:
    """The power of two next to the root of the mean square; 1 where all are zero."""
    largest = float(np.abs(y).max(initial=0.0))
    if not 0.0 < largest < np.inf:
        return 1.0
    exponent = frexp(largest * float(np.sqrt(np.mean((y / largest) ** 2))))[1]
    return ldexp(1.0, min(max(exponent, -LARGEST_EXPONENT), LARGEST_EXPONENT))


class ChebyshevSums:
    """Sums over rows of data of Chebyshev polynomials on their box, or on a given one that holds them.

    With `FleetMoments` it is what the moments engine can have of data: box, count, squares, `covers` and `up_to`.
    """

    def __init__(self, inputs: Array, observations: Array, box: Box | None = None) -> None:
        self._given = box
        self._check_inside(inputs)
        self._start(Rows(inputs, observations, Box.around(inputs) if box is None else box))

    def _start(self, rows: Rows) -> None:
        self.rows = rows
        self._tiles, self._transforms = Tiles(), Transforms()

    @property
    def box(self) -> Box:
        return self.rows.box

    @property
    def count(self) -> int:
        return self.rows.count

    @property
    def squares(self) -> float:
        """sum_n y_n^2."""
        return float(self.rows.observations @ self.rows.observations)

    @property
    def passes(self) -> int:
        """How often the data were read for new sums."""
        return self._tiles.passes + self._transforms.passes

    def covers(self, sizes: Sequence[int]) -> bool:
        """Always: the data are here."""
        return True

    def grow(self, inputs: Array, observations: Array) -> None:
        """Take all rows, the old ones first. Only new ones are read, unless the box grows; a given one does not."""
        old = self.rows
        self._check_inside(inputs[old.count :])
        rows = Rows(inputs, observations, self._given or Box.around(inputs))
        if rows.box.same(old.box):
            self.rows = rows
        else:
            self._start(rows)

    def up_to(self, sizes: Sequence[int]) -> Array:
        """(2, *sizes): the sums of all degrees below the sizes, without and with y_n."""
        chosen = self._transforms if worthwhile(sizes, self.count) else self._tiles
        return chosen.up_to(self.rows, sizes)

    def _check_inside(self, inputs: Array) -> None:
        if self._given is not None and not self._given.holds(inputs):
            raise InputError("expected inputs inside the given box, got one outside: sums over it need a larger box")
