"""Inputs as the model sees them: as given, in units of their own deviations, or places on the Earth in kilometres,
on a plane or on the sphere.

Shards and queries are changed at the front door; everything below sees these coordinates only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast, get_args

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.data.streamed import Shards, Streamed
from fleetgp.data.summary import Summary
from fleetgp.data.suspicions import LATITUDE_NAMES, LONGITUDE_NAMES
from fleetgp.errors import InputError, check_name
from fleetgp.model.observations import Observations

CoordinatesName = Literal["as-given", "scaled", "kilometres", "sphere"]
#: The Earth's mean radius, in kilometres, and a degree of a great circle.
RADIUS = 6371.0088
DEGREE = RADIUS * np.pi / 180.0
#: A local projection whose distances are wrong by more than this part is told of.
DISTORTED = 0.01


@dataclass(frozen=True)
class CoordinateRule:
    """What was asked for, and which inputs are longitudes and latitudes, counted from 0; -1 for none."""

    name: CoordinatesName = "as-given"
    longitude: int = -1
    latitude: int = -1


def coordinate_rule(name: object, inputs: Sequence[str] | None) -> CoordinateRule:
    """By its name, for inputs with these names; or one clear error."""
    check_name("coordinates", name, get_args(CoordinatesName))
    known = cast(CoordinatesName, name)
    if known not in ("kilometres", "sphere"):
        return CoordinateRule(known)
    names = [each.strip().lower() for each in inputs or ()]
    found = [[d for d, each in enumerate(names) if each in some] for some in (LONGITUDE_NAMES, LATITUDE_NAMES)]
    if [len(each) for each in found] != [1, 1]:
        raise InputError(
            f'coordinates="{known}": expected one input called lon or longitude and one called lat or latitude, got '
            f"{', '.join(inputs) if inputs else 'inputs without names'}: name them so (inputs=[...])"
        )
    return CoordinateRule(known, found[0][0], found[1][0])


@dataclass(frozen=True)
class Coordinates:
    """x' = (x - origin) / unit along each input; longitudes by the shorter way round. Without an origin as given.

    On the sphere two of a place's `chords` are in place of longitude and latitude, and the third is behind all inputs.

    longitude, latitude: which inputs these are; -1 where it does not matter.
    distortion: the largest part by which a distance within the data's box is wrong in a local projection.
    """

    name: CoordinatesName = "as-given"
    origin: tuple[float, ...] = ()
    unit: tuple[float, ...] = ()
    longitude: int = -1
    distortion: float = 0.0
    latitude: int = -1

    def places(self, inputs: Array) -> Array:
        """Inputs (.., D) as the model sees them, on the sphere (.., D + 1).

        >>> local = Coordinates("kilometres", (180.0, 0.0), (0.01, 0.01), longitude=0)
        >>> local.places(np.array([[179.0, 1.0], [-179.0, -1.0]])).tolist()
        [[-100.0, 100.0], [100.0, -100.0]]
        """
        if not self.origin:
            return inputs
        if self.name == "sphere":
            return self._on_sphere(inputs)
        apart = inputs - np.array(self.origin)
        if self.longitude >= 0:
            apart[..., self.longitude] -= 360.0 * np.round(apart[..., self.longitude] / 360.0)
        return np.ascontiguousarray(apart / np.array(self.unit))

    def _on_sphere(self, inputs: Array) -> Array:
        """
        >>> globe = Coordinates("sphere", (0.0, 0.0, 0.0), (1.0, 1.0, 1.0), longitude=1, latitude=2)
        >>> globe.places(np.array([7.0, 180.0, 0.0])).round(1).tolist()
        [7.0, -6371.0, 0.0, 0.0]
        """
        place = chords(inputs[..., self.longitude], inputs[..., self.latitude])
        found = np.concatenate([inputs, place[..., 2:]], axis=-1)
        found[..., self.longitude], found[..., self.latitude] = place[..., 0], place[..., 1]
        return found

    def jacobian(self, inputs: Array) -> Array:
        """d places / d inputs at inputs (T, D), (T, D', D) with D' = D, on the sphere D + 1.

        >>> Coordinates("scaled", (1.0, 2.0), (4.0, 0.5)).jacobian(np.zeros((1, 2))).tolist()
        [[[0.25, 0.0], [0.0, 2.0]]]
        """
        size, dimension = inputs.shape
        if not self.origin or self.name != "sphere":
            unit = np.array(self.unit) if self.origin else np.ones(dimension)
            return np.tile(np.diag(1.0 / unit), (size, 1, 1))
        east, north = (np.radians(inputs[:, axis]) for axis in (self.longitude, self.latitude))
        by_east = [-np.cos(north) * np.sin(east), np.cos(north) * np.cos(east), np.zeros(size)]
        by_north = [-np.sin(north) * np.cos(east), -np.sin(north) * np.sin(east), np.cos(north)]
        found = np.tile(np.eye(dimension + 1, dimension), (size, 1, 1))
        for place, one, other in zip((self.longitude, self.latitude, dimension), by_east, by_north, strict=True):
            found[:, place] = 0.0
            found[:, place, self.longitude], found[:, place, self.latitude] = DEGREE * one, DEGREE * other
        return found

    def given(self, places: Array) -> Array:
        """The converse, but for the sphere."""
        assert self.name != "sphere", "nothing asks for it there"
        return np.asarray(places * np.array(self.unit) + np.array(self.origin)) if self.origin else places

    def apply(self, shards: Sequence[Observations]) -> Shards:
        if isinstance(shards, Streamed):
            return shards.moved(self) if self.origin else shards
        return [one.at(self.places(one.inputs)) for one in shards]

    def summary(self, one: Summary) -> Summary:
        """That of the same rows, whose longitudes go round nowhere."""
        if not self.origin:
            return one
        assert self.name != "sphere", "data known by their sums are refused there"
        unit = np.array(self.unit)
        low, high, centre = (self.places(corner) for corner in (one.low, one.high, one.centre))
        spread, cross = one.spread / np.outer(unit, unit), one.cross / unit
        return Summary(low, high, centre, one.count, one.mean, one.squares, spread, cross)

    def shift(self, units: IntArray) -> Array:
        """What to add to log theta' of these coordinates for log theta as it is told, (P,).

        Scaled inputs have length-scales in the units of the data; those in kilometres stay.
        units: what each hyperparameter is measured in, as a kernel tells.
        """
        if self.name != "scaled" or not self.unit:
            return np.zeros(len(units))
        return np.where(units >= 0, np.log(self.unit)[np.maximum(units, 0)], 0.0)


AS_GIVEN = Coordinates()


def local_units(rule: CoordinateRule, latitude: float, dimension: int) -> tuple[float, ...]:
    """Degrees in a kilometre, at this latitude, for the two inputs; 1 for all others."""
    unit = [1.0] * dimension
    unit[rule.longitude] = float(1.0 / (DEGREE * np.cos(np.radians(latitude))))
    unit[rule.latitude] = 1.0 / DEGREE
    return tuple(unit)


def chords(longitudes: Array, latitudes: Array) -> Array:
    """Places in degrees as points in space, (.., 3), in kilometres from the Earth's centre.

    Their distances are chords, which are valid for every kernel on the whole globe; up to 1,000 km they are as long as
    the great circle to 0.1 %.
    """
    east, north = np.radians(longitudes), np.radians(latitudes)
    aside = np.cos(north)
    return np.asarray(RADIUS * np.stack([aside * np.cos(east), aside * np.sin(east), np.sin(north)], axis=-1))


def great_circle(one: Array, other: Array) -> Array:
    """Kilometres between places (.., 2) of longitude and latitude, by the haversine formula.

    >>> round(float(great_circle(np.array([0.0, 0.0]), np.array([90.0, 0.0]))) / RADIUS, 4)
    1.5708
    """
    (east, north), (east2, north2) = (np.moveaxis(np.radians(place), -1, 0) for place in (one, other))
    half = np.sin((north2 - north) / 2.0) ** 2 + np.cos(north) * np.cos(north2) * np.sin((east2 - east) / 2.0) ** 2
    return np.asarray(2.0 * RADIUS * np.arcsin(np.sqrt(np.clip(half, 0.0, 1.0))))


def distortion(latitude: float, south: float, north: float, east: float) -> float:
    """The largest part by which a distance in a box, `east` degrees to either side, is wrong in kilometres about a
    latitude: among pairs of points on a grid over it.
    """
    grid = np.stack(np.meshgrid(np.linspace(-east, east, 5), np.linspace(south, north, 5)), -1).reshape(-1, 2)
    i, j = np.triu_indices(len(grid), 1)
    true = great_circle(grid[i], grid[j])
    apart = (grid[i] - grid[j]) * DEGREE * [np.cos(np.radians(latitude)), 1.0]
    far = true > 1e-6
    return float(np.abs(np.hypot(*apart.T)[far] / true[far] - 1.0).max(initial=0.0))
