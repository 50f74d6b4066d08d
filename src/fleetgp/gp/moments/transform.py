"""Sums over data of Chebyshev polynomials as a Fourier transform. Needs FINUFFT.

With x = cos t, T_j(x) = cos(j t): sums over data of products of Chebyshev polynomials are the even part of sums of
exp(i j.t), a nonuniform Fourier transform of type 1. It takes a time for each row that does not grow with the grid, and
one fast Fourier transform for each chunk of rows.

A grid is computed as a whole, by the same operations in the same order: chunks have a size that follows from the
grid's, are transformed by one thread each, and are added in their order. So the bits of its sums depend on the data
and its sizes alone. They are never cut out of those of a larger grid, whose last bits are others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import frexp, ldexp, prod
from typing import Any

import numpy as np

from fleetgp.arrays import Array
from fleetgp.gp.moments.rows import MOST_SUMS, Rows
from fleetgp.linalg.threads import cores, spread

#: What is asked of FINUFFT: its widest kernel. As a part of the sum of |weights| errors are some 1e-15 with rows
#: anywhere, and up to 1e-14 with all in one place, which 1e-14 in place of this would make 4e-14.
TOLERANCE = 5e-15
#: Nanoseconds on one core: for a row, by dimension, and for a node of the oversampled grid that is transformed.
ROW = {1: 120.0, 2: 300.0, 3: 1500.0}
NODE = 40.0
#: For the calls of a transform.
CALLS = 4e5
#: The same of tiles: for a row, and for a row and a node of the grid.
DIRECT_ROW, DIRECT_NODE = 300.0, 0.3
#: The finest oversampled grid: 270 MB, for each thread.
FINEST = 1 << 24
#: The fewest rows of a chunk: when some have come, its beginning is read again.
CHUNK = 1 << 16
#: Observations of any size leave room for their sums.
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
    return max(CHUNK, 1 << balanced.bit_length())


def worthwhile(sizes: Sequence[int], count: int) -> bool:
    """Whether so many rows are faster transformed than multiplied: known from these numbers alone, for all hosts."""
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
    """Sums over the first rows of some data, by the sizes of their grids.

    passes: how often all rows were read.
    """

    def __init__(self) -> None:
        self.passes = 0
        self._grids: dict[tuple[int, ...], GridSums] = {}

    def up_to(self, rows: Rows, sizes: Sequence[int]) -> Array:
        """(2, *sizes): the sums of all degrees below the sizes. Rows may have come since, but none may have changed."""
        own = tuple(sizes)
        known = self._grids.pop(own, None)
        if known is None:
            self.passes += 1
            known = GridSums(0, *[np.zeros((2, *own))] * 2)
        self._grids[own] = known if known.count == rows.count else _continued(known, rows)
        while len(self._grids) > 1 and sum(prod(kept) for kept in self._grids) > MOST_SUMS:
            del self._grids[next(iter(self._grids))]  # the one that was not asked for the longest
        return self._grids[own].rows.copy()


def _continued(known: GridSums, rows: Rows) -> GridSums:
    """With the rows since the last whole chunk. As many chunks are in memory as there are cores."""
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
    to about 1, so that the errors of neither are felt by the other.

    >>> found = cosine_sums(np.array([[0.5], [-1.0]]), np.array([3.0, 5.0]), (3,)) if library() else None
    >>> found is None or bool(np.allclose(found, [[2.0, -0.5, 0.5], [8.0, -3.5, 3.5]], atol=1e-13))
    True
    """
    # Negative angles, whose cosines are the same: FINUFFT adds half a turn, and a smaller sum is rounded less.
    angles = -np.arccos(positions.T, order="C")
    scale = _scale(y)
    weights = np.empty(len(y), dtype=complex)
    weights.real, weights.imag = 1.0, y / scale
    transform = getattr(library(), f"nufft{len(sizes)}d1")
    modes = tuple(2 * size - 1 for size in sizes)
    # One thread: several add up in an order that varies. Nothing is left to FINUFFT to choose.
    options = {"eps": TOLERANCE, "nthreads": 1, "upsampfac": 2.0, "spread_sort": 1}
    found = transform(*angles, weights, modes if len(modes) > 1 else modes[0], **options)
    for axis, size in enumerate(sizes):
        found = np.moveaxis(found, axis, 0)
        found = np.moveaxis(0.5 * (found[size - 1 :] + found[size - 1 :: -1]), 0, axis)
    return np.stack([found.real, scale * found.imag])


def _scale(y: Array) -> float:
    """The power of two next to the root of the mean square; 1 where all are zero."""
    largest = float(np.abs(y).max(initial=0.0))
    if not 0.0 < largest < np.inf:
        return 1.0
    exponent = frexp(largest * float(np.sqrt(np.mean((y / largest) ** 2))))[1]
    return ldexp(1.0, min(max(exponent, -LARGEST_EXPONENT), LARGEST_EXPONENT))
