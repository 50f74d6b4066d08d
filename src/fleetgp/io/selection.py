"""A part of a gridded field: a date, a box of the map, every so many-th cell. The same for fields read as a whole and
for those read in blocks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.errors import InputError, shortened
from fleetgp.validation import as_numbers, check_number, check_whole

#: Names under which products keep their axes.
LATITUDES = ("lat", "latitude", "nav_lat", "y")
LONGITUDES = ("lon", "longitude", "nav_lon", "x")
#: A face of a box that is on the grid belongs to it.
HAIR = 1e-6
#: Days that an error lists.
LISTED = 12


@dataclass(frozen=True)
class OnMap:
    """Which cells of a field: the names of its axes, positions along them in ascending order of the coordinates, and
    these, longitudes from -180 to 180.
    """

    latitude: str
    longitude: str
    rows: IntArray
    columns: IntArray
    north: Array
    east: Array


def on_map(field: Any, box: Sequence[float] | None, stride: int | None, path: object) -> OnMap:
    """The cells in a box (west, south, east, north), every so many-th of them along both axes; or one clear error."""
    step = 1 if stride is None else stride
    check_whole("stride", step, least=1)
    latitude, longitude = _axis(field, LATITUDES, path), _axis(field, LONGITUDES, path)
    north, east = (np.asarray(field[axis], dtype=float) for axis in (latitude, longitude))
    if north.ndim != 1 or east.ndim != 1:
        raise InputError(f"{path}: expected a latitude for each row and a longitude for each column of the field")
    east = turned(east)
    rows, columns = np.argsort(north, kind="stable"), np.argsort(east, kind="stable")
    if box is not None:
        sides = check_box(box)
        low, high = np.array(sides[:2]) - HAIR, np.array(sides[2:]) + HAIR
        kept = rows[(north[rows] >= low[1]) & (north[rows] <= high[1])]
        across = columns[(east[columns] >= low[0]) & (east[columns] <= high[0])]
        if not (len(kept) and len(across)):
            ends = (columns, east), (rows, north)
            have = [float(values[order[end]]) for end in (0, -1) for order, values in ends]
            raise InputError(f"{path}: nothing lies in the box {list(box)}; the file covers {have}")
        rows, columns = kept, across
    rows, columns = rows[::step], columns[::step]
    return OnMap(latitude, longitude, rows, columns, north[rows], east[columns])


def nearest_cells(have: Array, wanted: Array) -> IntArray:
    """The position of the nearest of some coordinates (n,) to each wanted value; -1 beyond half a cell of their ends.

    >>> nearest_cells(np.array([2.0, 1.0, 0.0]), np.array([-0.5, 0.4, 0.6, 2.5, 2.6])).tolist()
    [2, 2, 1, 0, -1]
    """
    order = np.argsort(have, kind="stable")
    known = have[order]
    halves = 0.5 * np.diff(known)
    nearest = np.searchsorted(known[:-1] + halves, wanted)
    first, last = (halves[0], halves[-1]) if len(halves) else (0.0, 0.0)
    hair = HAIR * max(first, last, abs(float(known[0])) * HAIR)
    outside = (wanted < known[0] - first - hair) | (wanted > known[-1] + last + hair)
    return np.asarray(np.where(outside, -1, order[nearest]))


def indexer(positions: IntArray) -> slice | IntArray:
    """As a slice where they are evenly spaced: files are read faster by them.

    >>> indexer(np.array([4, 2, 0])), indexer(np.array([7])), indexer(np.array([0, 1, 3])).tolist()
    (slice(4, None, -2), slice(7, 8, 1), [0, 1, 3])
    """
    if len(positions) == 1:
        return slice(int(positions[0]), int(positions[0]) + 1, 1)
    first, last, step = int(positions[0]), int(positions[-1]), int(positions[1] - positions[0])
    if step == 0 or (np.diff(positions) != step).any():
        return positions
    end = last + (1 if step > 0 else -1)
    return slice(first, end if end >= 0 else None, step)


def turned(longitudes: Array) -> Array:
    """From -180 to 180."""
    return np.where(longitudes > 180.0, longitudes - 360.0, longitudes)


def check_box(box: Sequence[float]) -> tuple[float, float, float, float]:
    """west, south, east, north with longitudes up to 180, or one clear error."""
    sides = as_numbers(box, "box")
    if sides.shape != (4,):
        raise InputError(f"box must be four numbers: west, south, east, north, got {shortened(box)}")
    west, south, east, north = sides.tolist()
    if not (west < east and south < north):
        raise InputError(f"box must be west < east and south < north, got {list(box)}")
    if west >= 180.0:
        west, east = west - 360.0, east - 360.0
    if west < -180.0 or east > 180.0:
        raise InputError(f"box {list(box)} crosses the date line or is out of the world: ask for it in two parts")
    return west, south, east, north


def moments_of(field: Any, date: str | None, path: object) -> tuple[list[str], IntArray]:
    """The times of a field as text, and the positions of those of a date, which has some; without a date all.

    No times, and no positions, where a field has none.
    """
    if "time" not in field.coords and "time" not in field.dims:
        if date is not None:
            raise InputError(f"{path}: a date was asked for, but the file has no time: leave it out")
        return [], np.zeros(0, dtype=np.int64)
    if "time" not in field.coords:
        raise InputError(f"{path}: its axis of time has no dates: select one of its {field.sizes['time']} fields first")
    moments = [str(moment).replace(" ", "T")[:19] for moment in np.atleast_1d(field["time"].values)]
    wanted = "" if date is None else _moment(date)
    found = [position for position, moment in enumerate(moments) if moment.startswith(wanted)]
    if not found:
        raise InputError(f"{path}: no field of {date}; it has {listed(moments)}")
    return moments, np.array(found)


def at_value(field: Any, name: str, value: object, path: object) -> tuple[int, str]:
    """The position along an axis of the cell nearest to a value, within half a cell, and what is said of it.

    A time is chosen by the beginning of its text, "2021-01-05" or "2021-01-05T12".
    """
    if name not in field.coords:
        axes = ", ".join(map(str, field.dims))
        raise InputError(f"{path}: at: there is no axis {name!r} with coordinates; the field runs over {axes}")
    have = np.atleast_1d(np.asarray(field[name].values))
    if have.ndim != 1:
        raise InputError(f"{path}: at: {name!r} has more than one axis: expected a coordinate along one")
    if have.dtype.kind == "M":
        moments = [str(moment)[:19] for moment in have]
        wanted = _moment(value)
        found = [position for position, moment in enumerate(moments) if moment.startswith(wanted)]
        if len(found) != 1:
            which = [moments[position] for position in found] or moments
            raise InputError(
                f"{path}: at: expected one {name} of {value}, got {len(found)}; it has {listed(which)}: choose one"
            )
        return found[0], f"{name} is {moments[found[0]].removesuffix('T00:00:00')}"
    check_number(f"at: {name}", value)
    number = float(str(value))
    position = int(nearest_cells(as_numbers(have, f"{path}: {name}"), np.array([number]))[0])
    if position < 0:
        ends = f"from {have.min():g} to {have.max():g}" if len(have) > 1 else f"the value {have[0]:g} only"
        raise InputError(f"{path}: at: no {name} within half a cell of {number:g}: it has {ends}")
    near = "" if have[position] == number else f", the nearest to {number:g}"
    return position, f"{name} is {have[position]:g}{near}"


def listed(moments: Sequence[str]) -> str:
    """The days, or the times where a day has several; not all of very many."""
    days = [moment[:10] for moment in moments]
    names = days if len(set(days)) == len(days) else [moment[:16] for moment in moments]
    few = names if len(names) <= LISTED else [*names[: LISTED - 1], "...", names[-1]]
    return ", ".join(few)


def _moment(date: object) -> str:
    """A date as it is written: a day, or a day and the beginning of a time."""
    text = str(date).strip().replace(" ", "T")
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}(T[\d:]*)?.*", text):
        raise InputError(f"date must be like 2021-01-31 or 2021-01-31T12, got {date!r}")
    return text[:19]


def _axis(field: Any, names: Sequence[str], path: object) -> str:
    for name in names:
        if name in field.dims:
            return name
    raise InputError(f"{path}: expected an axis {' or '.join(names)}, got {list(field.dims)}")
