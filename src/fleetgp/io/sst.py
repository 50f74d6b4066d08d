"""Gridded sea-surface temperature from NetCDF: MUR and other GHRSST products. Needs the extra "data" (xarray).

Temperatures in kelvin and in degrees Celsius.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fleetgp.arrays import Array
from fleetgp.errors import InputError
from fleetgp.io.selection import indexer, listed, moments_of, on_map
from fleetgp.validation import as_path

#: Names under which products keep the temperature of the sea's surface.
VARIABLES = ("analysed_sst", "sst", "sea_surface_temperature", "SST")
KELVIN = 273.15
#: How units are written, without blanks, underscores and plurals.
KELVIN_UNITS = ("k", "kelvin", "degk", "degreek", "degreekelvin", "degkelvin")
CELSIUS_UNITS = (
    "c",
    "celsius",
    "degc",
    "°c",
    "degreec",
    "degreecelsius",
    "degcelsius",
    "centigrade",
    "degreecentigrade",
)


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
    """What to add to temperatures, and what is then said of it; empty for nothing.

    By the units, or, without any, by what the sea can be: no sea is at 100 degrees, no sea below 200 K.
    """
    if is_kelvin(units):
        return -KELVIN, "temperatures converted from K to degrees Celsius"
    if units and not is_celsius(units):
        raise InputError(
            f"{path}: expected temperatures in K or degrees Celsius, got the units {units!r}: convert them"
        )
    if not units and float(np.nanmedian(values)) > 100.0:
        said = "the file gives no units"
        return -KELVIN, f"temperatures converted from K to degrees Celsius ({said}, but no sea is that warm)"
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
    """One field from a NetCDF file.

    box: west, south, east, north in degrees; longitudes may run to 180 or to 360.  date: which one of a file with
    several, for example "2021-01-05", or "2021-01-05T12" where a day has several.  stride: every so many-th row and
    column. Kelvin become degrees Celsius, and `converted` says so.

    >>> load_sst("nowhere.nc")
    Traceback (most recent call last):
    fleetgp.errors.InputError: nowhere.nc: there is no such file
    """
    xr = xarray()
    file = as_path(path, "path")
    if not file.is_file():
        raise InputError(f"{path}: there is no such file")
    try:
        data = xr.open_dataset(file)  # scale, offset and fill values are applied
    except (OSError, ValueError) as error:
        why = "it is none" if isinstance(error, ValueError) else error
        raise InputError(f"{path}: it cannot be read as NetCDF: {why}") from error
    with data:
        field = _variable(data, variable, path)
        product = str(data.attrs.get("title") or data.attrs.get("id") or file.stem)
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


def _variable(data: Any, name: str | None, path: str | Path) -> Any:
    wanted = (name,) if name is not None else VARIABLES
    for candidate in wanted:
        if candidate in data.variables:
            return data[candidate]
    raise InputError(f"{path}: no variable {' or '.join(wanted)}; it has {sorted(map(str, data.data_vars))}")


def _one_day(field: Any, date: str | None, path: str | Path) -> tuple[Any, str]:
    """The field of one date, without axes of length one."""
    moments, found = moments_of(field, date, path)
    if not moments:
        return field.squeeze(drop=True), ""
    if len(found) > 1:
        several = [moments[position] for position in found]
        raise InputError(f"{path}: {len(found)} fields, of {listed(several)}: give one as date (--date)")
    if "time" in field.dims:
        field = field.isel(time=found[0], drop=True)
    return field.squeeze(drop=True), moments[found[0]][:10]
