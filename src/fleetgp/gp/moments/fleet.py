"""The moments of many agents' data: sums over them all, from which every agent has the GP of them all.

Sums over data of Chebyshev polynomials on one box add up over agents, and over what an agent had and what it got since.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from fleetgp.arrays import Array
from fleetgp.errors import InputError
from fleetgp.gp.basis import Box
from fleetgp.gp.moments.sums import ChebyshevSums


@dataclass(frozen=True)
class FleetMoments:
    """Plain numbers, to be stored or sent. They are `DataSums`: an engine works with them as with data.

    sums: (*sizes) sum_n T_j(x_n), j the degrees along the axes, on the box.
    responses: sum_n y_n T_j(x_n) of some more than half the degrees: they are multiplied by one function of a basis and
        at most a square of a coordinate, where the sums are by two.
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
        """(2, *sizes): the sums of all degrees below the sizes, without and with y_n; zero where nobody needs them."""
        found = np.zeros((2, *sizes))
        found[0] = self.sums[_corner(sizes)]
        low = _corner([min(pair) for pair in zip(sizes, self.responses.shape, strict=True)])
        found[1][low] = self.responses[low]
        return found

    def plus(self, other: FleetMoments) -> FleetMoments:
        """Those of both data sets: of other agents' data, or of new observations, whose moments are the difference."""
        if not self.box.same(other.box) or self.sizes != other.sizes:
            raise InputError(
                f"expected moments on the same box and a grid of {self.sizes}, got others on {other.sizes}: "
                "moments on another box must be taken anew"
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
