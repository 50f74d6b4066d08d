"""What a model does to its data beyond an offset and a scale, as agents tell each other and keep it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import FailFast, Field

from fleetgp.agent.records import Strict, Value
from fleetgp.data.coordinates import Coordinates, CoordinatesName
from fleetgp.data.scaling import Scaling
from fleetgp.network.peer_checks import LARGEST

Values = Annotated[tuple[Value, ...], FailFast()]
Units = Annotated[tuple[Annotated[float, Field(ge=1.0 / LARGEST, le=LARGEST)], ...], FailFast()]
#: An input, or none.
Which = Annotated[int, Field(ge=-1, lt=2**31)]


@dataclass(frozen=True)
class Change(Strict):
    """slope, centre: of the mean function.  coordinates, origin, unit, longitude, distortion, latitude: of the inputs.

    All are empty in a model with a constant mean whose inputs are as given.
    """

    slope: Values = ()
    centre: Values = ()
    coordinates: CoordinatesName = "as-given"
    origin: Values = ()
    unit: Units = ()
    longitude: Which = -1
    distortion: Value = 0.0
    latitude: Which = -1

    @classmethod
    def of(cls, scaling: Scaling, coordinates: Coordinates) -> Change:
        c = coordinates
        return cls(scaling.slope, scaling.centre, c.name, c.origin, c.unit, c.longitude, c.distortion, c.latitude)

    def scaling(self, offset: float, scale: float) -> Scaling:
        return Scaling(offset, scale, self.slope, self.centre)

    @property
    def places(self) -> Coordinates:
        return Coordinates(self.coordinates, self.origin, self.unit, self.longitude, self.distortion, self.latitude)

    def check(self, dimension: int) -> None:
        """A ValueError where it cannot be of data with so many inputs."""
        sizes = [len(self.slope), len(self.centre), len(self.origin), len(self.unit)]
        sound = sizes[0] == sizes[1] and sizes[2] == sizes[3] and {*sizes} <= {0, dimension}
        placed = max(self.longitude, self.latitude) < max(sizes[2], 0) or self.longitude == self.latitude == -1
        known = self.coordinates != "sphere" or -1 < self.longitude != self.latitude > -1
        if not sound or not placed or not known or bool(sizes[2]) != (self.coordinates != "as-given"):
            raise ValueError(f"expected a mean function and coordinates of {dimension} inputs, got others")


def with_change(facts: Any) -> Any:
    """What was kept by an older FleetGP, which knew of no change."""
    return {**facts, "change": _NONE} if isinstance(facts, dict) and "change" not in facts else facts


_NONE: dict[str, Any] = {
    "slope": [],
    "centre": [],
    "coordinates": "as-given",
    "origin": [],
    "unit": [],
    "longitude": -1,
    "distortion": 0.0,
    "latitude": -1,
}
