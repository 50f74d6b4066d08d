"""NetCDF and Zarr as tables: a row for each cell of a field that holds a value. As a whole, or block by block.

Inputs are coordinates, or other variables, over some of the field's axes. Needs the extra "data" (xarray).

Where a map shall be: a field in a NetCDF file that is 0 or missing elsewhere. Needs the extra "data" (xarray).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from fleetgp.arrays import BoolArray, IntArray
from fleetgp.errors import InputError
from fleetgp.io.formats import Columns, Part, Reading, Table, check_names, reading_errors
from fleetgp.io.selection import LATITUDES, LONGITUDES, at_value, indexer, listed, moments_of, on_map, turned
from fleetgp.io.sst import MOST_POINTS, VARIABLES, is_kelvin, shift_to_celsius, xarray

#: Stored blocks of up to so many cells are read as they are stored: each is unpacked once.
MOST_STORED = 1 << 22
#: The axis whose cells may be observations at the same places, where files are read in chunks.
TIME = "time"


def field_chunks(file: Path, columns: Columns, rows: int) -> Iterator[Part]:
    """The cells of a date, of a box and of a stride that hold a value."""
    with opened(file) as data:
        yield from parts_of(data, columns.all, [columns.target], columns.reading, file, rows, repeated=(TIME,))


def read_field(file: Path, names: Sequence[str], targets: Sequence[str], reading: Reading) -> Table:
    """The same as a whole, as a table. targets: what must be known of a cell, one of them at least.

    Without targets these are points: all cells that the names run over; of a file with a temperature of the sea, those
    where it is known; of a table with one axis its other columns, too.
    """
    with reading_errors(file), opened(file) as data:
        return table_of(data, names, targets, reading, file)


def table_of(data: Any, names: Sequence[str], targets: Sequence[str], reading: Reading, where: object) -> Table:
    """The cells of a dataset that hold a value."""
    chosen, wanted = list(names), list(targets)
    if not wanted:
        wanted, more = _beside(data, chosen)
        chosen += more
    parts = list(parts_of(data, chosen, wanted, reading, where, MOST_POINTS))
    columns = {name: np.concatenate([part.values[name] for part in parts]) for name in chosen}
    empty = sum(part.empty for part in parts)
    notes = dict.fromkeys(note for part in parts for note in part.notes)
    return Table(columns, (*notes, *told_of_empty(empty if targets else 0)), parts[0].units)


def told_of_empty(cells: int) -> tuple[str, ...]:
    """What is said of cells without a value.

    >>> told_of_empty(1), told_of_empty(0)
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
) -> Iterator[Part]:
    """The cells of a date, of a box, of a stride and at values of other axes, some at a time.

    targets: some of the names; a cell is a row if one of them is known there, or all are where there is one axis.
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
        told: list[str] = []
        for name, one in celsius.items():
            values[name], said = one.of(values[name])
            told += said
        yield Part(values, int((~known).sum()), units, (*notes, *told))


def _check_axes(data: Any, names: Sequence[str], field: Any, targets: Sequence[str], where: object) -> None:
    """One clear error where a name runs over what the field does not."""
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
    """One clear error for an axis along which all rows would have the same inputs."""
    covered = {axis for name in names for axis in data[name].dims} | set(repeated)
    for axis, own in zip(field.dims, cells, strict=True):
        if axis in covered or len(own) < 2:
            continue
        if axis == TIME and TIME in field.coords:
            moments, _ = moments_of(field, None, where)
            several = listed([moments[position] for position in own])
            raise InputError(
                f"{where}: {len(own)} fields, of {several}: give one as date (--date), or make time an input"
            )
        raise InputError(
            f"{where}: {field.name!r} has {len(own)} cells along {axis}, which is no input: make it one, or choose a "
            f'value, at={{"{axis}": ..}} (on the command line --at {axis}=..)'
        )


def _beside(data: Any, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """What else is read where names are those of points: what must be known, and further columns."""
    axes = {axis for name in names if name in data.variables for axis in data[name].dims}
    temperatures = [name for name in VARIABLES if name in data.variables and set(data[name].dims) >= axes]
    if temperatures and len(axes) > 1:
        return ["sst"], ["sst"]
    others = [str(name) for name in data.variables if len(axes) == 1 and set(data[name].dims) == axes]
    return [], [name for name in others if name not in names and name not in axes]


class Celsius:
    """A target that is converted from kelvin to degrees Celsius if that is wanted; else a note has its unit.

    Where a sea-surface temperature has no units the first values decide, for the whole file.
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
        shift, said = self._shift
        return (values + shift, (said,)) if shift else (values, ())


def _aliases(data: Any, names: Sequence[str]) -> dict[str, str]:
    """sst, lon and lat are what `load_sst` calls them, whatever their names in the file."""
    kinds = {"sst": VARIABLES, "lon": LONGITUDES[:-1], "lat": LATITUDES[:-1]}
    asked = [name for name in kinds if name in names and name not in data.variables]
    found = {name: next((other for other in kinds[name] if other in data.variables), None) for name in asked}
    return {other: name for name, other in found.items() if other is not None and other not in names}


def _selected(data: Any, field: Any, reading: Reading, where: object) -> tuple[Any, list[IntArray], tuple[str, ...]]:
    """The data, positions along each axis of the field of what is to be read, and what was done or chosen."""
    chosen: dict[Any, IntArray] = {axis: np.arange(size) for axis, size in field.sizes.items()}
    notes: list[str] = []
    if reading.date is not None:
        _, found = moments_of(field, reading.date, where)
        if TIME in field.dims:
            chosen[TIME] = found
    if reading.box is not None or reading.stride is not None:
        part = on_map(field, reading.box, reading.stride, where)
        chosen[part.latitude], chosen[part.longitude] = np.sort(part.rows), np.sort(part.columns)
        east = np.asarray(field[part.longitude], dtype=float)
        if reading.box is not None and (turned(east) != east).any():
            facts = data[part.longitude].attrs
            data = data.assign_coords({part.longitude: (part.longitude, turned(east), facts)})
            notes.append("longitudes above 180 are those west of Greenwich, below 0")
    for name, value in (reading.at or {}).items():
        position, said = at_value(field, name, value, where)
        if name in field.dims:
            chosen[name] = np.array([position])
        notes.append(said)
    return data, [chosen[axis] for axis in field.dims], tuple(notes)


def _steps(cells: Sequence[IntArray], stored: Sequence[int] | None, rows: int) -> list[int]:
    """How long a block is along each axis: as it is stored, and as much more as fits from the last axis on.

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
    found = np.asarray(variable.transpose(*own).isel({axis: where[axis] for axis in own}).values)
    if found.dtype.kind == "S":
        found = np.char.decode(found, "utf-8", "replace")
    lengths = iter(found.shape)
    spread = found.reshape([next(lengths) if axis in variable.dims else 1 for axis in axes])
    return np.broadcast_to(spread, shape).ravel()


def _known(values: Any) -> BoolArray:
    """Which cells hold a value: land has no sea-surface temperature."""
    return np.asarray(~np.isnan(values)) if values.dtype.kind == "f" else np.ones(values.shape, dtype=bool)


def read_mask(path: str | Path, names: Sequence[str]) -> Any:
    """The one field of a file over two axes, as a DataArray; or one clear error. names: of the axes."""
    if not Path(path).is_file():
        raise InputError(f"{path}: there is no such file")
    try:
        data = xarray().open_dataset(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: it cannot be read as NetCDF: {str(error).strip():.200}") from error
    with data:
        fields = {str(name): named_as(field.squeeze(drop=True), names) for name, field in data.data_vars.items()}
        over = [name for name, field in fields.items() if set(field.dims) == set(names)]
        if len(over) != 1:
            told = f"{len(over)} ({', '.join(over)}): keep one" if over else f"none; it has {', '.join(fields)}"
            raise InputError(f"{path}: expected one variable over {' and '.join(names)}, got {told}")
        return fields[over[0]].load()


def named_as(field: Any, names: Sequence[str]) -> Any:
    """A field whose axes of longitude and latitude are called as they are elsewhere.

    >>> import xarray as xr
    >>> named_as(xr.DataArray([[1, 0]], dims=("latitude", "x1")), ["lon", "lat"]).dims
    ('lat', 'x1')
    """
    found = {}
    for kind in (LONGITUDES[:-1], LATITUDES[:-1]):
        wanted = next((name for name in names if name in kind), None)
        have = next((axis for axis in field.dims if axis in kind), None)
        if wanted is not None and have is not None and have != wanted and wanted not in field.coords:
            found[have] = wanted
    return field.rename(found) if found else field
