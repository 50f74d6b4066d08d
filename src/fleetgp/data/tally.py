"""What is probably not meant, in data that pass by: the same verdicts as of `suspicions`, from counts that add up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.data.suspicions import (
    DISTINCT,
    FILLS,
    LONGITUDE_NAMES,
    REPEATED,
    are_dates,
    far,
    fill_error,
    mixed_error,
    told_of_fill,
    told_of_input,
)
from fleetgp.errors import InputError

_SORTED = np.sort(FILLS)


@dataclass(frozen=True)
class Tally:
    """Of the columns of a table, the target last, NaN ignored. All fields add up over its parts.

    fills: (C, F) how often each of the common fill values occurs.
    ends: (2, C, 3) of the other values, and of minus them: the least, how often it occurs, and the second.
    sides: (C, 2) values below 0, and above 180.
    dated: (C,) whether all values are days, YYYYMMDD.
    distinct: different values of the target, as many as matter.
    """

    fills: IntArray
    ends: Array
    sides: IntArray
    dated: BoolArray
    distinct: Array

    @classmethod
    def of(cls, numbers: Array) -> Tally:
        columns = [column[np.isfinite(column)] for column in numbers.T]
        near = [_nearest_fill(column) for column in columns]
        rest = [column[which < 0] for column, which in zip(columns, near, strict=True)]
        return cls(
            np.array([np.bincount(which[which >= 0], minlength=len(_SORTED)) for which in near]),
            np.array([[_end(sign * values) for values in rest] for sign in (1.0, -1.0)]),
            np.array([[(column < 0.0).sum(), (column > 180.0).sum()] for column in columns]),
            np.array([not column.size or are_dates(column) for column in columns]),
            _some_distinct(rest[-1]),
        )

    def plus(self, other: Tally) -> Tally:
        """Of both parts."""
        (one, times, second), (its, its_times, its_second) = np.moveaxis(self.ends, 2, 0), np.moveaxis(other.ends, 2, 0)
        least = np.minimum(one, its)
        ends = np.stack(
            [
                least,
                np.where(one == least, times, 0) + np.where(its == least, its_times, 0),
                np.minimum(np.where(one == least, second, one), np.where(its == least, its_second, its)),
            ],
            axis=2,
        )
        return Tally(
            self.fills + other.fills,
            ends,
            self.sides + other.sides,
            self.dated & other.dated,
            np.unique(np.concatenate([self.distinct, other.distinct]))[: DISTINCT + 1],
        )

    def refuse(self, names: Sequence[str], where: str, *, fills: bool) -> None:
        """One clear error, as of `refuse_suspicious`."""
        for column, name in enumerate(names):
            found = self._fill(column, repeated=column == len(names) - 1) if fills else None
            if found is not None:
                raise InputError(fill_error(where, name, *found))
            if name.strip().lower() in LONGITUDE_NAMES and self.sides[column].all():
                raise InputError(f"{where}: {mixed_error(name, *self.sides[column].tolist())}")

    def told(self, names: Sequence[str]) -> list[str]:
        """What is strange about the inputs, as sentences; names: theirs."""
        return [told for column, name in enumerate(names) for told in self._told_of_input(column, name)]

    def suspicions(self, names: Sequence[str]) -> list[str]:
        """The sentences of `told_suspicions`, but for copies; names: of the inputs."""
        told = []
        for column, name in enumerate((*names, "y")):
            target = column == len(names)
            found = self._fill(column, repeated=target)
            if found is not None:
                told.append(told_of_fill(name, *found))
            if name.strip().lower() in LONGITUDE_NAMES and self.sides[column].all():
                told.append(mixed_error(name, *self.sides[column].tolist()))
            told += [] if target else self._told_of_input(column, name)
        return told

    def _told_of_input(self, column: int, name: str) -> list[str]:
        low, high = self._range(column)
        constant = low == high and not self.fills[column].any() and self.ends[0, column, 1] > 1
        return told_of_input(name, constant=bool(constant), dates=bool(self.dated[column]))

    def _range(self, column: int) -> tuple[float, float]:
        return float(self.ends[0, column, 0]), -float(self.ends[1, column, 0])

    def _fill(self, column: int, *, repeated: bool) -> tuple[float, int] | None:
        """A value that looks like a fill value, and how often it occurs."""
        low, high = self._range(column)
        for number in np.flatnonzero(self.fills[column]):
            if low <= high and far(float(_SORTED[number]), low, high):
                return float(_SORTED[number]), int(self.fills[column, number])
        if repeated and len(self.distinct) > DISTINCT:
            (_, few, next_low), (_, many, next_high) = self.ends[:, column].tolist()
            for end, times, others in ((low, few, (next_low, high)), (high, many, (low, -next_high))):
                if times >= REPEATED and far(end, *others):
                    return end, int(times)
        return None

    @property
    def arrays(self) -> dict[str, Array]:
        """All numbers, to be stored."""
        return {f"tally_{field.name}": np.asarray(getattr(self, field.name), dtype=float) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, Array]) -> Tally:
        fills, ends, sides, dated, distinct = (arrays[f"tally_{field.name}"] for field in fields(cls))
        return cls(fills.astype(np.int64), ends, sides.astype(np.int64), dated.astype(bool), distinct)


def _nearest_fill(values: Array) -> IntArray:
    """Which of the common fill values a value is, up to the rounding of single precision; -1 for none."""
    found = np.full(len(values), -1, dtype=np.int64)
    large = np.flatnonzero(np.abs(values) > 0.9 * np.abs(_SORTED).min())
    some = values[large]
    above = np.searchsorted(_SORTED, some)
    for number in (np.maximum(above - 1, 0), np.minimum(above, len(_SORTED) - 1)):
        close = np.abs(some - _SORTED[number]) <= 1e-6 * np.abs(_SORTED[number])
        found[large[close]] = number[close]
    return found


def _end(values: Array) -> list[float]:
    """The least value, how often it occurs, and the second one; infinite where there is none."""
    least = float(values.min(initial=np.inf))
    at = values == least
    return [least, float(at.sum()), float(values[~at].min(initial=np.inf))]


def _some_distinct(values: Array) -> Array:
    few = np.unique(values[: 100 * DISTINCT])
    return (few if len(few) > DISTINCT else np.unique(values))[: DISTINCT + 1]
