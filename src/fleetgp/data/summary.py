"""What a fleet must know of an agent's data before anything else: how many, where, and how large."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from fleetgp.arrays import Array
from fleetgp.model.observations import Observations

if TYPE_CHECKING:
    from fleetgp.data.scaling import Scaling


@dataclass(frozen=True)
class Summary:
    """low, high, centre: (D,) of the inputs.  count, mean and squares, the sum of squared deviations: of the y_n.

    spread, cross: (D, D) and (D,) the sums of products of the inputs' deviations with each other, and with those of y;
    NaN where they were not kept.
    """

    low: Array
    high: Array
    centre: Array
    count: int
    mean: float
    squares: float
    spread: Array
    cross: Array

    @classmethod
    def of(cls, data: Observations) -> Summary:
        x, y = data.inputs, data.values
        mean, centre = y.mean(), x.mean(axis=0)
        apart, above = x - centre, y - mean
        squares = float((above**2).sum())
        return cls(x.min(axis=0), x.max(axis=0), centre, len(y), float(mean), squares, apart.T @ apart, apart.T @ above)

    def plus(self, other: Summary) -> Summary:
        """That of both data sets (Chan et al., 1979).

        >>> data = Observations(np.arange(12.0).reshape(6, 2), np.arange(6.0))
        >>> both = Summary.of(data.rows(slice(2))).plus(Summary.of(data.rows(slice(2, None))))
        >>> both.count, both.mean, both.squares, both.centre.tolist()
        (6, 2.5, 17.5, [5.0, 6.0])
        >>> both.spread.tolist(), both.cross.tolist()
        ([[70.0, 70.0], [70.0, 70.0]], [35.0, 35.0])
        """
        count = self.count + other.count
        share, apart, away = other.count / count, other.mean - self.mean, other.centre - self.centre
        return Summary(
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            self.centre + share * away,
            count,
            self.mean + share * apart,
            self.squares + other.squares + share * self.count * apart**2,
            self.spread + other.spread + share * self.count * np.outer(away, away),
            self.cross + other.cross + share * self.count * apart * away,
        )

    def rescaled(self, scaling: Scaling) -> Summary:
        """That of the residuals of a mean function, scaled."""
        mean = float((self.mean - np.ravel(scaling.mean(self.centre[None]))[0]) / scaling.scale)
        squares, cross = self.squares, self.cross
        if scaling.slope:
            slope = np.array(scaling.slope)
            cross = cross - self.spread @ slope
            squares = max(float(squares - slope @ (self.cross + cross)), 0.0)
        unit = scaling.scale
        return Summary(self.low, self.high, self.centre, self.count, mean, squares / unit**2, self.spread, cross / unit)

    @property
    def packed(self) -> Array:
        """All numbers in a row."""
        numbers = [self.count, self.mean, self.squares]
        return np.concatenate([self.low, self.high, self.centre, numbers, self.spread.ravel(), self.cross])

    @classmethod
    def unpacked(cls, row: Array, dimension: int) -> Summary:
        """From a row, which may end before the products."""
        numbers = 3 * dimension
        low, high, centre = np.split(row[:numbers], 3)
        count, mean, squares = row[numbers : numbers + 3].tolist()
        rest = row[numbers + 3 :] if len(row) > numbers + 3 else np.full(dimension * (dimension + 1), np.nan)
        spread, cross = rest[: dimension**2].reshape(dimension, dimension), rest[dimension**2 :]
        return cls(low, high, centre, int(count), mean, squares, spread, cross)

    @staticmethod
    def widths(dimension: int) -> tuple[int, int]:
        """How many numbers a row may have: without and with the products."""
        return 3 * dimension + 3, (dimension + 1) * (dimension + 3)


def joined(summaries: Iterable[Summary]) -> Summary:
    """That of all of them."""
    return reduce(Summary.plus, summaries)


def corners(summaries: Sequence[Summary]) -> tuple[Array, Array]:
    """(D,) the lowest and the highest coordinates of all data."""
    return np.min([one.low for one in summaries], axis=0), np.max([one.high for one in summaries], axis=0)
