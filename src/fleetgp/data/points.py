"""Points with the names and units of their columns: what an answer is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fleetgp.arrays import Array
from fleetgp.data.suspicions import LATITUDE_NAMES, LONGITUDE_NAMES
from fleetgp.data.times import time_unit_of, times_of_numbers


@dataclass(frozen=True)
class Points:
    """values: (T, D).  names: of the inputs.  units: by name, of inputs and of the target, where they are known.

    target: what is predicted at them.
    """

    values: Array
    names: tuple[str, ...]
    units: Mapping[str, str] = field(default_factory=dict)
    target: str = "y"

    def shown(self, values: Array, name: str) -> Any:
        """Values of one input as people see them: times as times."""
        unit = time_unit_of(self.units.get(name))
        return values if unit is None else times_of_numbers(values, unit)


def names_of(inputs: Sequence[str] | None, dimension: int) -> tuple[str, ...]:
    """The inputs' names; x1, x2, ... where they have none."""
    return tuple(inputs) if inputs is not None else tuple(f"x{d + 1}" for d in range(dimension))


def coordinate_facts(name: str, units: Mapping[str, str]) -> dict[str, str]:
    """What a file says of a coordinate: longitudes and latitudes are known by their names; times tell it themselves.

    >>> coordinate_facts("lon", {}), coordinate_facts("depth", {"depth": "m"})
    ({'units': 'degrees_east', 'standard_name': 'longitude'}, {'long_name': 'depth', 'units': 'm'})
    """
    own = units.get(name, "")
    if name.lower() in LONGITUDE_NAMES:
        return {"units": own or "degrees_east", "standard_name": "longitude"}
    if name.lower() in LATITUDE_NAMES:
        return {"units": own or "degrees_north", "standard_name": "latitude"}
    told = {"units": own} if own and time_unit_of(own) is None else {}
    return {"long_name": name, **told}
