"""Rows of data on a box that holds them."""

from __future__ import annotations

from dataclasses import dataclass

from fleetgp.arrays import Array
from fleetgp.gp.basis import Box

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
