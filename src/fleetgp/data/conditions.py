"""Conditions on rows as text: comparisons of columns with numbers or dates, joined by "and"."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.data.times import moment, time_unit_of
from fleetgp.errors import InputError, shortened

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
_TEXT = r"""("[^"]*"|'[^']*'|[^<>=!\s][^<>=!]*?)"""
#: A name with an operator is in quotes.
_ONE = re.compile(rf"\s*{_TEXT}\s*(<=|>=|==|!=|<|>)\s*{_TEXT}(\s+and\s+|\s*$)", re.IGNORECASE)
_EXPECTED = 'expected comparisons such as "sst > 40" or "lon < 5 and day >= 2021-01-31"'


@dataclass(frozen=True)
class Comparison:
    """One column, by its number, compared with a value."""

    column: int
    compare: str
    value: float

    def holds(self, values: Array) -> BoolArray:
        return np.asarray(_COMPARE[self.compare](values, self.value))

    def may_hold(self, low: float, high: float) -> bool:
        """Whether it may hold for a value from low to high."""
        if self.compare == "==":
            return low <= self.value <= high
        if self.compare == "!=":
            return not low == high == self.value
        return bool(_COMPARE[self.compare](low if self.compare.startswith("<") else high, self.value))


@dataclass(frozen=True)
class Condition:
    """What is asked of rows: all comparisons hold.

    >>> condition = Condition.parsed("x <= 2 and y != 1", ("x", "y"), {})
    >>> condition.rows(np.array([[1.0, 1.0], [2.0, 0.0], [3.0, 0.0]])).tolist()
    [False, True, False]
    >>> condition.may_hold(np.array([2.0, 1.0]), np.array([9.0, 1.0]))
    False
    """

    comparisons: tuple[Comparison, ...]

    @classmethod
    def parsed(cls, text: Any, names: Sequence[str], units: Mapping[str, str]) -> Condition:
        """Read a condition. names: of the columns.  units: of those that are known; a time is compared with dates.

        >>> when = {"day": "days since 1970-01-01"}
        >>> Condition.parsed("day < 1970-01-03", ("day", "t"), when).comparisons[0].value
        2.0
        >>> both = Condition.parsed("rise and fall < 2 and 'p>3' > 1", ("p>3", "rise and fall"), {})
        >>> [one.column for one in both.comparisons]
        [1, 0]
        """
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"where: {_EXPECTED}, got {shortened(text)}")
        comparisons, end, more = [], 0, True
        while more:
            matched = _ONE.match(text, end)
            if matched is None:
                raise InputError(f"where: {_EXPECTED}, got {shortened(text)}")
            name, compare, value, joint = matched.groups()
            comparisons.append(_comparison(name, compare, value, text, names, units))
            end, more = matched.end(), bool(joint.strip())
        return cls(tuple(comparisons))

    def rows(self, table: Array) -> BoolArray:
        """(N,) for which rows of a table (N, columns) it holds."""
        result = np.ones(len(table), dtype=bool)
        for one in self.comparisons:
            result &= one.holds(table[:, one.column])
        return result

    def may_hold(self, low: Array, high: Array) -> bool:
        """Whether it may hold for a row between these lowest and highest values of each column."""
        return all(one.may_hold(float(low[one.column]), float(high[one.column])) for one in self.comparisons)


def _comparison(
    name: str, compare: str, value: str, text: str, names: Sequence[str], units: Mapping[str, str]
) -> Comparison:
    name, value = name.strip("'\""), value.strip("'\"")
    if name not in names:
        raise InputError(f"where: expected one of the columns {', '.join(names)}, got {name!r} in {shortened(text)}")
    return Comparison(list(names).index(name), compare, _value(value, name, units.get(name), text))


def _value(value: str, name: str, unit: str | None, text: str) -> float:
    try:
        number = float(value)
    except ValueError:
        if time_unit_of(unit) is not None:
            return moment(value, unit, f"where: {name}")
        raise InputError(f"where: {name}: expected a number, got {value!r} in {shortened(text)}") from None
    if not np.isfinite(number):
        raise InputError(f"where: {name}: expected a finite number, got {value!r} in {shortened(text)}")
    return number
