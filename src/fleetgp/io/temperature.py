"""Temperatures of the sea in degrees Celsius, whatever a file has them in."""

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


def shift_to_celsius(values: Array, units: str, path: object) -> tuple[float, str]:
    """What to add to temperatures, and what is then said of it; empty for nothing.

    By the units, or, without any, by what the sea can be: no sea is at 100 degrees, no sea below 200 K.
    """
    name = re.sub(r"[\s_.]|(?<=degree)s", "", units.lower())
    if name in KELVIN_UNITS:
        return -KELVIN, "temperatures converted from K to degrees Celsius"
    if name and name not in CELSIUS_UNITS:
        raise InputError(
            f"{path}: expected temperatures in K or degrees Celsius, got the units {units!r}: convert them"
        )
    if not name and float(np.nanmedian(values)) > 100.0:
        said = "the file gives no units"
        return -KELVIN, f"temperatures converted from K to degrees Celsius ({said}, but no sea is that warm)"
    return 0.0, ""
