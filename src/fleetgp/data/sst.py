"""Gridded sea-surface temperature from NetCDF: MUR and other GHRSST products. Needs the extra "data" (xarray)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fleetgp.arrays import Array
from fleetgp.errors import InputError

#: Names under which products keep the temperature, and their axes.
VARIABLES = ("analysed_sst", "sst", "sea_surface_temperature", "SST")
LATITUDES = ("lat", "latitude", "nav_lat", "y")
LONGITUDES = ("lon", "longitude", "nav_lon", "x")
KELVIN = 273.15


@dataclass(frozen=True)
class SeaSurface:
    """celsius (lat, lon), NaN over land and where nothing is known; lat ascending, lon ascending, degrees.

    product: what the file says it is.  date: of the field, as in the file; empty if it has none.
    """

    latitude: Array
    longitude: Array
    celsius: Array
    product: str
    date: str

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
    """One field from a NetCDF file.

    box: west, south, east, north in degrees; longitudes may run to 180 or to 360.  date: of a file with several,
    for example "2021-01-05"; the first without it.  stride: every so many-th row and column.
    """
    xr = xarray()
    file = Path(path)
    if not file.is_file():
        raise InputError(f"{path}: there is no such file")
    if stride < 1:
        raise InputError(f"stride must be at least 1, but {stride} came")
    try:
        data = xr.open_dataset(file)  # scale, offset and fill values are applied
    except (OSError, ValueError) as error:
        why = "it is none" if isinstance(error, ValueError) else error
        raise InputError(f"{path}: it cannot be read as NetCDF: {why}") from error
    with data:
        field = _variable(data, variable, path)
        product = str(data.attrs.get("title") or data.attrs.get("id") or file.stem)
        field, day = _one_day(field, date, path)
        latitude, longitude = _axis(field, LATITUDES, path), _axis(field, LONGITUDES, path)
        field = field.transpose(latitude, longitude).sortby(latitude)
        east = np.asarray(field[longitude], dtype=float)
        field = field.assign_coords({longitude: np.where(east > 180.0, east - 360.0, east)}).sortby(longitude)
        if box is not None:
            field = _cut(field, latitude, longitude, box, path)
        field = field[::stride, ::stride]
        values = np.asarray(field.values, dtype=float)
        if not np.isfinite(values).any():
            raise InputError(f"{path}: no known temperature in {'the box' if box is not None else 'the file'}")
        return SeaSurface(
            np.asarray(field[latitude], dtype=float),
            np.asarray(field[longitude], dtype=float),
            _celsius(values, str(field.attrs.get("units", ""))),
            product,
            day,
        )


def xarray() -> Any:
    """The library, or one error that names the extra."""
    try:
        import xarray as xr
    except ImportError as error:
        raise InputError('NetCDF needs xarray: install the extra "data"') from error
    return xr


def check_box(box: Sequence[float]) -> tuple[float, float, float, float]:
    """west, south, east, north with longitudes up to 180, or one clear error."""
    if len(box) != 4:
        raise InputError(f"box must be west, south, east, north, but {list(box)} came")
    west, south, east, north = (float(side) for side in box)
    if not (west < east and south < north):
        raise InputError(f"box must be west < east and south < north, but {list(box)} came")
    if west >= 180.0:
        west, east = west - 360.0, east - 360.0
    if west < -180.0 or east > 180.0:
        raise InputError(f"box {list(box)} crosses the date line or is out of the world: ask for it in two parts")
    return west, south, east, north


def _variable(data: Any, name: str | None, path: str | Path) -> Any:
    wanted = (name,) if name is not None else VARIABLES
    for candidate in wanted:
        if candidate in data.variables:
            return data[candidate]
    raise InputError(f"{path}: no variable {' or '.join(wanted)}; it has {sorted(map(str, data.data_vars))}")


def _axis(field: Any, names: Sequence[str], path: str | Path) -> str:
    for name in names:
        if name in field.dims:
            return name
    raise InputError(f"{path}: an axis {' or '.join(names)} was expected, but the field has {list(field.dims)}")


def _one_day(field: Any, date: str | None, path: str | Path) -> tuple[Any, str]:
    """The field of one date, without axes of length one."""
    if "time" not in field.dims:
        if date is not None and "time" not in field.coords:
            raise InputError(f"{path}: a date was asked for, but the file has no time")
        return field.squeeze(drop=True), str(field.coords["time"].values)[:10] if "time" in field.coords else ""
    days = [str(moment)[:10] for moment in np.atleast_1d(field["time"].values)]
    if date is not None and date[:10] not in days:
        raise InputError(f"{path}: no field of {date}; it has {days[0]} to {days[-1]}")
    position = 0 if date is None else days.index(date[:10])
    return field.isel(time=position, drop=True).squeeze(drop=True), days[position]


def _cut(field: Any, latitude: str, longitude: str, box: Sequence[float], path: str | Path) -> Any:
    west, south, east, north = check_box(box)
    hair = 1e-6  # a face of the box that is on the grid belongs to it
    cut = field.sel({latitude: slice(south - hair, north + hair), longitude: slice(west - hair, east + hair)})
    if 0 in cut.shape:
        have = [
            float(field[axis].values[end])
            for end, axis in ((0, longitude), (0, latitude), (-1, longitude), (-1, latitude))
        ]
        raise InputError(f"{path}: nothing lies in the box {list(box)}; the file covers {have}")
    return cut


def _celsius(values: Array, units: str) -> Array:
    """By the units, or, without any, by what the sea can be: no sea is at 100 degrees, no sea below 200 K."""
    name = units.strip().lower()
    kelvin = name in ("k", "kelvin", "degk", "degree_kelvin") or (
        not name.startswith(("c", "deg")) and float(np.nanmedian(values)) > 100.0
    )
    return values - KELVIN if kelvin else values
