"""How a model sees rows: inputs in its coordinates, observations without its mean function, scaled.

Inputs are as given, in units of their standard deviations, or places on the Earth: in kilometres on a plane, or on the
sphere as points in space. Then two coordinates of the point replace longitude and latitude, and the third comes after
all inputs. A kernel that is valid in space is valid for chords, everywhere on the sphere; one of great circles is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast, get_args

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.data.suspicions import LATITUDE_NAMES, LONGITUDE_NAMES
from fleetgp.data.times import time_unit_of, times_of_numbers
from fleetgp.errors import InputError, check_name
from fleetgp.kernels.composite import Composite, Leaf, Scaled
from fleetgp.kernels.expression import Kernels
from fleetgp.kernels.stationary import OBSERVED, Kernel
from fleetgp.model.observations import Observations, Summary

CoordinatesName = Literal["as-given", "scaled", "kilometres", "sphere"]
#: The Earth's mean radius, in kilometres, and a degree of a great circle.
RADIUS = 6371.0088
DEGREE = RADIUS * np.pi / 180.0
#: A local projection whose distances are wrong by more than this part causes a warning.
DISTORTED = 0.01


@dataclass(frozen=True)
class CoordinateRule:
    """The coordinates that a user chose, and which inputs are longitude and latitude; -1 for none."""

    name: CoordinatesName = "as-given"
    longitude: int = -1
    latitude: int = -1


def coordinate_rule(name: object, inputs: Sequence[str] | None) -> CoordinateRule:
    check_name("coordinates", name, get_args(CoordinatesName))
    known = cast(CoordinatesName, name)
    if known not in ("kilometres", "sphere"):
        return CoordinateRule(known)
    names = [each.strip().lower() for each in inputs or ()]
    result = [[d for d, each in enumerate(names) if each in some] for some in (LONGITUDE_NAMES, LATITUDE_NAMES)]
    if [len(each) for each in result] != [1, 1]:
        raise InputError(
            f'coordinates="{known}": expected one input called lon or longitude and one called lat or latitude, got '
            f"{', '.join(inputs) if inputs else 'inputs without names'}: name them so (inputs=[...])"
        )
    return CoordinateRule(known, result[0][0], result[1][0])


@dataclass(frozen=True)
class Coordinates:
    """x' = (x - origin) / unit along each input, longitudes by the shorter way round; without an origin x' = x.

    On the sphere two of a place's `chords` replace longitude and latitude, and the third comes after all inputs.

    longitude, latitude: which inputs they are; -1 where it does not matter.
    distortion: the largest relative error of a distance within the data's box in a local projection.
    """

    name: CoordinatesName = "as-given"
    origin: tuple[float, ...] = ()
    unit: tuple[float, ...] = ()
    longitude: int = -1
    distortion: float = 0.0
    latitude: int = -1

    def places(self, inputs: Array) -> Array:
        """Return inputs (.., D) as the model sees them, on the sphere (.., D + 1).

        >>> local = Coordinates("kilometres", (180.0, 0.0), (0.01, 0.01), longitude=0)
        >>> local.places(np.array([[179.0, 1.0], [-179.0, -1.0]])).tolist()
        [[-100.0, 100.0], [100.0, -100.0]]
        >>> globe = Coordinates("sphere", (0.0, 0.0, 0.0), (1.0, 1.0, 1.0), longitude=1, latitude=2)
        >>> globe.places(np.array([7.0, 180.0, 0.0])).round(1).tolist()
        [7.0, -6371.0, 0.0, 0.0]
        """
        if not self.origin:
            return inputs
        if self.name == "sphere":
            place = chords(inputs[..., self.longitude], inputs[..., self.latitude])
            result = np.concatenate([inputs, place[..., 2:]], axis=-1)
            result[..., self.longitude], result[..., self.latitude] = place[..., 0], place[..., 1]
            return result
        apart = inputs - np.array(self.origin)
        if self.longitude >= 0:
            apart[..., self.longitude] -= 360.0 * np.round(apart[..., self.longitude] / 360.0)
        return np.ascontiguousarray(apart / np.array(self.unit))

    def jacobian(self, inputs: Array) -> Array:
        """Return d places / d inputs at inputs (T, D): (T, D', D) with D' = D, on the sphere D + 1.

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
        result = np.tile(np.eye(dimension + 1, dimension), (size, 1, 1))
        for place, one, other in zip((self.longitude, self.latitude, dimension), by_east, by_north, strict=True):
            result[:, place] = 0.0
            result[:, place, self.longitude], result[:, place, self.latitude] = DEGREE * one, DEGREE * other
        return result

    def given(self, places: Array) -> Array:
        """Return inputs from places; not on the sphere."""
        assert self.name != "sphere", "not used on the sphere"
        return np.asarray(places * np.array(self.unit) + np.array(self.origin)) if self.origin else places

    def summary(self, one: Summary) -> Summary:
        """Return the summary of the same rows as the model sees them; their longitudes must not wrap around."""
        if not self.origin:
            return one
        assert self.name != "sphere", "data known only by sums are refused there"
        unit = np.array(self.unit)
        low, high, centre = (self.places(corner) for corner in (one.low, one.high, one.centre))
        spread, cross = one.spread / np.outer(unit, unit), one.cross / unit
        return Summary(low, high, centre, one.count, one.mean, one.squares, spread, cross)

    def shift(self, units: IntArray) -> Array:
        """Return (P,) what to add to log theta' in these coordinates for log theta in the user's units.

        Length-scales of scaled inputs are in the units of the data; those in kilometres stay in kilometres.
        units: the unit of each hyperparameter; see `Kernel.units`.
        """
        if self.name != "scaled" or not self.unit:
            return np.zeros(len(units))
        return np.where(units >= 0, np.log(self.unit)[np.maximum(units, 0)], 0.0)


AS_GIVEN = Coordinates()


def local_units(rule: CoordinateRule, latitude: float, dimension: int) -> tuple[float, ...]:
    """Return degrees per kilometre at this latitude for longitude and latitude; 1 for all other inputs."""
    unit = [1.0] * dimension
    unit[rule.longitude] = float(1.0 / (DEGREE * np.cos(np.radians(latitude))))
    unit[rule.latitude] = 1.0 / DEGREE
    return tuple(unit)


def chords(longitudes: Array, latitudes: Array) -> Array:
    """Return places in degrees as points in space, (.., 3), in kilometres from the Earth's centre.

    Their distances are chords, with which every kernel is valid on the whole globe; up to 1,000 km they differ from the
    great circle by at most 0.1%.
    """
    east, north = np.radians(longitudes), np.radians(latitudes)
    aside = np.cos(north)
    return np.asarray(RADIUS * np.stack([aside * np.cos(east), aside * np.sin(east), np.sin(north)], axis=-1))


def great_circle(one: Array, other: Array) -> Array:
    """Return kilometres between places (.., 2) of longitude and latitude, by the haversine formula.

    >>> round(float(great_circle(np.array([0.0, 0.0]), np.array([90.0, 0.0]))) / RADIUS, 4)
    1.5708
    """
    (east, north), (east2, north2) = (np.moveaxis(np.radians(place), -1, 0) for place in (one, other))
    half = np.sin((north2 - north) / 2.0) ** 2 + np.cos(north) * np.cos(north2) * np.sin((east2 - east) / 2.0) ** 2
    return np.asarray(2.0 * RADIUS * np.arcsin(np.sqrt(np.clip(half, 0.0, 1.0))))


def distortion(latitude: float, south: float, north: float, east: float) -> float:
    """Return the largest relative error of distances in a local projection about a latitude.

    It is over pairs of points on a grid over the box from south to north, `east` degrees to either side.
    """
    grid = np.stack(np.meshgrid(np.linspace(-east, east, 5), np.linspace(south, north, 5)), -1).reshape(-1, 2)
    i, j = np.triu_indices(len(grid), 1)
    true = great_circle(grid[i], grid[j])
    apart = (grid[i] - grid[j]) * DEGREE * [np.cos(np.radians(latitude)), 1.0]
    far = true > 1e-6
    return float(np.abs(np.hypot(*apart.T)[far] / true[far] - 1.0).max(initial=0.0))


@dataclass(frozen=True)
class Scaling:
    """y = offset + slope'(x - centre) + scale * y', the same at every agent.

    The model is for y'; users see theta in units of y. Without a slope the mean function is a constant.
    """

    offset: float = 0.0
    scale: float = 1.0
    slope: tuple[float, ...] = ()
    centre: tuple[float, ...] = ()

    def mean(self, inputs: Array) -> Array | float:
        """Return the mean function at inputs (N, D).

        >>> Scaling(1.0, 5.0, (2.0,), (10.0,)).mean(np.array([[10.0], [11.0]])).tolist()
        [1.0, 3.0]
        """
        if not self.slope:
            return self.offset
        return np.asarray(self.offset + ((inputs - np.array(self.centre)) * np.array(self.slope)).sum(axis=1))

    def scaled(self, data: Observations) -> Observations:
        """Return the observations y', with the known standard deviations of their noise."""
        return data.with_values(data.values - self.mean(data.inputs)).divided(self.scale)

    def summary(self, one: Summary) -> Summary:
        """Return the summary of the residuals of the mean function, scaled."""
        mean = float((one.mean - np.ravel(self.mean(one.centre[None]))[0]) / self.scale)
        squares, cross, unit = one.squares, one.cross, self.scale
        if self.slope:
            slope = np.array(self.slope)
            cross = cross - one.spread @ slope
            squares = max(float(squares - slope @ (one.cross + cross)), 0.0)
        return replace(one, mean=mean, squares=squares / unit**2, cross=cross / unit)

    def shift(self, units: IntArray) -> Array:
        """Return (P,) what to add to log theta' (of y') for log theta (of y): sigma_f and sigma_eps have units of y.

        units: the unit of each hyperparameter; see `Kernel.units`.
        """
        return np.where(units == OBSERVED, np.log(self.scale), 0.0)

    def corrected(self, coefficients: Sequence[float]) -> Scaling:
        """Return the scaling with these coefficients added to the mean function, in units of y'."""
        constant, *slopes = (self.scale * value for value in coefficients)
        slope = tuple(old + more for old, more in zip(self.slope, slopes, strict=True))
        return replace(self, offset=self.offset + constant, slope=slope)


@dataclass(frozen=True)
class View:
    """How a model sees rows: first in its coordinates, then scaled."""

    scaling: Scaling = field(default_factory=Scaling)
    coordinates: Coordinates = field(default_factory=Coordinates)

    def of(self, data: Observations) -> Observations:
        return self.scaling.scaled(data.at(self.coordinates.places(data.inputs)))

    def summary(self, one: Summary) -> Summary:
        return self.scaling.summary(self.coordinates.summary(one))

    def rescaled(self, scaling: Scaling) -> View:
        assert self.scaling == Scaling(), "scaled already"
        return replace(self, scaling=scaling)

    def moved(self, coordinates: Coordinates) -> View:
        assert self == VIEW_AS_GIVEN, "moved or scaled already"
        return replace(self, coordinates=coordinates)

    @property
    def facts(self) -> list[Any]:
        """All numbers, for JSON; defaults are left out."""
        scaling, coordinates = self.scaling, self.coordinates
        result: list[Any] = [scaling.offset, scaling.scale]
        if scaling.slope or coordinates.origin:
            result += [scaling.slope, scaling.centre, coordinates.origin, coordinates.unit, coordinates.longitude]
        if coordinates.latitude >= 0:
            result += [coordinates.latitude]
        return result


VIEW_AS_GIVEN = View()


#: Longitudes are not turned unless an arc of this many degrees is empty: data all around the globe have no ends.
EMPTY = 60.0


def shortest_arc(low: Array, high: Array) -> tuple[float, float]:
    """Return the west and the east end of the shortest arc that contains intervals of longitude, (n,) each.

    If no arc of at least 60 degrees is empty, these are the lowest and the highest longitude.

    >>> longitudes = np.array([170.0, -175.0, 179.0])
    >>> shortest_arc(longitudes, longitudes), shortest_arc(longitudes[:1], longitudes[:1])
    ((170.0, 185.0), (170.0, 170.0))
    """
    first, last = float(low.min()), float(high.max())
    if last - first <= 180.0:
        return first, last
    starts = low % 360.0
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], (starts + (high - low))[order]
    reach = np.maximum.accumulate(ends)
    before = np.append(reach[-1] - 360.0, np.maximum(reach[:-1], reach[-1] - 360.0))
    after = int(np.argmax(starts - before))
    gap = float(starts[after] - before[after])
    if gap < EMPTY or last - first <= 360.0 - gap:
        return first, last
    west = float(low[order[after]])
    west -= 360.0 * float((west + 180.0) // 360.0)
    return west, west + 360.0 - gap


def turned_into(longitudes: Array, west: float, east: float) -> Array:
    """Return longitudes with whole turns added where they are outside an arc.

    >>> turned_into(np.array([170.0, -175.0]), 170.0, 185.0).tolist()
    [170.0, 185.0]
    """
    turns = np.round((longitudes - 0.5 * (west + east)) / 360.0)
    return np.asarray(longitudes - 360.0 * turns)


def kernels_in_coordinates(
    rule: CoordinateRule, kernels: Kernels, inputs: int | Sequence[str], mean: str = "zero"
) -> Kernels:
    """Return the kernels in the coordinates of a model.

    inputs: how many there are, or their names.

    >>> from fleetgp.kernels.expression import as_kernels
    >>> names, rule = ("lon", "lat", "day"), CoordinateRule("sphere", 0, 1)
    >>> (kernel,) = kernels_in_coordinates(rule, as_kernels("iso-matern32(lon, lat) * matern12(day)", names), names)
    >>> kernel.leaves[0].axes, kernel.names(names)
    ((0, 1, 3), ('l_lon_lat', 'l_day', 'sigma_f', 'sigma_eps'))
    """
    if rule.name != "sphere":
        return kernels
    if mean == "linear":
        raise InputError(
            'mean="linear" goes along longitude and latitude, which have seams on the sphere: expected mean="zero" or '
            '"constant", or coordinates="kilometres"'
        )
    third = inputs if isinstance(inputs, int) else len(inputs)
    names = [str(d + 1) for d in range(third)] if isinstance(inputs, int) else list(inputs)
    return tuple(_on_sphere(kernel, rule, third, names) for kernel in kernels)


def _on_sphere(kernel: Kernel, rule: CoordinateRule, third: int, names: Sequence[str]) -> Kernel:
    if not isinstance(kernel, Composite):
        raise _error(kernel, rule, names)
    leaves = []
    for one in kernel.leaves:
        if not {rule.longitude, rule.latitude} & {*one.axes}:
            leaves.append(one)
        elif isinstance(one, Scaled) and one.alike and {*_written(one)} == {rule.longitude, rule.latitude}:
            leaves.append(replace(one, axes=(*_written(one), third), named=_written(one)))
        else:
            raise _error(kernel, rule, names)
    return replace(kernel, leaves=tuple(leaves))


def _written(one: Leaf) -> tuple[int, ...]:
    """Return the inputs with which a user wrote a leaf."""
    return one.named if isinstance(one, Scaled) and one.named else one.axes


def _error(kernel: Kernel, rule: CoordinateRule, names: Sequence[str]) -> InputError:
    pair = f"{names[rule.longitude]}, {names[rule.latitude]}"
    return InputError(
        f'coordinates="sphere": expected one length-scale for {pair} wherever a kernel looks at them, got '
        f"{kernel.name!r}: write iso-matern32({pair}), say, times or plus kernels of other inputs"
    )


@dataclass(frozen=True)
class Points:
    """Queries. values: (T, D).  names: of the inputs.  units: of inputs and target by name, where they are known.

    target: its name.
    """

    values: Array
    names: tuple[str, ...]
    units: Mapping[str, str] = field(default_factory=dict)
    target: str = "y"

    def shown(self, values: Array, name: str) -> Any:
        """Return values of one input for people: times as times."""
        unit = time_unit_of(self.units.get(name))
        return values if unit is None else times_of_numbers(values, unit)


def names_of(inputs: Sequence[str] | None, dimension: int) -> tuple[str, ...]:
    """Return the inputs' names, by default x1, x2, ..."""
    return tuple(inputs) if inputs is not None else tuple(f"x{d + 1}" for d in range(dimension))


def coordinate_facts(name: str, units: Mapping[str, str]) -> dict[str, str]:
    """Return a coordinate's attributes for a file; longitudes and latitudes are known by their names.

    >>> coordinate_facts("lon", {}), coordinate_facts("depth", {"depth": "m"})
    ({'units': 'degrees_east', 'standard_name': 'longitude'}, {'long_name': 'depth', 'units': 'm'})
    """
    own = units.get(name, "")
    if name.lower() in LONGITUDE_NAMES:
        return {"units": own or "degrees_east", "standard_name": "longitude"}
    if name.lower() in LATITUDE_NAMES:
        return {"units": own or "degrees_north", "standard_name": "latitude"}
    units_of_name = {"units": own} if own and time_unit_of(own) is None else {}  # xarray encodes times itself
    return {"long_name": name, **units_of_name}
