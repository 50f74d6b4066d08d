"""Columns of files and data frames as numbers: NaN where a value is missing, or one clear error."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from fleetgp.arrays import Array
from fleetgp.data.times import are_dates_as_text, are_times, numbers_of_times, units_of_times
from fleetgp.errors import InputError, shortened
from fleetgp.given import as_numbers, is_nothing
from fleetgp.io.formats import Reading

#: What begins like a date, in the order of whatever country.
_OTHER_DATE = re.compile(r"\s*\d{1,4}[./-]\d{1,2}[./-]\d{1,4}(?!\d)")


def input_numbers(
    values: Any, name: str, path: object, reading: Reading | None = None, before: int = 0
) -> tuple[Array, str]:
    """The same for an input, which may be times, or dates as text; and then its units, which say since when.

    >>> input_numbers(np.array(["2021-01-05", "2021-01-06T12:00"], dtype=object), "day", "t.csv")
    (array([18632. , 18633.5]), 'days since 1970-01-01')
    """
    unit = (reading or Reading()).time_unit
    if are_times(values) or (np.asarray(values).dtype.kind in "OUT" and are_dates_as_text(values)):
        return numbers_of_times(values, unit, f"{path}: column {name!r}"), units_of_times(unit)
    try:
        return numeric(values, name, path, reading, before), ""
    except InputError as error:
        texts = (value for value in np.asarray(values).ravel() if isinstance(value, str))
        if any(_OTHER_DATE.match(text) for text in texts):
            raise InputError(f"{error}. Are these dates? Then write them like 2023-06-04 19:23") from error
        raise


def numeric(values: Any, name: str, path: object, reading: Reading | None = None, before: int = 0) -> Array:
    """A column as floats, NaN where a value is missing, or one clear error. reading: how the file was read.

    before: how many rows of the file come before these.
    """
    array, reading = np.asarray(values), reading or Reading()
    hint = ""
    if array.dtype.kind == "O":
        array = np.array([np.nan if is_nothing(value) else value for value in array], dtype=object)
        comma = any(isinstance(value, str) and re.fullmatch(r"\s*[-+]?\d+,\d+\s*", value) for value in array)
        how = "say so (--decimal ,)" if reading.settable else "write points"
        hint = f". Are these decimal commas? Then {how}" if comma else ""
        row = _first_text(array, reading.decimal or ".")
        if row is not None:  # one such cell makes texts of all others
            raise InputError(
                f"{path}: column {name!r} must hold numbers: expected a number, got {shortened(array[row])} "
                f"(first: row {before + row + 1}){hint}"
            )
    try:
        return as_numbers(array, f"{path}: column {name!r} must hold numbers")
    except InputError as error:
        raise InputError(f"{error}{hint}") from error


def _first_text(values: Any, decimal: str) -> int | None:
    """The first row of a column whose text is no number; None if there is none."""
    for row, value in enumerate(values):
        if isinstance(value, str):
            try:
                float(value.replace(decimal, ".").replace("_", "no number"))  # Python would read 1_000
            except ValueError:
                return row
    return None
