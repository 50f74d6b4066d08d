"""Gridded sea-surface temperature from NetCDF: MUR and other GHRSST products. Needs the extra "data" (xarray)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fleetgp.arrays import Array
from fleetgp.errors import InputError
from fleetgp.given import as_numbers, check_whole

#: Names under which products keep the temperature, and their axes.
VARIABLES = ("analysed_sst", "sst", "sea_surface_temperature", "SST")
LATITUDES = ("lat", "latitude", "nav_lat", "y")
LONGITUDES = ("lon", "longitude", "nav_lon", "x")
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
#: More points than these are not read at once: 4 GB.
MOST_POINTS = 500_000_000
#: Days that an error lists.
LISTED = 12


@dataclass(frozen=True)
class SeaSurface:
    """celsius (lat, lon), NaN over land and where nothing is known; lat ascending, lon ascending, degrees.

    product: what the file says it is.  date: of the field, as in the file; empty if it has none.
    converted: what was done to the temperatures of the file; empty if nothing was.
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
    """
    xr = xarray()
    file = Path(path)
    if not file.is_file():
        raise InputError(f"{path}: there is no such file")
    check_whole("stride", stride, least=1)
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
        if field.ndim != 2:
            sizes = ", ".join(f"{name} ({size})" for name, size in field.sizes.items())
            raise InputError(
                f"{path}: expected a field over latitude and longitude, got one over {sizes}: select first"
            )
        field = field.transpose(latitude, longitude).sortby(latitude)
        east = np.asarray(field[longitude], dtype=float)
        field = field.assign_coords({longitude: np.where(east > 180.0, east - 360.0, east)}).sortby(longitude)
        if box is not None:
            field = _cut(field, latitude, longitude, box, path)
        field = field[::stride, ::stride]
        if field.size > MOST_POINTS:
            raise InputError(f"{path}: the field has {field.size:,} points: give a box or a stride (--box, --stride)")
        values = np.asarray(field.values, dtype=float)
        if not np.isfinite(values).any():
            raise InputError(f"{path}: no known temperature in {'the box' if box is not None else 'the file'}")
        celsius, converted = _celsius(values, str(field.attrs.get("units", "")), path)
        north, east = (np.asarray(field[axis], dtype=float) for axis in (latitude, longitude))
        return SeaSurface(north, east, celsius, product, day, converted)


def xarray() -> Any:
    """The library, or one error that names the extra."""
    try:
        import xarray as xr
    except ImportError as error:
        raise InputError('NetCDF needs xarray: install the extra "data"') from error
    return xr


def check_box(box: Sequence[float]) -> tuple[float, float, float, float]:
    """west, south, east, north with longitudes up to 180, or one clear error."""
    sides = as_numbers(list(box), "box")
    if sides.shape != (4,):
        raise InputError(f"box must be four numbers: west, south, east, north, got {list(box)}")
    west, south, east, north = sides.tolist()
    if not (west < east and south < north):
        raise InputError(f"box must be west < east and south < north, got {list(box)}")
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
    raise InputError(f"{path}: expected an axis {' or '.join(names)}, got {list(field.dims)}")


def _one_day(field: Any, date: str | None, path: str | Path) -> tuple[Any, str]:
    """The field of one date, without axes of length one."""
    if "time" not in field.coords and "time" not in field.dims:
        if date is not None:
            raise InputError(f"{path}: a date was asked for, but the file has no time: leave it out")
        return field.squeeze(drop=True), ""
    if "time" not in field.coords:
        raise InputError(f"{path}: its axis of time has no dates: select one of its {field.sizes['time']} fields first")
    moments = [str(moment).replace(" ", "T")[:19] for moment in np.atleast_1d(field["time"].values)]
    wanted = "" if date is None else _moment(date)
    found = [position for position, moment in enumerate(moments) if moment.startswith(wanted)]
    if not found:
        raise InputError(f"{path}: no field of {date}; it has {_listed(moments)}")
    if len(found) > 1:
        several = [moments[position] for position in found]
        raise InputError(f"{path}: {len(found)} fields, of {_listed(several)}: give one as date (--date)")
    if "time" in field.dims:
        field = field.isel(time=found[0], drop=True)
    return field.squeeze(drop=True), moments[found[0]][:10]


def _moment(date: object) -> str:
    """A date as it is written: a day, or a day and the beginning of a time."""
    text = str(date).strip().replace(" ", "T")
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}(T[\d:]*)?.*", text):
        raise InputError(f"date must be like 2021-01-31 or 2021-01-31T12, got {date!r}")
    return text[:19]


def _listed(moments: Sequence[str]) -> str:
    """The days, or the times where a day has several; not all of very many."""
    days = [moment[:10] for moment in moments]
    names = days if len(set(days)) == len(days) else [moment[:16] for moment in moments]
    few = names if len(names) <= LISTED else [*names[: LISTED - 1], "...", names[-1]]
    return ", ".join(few)


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


def _celsius(values: Array, units: str, path: str | Path) -> tuple[Array, str]:
    """By the units, or, without any, by what the sea can be: no sea is at 100 degrees, no sea below 200 K."""
    name = re.sub(r"[\s_.]|(?<=degree)s", "", units.lower())
    if name in KELVIN_UNITS:
        return values - KELVIN, "temperatures converted from K to degrees Celsius"
    if name and name not in CELSIUS_UNITS:
        raise InputError(
            f"{path}: expected temperatures in K or degrees Celsius, got the units {units!r}: convert them"
        )
    if not name and float(np.nanmedian(values)) > 100.0:
        said = "the file gives no units"
        return values - KELVIN, f"temperatures converted from K to degrees Celsius ({said}, but no sea is that warm)"
    return values, ""
