"""How large a grid must be: for one theta, or before any theta is known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

from fleetgp.arrays import Array
from fleetgp.gp.chebyshev import degree_for
from fleetgp.gp.moments.rows import LARGEST_GRID

#: Grids are made for h, half the box over the length-scale, at the next of so many steps per octave: neighbouring
#: theta share them.
STEPS = 8
#: No grid is made for an axis of more length-scales than this: its basis would be too long.
LARGEST_H = 300.0
#: What the expansion may do to a likelihood, in nats, of data as large as the model says. Larger data feel it more, by
#: the square of their size, and the certificate must stay below 1e-6.
EXPANSION = 1e-11
#: What the other axes may amplify in the expansion error of one, at most, see `certificate.expansion_bound`: 4 n^2 of
#: n nodes.
AMPLIFICATION = 1e5

#: Before theta is known: a grid for all theta whose (sigma_f / sigma_eps)^2 is at most this.
PLANNED_RATIO = 1e6
#: And for all length-scales along all axes down to those that a grid of so many nodes can have: some 0.4 MB, which in
#: two dimensions is an eighth of the box.
PLANNED_NODES = 40_000
#: But no shorter ones, in one dimension.
PLANNED_H = 32.0
#: A margin in h, so that a theta that a grid was made for has it in spite of any rounding.
MARGIN = 1e-6
#: No grid has more axes: with three nodes along each it would be too large.
MOST_AXES = 40


def stepped(ratios: Array) -> tuple[float, ...]:
    """(D,) half the box over the length-scale, rounded up to the next step."""
    return tuple(2.0 ** (np.ceil(STEPS * np.log2(r)) / STEPS) if r > 0.0 else 0.0 for r in ratios.tolist())


def axis_error(dimension: int, count: int, ratio: float) -> float:
    """The expansion error of an axis that is negligible in the certificate, rounded down to a power of ten.

    ratio: (sigma_f / sigma_eps)^2.
    """
    # With so many axes there is no grid in any case, and powers stay finite.
    axes = min(dimension, MOST_AXES)
    error = EXPANSION / (AMPLIFICATION ** (axes - 1) * count**2 * (1.0 + ratio))
    return float(10.0 ** np.floor(np.log10(error)))


@lru_cache(maxsize=65536)
def sizes_for(reach: tuple[float, ...], error: float) -> tuple[int, ...] | None:
    """Nodes of the grid along each axis: enough for products of two functions times a square of a coordinate."""
    if max(reach) > LARGEST_H:
        return None
    sizes = tuple(2 * degree_for(r, error) + 1 for r in reach)
    return sizes if fits(sizes) else None


def fits(sizes: Sequence[int]) -> bool:
    """Whether a grid is no larger than any may be."""
    return bool(np.prod([float(size) for size in sizes]) <= LARGEST_GRID)


def sizes_for_all(reaches: Iterable[Array], ratios: Iterable[float], count: int) -> tuple[int, ...] | None:
    """Those of a grid for several theta: half the box over the length-scales, and (sigma_f / sigma_eps)^2."""
    found = [
        sizes_for(stepped(reach * (1.0 + MARGIN)), axis_error(len(reach), count, ratio * (1.0 + MARGIN)))
        for reach, ratio in zip(reaches, ratios, strict=True)
    ]
    if any(sizes is None for sizes in found):
        return None
    largest = tuple(np.max([sizes for sizes in found if sizes is not None], axis=0).tolist())
    return largest if fits(largest) else None


def planned_reach(dimension: int, count: int) -> float:
    """The largest h along all axes of a first grid, for theta that nobody knows yet."""
    size = int(PLANNED_NODES ** (1.0 / dimension))
    return min(_finest(size, _planned(dimension, count)), PLANNED_H)


def finest_reach(sizes: tuple[int, ...], count: int) -> tuple[float, ...]:
    """(D,) the largest h along each axis for which a grid has every theta up to `PLANNED_RATIO`."""
    return tuple(_finest(size, _planned(len(sizes), count)) for size in sizes)


def doubled_sizes(sizes: tuple[int, ...], count: int) -> tuple[int, ...]:
    """(D,) those of a grid for length-scales half as long, along each axis alone."""
    reach = np.minimum(2.0 * (1.0 + MARGIN) * np.array(finest_reach(sizes, count)), LARGEST_H)
    return tuple(2 * degree_for(r, _planned(len(sizes), count)) + 1 for r in stepped(reach))


@lru_cache(maxsize=4096)
def _finest(size: int, error: float) -> float:
    low, high = -8 * STEPS, int(np.ceil(STEPS * np.log2(LARGEST_H)))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if 2 * degree_for(2.0 ** (middle / STEPS), error) < size else (low, middle)
    return float(2.0 ** (low / STEPS))


def _planned(dimension: int, count: int) -> float:
    return axis_error(dimension, count, PLANNED_RATIO)
