"""Where a map shall be: a field in a NetCDF file that is 0 or missing elsewhere. Needs the extra "data" (xarray)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fleetgp.errors import InputError
from fleetgp.io.selection import LATITUDES, LONGITUDES
from fleetgp.io.sst import xarray


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
