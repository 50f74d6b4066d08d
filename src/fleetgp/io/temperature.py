"""Temperatures in kelvin and in degrees Celsius."""

from __future__ import annotations

import re

import numpy as np

from fleetgp.arrays import Array
from fleetgp.errors import InputError

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
