"""What is probably not meant: fill values among the data, two conventions of longitude, rows that come twice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.errors import InputError

#: What programs write where they know nothing; the last two are NetCDF's own.
FILLS = (-9999.0, -999.0, -99.0, 99.0, 999.0, 9999.0, -99999.0, 99999.0, -999999.0, 999999.0, -32768.0, -32767.0,
         32767.0, -2147483648.0, -2147483647.0, 1e20, -1e20, 1e30, -1e30, -1e34, 1e35,
         9.969209968386869e36, -9.969209968386869e36)  # fmt: skip
#: A fill value lies this many widths of the other values away from them.
FAR = 5.0
LONGITUDE_NAMES = ("lon", "longitude", "long", "lng", "lons", "longitudes")
#: Rows that come again are told of from this share, and this number, on.
DUPLICATED_SHARE, DUPLICATED_LEAST = 0.05, 5


def is_any_of(values: Array, fills: Sequence[float]) -> BoolArray:
    """Where a value is one of some, up to the rounding of single precision."""
    found = np.zeros(values.shape, dtype=bool)
    for fill in fills:
        found |= np.abs(values - fill) <= 1e-6 * abs(fill)
    return found


def fill_value(values: Array) -> tuple[float, int] | None:
    """A value that looks like a fill value, and how often it comes; None if there is none. NaN is passed over.

    >>> fill_value(np.array([12.1, 13.0, -9999.0, 12.7])), fill_value(np.array([-9999.0, 0.0, 9000.0]))
    ((-9999.0, 1), None)
    """
    known = values[np.isfinite(values)]
    ends = np.array([known.min(), known.max()]) if known.size else known
    if not is_any_of(ends, FILLS).any():
        return None
    rest = known[~is_any_of(known, FILLS)]
    if not rest.size:
        return None
    low, high = float(rest.min()), float(rest.max())
    width = high - low if high > low else max(abs(high), 1.0)
    for end in ends[is_any_of(ends, FILLS)].tolist():
        if end < low - FAR * width or end > high + FAR * width:
            return end, int((known == end).sum())
    return None


def mixed_longitudes(name: str, values: Array) -> str:
    """What is wrong with a column of longitudes that runs below 0 and above 180; empty if nothing is."""
    if name.strip().lower() not in LONGITUDE_NAMES or not values.size:
        return ""
    west, east = int((values < 0.0).sum()), int((values > 180.0).sum())
    if not (west and east):
        return ""
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
    bits = np.ascontiguousarray(rows + 0.0).view(np.uint64)  # + 0.0: -0.0 equals 0.0
    hashes = np.zeros(len(rows), dtype=np.uint64)
    for column in bits.T:
        hashes ^= column
        hashes *= np.uint64(0x9E3779B97F4A7C15)
        hashes ^= hashes >> np.uint64(29)
    count = len(rows) - len(np.unique(hashes))
    return count if count >= DUPLICATED_LEAST and count > DUPLICATED_SHARE * len(rows) else 0


def refuse_suspicious(columns: Array, names: Sequence[str], where: str, *, fills: bool) -> None:
    """One clear error for fill values (unless they were dealt with) and mixed longitudes in the columns of a table."""
    for name, values in zip(names, columns.T, strict=True):
        found = fill_value(values) if fills else None
        if found is not None:
            value = f"{found[0]:.10g}"
            raise InputError(
                f"{where}: column {name!r} has the value {value} {found[1]} times, far from all others: is it a fill "
                f"value? Say so (fill=[{value}], on the command line --fill {value}), and its rows count as missing; "
                "or say that all values are real (fill=[], --fill none)"
            )
        mixed = mixed_longitudes(name, values[np.isfinite(values)])
        if mixed:
            raise InputError(f"{where}: {mixed}")


def told_suspicions(inputs: Array, observations: Array, names: Sequence[str]) -> list[str]:
    """The same as sentences, for data that did not come from a file; and rows that come twice."""
    told = []
    for name, values in zip((*names, "y"), (*inputs.T, observations), strict=True):
        found = fill_value(values)
        if found is not None:
            told.append(
                f"{name} has the value {found[0]:.10g} {found[1]} times, far from all others: if it is a fill value, "
                "remove these rows"
            )
        mixed = mixed_longitudes(name, values)
        if mixed:
            told.append(mixed)
    copies = duplicated_rows(np.column_stack([inputs, observations]))
    if copies:
        told.append(
            f"{copies} of {len(observations)} rows are exact copies of others: sigma_eps will come out too small. "
            "Remove them, unless they were really measured again"
        )
    return told
