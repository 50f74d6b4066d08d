"""Times as inputs: conversion to days, hours or seconds since 1970, and back, with units as in the CF conventions."""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast, get_args

import numpy as np

from fleetgp.arrays import Array
from fleetgp.errors import InputError, check_name

#: The unit of times since 1970.
TimeUnit = Literal["days", "hours", "seconds"]
#: A point in time as a caller gives it: a number of the input that is the time, a date as text, or a datetime.
Moment = float | str | datetime.date | np.datetime64
_EPOCH = np.datetime64("1970-01-01", "us")
_SINCE = "since 1970-01-01"
#: In microseconds, which doubles resolve in all of the units for half a century from now.
_LENGTHS: dict[str, int] = {"days": 86_400_000_000, "hours": 3_600_000_000, "seconds": 1_000_000}
#: Times more than so many microseconds from 1970, some 10,000 years, are shown as numbers.
_LARGEST = 3e17
#: A date as ISO 8601 has it, with a time or without.
_ISO = re.compile(r"\s*\d{4}-\d{2}-\d{2}([T ]\d{2}(:\d{2}(:\d{2}(\.\d+)?)?)?Z?)?\s*")


def check_time_unit(unit: object) -> TimeUnit:
    check_name("time_unit", unit, get_args(TimeUnit))
    return cast(TimeUnit, unit)


def units_of_times(unit: TimeUnit) -> str:
    """Return the units of an input for a file.

    >>> units_of_times("days")
    'days since 1970-01-01'
    """
    return f"{unit} {_SINCE}"


def time_unit_of(units: str | None) -> TimeUnit | None:
    """Return the unit of times for the units of an input; None if it is not a time.

    >>> time_unit_of("hours since 1970-01-01"), time_unit_of("degC")
    ('hours', None)
    """
    unit, _, since = (units or "").partition(" ")
    return check_time_unit(unit) if since == _SINCE and unit in _LENGTHS else None


def time_unit_among(units: Mapping[str, str]) -> TimeUnit:
    """Return the unit of the times among the inputs, or days. units: of inputs by name."""
    return next(filter(None, map(time_unit_of, units.values())), "days")


def are_times(values: Any) -> bool:
    """Whether a column has times of NumPy or pandas, with or without a zone."""
    kind = getattr(getattr(values, "dtype", None), "kind", "")
    return kind == "M" or type(getattr(values, "dtype", None)).__name__ == "DatetimeTZDtype"


def are_dates_as_text(values: Any) -> bool:
    """Whether all texts of a column are dates, YYYY-MM-DD, with or without a time; missing ones do not count."""
    texts = [value for value in values if isinstance(value, str) and value.strip()]
    return bool(texts) and all(_ISO.fullmatch(text) for text in texts)


def numbers_of_times(values: Any, unit: TimeUnit, what: str) -> Array:
    """Return times as numbers since 1970 (UTC), NaN for missing ones.

    values: times, or dates as text.

    >>> numbers_of_times(np.array(["1970-01-02", "NaT"], dtype="datetime64[D]"), "hours", "time").tolist()
    [24.0, nan]
    """
    if type(getattr(values, "dtype", None)).__name__ == "DatetimeTZDtype":
        values = values.dt.tz_convert(None) if hasattr(values, "dt") else values.tz_convert(None)
    array = np.asarray(values)
    if array.dtype.kind != "M":
        array = np.array([_moment(value, what) for value in array.ravel()], dtype="datetime64[us]").reshape(array.shape)
    counted = (array.astype("datetime64[us]") - _EPOCH).astype(np.int64)
    return np.asarray(np.where(np.isnat(array), np.nan, counted / _LENGTHS[unit]))


def times_of_numbers(values: Array, unit: TimeUnit) -> Any:
    """Return numbers since 1970 as times, exact to the microsecond from 1911 to 2059, otherwise nearly.

    >>> times_of_numbers(np.array([1.5]), "days")
    array(['1970-01-02T12:00:00.000000'], dtype='datetime64[us]')
    """
    known = np.isfinite(values)
    counted = np.rint(np.where(known, values, 0.0) * _LENGTHS[unit]).astype(np.int64)
    return np.where(known, _EPOCH + counted.astype("timedelta64[us]"), np.datetime64("NaT", "us"))


def format_value(value: float, units: str | None) -> str:
    """Format a value of an input for people, times as dates to the minute. units: of the input.

    >>> days = "days since 1970-01-01"
    >>> format_value(19512.5, days), format_value(2.0, days), format_value(0.25, "km")
    ('2023-06-04 12:00', '1970-01-03', '0.25')
    """
    unit = time_unit_of(units)
    if unit is None or not abs(value) * _LENGTHS[unit] < _LARGEST:
        return f"{value:.6g}"
    return str(times_of_numbers(np.array(value), unit).astype("datetime64[m]")).replace("T", " ").removesuffix(" 00:00")


def format_time(value: float, units: str | None) -> str:
    """Format a value of the input that is the time for people, dates with their zone. units: of the input.

    >>> format_time(18632.5, "days since 1970-01-01"), format_time(7.25, None)
    ('2021-01-05 12:00 UTC', '7.25')
    """
    text = format_value(value, units)
    return text if _ISO.fullmatch(text) is None else f"{text} UTC" if ":" in text else f"{text} 00:00 UTC"


def _moment(value: Any, what: str) -> np.datetime64:
    if not isinstance(value, str) or not value.strip():
        return np.datetime64("NaT", "us")
    try:
        return np.datetime64(value.strip().removesuffix("Z"), "us")
    except ValueError as error:
        raise InputError(f"{what}: expected a date like 2021-01-31 or 2021-01-31T12:00, got {value!r}") from error


def clock(unit: TimeUnit) -> float:
    """Return the time of this machine's clock as a number since 1970.

    >>> 10_000 < clock("days") < 60_000
    True
    """
    return time.time() * 1e6 / _LENGTHS[unit]


# ---- the input that is a time ----------------------------------------------------------------------------------------

_DURATION = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-z]+)\s*", re.IGNORECASE)
#: Microseconds of the units in which a duration can be given.
_SPANS = {"second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000, "day": 86_400_000_000}
_SPANS["week"] = 7 * _SPANS["day"]
_SHORT = {"s": "second", "min": "minute", "h": "hour", "d": "day", "w": "week"}


def time_input(inputs: Sequence[str] | None, units: Mapping[str, str], given: str | None = None) -> int | None:
    """Return the number of the input that is the time; None if there is none, or several.

    given: its name, where the caller named it. Otherwise it is the only input with a unit of times.

    >>> time_input(("lon", "when"), {"when": "days since 1970-01-01"}), time_input(("lon", "day"), {}, "day")
    (1, 1)
    >>> time_input(("lon", "day"), {}) is None
    True
    """
    names = list(inputs or ())
    if given is not None:
        if given not in names:
            raise InputError(
                f"time: expected one of the inputs ({', '.join(names) or 'they have no names'}), got {given!r}"
            )
        return names.index(given)
    times = [number for number, name in enumerate(names) if time_unit_of(units.get(name)) is not None]
    return times[0] if len(times) == 1 else None


def duration(value: Any, units: str | None, what: str) -> float:
    """Return a span of time in the unit of an input: of a number in that unit, or a text such as "3 days".

    units: of the input.  what: the name of the argument, for errors.

    >>> duration("36 hours", "days since 1970-01-01", "window"), duration(2, None, "window")
    (1.5, 2.0)
    """
    unit = time_unit_of(units)
    if isinstance(value, str):
        matched = _DURATION.fullmatch(value)
        word = "" if matched is None else matched[2].lower()
        span = _SPANS.get(_SHORT.get(word, word.removesuffix("s") if len(word) > 1 else word))
        if matched is None or span is None:
            raise InputError(f'{what}: expected a duration such as "3 days", "36 hours" or "90 min", got {value!r}')
        if unit is None:
            raise InputError(
                f"{what}: expected a number in the unit of the time input, which is no date, got {value!r}"
            )
        value = float(matched[1]) * span / _LENGTHS[unit]
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating) or not value > 0:
        raise InputError(f'{what}: expected a duration above 0, as a number or a text such as "3 days", got {value!r}')
    return float(value)


def moment(value: Any, units: str | None, what: str) -> float:
    """Return a point in time as the number that the input has: of a number, a date as text, or a datetime.

    units: of the input.  what: the name of the argument, for errors.

    >>> moment("1970-01-03T12:00", "days since 1970-01-01", "before"), moment(2.5, None, "before")
    (2.5, 2.5)
    """
    unit = time_unit_of(units)
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        if not np.isfinite(value):
            raise InputError(f"{what}: expected a point in time, got {value}")
        return float(value)
    if unit is None:
        raise InputError(f"{what}: expected a number in the unit of the time input, which is no date, got {value!r}")
    if isinstance(value, str):
        numbers = numbers_of_times(np.array([value], dtype=object), unit, what)
    else:
        try:
            if not isinstance(value, datetime.date | np.datetime64):
                raise TypeError(value)
            if isinstance(value, datetime.datetime) and value.tzinfo is not None:
                value = value.astimezone(datetime.UTC).replace(tzinfo=None)
            numbers = numbers_of_times(np.array([value], dtype="datetime64[us]"), unit, what)
        except (TypeError, ValueError) as error:
            raise InputError(f"{what}: expected a date or a number, got {value!r}") from error
    if not np.isfinite(numbers[0]):
        raise InputError(f"{what}: expected a date such as 2021-01-31 or 2021-01-31T12:00, got {value!r}")
    return float(numbers[0])
