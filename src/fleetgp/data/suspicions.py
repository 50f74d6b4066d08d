"""What is probably not meant: fill values among the data, two conventions of longitude, rows that come twice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fleetgp.arrays import Array, BoolArray, row_hashes
from fleetgp.errors import InputError

#: What programs write where they know nothing; the last two are NetCDF's own.
FILLS = (-9999.0, -999.0, -99.0, 99.0, 999.0, 9999.0, -99999.0, 99999.0, -999999.0, 999999.0, -32768.0, -32767.0,
         32767.0, -2147483648.0, -2147483647.0, 1e20, -1e20, 1e30, -1e30, -1e34, 1e35,
         9.969209968386869e36, -9.969209968386869e36)  # fmt: skip
#: A fill value lies this many widths of the other values away from them.
FAR = 5.0
#: Any other value may be one if it occurs so often beside so many different ones. Counts have fewer different values.
REPEATED, DISTINCT = 3, 10
LONGITUDE_NAMES = ("lon", "longitude", "long", "lng", "lons", "longitudes")
LATITUDE_NAMES = ("lat", "latitude", "lats", "latitudes")
#: Copied rows are reported if they are at least this share of all, and at least this many.
DUPLICATED_SHARE, DUPLICATED_LEAST = 0.05, 5


def times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def is_any_of(values: Array, fills: Sequence[float]) -> BoolArray:
    """Where a value is one of some, up to the rounding of single precision."""
    found = np.zeros(values.shape, dtype=bool)
    for fill in fills:
        found |= np.abs(values - fill) <= 1e-6 * abs(fill)
    return found


def fill_value(values: Array, *, repeated: bool = False, among: Array | None = None) -> tuple[float, int] | None:
    """A value that looks like a fill value, and how often it occurs; None if there is none. NaN is ignored.

    repeated: a lowest or highest value that occurs often counts too. Only for a target: inputs do repeat, at a mooring.
    among: values that were there before, to judge the new ones by.

    >>> fill_value(np.array([12.1, 13.0, -9999.0, 12.7])), fill_value(np.array([-9999.0, 0.0, 9000.0]))
    ((-9999.0, 1), None)
    >>> fill_value(np.append(np.linspace(6, 25, 50), [-99.9] * 3), repeated=True)
    (-99.9, 3)
    """
    new = values[np.isfinite(values)]
    known = new if among is None else np.concatenate([among, new])
    rest = known[~is_any_of(known, FILLS)]
    for value in np.unique(new[is_any_of(new, FILLS)]).tolist():
        if _far(value, rest):
            return value, int((new == value).sum())
    if repeated and rest.size:
        for end in (float(rest.min()), float(rest.max())):
            others = rest[rest != end]
            often = len(rest) - len(others) >= REPEATED and bool((new == end).any())
            if often and len(np.unique(others)) >= DISTINCT and _far(end, others):
                return end, int((new == end).sum())
    return None


def _far(value: float, rest: Array) -> bool:
    return bool(rest.size) and far(value, float(rest.min()), float(rest.max()))


def far(value: float, low: float, high: float) -> bool:
    """Whether a value is out of all proportion to others, which lie between low and high."""
    width = high - low if high > low else max(abs(high), 1.0)
    return value < low - FAR * width or value > high + FAR * width


def mixed_longitudes(name: str, values: Array) -> str:
    """What is wrong with a column of longitudes that runs below 0 and above 180; empty if nothing is."""
    if name.strip().lower() not in LONGITUDE_NAMES or not values.size:
        return ""
    west, east = int((values < 0.0).sum()), int((values > 180.0).sum())
    if not (west and east):
        return ""
    return mixed_error(name, west, east)


def mixed_error(name: str, west: int, east: int) -> str:
    return (
        f"column {name!r} mixes two conventions of longitude: {west} values are below 0 and {east} above 180. "
        "Subtract 360 from the latter, or add 360 to the former; if they are meant so, give the column another name"
    )


def duplicated_rows(rows: Array) -> int:
    """How many rows are exact copies of an earlier one; 0 where these are few.

    >>> duplicated_rows(np.array([[1.0, 2.0]] * 6 + [[3.0, 4.0]]))
    5
    """
    # Sorting rows is slow; sorting one hash a row is not, and 64 bits do not collide by chance.
    return many_copies(len(rows) - len(np.unique(row_hashes(rows))), len(rows))


def many_copies(count: int, rows: int) -> int:
    """So many copies among the rows; 0 where these are few."""
    return count if count >= DUPLICATED_LEAST and count > DUPLICATED_SHARE * rows else 0


def refuse_suspicious(
    columns: Array, names: Sequence[str], where: str, *, fills: bool, of_agent: bool = False, among: Array | None = None
) -> None:
    """One clear error for fill values (unless they were dealt with) and mixed longitudes in the columns of a table.

    The last column is the target.  of_agent: the rows are a running agent's, whose settings are in fleet.toml.
    among: rows that were there before, to judge these by.
    """
    for column, (name, values) in enumerate(zip(names, columns.T, strict=True)):
        before = None if among is None else among[:, column]
        found = fill_value(values, repeated=column == len(names) - 1, among=before) if fills else None
        if found is not None:
            raise InputError(fill_error(where, name, *found, of_agent=of_agent))
        mixed = mixed_longitudes(name, values[np.isfinite(values)])
        if mixed:
            raise InputError(f"{where}: {mixed}")


def fill_error(where: str, name: str, found: float, count: int, *, of_agent: bool = False) -> str:
    """What to say of a value that looks like a fill value, and occurs so often."""
    value = f"{found:.10g}"
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
    """Whether all values are days as whole numbers, YYYYMMDD.

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


def told_of_input(name: str, *, constant: bool, dates: bool) -> list[str]:
    """What is strange about an input. constant: it has one value.  dates: all values are days, YYYYMMDD."""
    if constant:
        return [f"input {name!r} has one value only: its length-scale cannot be learned. Leave it out"]
    if dates:
        return [
            f"input {name!r} looks like dates, YYYYMMDD: as numbers the last day of a month and the next day are far "
            "apart. Give days since some moment"
        ]
    return []


def told_suspicions(inputs: Array, observations: Array, names: Sequence[str]) -> list[str]:
    """The same as sentences, for data that did not come from a file; and rows that come twice."""
    told = []
    for name, values in zip((*names, "y"), (*inputs.T, observations), strict=True):
        found = fill_value(values, repeated=values is observations)
        if found is not None:
            told.append(told_of_fill(name, *found))
        mixed = mixed_longitudes(name, values)
        if mixed:
            told.append(mixed)
        if values is not observations:
            constant = len(values) > 1 and bool(values.min() == values.max())
            told += told_of_input(name, constant=constant, dates=are_dates(values))
    copies = duplicated_rows(np.column_stack([inputs, observations]))
    return [*told, *([told_of_copies(str(copies), len(observations))] if copies else [])]


def told_of_fill(name: str, value: float, count: int) -> str:
    return (
        f"{name} has the value {value:.10g} {times(count)}, far from all others: if it is a fill value, "
        "remove these rows"
    )


def told_of_copies(copies: str, rows: int) -> str:
    return (
        f"{copies} of {rows} rows are exact copies of others: sigma_eps will come out too small. "
        "Remove them, unless they were really measured again"
    )
