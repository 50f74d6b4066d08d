"""How a model sees rows of data: their inputs in its coordinates, their observations without its mean, scaled."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from fleetgp.data.coordinates import Coordinates
from fleetgp.data.scaling import Scaling
from fleetgp.data.summary import Summary
from fleetgp.model.observations import Observations


@dataclass(frozen=True)
class View:
    """scaling: of what the coordinates have made of the inputs."""

    scaling: Scaling = field(default_factory=Scaling)
    coordinates: Coordinates = field(default_factory=Coordinates)

    def of(self, data: Observations) -> Observations:
        return self.scaling.scaled(data.at(self.coordinates.places(data.inputs)))

    def summary(self, one: Summary) -> Summary:
        return self.coordinates.summary(one).rescaled(self.scaling)

    def rescaled(self, scaling: Scaling) -> View:
        assert self.scaling == Scaling(), "it is scaled already"
        return replace(self, scaling=scaling)

    def moved(self, coordinates: Coordinates) -> View:
        assert self == AS_GIVEN, "it is seen otherwise already"
        return replace(self, coordinates=coordinates)

    @property
    def facts(self) -> list[Any]:
        """All numbers, for JSON: what is as given takes no place."""
        scaling, coordinates = self.scaling, self.coordinates
        found: list[Any] = [scaling.offset, scaling.scale]
        if scaling.slope or coordinates.origin:
            found += [scaling.slope, scaling.centre, coordinates.origin, coordinates.unit, coordinates.longitude]
        if coordinates.latitude >= 0:
            found += [coordinates.latitude]
        return found


AS_GIVEN = View()
