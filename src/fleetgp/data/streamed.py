"""The agents' data where they may be larger than memory: what is known of them, and sums over them, without rows.

What a fleet must know of an agent's data before anything else: how many, where, and how large.

Data that grow: which rows have come since.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from fleetgp.arrays import Array
from fleetgp.engines.basis import Box
from fleetgp.engines.moments.fleet import FleetMoments
from fleetgp.engines.moments.sums import ChebyshevSums
from fleetgp.errors import InputError
from fleetgp.linalg.threads import side_by_side
from fleetgp.model.observations import Observations

if TYPE_CHECKING:
    from fleetgp.data.coordinates import Coordinates
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


#: Rows of each agent that are kept for a first look.
FIRST = 2000


class Streamed(Sequence[Observations]):
    """As a sequence, every agent's observations: whoever asks for one has all of them loaded, or an error.

    names: the agents'.  summaries: of all their rows, one per agent.  sampled: what is loaded is a sample.
    """

    names: tuple[str, ...]
    summaries: Sequence[Summary]
    sampled: bool = False

    @abstractmethod
    def load(self) -> list[Observations]:
        """All rows, or those of a sample; one clear error where they are too many."""

    @abstractmethod
    def first_rows(self) -> list[Observations]:
        """Up to `FIRST` rows of every agent, drawn at random."""

    @abstractmethod
    def moments(self, box: Box, sizes: tuple[int, ...]) -> list[FleetMoments]:
        """Those of every agent's rows, of all of them, on a box that holds them."""

    @abstractmethod
    def rescaled(self, scaling: Scaling) -> Streamed:
        """The same with the scaled residuals of a mean function in the place of y_n, which are not scaled yet."""

    @abstractmethod
    def moved(self, coordinates: Coordinates) -> Streamed:
        """The same with the inputs in other coordinates, before anything is scaled."""

    def __len__(self) -> int:
        return len(self.summaries)

    def __getitem__(self, number: Any) -> Any:
        return self.load()[number]


#: Data in memory, or streamed.
Shards = list[Observations] | Streamed


def summaries_of(shards: Sequence[Observations]) -> Sequence[Summary]:
    """One per agent; nothing is loaded."""
    return shards.summaries if isinstance(shards, Streamed) else [Summary.of(one) for one in shards]


def counts_of(shards: Sequence[Observations]) -> list[int]:
    """How many observations each agent has; nothing is loaded."""
    return [one.count for one in shards.summaries] if isinstance(shards, Streamed) else [len(one) for one in shards]


def dimension_of(shards: Sequence[Observations]) -> int:
    """How many inputs there are; nothing is loaded."""
    return len(shards.summaries[0].low) if isinstance(shards, Streamed) else shards[0].dimension


def moments_of(shards: Sequence[Observations], box: Box, sizes: tuple[int, ...]) -> list[FleetMoments]:
    """Every agent's own, on a box that holds all data."""
    if isinstance(shards, Streamed):
        return shards.moments(box, sizes)
    return side_by_side(lambda one: FleetMoments.of(ChebyshevSums(one.inputs, one.values, box), sizes), list(shards))


def load_instead(shards: Streamed, why: Exception) -> None:
    """Load all rows, where moments of them will not do; one clear error for both where they are too many."""
    try:
        shards.load()
    except InputError as error:
        raise InputError(f"moments of the data will not do ({why}), and their rows are not loaded: {error}") from why


def as_they_are(shards: Shards) -> Sequence[Observations]:
    """The data as of now: a list may get other rows later."""
    return shards if isinstance(shards, Streamed) else tuple(shards)


def added(before: Sequence[Observations], now: Sequence[Observations]) -> list[Observations] | None:
    """The rows that have come to each data set, at its end; None if anything else is different.

    >>> import numpy as np
    >>> data = Observations(np.arange(6.0).reshape(3, 2), np.arange(3.0))
    >>> first, last = data.rows(slice(2)), data.rows(slice(1, None))
    >>> [len(rows) for rows in added([first, data], [data, data])], added([data], [last])
    ([1, 0], None)
    """
    if len(before) != len(now):
        return None
    sizes = [len(one) for one in before]
    firsts = [new if new is old else new.rows(slice(n)) for old, new, n in zip(before, now, sizes, strict=True)]
    return [new.rows(slice(n, None)) for new, n in zip(now, sizes, strict=True)] if same_data(before, firsts) else None


def same_data(one: Sequence[Observations], other: Sequence[Observations]) -> bool:
    """Whether two lists of data sets hold the same numbers."""
    return len(one) == len(other) and all(mine.same(its) for mine, its in zip(one, other, strict=True))
