"""The moments of a whole fleet: sums over all agents' data, from which every agent computes the GP of them all.

Sums of Chebyshev polynomials on one box add up over agents, and over old and new rows. The size of their grid follows
from one theta, or is planned before any theta is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from fleetgp.arrays import Array
from fleetgp.engines.basis import Box, degree_for
from fleetgp.engines.moments.sums import LARGEST_GRID, ChebyshevSums
from fleetgp.errors import InputError


@dataclass(frozen=True)
class FleetMoments:
    """Plain numbers, to be stored or sent. An engine uses them as it does `ChebyshevSums`.

    sums: (*sizes) sum_n T_j(x_n), j the degrees along the axes, on the box.
    responses: sum_n y_n T_j(x_n) of somewhat more than half the degrees: they are multiplied by one function of a basis
        and at most a square of a coordinate, the sums by two.
    squares: sum_n y_n^2.

    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.uniform(0, 1, (30, 2)), rng.standard_normal(30)
    >>> box = Box.around(x)
    >>> rows = slice(0, 30), slice(0, 20), slice(20, 30)
    >>> whole, first, second = (FleetMoments.of(ChebyshevSums(x[s], y[s], box), (9, 5)) for s in rows)
    >>> both = first.plus(second)
    >>> both.count, np.allclose(both.sums, whole.sums), np.allclose(both.responses, whole.responses)
    (30, True, True)
    """

    box: Box
    sums: Array
    responses: Array
    squares: float

    @classmethod
    def of(cls, data: ChebyshevSums, sizes: Sequence[int]) -> FleetMoments:
        """Those of one agent's data."""
        sums, responses = data.up_to(sizes)
        return cls(data.box, sums, responses[_corner(response_sizes(sizes))], data.squares)

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.sums.shape

    @property
    def count(self) -> int:
        return round(float(self.sums.flat[0]))  # T_0 = 1

    def covers(self, sizes: Sequence[int]) -> bool:
        """Whether the sums of all degrees below the sizes are there."""
        return all(size <= own for size, own in zip(sizes, self.sizes, strict=True))

    def up_to(self, sizes: Sequence[int]) -> Array:
        """(2, *sizes): the sums of all degrees below the sizes, without and with y_n; zero where not needed."""
        result = np.zeros((2, *sizes))
        result[0] = self.sums[_corner(sizes)]
        low = _corner([min(pair) for pair in zip(sizes, self.responses.shape, strict=True)])
        result[1][low] = self.responses[low]
        return result

    def plus(self, other: FleetMoments) -> FleetMoments:
        """The moments of both data sets."""
        if not self.box.same(other.box) or self.sizes != other.sizes:
            raise InputError(
                f"expected moments on the same box and a grid of {self.sizes}, got others on {other.sizes}: "
                "recompute moments for another box"
            )
        return FleetMoments(
            self.box, self.sums + other.sums, self.responses + other.responses, self.squares + other.squares
        )

    @property
    def packed(self) -> Array:
        """All numbers but the box, in a row: it adds up."""
        return np.concatenate([[self.squares], self.sums.ravel(), self.responses.ravel()])

    @classmethod
    def unpacked(cls, box: Box, sizes: Sequence[int], row: Array) -> FleetMoments:
        low = response_sizes(sizes)
        sums, responses = np.split(row[1:], [prod(sizes)])
        return cls(box, sums.reshape(sizes), responses.reshape(low), float(row[0]))


def moments_on(box: Box, sizes: Sequence[int], inputs: Array, observations: Array) -> FleetMoments:
    """Those of rows that lie in the box, of which there may be none."""
    if not len(observations):
        return FleetMoments(box, np.zeros(sizes), np.zeros(response_sizes(sizes)), 0.0)
    return FleetMoments.of(ChebyshevSums(inputs, observations, box), sizes)


def response_sizes(sizes: Sequence[int]) -> tuple[int, ...]:
    """How many degrees along each axis the sums with y_n need: those of a function, (size - 1) / 2, and two more."""
    return tuple(min(size, (size - 1) // 2 + 2) for size in sizes)


def _corner(sizes: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(0, size) for size in sizes)


#: Grids are made for h, half the box over the length-scale, rounded up to so many steps per octave, so that
#: neighbouring theta share them.
STEPS = 8
#: The largest h: beyond, the basis of an axis would be too long.
LARGEST_H = 300.0
#: The error of a likelihood that the expansion may cause, in nats, for data as large as the model says. It grows with
#: the square of their size, and the certificate must stay below 1e-6.
EXPANSION = 1e-11
#: What the other axes amplify the expansion error of one by, at most (4 n^2 of n nodes), see `expansion_bound`.
AMPLIFICATION = 1e5
#: No grid has more axes: with three nodes along each it would be too large.
MOST_AXES = 40

#: Before theta is known a grid is for all theta with (sigma_f / sigma_eps)^2 up to this, ..
PLANNED_RATIO = 1e6
#: .. for length-scales down to what a grid of so many nodes (0.4 MB) can have: an eighth of the box in two dimensions,
PLANNED_NODES = 40_000
#: .. but no shorter ones, in one dimension.
PLANNED_H = 32.0
#: A margin in h against rounding, so that a grid covers the theta that it was made for.
MARGIN = 1e-6


def stepped(ratios: Array) -> tuple[float, ...]:
    """(D,) half the box over the length-scale, rounded up to the next step."""
    return tuple(2.0 ** (np.ceil(STEPS * np.log2(r)) / STEPS) if r > 0.0 else 0.0 for r in ratios.tolist())


def axis_error(dimension: int, count: int, ratio: float) -> float:
    """The largest expansion error of an axis that is negligible in the certificate, rounded down to a power of ten.

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
    result = [
        sizes_for(stepped(reach * (1.0 + MARGIN)), axis_error(len(reach), count, ratio * (1.0 + MARGIN)))
        for reach, ratio in zip(reaches, ratios, strict=True)
    ]
    if any(sizes is None for sizes in result):
        return None
    largest = tuple(np.max([sizes for sizes in result if sizes is not None], axis=0).tolist())
    return largest if fits(largest) else None


def planned_reach(dimension: int, count: int) -> float:
    """The largest h along all axes of a first grid, before theta is known."""
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
