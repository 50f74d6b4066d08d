"""Suspicious data: fill values, two conventions of longitude, dates as numbers, copied rows.

All checks use counts that add up over parts of the data, so that the result does not depend on the parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray, Keys, row_hashes
from fleetgp.errors import InputError

#: What programs write for missing values; the last two are NetCDF's.
FILLS = (-9999.0, -999.0, -99.0, 99.0, 999.0, 9999.0, -99999.0, 99999.0, -999999.0, 999999.0, -32768.0, -32767.0,
         32767.0, -2147483648.0, -2147483647.0, 1e20, -1e20, 1e30, -1e30, -1e34, 1e35,
         9.969209968386869e36, -9.969209968386869e36)  # fmt: skip
#: A fill value lies this many widths of the other values away from them.
FAR = 5.0
#: Any other value may be one if it occurs this often beside this many different ones. Counts have fewer.
REPEATED, DISTINCT = 3, 10
LONGITUDE_NAMES = ("lon", "longitude", "long", "lng", "lons", "longitudes")
LATITUDE_NAMES = ("lat", "latitude", "lats", "latitudes")
#: Copied rows are reported if they are at least this share of all, and at least this many.
DUPLICATED_SHARE, DUPLICATED_LEAST = 0.05, 5


def times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def is_any_of(values: Array, fills: Sequence[float]) -> BoolArray:
    """Return where values equal one of the fills, up to the rounding of single precision."""
    result = np.zeros(values.shape, dtype=bool)
    for fill in fills:
        result |= np.abs(values - fill) <= 1e-6 * abs(fill)
    return result


def far(value: float, low: float, high: float) -> bool:
    """Whether a value is out of proportion to others, which lie between low and high."""
    width = high - low if high > low else max(abs(high), 1.0)
    return value < low - FAR * width or value > high + FAR * width


def mixed_error(name: str, west: int, east: int) -> str:
    return (
        f"column {name!r} mixes two conventions of longitude: {west} values are below 0 and {east} above 180. "
        "Subtract 360 from the latter, or add 360 to the former; if they are meant so, give the column another name"
    )


def duplicated_rows(rows: Array) -> int:
    """Count the rows that are exact copies of an earlier one; 0 if these are few.

    >>> duplicated_rows(np.array([[1.0, 2.0]] * 6 + [[3.0, 4.0]]))
    5
    """
    # Sorting one hash per row is faster than sorting rows, and 64 bits do not collide by chance.
    return many_copies(len(rows) - len(np.unique(row_hashes(rows))), len(rows))


def many_copies(count: int, rows: int) -> int:
    return count if count >= DUPLICATED_LEAST and count > DUPLICATED_SHARE * rows else 0


def refuse_suspicious(
    columns: Array, names: Sequence[str], where: str, *, fills: bool, of_agent: bool = False, among: Array | None = None
) -> None:
    """Refuse fill values (unless they are known) and mixed longitudes in the columns of a table, the target last.

    of_agent: the rows are a running agent's, whose settings are in fleet.toml.  among: earlier rows to compare with.
    """
    new = Tally.of(columns)
    whole = new if among is None else Tally.of(among).plus(new)
    whole.refuse(names, where, fills=fills, of_agent=of_agent, new=new)


def fill_error(where: str, name: str, fill: float, count: int, *, of_agent: bool = False) -> str:
    """Return the message about a value that looks like a fill value. count: how often it occurs."""
    value = f"{fill:.10g}"
    remedy = (
        f"Say so (fill = [{float(value)!r}] in the agent's table of fleet.toml), and its rows are gaps; "
        "or say there that all values are real (fill = [])"
        if of_agent
        else f"Say so (fill=[{value}], on the command line --fill {value}), and its rows count as missing; "
        "or say that all values are real (fill=[], --fill none)"
    )
    return (
        f"{where}: column {name!r} has the value {value} {times(count)}, far from all others: is it a fill value? "
        f"{remedy}"
    )


def are_dates(values: Array) -> bool:
    """Whether all values are dates as whole numbers, YYYYMMDD.

    >>> are_dates(np.array([20240131.0, 20240201.0])), are_dates(np.array([20240131.0, 20240132.0]))
    (True, False)
    """
    if not values.size or (values < 1900_01_01).any() or (values > 2100_12_31).any() or (values % 1.0).any():
        return False
    years, rest = np.divmod(values.astype(int), 10_000)
    months, days = np.divmod(rest, 100)
    if ((months < 1) | (months > 12) | (days < 1)).any():
        return False
    first = ((years - 1970) * 12 + months - 1).astype("datetime64[M]")
    lengths = (first + np.timedelta64(1, "M")).astype("datetime64[D]") - first.astype("datetime64[D]")
    return bool((days <= lengths.astype(int)).all())


def describe_input(name: str, *, constant: bool, dates: bool) -> list[str]:
    """Describe a suspicious input. constant: it has one value only.  dates: all values are dates, YYYYMMDD."""
    if constant:
        return [f"input {name!r} has one value only: its length-scale cannot be learned. Leave it out"]
    if dates:
        return [
            f"input {name!r} looks like dates, YYYYMMDD: as numbers the last day of a month and the next day are far "
            "apart. Give days since some moment"
        ]
    return []


def suspicions_of(inputs: Array, observations: Array, names: Sequence[str]) -> list[str]:
    """Describe all that is suspicious of data that are not from a file, copied rows included."""
    numbers = np.column_stack([inputs, observations])
    copies = duplicated_rows(numbers)
    return [*Tally.of(numbers).describe(names), *([describe_copies(str(copies), len(numbers))] if copies else [])]


def describe_fill(name: str, value: float, count: int) -> str:
    return (
        f"{name} has the value {value:.10g} {times(count)}, far from all others: if it is a fill value, "
        "remove these rows"
    )


def describe_copies(copies: str, rows: int) -> str:
    return (
        f"{copies} of {rows} rows are exact copies of others: sigma_eps will come out too small. "
        "Remove them, unless they were really measured again"
    )


#: How many different rows are searched for copies: their share is then known to some percent.
MOST_HASHES = 4096


@dataclass(frozen=True)
class Sample:
    """Rows of an agent, drawn at random without replacement: those with the smallest keys.

    keys: ascending.  rows: (n, D + 1), the observations last.
    """

    keys: Keys
    rows: Array

    @classmethod
    def of(cls, rows: Array, keys: Keys, most: int) -> Sample:
        if len(keys) > most:
            chosen = np.argpartition(keys, most)[:most]
            rows, keys = rows[chosen], keys[chosen]
        order = np.argsort(keys, kind="stable")
        return cls(keys[order], rows[order])

    def plus(self, other: Sample, most: int) -> Sample:
        return Sample.of(np.concatenate([self.rows, other.rows]), np.concatenate([self.keys, other.keys]), most)


@dataclass(frozen=True)
class Copies:
    """The smallest hashes of different rows, and how often each occurs."""

    hashes: Keys
    times: Array

    @classmethod
    def of(cls, rows: Array) -> Copies:
        return cls._least(scrambled(row_hashes(rows)), np.ones(len(rows)))

    @classmethod
    def _least(cls, hashes: Keys, times: Array) -> Copies:
        different, which = np.unique(hashes, return_inverse=True)
        counts = np.bincount(which, weights=times, minlength=len(different)).astype(float)
        return cls(different[:MOST_HASHES], counts[:MOST_HASHES])

    def plus(self, other: Copies) -> Copies:
        return Copies._least(np.concatenate([self.hashes, other.hashes]), np.concatenate([self.times, other.times]))

    def estimate(self, rows: int) -> int:
        """Estimate how many of this many rows are copies of others; 0 if these are few.

        >>> once = np.arange(30_000.0).reshape(-1, 2)
        >>> two, one = Copies.of(once[:10_000]).plus(Copies.of(once[:10_000])), Copies.of(once)
        >>> two.estimate(20_000), one.estimate(15_000)
        (10000, 0)
        """
        seen = max(self.times.sum(), 1)
        return many_copies(round(rows * float((seen - len(self.hashes)) / seen)), rows)


def row_keys(rows: Array, first: int, seed: int) -> Keys:
    """Return a random number for each row of a file, from its content, its number in the file and the seed.

    first: the number of the first row. Copies of a row have different keys, since their numbers differ.
    """
    start = np.random.SeedSequence(seed).generate_state(1, np.uint64)
    numbers = np.arange(first, first + len(rows), dtype=np.uint64)
    return scrambled(scrambled(row_hashes(rows) ^ start) + scrambled(numbers + start))


def scrambled(values: Keys) -> Keys:
    """Apply a random-looking permutation of all 64-bit numbers (SplitMix64, Steele et al., 2014)."""
    result = values + np.uint64(0x9E3779B97F4A7C15)
    result = (result ^ (result >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    result = (result ^ (result >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(result ^ (result >> np.uint64(31)))


_SORTED = np.sort(FILLS)


@dataclass(frozen=True)
class Tally:
    """Counts for the columns of a table, the target last, without NaN. All fields add up over parts.

    fills: (C, F) how often each of the common fill values occurs.
    ends: (2, C, 3) of the other values, and of minus them: the least, how often it occurs, and the second.
    sides: (C, 2) values below 0, and above 180.
    dated: (C,) whether all values are dates, YYYYMMDD.
    distinct: different values of the target, up to DISTINCT + 1.
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

    def refuse(
        self, names: Sequence[str], where: str, *, fills: bool, of_agent: bool = False, new: Tally | None = None
    ) -> None:
        """Do as `refuse_suspicious`. new: the part that the error is about; None for all."""
        new = new or self
        for column, name in enumerate(names):
            result = self.fill_value(column, new, repeated=column == len(names) - 1) if fills else None
            if result is not None:
                raise InputError(fill_error(where, name, *result, of_agent=of_agent))
            if name.strip().lower() in LONGITUDE_NAMES and new.sides[column].all():
                raise InputError(f"{where}: {mixed_error(name, *new.sides[column].tolist())}")

    def describe_inputs(self, names: Sequence[str]) -> list[str]:
        """Describe suspicious inputs. names: theirs."""
        return [sentence for column, name in enumerate(names) for sentence in self._describe_input(column, name)]

    def describe(self, names: Sequence[str]) -> list[str]:
        """Describe suspicious inputs and a suspicious target. names: of the inputs."""
        sentences = []
        for column, name in enumerate((*names, "y")):
            target = column == len(names)
            result = self.fill_value(column, repeated=target)
            if result is not None:
                sentences.append(describe_fill(name, *result))
            if name.strip().lower() in LONGITUDE_NAMES and self.sides[column].all():
                sentences.append(mixed_error(name, *self.sides[column].tolist()))
            sentences += [] if target else self._describe_input(column, name)
        return sentences

    def _describe_input(self, column: int, name: str) -> list[str]:
        (low, high), fills = self._range(column), self.fills[column]
        constant = low == high and not fills.any() and self.ends[0, column, 1] > 1
        constant |= low > high and np.count_nonzero(fills) == 1 and fills.sum() > 1
        return describe_input(name, constant=bool(constant), dates=bool(self.dated[column]))

    def _range(self, column: int) -> tuple[float, float]:
        return float(self.ends[0, column, 0]), -float(self.ends[1, column, 0])

    def fill_value(self, column: int, new: Tally | None = None, *, repeated: bool) -> tuple[float, int] | None:
        """Return a value of the new part (None: of all) that looks like a fill value, and how often it occurs there.

        repeated: a lowest or highest value that occurs often counts, too. Only for targets: inputs repeat at a mooring.
        """
        new = new or self
        low, high = self._range(column)
        for number in np.flatnonzero(new.fills[column]):
            if low <= high and far(float(_SORTED[number]), low, high):
                return float(_SORTED[number]), int(new.fills[column, number])
        if repeated and len(self.distinct) > DISTINCT:
            (_, few, next_low), (_, many, next_high) = self.ends[:, column].tolist()
            ends = (0, low, few, (next_low, high)), (1, high, many, (low, -next_high))
            for side, end, count, others in ends:
                least, its = new.ends[side, column, :2].tolist()
                if count >= REPEATED and its and least == (-end if side else end) and far(end, *others):
                    return end, int(its)
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
    """Return which common fill value a value is, up to the rounding of single precision; -1 for none."""
    result = np.full(len(values), -1, dtype=np.int64)
    large = np.flatnonzero(np.abs(values) > 0.9 * np.abs(_SORTED).min())
    some = values[large]
    above = np.searchsorted(_SORTED, some)
    for number in (np.maximum(above - 1, 0), np.minimum(above, len(_SORTED) - 1)):
        close = np.abs(some - _SORTED[number]) <= 1e-6 * np.abs(_SORTED[number])
        result[large[close]] = number[close]
    return result


def _end(values: Array) -> list[float]:
    """Return the least value, how often it occurs, and the second one; infinite where there is none."""
    least = float(values.min(initial=np.inf))
    at = values == least
    return [least, float(at.sum()), float(values[~at].min(initial=np.inf))]


def _some_distinct(values: Array) -> Array:
    few = np.unique(values[: 100 * DISTINCT])
    return (few if len(few) > DISTINCT else np.unique(values))[: DISTINCT + 1]


@dataclass(frozen=True)
class Inspection:
    """What `suspicions_of` describes, kept so that rows are inspected only once."""

    tally: Tally
    copies: Copies
    rows: int

    @classmethod
    def of(cls, inputs: Array, observations: Array) -> Inspection:
        numbers = np.column_stack([inputs, observations])
        return cls(Tally.of(numbers), Copies.of(numbers), len(numbers))

    def plus(self, other: Inspection) -> Inspection:
        return Inspection(self.tally.plus(other.tally), self.copies.plus(other.copies), self.rows + other.rows)

    def describe(self, names: Sequence[str]) -> list[str]:
        """Describe all that is suspicious; of many rows, the number of copies is an estimate.

        >>> X, y = np.arange(12.0).reshape(6, 2), np.array([1.0, 2.0, 3.0, 2.5, 1.5, -9999.0])
        >>> first, last = Inspection.of(X[:3], y[:3]), Inspection.of(X[3:], y[3:])
        >>> first.describe(["a", "b"]), len(first.plus(last).describe(["a", "b"]))
        ([], 1)
        """
        copies = self.copies.estimate(self.rows)
        about = "about " if len(self.copies.hashes) == MOST_HASHES else ""
        repeated = [describe_copies(f"{about}{copies}", self.rows)] if copies else []
        return [*self.tally.describe(names), *repeated]
