"""What a fleet must know of an agent's data before anything else: how many, where, and how large."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from fleetgp.arrays import Array
from fleetgp.data.partition import Shard


@dataclass(frozen=True)
class Summary:
    """low, high, centre: (D,) of the inputs.  count, mean and squares, the sum of squared deviations: of the y_n."""

    low: Array
    high: Array
    centre: Array
    count: int
    mean: float
    squares: float

    @classmethod
    def of(cls, shard: Shard) -> Summary:
        x, y = shard
        mean = y.mean()
        return cls(x.min(axis=0), x.max(axis=0), x.mean(axis=0), len(y), float(mean), float(((y - mean) ** 2).sum()))

    def plus(self, other: Summary) -> Summary:
        """That of both data sets (Chan et al., 1979).

        >>> x, y = np.arange(12.0).reshape(6, 2), np.arange(6.0)
        >>> both = Summary.of((x[:2], y[:2])).plus(Summary.of((x[2:], y[2:])))
        >>> both.count, both.mean, both.squares, both.centre.tolist()
        (6, 2.5, 17.5, [5.0, 6.0])
        """
        count = self.count + other.count
        share, apart = other.count / count, other.mean - self.mean
        return Summary(
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            self.centre + share * (other.centre - self.centre),
            count,
            self.mean + share * apart,
            self.squares + other.squares + share * self.count * apart**2,
        )

    def rescaled(self, offset: float, scale: float) -> Summary:
        """That of (y_n - offset) / scale."""
        mean = (self.mean - offset) / scale
        return Summary(self.low, self.high, self.centre, self.count, mean, self.squares / scale**2)

    @property
    def packed(self) -> Array:
        """All numbers in a row."""
        return np.concatenate([self.low, self.high, self.centre, [self.count, self.mean, self.squares]])

    @classmethod
    def unpacked(cls, row: Array) -> Summary:
        low, high, centre = np.split(row[:-3], 3)
        return cls(low, high, centre, int(row[-3]), float(row[-2]), float(row[-1]))


def joined(summaries: Iterable[Summary]) -> Summary:
    """That of all of them."""
    return reduce(Summary.plus, summaries)


def corners(summaries: Sequence[Summary]) -> tuple[Array, Array]:
    """(D,) the lowest and the highest coordinates of all data."""
    return np.min([one.low for one in summaries], axis=0), np.max([one.high for one in summaries], axis=0)
