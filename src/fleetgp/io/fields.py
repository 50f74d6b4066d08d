"""Fields in NetCDF and Zarr, and xarray datasets, as tables: a row for each cell with a value. Needs the extra "data".

Cells are chosen before they are read: a date, a box, a stride, values of other axes. Inputs are coordinates, or other
variables, over some of the field's axes. `load_sst` reads a map of sea-surface temperatures as a grid.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.errors import InputError, shortened
from fleetgp.io.formats import Columns, Reading, Table, check_names, reading_errors
from fleetgp.validation import as_numbers, as_path, check_number, check_whole

#: Names under which products keep their axes.
LATITUDES = ("lat", "latitude", "nav_lat", "y")
LONGITUDES = ("lon", "longitude", "nav_lon", "x")
#: A face of a box that is on the grid belongs to it.
HAIR = 1e-6
#: Days that an error lists.
LISTED = 12


@dataclass(frozen=True)
class MapCells:
    """Cells of a field: the names of its axes, positions along them in ascending order of the coordinates, and the
    coordinates, longitudes from -180 to 180.
    """

    latitude: str
    longitude: str
    rows: IntArray
    columns: IntArray
    north: Array
    east: Array


def on_map(field: Any, box: Sequence[float] | None, stride: int | None, path: object) -> MapCells:
    """Return the cells in a box (west, south, east, north), every `stride`-th along both axes."""
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
    return MapCells(latitude, longitude, rows, columns, north[rows], east[columns])


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


def times_of(field: Any, date: str | None, path: object) -> tuple[list[str], IntArray]:
    """Return the times of a field as text, and the positions of those on a date, or of all without a date.

    A field without times has none of both; a date without a field is an error.
    """
    if "time" not in field.coords and "time" not in field.dims:
        if date is not None:
            raise InputError(f"{path}: a date was asked for, but the file has no time: leave it out")
        return [], np.zeros(0, dtype=np.int64)
    if "time" not in field.coords:
        raise InputError(f"{path}: its axis of time has no dates: select one of its {field.sizes['time']} fields first")
    times = [str(time).replace(" ", "T")[:19] for time in np.atleast_1d(field["time"].values)]
    wanted = "" if date is None else _time_text(date)
    result = [position for position, time in enumerate(times) if time.startswith(wanted)]
    if not result:
        raise InputError(f"{path}: no field of {date}; it has {listed(times)}")
    return times, np.array(result)


def at_value(field: Any, name: str, value: object, path: object) -> tuple[int, str]:
    """Return the position along an axis of the cell nearest to a value, within half a cell, and a note on the choice.

    A time is chosen by the beginning of its text, "2021-01-05" or "2021-01-05T12".
    """
    if name not in field.coords:
        axes = ", ".join(map(str, field.dims))
        raise InputError(f"{path}: at: there is no axis {name!r} with coordinates; the field runs over {axes}")
    have = np.atleast_1d(np.asarray(field[name].values))
    if have.ndim != 1:
        raise InputError(f"{path}: at: {name!r} has more than one axis: expected a coordinate along one")
    if have.dtype.kind == "M":
        times = [str(time)[:19] for time in have]
        wanted = _time_text(value)
        result = [position for position, time in enumerate(times) if time.startswith(wanted)]
        if len(result) != 1:
            which = [times[position] for position in result] or times
            raise InputError(
                f"{path}: at: expected one {name} of {value}, got {len(result)}; it has {listed(which)}: choose one"
            )
        return result[0], f"{name} is {times[result[0]].removesuffix('T00:00:00')}"
    check_number(f"at: {name}", value)
    number = float(str(value))
    position = int(nearest_cells(as_numbers(have, f"{path}: {name}"), np.array([number]))[0])
    if position < 0:
        ends = f"from {have.min():g} to {have.max():g}" if len(have) > 1 else f"the value {have[0]:g} only"
        raise InputError(f"{path}: at: no {name} within half a cell of {number:g}: it has {ends}")
    near = "" if have[position] == number else f", the nearest to {number:g}"
    return position, f"{name} is {have[position]:g}{near}"


def listed(times: Sequence[str]) -> str:
    """The days, or the times where a day has several; not all of very many."""
    days = [time[:10] for time in times]
    names = days if len(set(days)) == len(days) else [time[:16] for time in times]
    few = names if len(names) <= LISTED else [*names[: LISTED - 1], "...", names[-1]]
    return ", ".join(few)


def _time_text(date: object) -> str:
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


#: Names under which products keep the temperature of the sea's surface.
VARIABLES = ("analysed_sst", "sst", "sea_surface_temperature", "SST")
KELVIN = 273.15
#: How units are written, without blanks, underscores and plurals.
KELVIN_UNITS = ("k", "kelvin", "degk", "degreek", "degreekelvin", "degkelvin")
CELSIUS_UNITS = ("c", "celsius", "degc", "°c", "degreec", "degreecelsius", "degcelsius", "centigrade",
                 "degreecentigrade")  # fmt: skip


def is_kelvin(units: str) -> bool:
    """Whether these are the units of a temperature in kelvin.

    >>> is_kelvin("degrees_K"), is_kelvin("degC"), is_kelvin("")
    (True, False, False)
    """
    return _plain(units) in KELVIN_UNITS


def is_celsius(units: str) -> bool:
    """Whether these are the units of a temperature in degrees Celsius.

    >>> is_celsius("degrees C"), is_celsius("K")
    (True, False)
    """
    return _plain(units) in CELSIUS_UNITS


def _plain(units: str) -> str:
    return re.sub(r"[\s_.]|(?<=degree)s", "", units.lower())


def shift_to_celsius(values: Array, units: str, path: object) -> tuple[float, str]:
    """Return what to add to temperatures, and a note on it, empty where nothing is added.

    Without units a median above 100 means kelvin: no sea is that warm in degrees Celsius.
    """
    if is_kelvin(units):
        return -KELVIN, "temperatures converted from K to degrees Celsius"
    if units and not is_celsius(units):
        raise InputError(
            f"{path}: expected temperatures in K or degrees Celsius, got the units {units!r}: convert them"
        )
    if not units and float(np.nanmedian(values)) > 100.0:
        why = "the file gives no units, but no sea is that warm"
        return -KELVIN, f"temperatures converted from K to degrees Celsius ({why})"
    return 0.0, ""


#: More points than these are not read at once: 4 GB.
MOST_POINTS = 500_000_000


@dataclass(frozen=True)
class SeaSurface:
    """celsius (lat, lon), NaN over land and where nothing is known; lat ascending, lon ascending, degrees.

    product: what the file says it is.  date: of the field, as in the file; empty if it has none.
    converted: what was done to the temperatures of the file; empty if nothing was.

    >>> field = SeaSurface(np.array([40.0, 41.0]), np.array([5.0]), np.array([[15.5], [np.nan]]), "MUR", "2021-01-03")
    >>> [part.tolist() for part in field.points()]
    [[[5.0, 40.0]], [15.5]]
    """

    latitude: Array
    longitude: Array
    celsius: Array
    product: str
    date: str
    converted: str = ""

    def points(self) -> tuple[Array, Array]:
        """(lon, lat) (N, 2) and temperature (N,) of the places where it is known."""
        longitude, latitude = np.meshgrid(self.longitude, self.latitude)
        known = np.isfinite(self.celsius)
        return np.column_stack([longitude[known], latitude[known]]), self.celsius[known]


def load_sst(
    path: str | Path,
    *,
    box: Sequence[float] | None = None,
    date: str | None = None,
    variable: str | None = None,
    stride: int = 1,
) -> SeaSurface:
    """Read one field from a NetCDF file.

    box: west, south, east, north in degrees; longitudes may run to 180 or to 360.  date: chooses one of several fields,
    for example "2021-01-05", or "2021-01-05T12" where a day has several.  stride: every nth row and column. Kelvin are
    converted to degrees Celsius, and `converted` has a note on it.

    >>> load_sst("nowhere.nc")
    Traceback (most recent call last):
    fleetgp.errors.InputError: nowhere.nc: there is no such file
    """
    with _opened_netcdf(path) as data:
        field = _variable(data, variable, path)
        product = str(data.attrs.get("title") or data.attrs.get("id") or Path(path).stem)
        field, day = _one_day(field, date, path)
        if field.ndim != 2:
            sizes = ", ".join(f"{name} ({size})" for name, size in field.sizes.items())
            raise InputError(
                f"{path}: expected a field over latitude and longitude, got one over {sizes}: select first"
            )
        part = on_map(field, box, stride, path)
        field = field.transpose(part.latitude, part.longitude).isel(
            {part.latitude: indexer(part.rows), part.longitude: indexer(part.columns)}
        )
        if field.size > MOST_POINTS:
            raise InputError(f"{path}: the field has {field.size:,} points: give a box or a stride (--box, --stride)")
        values = np.asarray(field.values, dtype=float)
        if not np.isfinite(values).any():
            raise InputError(f"{path}: no known temperature in {'the box' if box is not None else 'the file'}")
        shift, converted = shift_to_celsius(values, str(field.attrs.get("units", "")), path)
        return SeaSurface(part.north, part.east, values + shift, product, day, converted)


def xarray() -> Any:
    """The library, or one error that names the extra."""
    try:
        import xarray as xr
    except ImportError as error:
        raise InputError('NetCDF needs xarray: pip install "fleetgp[data]"') from error
    return xr


def _opened_netcdf(path: str | Path) -> Any:
    file = as_path(path, "path")
    if not file.is_file():
        raise InputError(f"{path}: there is no such file")
    xr = xarray()
    try:
        return xr.open_dataset(file)  # scale, offset and fill values are applied
    except (OSError, ValueError) as error:
        why = "it is none" if isinstance(error, ValueError) else error
        raise InputError(f"{path}: it cannot be read as NetCDF: {why}") from error


def _variable(data: Any, name: str | None, path: str | Path) -> Any:
    wanted = (name,) if name is not None else VARIABLES
    for candidate in wanted:
        if candidate in data.variables:
            return data[candidate]
    raise InputError(f"{path}: no variable {' or '.join(wanted)}; it has {sorted(map(str, data.data_vars))}")


def _one_day(field: Any, date: str | None, path: str | Path) -> tuple[Any, str]:
    """The field of one date, without axes of length one."""
    times, result = times_of(field, date, path)
    if not times:
        return field.squeeze(drop=True), ""
    if len(result) > 1:
        several = [times[position] for position in result]
        raise InputError(f"{path}: {len(result)} fields, of {listed(several)}: give one as date (--date)")
    if "time" in field.dims:
        field = field.isel(time=result[0], drop=True)
    return field.squeeze(drop=True), times[result[0]][:10]


#: Stored blocks of up to so many cells are read as they are stored: each is unpacked once.
MOST_STORED = 1 << 22
#: The axis whose cells may be observations at the same places, where files are read in chunks.
TIME = "time"


def field_chunks(file: Path, columns: Columns, rows: int) -> Iterator[Table]:
    """Yield blocks of the cells that `parts_of` reads from a file."""
    with opened(file) as data:
        yield from parts_of(data, columns.all, columns.targets, columns.reading, file, rows, repeated=(TIME,))


def read_field(file: Path, names: Sequence[str], targets: Sequence[str], reading: Reading) -> Table:
    """Read a file as a table. targets: variables, one of which at least must be known in a cell.

    Without targets the rows are points: all cells that the names run over; in a file with a sea-surface temperature the
    cells where it is known; in a table with one axis with all other columns.
    """
    with reading_errors(file), opened(file) as data:
        return table_of(data, names, targets, reading, file)


def table_of(data: Any, names: Sequence[str], targets: Sequence[str], reading: Reading, where: object) -> Table:
    """Return the cells of a dataset that `parts_of` reads as one table."""
    chosen, wanted = list(names), list(targets)
    if not wanted:
        wanted, more = _beside(data, chosen)
        chosen += more
    parts = list(parts_of(data, chosen, wanted, reading, where, MOST_POINTS))
    columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in chosen}
    empty = sum(part.empty for part in parts)
    notes = dict.fromkeys(note for part in parts for note in part.notes)
    return Table(columns, (*notes, *describe_empty_cells(empty if targets else 0)), parts[0].units)


def describe_empty_cells(cells: int) -> tuple[str, ...]:
    """Return the note on cells without a value.

    >>> describe_empty_cells(1), describe_empty_cells(0)
    (('1 cell holds nothing, and is no observation',), ())
    """
    if cells == 1:
        return ("1 cell holds nothing, and is no observation",)
    return (f"{cells:,} cells hold nothing, and are no observations",) if cells else ()


def opened(file: Path) -> Any:
    """The dataset of a file."""
    zarr: dict[str, Any] = {"engine": "zarr", "chunks": None, "consolidated": False}
    return xarray().open_dataset(file, **(zarr if file.suffix.lower() == ".zarr" else {}))


def parts_of(
    data: Any,
    names: Sequence[str],
    targets: Sequence[str],
    reading: Reading,
    where: object,
    rows: int,
    repeated: Sequence[str] = (),
) -> Iterator[Table]:
    """Yield the cells chosen by `reading` (date, box, stride, values of other axes), `rows` of them at a time.

    targets: names one of which must be known in a cell; with a single axis every cell is a row.
    where: for errors.  repeated: axes that no name has to run over.
    """
    data = data.rename(_aliases(data, names))
    check_names(where, names, [str(name) for name in data.variables], reading)
    field = data[targets[0]] if targets else xarray().broadcast(*(data[name] for name in names))[0]
    _check_axes(data, names, field, targets, where)
    data, cells, notes = _selected(data, field, reading, where)
    _refuse_uncovered(data, [name for name in names if name not in targets], field, cells, where, repeated)
    if not repeated and prod(len(own) for own in cells) > MOST_POINTS:
        raise InputError(f"{where}: {field.size:,} cells are too many: give a box or a stride (--box, --stride)")
    celsius = {name: Celsius(where, name, str(data[name].attrs.get("units", "")), reading.celsius) for name in targets}
    units = {name: str(data[name].attrs.get("units", "")) for name in names}
    units |= {name: one.units for name, one in celsius.items()}
    stored = field.encoding.get("chunksizes") or field.encoding.get("chunks")
    for block in _blocks([len(own) for own in cells], _steps(cells, stored, rows)):
        places = {axis: indexer(own[part]) for axis, own, part in zip(field.dims, cells, block, strict=True)}
        shape = tuple(part.stop - part.start for part in block)
        values = {name: _values(data[name], field.dims, places, shape) for name in names}
        known = np.ones(prod(shape), dtype=bool)
        if targets and field.ndim > 1:
            known = np.logical_or.reduce([_known(values[name]) for name in targets])
        values = {name: column[known] for name, column in values.items()}
        converted: list[str] = []
        for name, one in celsius.items():
            values[name], note = one.of(values[name])
            converted += note
        yield Table(values, (*notes, *converted), units, int((~known).sum()))


def _check_axes(data: Any, names: Sequence[str], field: Any, targets: Sequence[str], where: object) -> None:
    """Refuse names that run over axes that the field does not have."""
    for name in names:
        strange = [str(axis) for axis in data[name].dims if axis not in field.dims]
        if strange:
            raise InputError(
                f"{where}: {name!r} runs over {', '.join(strange)}, which {targets[0]!r} does not: expected inputs "
                f"over the axes of the target, {', '.join(map(str, field.dims))}"
            )


def _refuse_uncovered(
    data: Any, names: Sequence[str], field: Any, cells: Sequence[IntArray], where: object, repeated: Sequence[str]
) -> None:
    """Refuse an axis along which all rows would have the same inputs."""
    covered = {axis for name in names for axis in data[name].dims} | set(repeated)
    for axis, own in zip(field.dims, cells, strict=True):
        if axis in covered or len(own) < 2:
            continue
        if axis == TIME and TIME in field.coords:
            times, _ = times_of(field, None, where)
            several = listed([times[position] for position in own])
            raise InputError(
                f"{where}: {len(own)} fields, of {several}: give one as date (--date), or make time an input"
            )
        raise InputError(
            f"{where}: {field.name!r} has {len(own)} cells along {axis}, which is no input: make it one, or choose a "
            f'value, at={{"{axis}": ..}} (on the command line --at {axis}=..)'
        )


def _beside(data: Any, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return, for points, the variables that must be known in a cell, and further columns to read."""
    axes = {axis for name in names if name in data.variables for axis in data[name].dims}
    temperatures = [name for name in VARIABLES if name in data.variables and set(data[name].dims) >= axes]
    if temperatures and len(axes) > 1:
        return ["sst"], ["sst"]
    others = [str(name) for name in data.variables if len(axes) == 1 and set(data[name].dims) == axes]
    return [], [name for name in others if name not in names and name not in axes]


class Celsius:
    """Converts a target from kelvin to degrees Celsius if wanted, or else notes its unit.

    Where a sea-surface temperature has no units, the first values decide for the whole file.
    """

    def __init__(self, where: object, target: str, units: str, wanted: bool) -> None:
        self._file, self._target, self._given, self._wanted = where, target, units, wanted
        self._is_temperature = target in VARIABLES or is_kelvin(units)
        self.units = "degC" if wanted and self._is_temperature else units
        self._shift: tuple[float, str] | None = None

    def of(self, values: Any) -> tuple[Any, tuple[str, ...]]:
        """The values, and notes on them."""
        if not self._is_temperature or values.dtype.kind not in "fiu" or not np.isfinite(values).any():
            return values, ()
        if not self._wanted:
            as_given = f"{self._target} is in {self._given}, as in the data: celsius=True (--celsius) converts it"
            return values, (as_given,) if is_kelvin(self._given) else ()
        if self._shift is None:
            self._shift = shift_to_celsius(values, self._given, self._file)
        shift, note = self._shift
        return (values + shift, (note,)) if shift else (values, ())


def _aliases(data: Any, names: Sequence[str]) -> dict[str, str]:
    """Return new names for the variables that the file calls otherwise than sst, lon and lat."""
    kinds = {"sst": VARIABLES, "lon": LONGITUDES[:-1], "lat": LATITUDES[:-1]}
    asked = [name for name in kinds if name in names and name not in data.variables]
    result = {name: next((other for other in kinds[name] if other in data.variables), None) for name in asked}
    return {other: name for name, other in result.items() if other is not None and other not in names}


def _selected(data: Any, field: Any, reading: Reading, where: object) -> tuple[Any, list[IntArray], tuple[str, ...]]:
    """Return the data, the positions to read along each axis of the field, and notes on what was chosen."""
    chosen: dict[Any, IntArray] = {axis: np.arange(size) for axis, size in field.sizes.items()}
    notes: list[str] = []
    if reading.date is not None:
        _, result = times_of(field, reading.date, where)
        if TIME in field.dims:
            chosen[TIME] = result
    if reading.box is not None or reading.stride is not None:
        part = on_map(field, reading.box, reading.stride, where)
        chosen[part.latitude], chosen[part.longitude] = np.sort(part.rows), np.sort(part.columns)
        east = np.asarray(field[part.longitude], dtype=float)
        if reading.box is not None and (turned(east) != east).any():
            facts = data[part.longitude].attrs
            data = data.assign_coords({part.longitude: (part.longitude, turned(east), facts)})
            notes.append("longitudes above 180 are those west of Greenwich, below 0")
    for name, value in (reading.at or {}).items():
        position, note = at_value(field, name, value, where)
        if name in field.dims:
            chosen[name] = np.array([position])
        notes.append(note)
    return data, [chosen[axis] for axis in field.dims], tuple(notes)


def _steps(cells: Sequence[IntArray], stored: Sequence[int] | None, rows: int) -> list[int]:
    """Return the length of a block along each axis: as stored, and extended from the last axis on to `rows` cells.

    >>> cells = [np.arange(10), np.arange(200), np.arange(300)]
    >>> _steps(cells, None, 1000), _steps(cells, (1, 50, 100), 20_000), _steps([np.arange(5)], None, 1000)
    ([1, 3, 300], [1, 50, 300], [5])
    >>> _steps([np.arange(0, 200, 2), np.arange(0, 300, 2)], (50, 100), 5000)
    [25, 150]
    """
    sizes = [len(own) for own in cells]
    if stored is not None and len(stored) == len(sizes):  # as many of the cells that are wanted as are in a block
        apart = [int(own[1] - own[0]) if len(own) > 1 else 1 for own in cells]
        stored = [max(1, size // step) for size, step in zip(stored, apart, strict=True)]
    known = stored is not None and len(stored) == len(sizes) and prod(stored) <= MOST_STORED
    steps = [min(pair) for pair in zip(stored, sizes, strict=True)] if known and stored else [1] * len(sizes)
    for axis in reversed(range(len(sizes))):
        most = max(1, rows // prod(steps))
        steps[axis] = min(sizes[axis], steps[axis] * most)
    return [max(1, step) for step in steps]


def _blocks(sizes: Sequence[int], steps: Sequence[int]) -> Iterator[tuple[slice, ...]]:
    for starts in product(*(range(0, size, step) for size, step in zip(sizes, steps, strict=True))):
        yield tuple(
            slice(start, min(start + step, size)) for start, step, size in zip(starts, steps, sizes, strict=True)
        )


def _values(variable: Any, axes: Sequence[Any], where: Mapping[Any, slice | IntArray], shape: tuple[int, ...]) -> Any:
    """A variable's values at all cells of a block, (n,)."""
    own = [axis for axis in axes if axis in variable.dims]
    result = np.asarray(variable.transpose(*own).isel({axis: where[axis] for axis in own}).values)
    if result.dtype.kind == "S":
        result = np.char.decode(result, "utf-8", "replace")
    lengths = iter(result.shape)
    spread = result.reshape([next(lengths) if axis in variable.dims else 1 for axis in axes])
    return np.broadcast_to(spread, shape).ravel()


def _known(values: Any) -> BoolArray:
    """Which cells hold a value: land has no sea-surface temperature."""
    return np.asarray(~np.isnan(values)) if values.dtype.kind == "f" else np.ones(values.shape, dtype=bool)


def read_mask(path: str | Path, names: Sequence[str]) -> Any:
    """Return the only field of a file over two axes, as a DataArray. names: of the axes."""
    with _opened_netcdf(path) as data:
        fields = {str(name): named_as(field.squeeze(drop=True), names) for name, field in data.data_vars.items()}
        over = [name for name, field in fields.items() if set(field.dims) == set(names)]
        if len(over) != 1:
            got = f"{len(over)} ({', '.join(over)}): keep one" if over else f"none; it has {', '.join(fields)}"
            raise InputError(f"{path}: expected one variable over {' and '.join(names)}, got {got}")
        return fields[over[0]].load()


def named_as(field: Any, names: Sequence[str]) -> Any:
    """Rename the axes of longitude and latitude of a field to those of `names`.

    >>> import xarray as xr
    >>> named_as(xr.DataArray([[1, 0]], dims=("latitude", "x1")), ["lon", "lat"]).dims
    ('lat', 'x1')
    """
    result = {}
    for kind in (LONGITUDES[:-1], LATITUDES[:-1]):
        wanted = next((name for name in names if name in kind), None)
        have = next((axis for axis in field.dims if axis in kind), None)
        if wanted is not None and have is not None and have != wanted and wanted not in field.coords:
            result[have] = wanted
    return field.rename(result) if result else field
