"""What is taken out of the observations before they are modelled: a mean function, and their scale.

How a model sees rows of data: their inputs in its coordinates, their observations without its mean, scaled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.data.coordinates import Coordinates
from fleetgp.data.streamed import Shards, Streamed, Summary
from fleetgp.kernels.stationary import OBSERVED
from fleetgp.model.observations import Observations


@dataclass(frozen=True)
class Scaling:
    """y = offset + slope'(x - centre) + scale * y', the same at every agent.

    The model is for y'; theta is told in units of y. Without a slope the mean function is a constant.
    """

    offset: float = 0.0
    scale: float = 1.0
    slope: tuple[float, ...] = ()
    centre: tuple[float, ...] = ()

    def mean(self, inputs: Array) -> Array | float:
        """The mean function at inputs (N, D).

        >>> Scaling(1.0, 5.0, (2.0,), (10.0,)).mean(np.array([[10.0], [11.0]])).tolist()
        [1.0, 3.0]
        """
        if not self.slope:
            return self.offset
        return np.asarray(self.offset + ((inputs - np.array(self.centre)) * np.array(self.slope)).sum(axis=1))

    def scaled(self, data: Observations) -> Observations:
        """The observations that the model is for, and the known standard deviations of their noise."""
        return data.with_values(data.values - self.mean(data.inputs)).divided(self.scale)

    def apply(self, shards: Sequence[Observations]) -> Shards:
        """The data that the model is for."""
        return shards.rescaled(self) if isinstance(shards, Streamed) else [self.scaled(one) for one in shards]

    def shift(self, units: IntArray) -> Array:
        """What to add to log theta' (of y') for log theta (of y), (P,): sigma_f and sigma_eps carry the units of y.

        units: what each hyperparameter is measured in, as a kernel tells.
        """
        return np.where(units == OBSERVED, np.log(self.scale), 0.0)

    def corrected(self, coefficients: Sequence[float]) -> Scaling:
        """With a mean function that has more: a constant and slopes about the centre, in units of y'."""
        constant, *slopes = (self.scale * value for value in coefficients)
        slope = tuple(old + more for old, more in zip(self.slope, slopes, strict=True))
        return replace(self, offset=self.offset + constant, slope=slope)


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
