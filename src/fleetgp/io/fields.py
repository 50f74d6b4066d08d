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

from fleetgp.errors import InputError
from fleetgp.io.columns import Columns
from fleetgp.io.sst import xarray
from fleetgp.io.tables import check_names

#: Stored blocks of up to so many cells are read as they are stored: each is unpacked once.
MOST_STORED = 1 << 22
#: What days are counted from.
EPOCH = np.datetime64("1970-01-01", "ns")


def field_chunks(file: Path, columns: Columns, rows: int) -> Iterator[tuple[dict[str, Any], int, tuple[str, ...]]]:
    """Values by column, how many cells hold nothing, and units."""
    names, target = columns.all, columns.target
    zarr: dict[str, Any] = {"engine": "zarr", "chunks": None, "consolidated": False}
    with xarray().open_dataset(file, **(zarr if file.suffix.lower() == ".zarr" else {})) as data:
        check_names(file, names, [str(name) for name in data.variables], columns.reading)
        field = data[target]
        for name in names:
            strange = [str(axis) for axis in data[name].dims if axis not in field.dims]
            if strange:
                raise InputError(
                    f"{file}: {name!r} runs over {', '.join(strange)}, which {target!r} does not: expected inputs "
                    f"over the axes of the target, {', '.join(map(str, field.dims))}"
                )
        units = tuple(str(data[name].attrs.get("units", "")) for name in columns.numbers)
        stored = field.encoding.get("chunksizes") or field.encoding.get("chunks")
        for block in _blocks(field.shape, _steps(field.shape, stored, rows)):
            where = dict(zip(field.dims, block, strict=True))
            shape = tuple(part.stop - part.start for part in block)
            values = {name: _values(data[name], field.dims, where, shape) for name in names}
            known = _known(values[target]) if field.ndim > 1 else np.ones(prod(shape), dtype=bool)
            yield {name: column[known] for name, column in values.items()}, int((~known).sum()), units


def _steps(sizes: Sequence[int], stored: Sequence[int] | None, rows: int) -> list[int]:
    """How long a block is along each axis: as it is stored, and as much more as fits from the last axis on.

    >>> _steps((10, 200, 300), None, 1000), _steps((10, 200, 300), (1, 50, 100), 20_000), _steps((5,), None, 1000)
    ([1, 3, 300], [1, 50, 300], [5])
    """
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


def _values(variable: Any, axes: Sequence[Any], where: Mapping[Any, slice], shape: tuple[int, ...]) -> Any:
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
