"""NetCDF and Zarr as tables, block by block: a row for each cell of the target that holds a value. Needs xarray.

Inputs are coordinates, or other variables, over some of the target's axes. Times become days since 1970.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from fleetgp.arrays import IntArray
from fleetgp.errors import InputError
from fleetgp.io.columns import Columns, Part
from fleetgp.io.formats import Reading
from fleetgp.io.selection import LATITUDES, LONGITUDES, indexer, moments_of, on_map, turned
from fleetgp.io.sst import xarray
from fleetgp.io.tables import check_names
from fleetgp.io.temperature import VARIABLES, shift_to_celsius

#: Stored blocks of up to so many cells are read as they are stored: each is unpacked once.
MOST_STORED = 1 << 22
#: What days are counted from.
EPOCH = np.datetime64("1970-01-01", "ns")


def field_chunks(file: Path, columns: Columns, rows: int) -> Iterator[Part]:
    """The cells of a date, of a box and of a stride that hold a value; temperatures of the sea in degrees Celsius."""
    zarr: dict[str, Any] = {"engine": "zarr", "chunks": None, "consolidated": False}
    with xarray().open_dataset(file, **(zarr if file.suffix.lower() == ".zarr" else {})) as data:
        data = data.rename(_aliases(data, columns))
        names, target = columns.all, columns.target
        check_names(file, names, [str(name) for name in data.variables], columns.reading)
        field = data[target]
        for name in names:
            strange = [str(axis) for axis in data[name].dims if axis not in field.dims]
            if strange:
                raise InputError(
                    f"{file}: {name!r} runs over {', '.join(strange)}, which {target!r} does not: expected inputs "
                    f"over the axes of the target, {', '.join(map(str, field.dims))}"
                )
        data, cells, turning = _selected(data, field, columns.reading, file)
        celsius = Celsius(file, target, str(field.attrs.get("units", "")))
        stored = field.encoding.get("chunksizes") or field.encoding.get("chunks")
        for block in _blocks([len(own) for own in cells], _steps(cells, stored, rows)):
            where = {axis: indexer(own[part]) for axis, own, part in zip(field.dims, cells, block, strict=True)}
            shape = tuple(part.stop - part.start for part in block)
            values = {name: _values(data[name], field.dims, where, shape) for name in names}
            known = _known(values[target]) if field.ndim > 1 else np.ones(prod(shape), dtype=bool)
            values = {name: column[known] for name, column in values.items()}
            values[target], notes = celsius.of(values[target])
            units = tuple(str(data[name].attrs.get("units", "")) for name in columns.inputs)
            yield Part(values, int((~known).sum()), (*units, celsius.units), (*turning, *notes))


class Celsius:
    """What a file's temperatures of the sea become, by the rules for a field that is read as a whole; others stay.

    Where there are no units the first values decide, for the whole file.
    """

    def __init__(self, file: Path, target: str, units: str) -> None:
        self._file, self._given, self._is_sst = file, units, target in VARIABLES
        self.units = "degC" if self._is_sst else units
        self._shift: tuple[float, str] | None = None

    def of(self, values: Any) -> tuple[Any, tuple[str, ...]]:
        """The values, and what is said of them."""
        if not self._is_sst or values.dtype.kind not in "fiu" or not np.isfinite(values).any():
            return values, ()
        if self._shift is None:
            self._shift = shift_to_celsius(values, self._given, self._file)
        shift, said = self._shift
        return (values + shift, (said,)) if shift else (values, ())


def _aliases(data: Any, columns: Columns) -> dict[str, str]:
    """sst, lon and lat are what a field that is read as a whole calls them, whatever their names in the file."""
    kinds = {"sst": VARIABLES, "lon": LONGITUDES[:-1], "lat": LATITUDES[:-1]}
    asked = [name for name in kinds if name in columns.numbers and name not in data.variables]
    found = {name: next((other for other in kinds[name] if other in data.variables), None) for name in asked}
    return {other: name for name, other in found.items() if other is not None and other not in columns.all}


def _selected(data: Any, field: Any, reading: Reading, file: Path) -> tuple[Any, list[IntArray], tuple[str, ...]]:
    """The data, positions along each axis of the field of what is to be read, and what was done to the longitudes."""
    chosen: dict[Any, IntArray] = {axis: np.arange(size) for axis, size in field.sizes.items()}
    turning: tuple[str, ...] = ()
    if reading.date is not None:
        _, found = moments_of(field, reading.date, file)
        if "time" in field.dims:
            chosen["time"] = found
    if reading.box is not None or reading.stride is not None:
        part = on_map(field, reading.box, reading.stride, file)
        chosen[part.latitude], chosen[part.longitude] = np.sort(part.rows), np.sort(part.columns)
        east = np.asarray(field[part.longitude], dtype=float)
        if reading.box is not None and (turned(east) != east).any():
            facts = data[part.longitude].attrs
            data = data.assign_coords({part.longitude: (part.longitude, turned(east), facts)})
            turning = ("longitudes above 180 are those west of Greenwich, below 0",)
    return data, [chosen[axis] for axis in field.dims], turning


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
    if found.dtype.kind == "M":
        days = (found - EPOCH) / np.timedelta64(1, "D")
        found = np.where(np.isnat(found), np.nan, days)
    lengths = iter(found.shape)
    spread = found.reshape([next(lengths) if axis in variable.dims else 1 for axis in axes])
    return np.broadcast_to(spread, shape).ravel()


def _known(values: Any) -> Any:
    """Which cells hold a value: land has no sea-surface temperature."""
    return ~np.isnan(values) if values.dtype.kind == "f" else np.ones(values.shape, dtype=bool)
