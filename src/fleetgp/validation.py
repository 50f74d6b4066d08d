"""Checks of arguments: numbers, names, flags, paths and arrays. Each raises an InputError.

NumPy silently converts much to floats: it drops masks and imaginary parts, parses text, and counts times in whatever
unit they have. Every array from a caller goes through `as_numbers`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.errors import InputError, shortened, warn

#: Squares of larger values overflow.
LARGEST = 1e100
#: Missing values by the names of their types: pandas need not be installed.
_NOTHING = ("NoneType", "NAType", "NaTType", "MaskedConstant")
_REFUSED = {
    "b": "true and false: give 0 and 1 if you mean numbers",
    "c": "complex numbers: give their real part, or their modulus",
    "M": "times: give hours or days since some moment, as numbers",
    "m": "spans of time: give hours or days, as numbers",
    "U": "text: give numbers",
    "S": "text: give numbers",
    "T": "text: give numbers",
    "V": "records with fields: give one array of numbers",
}


def as_numbers(values: Any, what: str, *, flags: bool = False) -> Array:
    """Return a copy as floats. Masked and missing values are refused; NaN is left to the caller.

    flags: accept true and false as 1 and 0.

    >>> as_numbers(np.ma.masked_array([1.0, -32768.0], [False, True]), "y")
    Traceback (most recent call last):
    fleetgp.errors.InputError: y has masked values in 1 of 2 rows (first: row 1): remove or fill these rows
    """
    masked = _masked(values)
    if masked is not None and masked.any():
        raise InputError(f"{what} has masked values in {_rows(masked)}: remove or fill these rows")
    try:
        array = np.asarray(np.ma.getdata(values) if isinstance(values, np.ma.MaskedArray) else values)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what}: expected a numeric array, got something else: {error}") from error
    kind = array.dtype.kind
    if kind in _REFUSED and array.size and not (flags and kind == "b"):
        raise InputError(f"{what}: expected a numeric array, got {_REFUSED[kind]}")
    if kind == "O":
        _check_objects(array, what)
    try:
        return np.array(array, dtype=float)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{what}: expected a numeric array, but conversion failed: {error}") from error


def is_nothing(value: object) -> bool:
    """Whether a value is None, pandas' NA or NaT, or NumPy's masked."""
    return type(value).__name__ in _NOTHING


def check_finite(array: Array, what: str) -> None:
    """Refuse NaN, infinity, and values whose squares overflow; axis 0 runs over the rows."""
    rows = array.reshape(len(array), array.size // max(1, len(array)))
    bad = np.asarray(~np.isfinite(rows).all(axis=1))
    if bad.any():
        raise InputError(f"{what} has NaN or infinite values in {_rows(bad)}: remove or fill these rows")
    large = np.asarray((np.abs(rows) > LARGEST).any(axis=1))
    if large.any():
        raise InputError(f"{what} has values beyond 1e100 in {_rows(large)}: use other units")


def as_flag(value: object, name: str) -> bool:
    """Return True or False; any text, even "no", would count as true in Python."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{name}: expected True or False, got {shortened(value)}")
    return bool(value)


def check_number(
    name: str, value: object, *, above: float = -np.inf, least: float = -np.inf, most: float = np.inf
) -> None:
    """Refuse all but finite numbers within bounds."""
    number = np.nan
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        with suppress(OverflowError):
            number = float(value)
    if not (above < number < np.inf and least <= number <= most):
        bound = f"above {above:g}" if above > -np.inf else f"of at least {least:g}"
        bound += f" and at most {most:g}" if most < np.inf else ""
        raise InputError(f"{name} must be a number {bound}, got {shortened(value)}")


def check_whole(name: str, value: object, *, least: int, most: float = np.inf) -> None:
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or not least <= value <= most:
        bound = f"of at least {least}" + (f" and at most {most:,}" if most < np.inf else "")
        raise InputError(f"{name} must be a whole number {bound}, got {shortened(value)}")


def as_path(value: object, what: str) -> Path:
    if not isinstance(value, str | os.PathLike) or not str(value) or "\0" in str(value):
        raise InputError(f"{what}: expected a path, got {shortened(value)}")
    return Path(value)


def as_fills(fill: object) -> list[float]:
    """Return a list of values that stand for missing ones."""
    if not isinstance(fill, Sequence | np.ndarray) or isinstance(fill, str | bytes):
        raise InputError(f"fill: expected a list of values that stand for nothing, as [-9999], got {shortened(fill)}")
    values = as_numbers(fill, "fill")
    if values.ndim != 1:
        raise InputError(f"fill: expected a list of numbers, got an array of shape {values.shape}")
    return [float(value) for value in values]


def as_names(names: Sequence[str], what: str) -> tuple[str, ...]:
    """Return different texts; a single text would be a list of letters in Python."""
    listed = isinstance(names, Iterable) and not isinstance(names, str | bytes | Mapping | Set)
    if not listed or not all(isinstance(name, str) for name in names):
        raise InputError(f"{what}: expected a list of names, got {shortened(names)}")
    if len(set(names)) < len(names):
        raise InputError(f"{what}: expected different names, got {', '.join(names)}")
    return tuple(names)


def column_names(values: object, what: str) -> tuple[str, ...] | None:
    """Return the names of a data frame's columns; None for arrays and numbered columns.

    >>> column_names(np.zeros((2, 2)), "X") is None
    True
    """
    columns = getattr(values, "columns", None)
    if columns is None or callable(columns):
        return None
    names = list(columns)
    text = [isinstance(name, str) for name in names]
    if not any(text):
        return None
    if not all(text):
        raise InputError(f"{what}: expected columns that all have names, got {names}: rename the numbered ones")
    if len(set(names)) < len(names):
        raise InputError(f"{what}: expected columns with different names, got {', '.join(names)}")
    return tuple(names)


def by_name(values: Any, names: Sequence[str], what: str) -> Any:
    """Return a data frame's columns in the order of the names; others are dropped, missing ones are an error."""
    have = column_names(values, what) or ()
    missing = [name for name in names if name not in have]
    if missing:
        raise InputError(f"{what}: expected the columns {', '.join(names)}, got {', '.join(have)}: add {missing[0]!r}")
    return values[list(names)]


def check_aligned(first: Any, second: Any, what: str, names: tuple[str, str]) -> None:
    """Refuse rows whose labels (pandas) have another order, or warn; rows are matched by position."""
    one, other = (getattr(given, "index", None) if hasattr(given, "iloc") else None for given in (first, second))
    if one is None or other is None or len(one) != len(other) or one.equals(other):
        return
    a, b = names
    if Counter(one) == Counter(other):
        raise InputError(
            f"{what}the rows of {a} and {b} are labelled alike but in another order: align them, "
            f"e.g. {b}.loc[{a}.index]"
        )
    warn(
        f"{what}the rows of {a} and {b} are labelled differently (first: {one[0]} and {other[0]}): they are "
        f"matched by position. Align them, or give {b}.to_numpy()"
    )


def _rows(bad: BoolArray) -> str:
    first = np.flatnonzero(bad)[0]
    return f"{int(bad.sum())} of {len(bad)} rows (first: row {first})"


def _masked(values: Any) -> BoolArray | None:
    """Return which rows have masked values, also inside lists; None where there cannot be any."""
    if isinstance(values, np.ma.MaskedArray):
        mask = np.atleast_1d(np.ma.getmaskarray(values))
        return np.asarray(mask.any(axis=tuple(range(1, mask.ndim))))
    if isinstance(values, list | tuple) and values and not isinstance(values[0], int | float):
        masks = [_masked(value) for value in values]
        if any(mask is not None for mask in masks):
            return np.array([mask is not None and bool(mask.any()) for mask in masks])
    elif isinstance(values, list | tuple):
        return np.array([value is np.ma.masked for value in values], dtype=bool)
    return None


def _check_objects(array: Any, what: str) -> None:
    """Refuse Python objects, as in data frames of several types, that are missing or not numbers."""
    if not array.size:
        return
    rows = array.reshape(len(array), -1) if array.ndim else array.reshape(1, 1)
    nothing = np.array([[is_nothing(value) for value in row] for row in rows], dtype=bool)
    if nothing.any():
        raise InputError(
            f"{what} has missing values in {_rows(np.asarray(nothing.any(axis=1)))}: remove or fill these rows"
        )
    for value in rows.ravel():
        kind = np.asarray(value).dtype.kind if not isinstance(value, list | tuple | dict) else "O"
        if kind in _REFUSED:
            raise InputError(f"{what}: expected a numeric array, got {_REFUSED[kind]} (first: {shortened(value)})")
        if kind == "O" and not hasattr(value, "__float__"):
            raise InputError(
                f"{what}: expected a numeric array, got {type(value).__name__} (first: {shortened(value)})"
            )
