"""Observations: where they were made, what was observed, and what is known about the noise of each; and summaries."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fleetgp.arrays import Array, IntArray, order_by_place

#: Bytes of the version: a float holds it exactly.
VERSION_BYTES = 6


@dataclass(frozen=True, eq=False)
class Observations:
    """N observations y_n = f(x_n) + noise, a row each. The arrays must not be written to.

    inputs: (N, D).  values: (N,).
    noise_std: (N,) the known standard deviation of each; None where there is none.
    group: (N,) the number of the noise group that each is of; None where all are of one.
    weight: (N,) by what the trained variance of the noise is multiplied; None for 1.

    What an observation is of is said by its row of `inputs` alone: only engines and kernels look into it.

    >>> data = Observations(np.array([[0.0], [1.0]]), np.array([2.0, 3.0]), noise_std=np.array([0.1, 0.2]))
    >>> len(data), data.dimension, data.rows([1]).values.tolist(), data.packed.tolist()
    (2, 1, [3.0], [[0.0, 0.1], [1.0, 0.2]])
    """

    inputs: Array
    values: Array
    noise_std: Array | None = None
    group: IntArray | None = None
    weight: Array | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def dimension(self) -> int:
        """D, how many inputs there are."""
        return int(self.inputs.shape[1])

    @property
    def arrays(self) -> tuple[Array, ...]:
        """All that there are."""
        every: tuple[Any, ...] = (self.inputs, self.values, self.noise_std, self.group, self.weight)
        return tuple(array for array in every if array is not None)

    @property
    def as_given(self) -> tuple[Any, ...]:
        """(X, y), or (X, y, s) where there are known standard deviations: as a user gives them."""
        known = () if self.noise_std is None else (self.noise_std,)
        return (self.inputs, self.values, *known)

    @cached_property
    def version(self) -> int:
        """A number that differs where anything else is observed; the same in every process."""
        result = hashlib.blake2b(digest_size=VERSION_BYTES)
        for part in (self.packed, self.values):
            result.update(np.ascontiguousarray(part).tobytes())
        return int.from_bytes(result.digest(), "big")

    def same(self, other: Observations) -> bool:
        """Whether all numbers are the same."""
        if self is other:
            return True
        mine, its = self.arrays, other.arrays
        return len(mine) == len(its) and all(a is b or np.array_equal(a, b) for a, b in zip(mine, its, strict=True))

    # ---- other rows ------------------------------------------------------------------------------------------

    def rows(self, chosen: Any) -> Observations:
        """Some of them: a slice, a mask, or the numbers of rows."""
        return type(self)(
            self.inputs[chosen],
            self.values[chosen],
            None if self.noise_std is None else self.noise_std[chosen],
            None if self.group is None else self.group[chosen],
            None if self.weight is None else self.weight[chosen],
        )

    def drawn(self, count: int, seed: int) -> IntArray:
        """The numbers of the first rows in the order of `order_by_place`, as they were given."""
        return np.sort(order_by_place(self.inputs, self.values, seed)[:count])

    @staticmethod
    def joined(parts: Sequence[Observations]) -> Observations:
        """Several as one, in their order. All must know the same about their noise."""
        return parts[0].followed_by(parts[1:])

    def followed_by(self, others: Sequence[Observations]) -> Observations:
        """These and others as one."""
        every = [part.arrays for part in (self, *others)]
        if len({len(arrays) for arrays in every}) != 1:
            raise ValueError("expected observations that all know the same about their noise")
        result = iter([np.concatenate(columns) for columns in zip(*every, strict=True)])
        inputs, values = next(result), next(result)
        noise_std, group, weight = (
            None if array is None else next(result) for array in (self.noise_std, self.group, self.weight)
        )
        return type(self)(inputs, values, noise_std, group, weight)

    # ---- other numbers in the same rows ----------------------------------------------------------------------

    def at(self, inputs: Array) -> Observations:
        """The same observations, with inputs in other coordinates."""
        return replace(self, inputs=inputs)

    def with_values(self, values: Array) -> Observations:
        """Other values observed in the same way."""
        return replace(self, values=values)

    def weighted(self, weight: Array) -> Observations:
        """The same with other weights (N,)."""
        return replace(self, weight=weight)

    def divided(self, scale: float) -> Observations:
        """In another unit: values and known standard deviations over the scale."""
        known = None if self.noise_std is None else self.noise_std / scale
        return replace(self, values=np.asarray(self.values / scale), noise_std=known)

    def locked(self) -> Observations:
        """The same, after which nobody can write to the arrays."""
        for array in self.arrays:
            array.setflags(write=False)
        return self

    # ---- as they travel --------------------------------------------------------------------------------------

    @property
    def packed(self) -> Array:
        """All but the values as one matrix: the inputs, then what is known about the noise."""
        columns = [array for array in (self.noise_std, self.weight, self.group) if array is not None]
        return np.column_stack([self.inputs, *columns]) if columns else self.inputs

    def unpacked(self, matrix: Array, values: Array) -> Observations:
        """The converse, for rows that are like these; they may come from a peer."""
        width = self.dimension
        rows = matrix.reshape(-1, width + len(self.arrays) - 2)
        columns = iter(rows[:, width:].T)
        noise_std, weight, group = (
            None if array is None else next(columns) for array in (self.noise_std, self.weight, self.group)
        )
        return type(self)(rows[:, :width], values, noise_std, None if group is None else group.astype(np.int64), weight)


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
