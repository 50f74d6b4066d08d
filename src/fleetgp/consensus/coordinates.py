"""The coordinates of a model, agreed by the fleet: the centre of its inputs, and their deviations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus.fleet_moments import outer_corners
from fleetgp.consensus.reductions import Reduction
from fleetgp.consensus.scaling import DEVIATIONS
from fleetgp.data.coordinates import AS_GIVEN, CoordinateRule, Coordinates, distortion, local_units
from fleetgp.data.longitudes import rows_along_arc
from fleetgp.data.streamed import Streamed, dimension_of, summaries_of
from fleetgp.data.summary import Summary
from fleetgp.errors import InputError
from fleetgp.model.observations import Observations
from fleetgp.network import MAXIMUM, SUM

#: Degrees of longitude from the centre that a local projection can have at all.
FARTHEST = 90.0
#: The widest longitudes of one agent, and the highest latitude, that it can have.
WIDEST, HIGHEST = 180.0, 89.0


def agree_on_coordinates(reduction: Reduction, shards: Sequence[Observations], rule: CoordinateRule) -> Coordinates:
    """One reduction for scaled inputs and for the sphere, two for kilometres, none as they are given."""
    if rule.name == "as-given":
        return AS_GIVEN
    if rule.name == "sphere":
        return _sphere(reduction, shards, rule)
    return _scaled(reduction, shards) if rule.name == "scaled" else _local(reduction, shards, rule)


def _scaled(reduction: Reduction, shards: Sequence[Observations]) -> Coordinates:
    """The mean and the standard deviation of each input."""
    own = [
        np.column_stack([np.full(len(one.centre), float(one.count)), one.centre, np.diagonal(one.spread)])
        for one in summaries_of(shards)
    ]
    count, centre, squares = reduction.merged(np.stack(own), DEVIATIONS).T
    unit = np.sqrt(squares / count)
    return Coordinates("scaled", tuple(centre.tolist()), tuple(np.where(unit > 0.0, unit, 1.0).tolist()))


def _local(reduction: Reduction, shards: Sequence[Observations], rule: CoordinateRule) -> Coordinates:
    """Kilometres about the mean of all places; that of longitudes is one of directions, which has no seam."""
    dimension = dimension_of(shards)
    # Every agent turns its own longitudes into one piece; the rows of files are not looked at again.
    pieces = shards if isinstance(shards, Streamed) else [rows_along_arc([shard], rule)[0] for shard in shards]
    known = summaries_of(pieces)

    def centre(total: Array, _: object) -> Array:
        count, east, north, latitude = total[0]
        return np.array([[np.degrees(np.arctan2(north, east)), latitude / count]])

    sums = np.stack([_directions(one, rule) for one in known])[:, None]
    ((longitude, latitude),) = reduction.merged(sums, SUM, finish=centre, told=(2,)).tolist()

    def judged(total: Array, _: object) -> Array:
        east, _, north, south = total[0].tolist()
        possible = _error(*total[0].tolist()) == ""
        return np.append(total[0], distortion(latitude, -south, north, east) if possible else 0.0)[None]

    reach = np.stack([_reach(one, rule, longitude) for one in known])[:, None]
    (found,) = reduction.merged(reach, MAXIMUM, finish=judged, told=(5,)).tolist()
    if told := _error(*found[:4]):
        raise InputError(f'coordinates="kilometres": {told}')
    origin = [0.0] * dimension
    origin[rule.longitude], origin[rule.latitude] = longitude, latitude
    return Coordinates("kilometres", tuple(origin), local_units(rule, latitude, dimension), rule.longitude, found[4])


def _sphere(reduction: Reduction, shards: Sequence[Observations], rule: CoordinateRule) -> Coordinates:
    """Nothing has to be agreed on but that all are on it: whoever is not, all know. Other latitudes are not told."""
    dimension = dimension_of(shards)
    ends = np.array([[one.high[rule.latitude], -one.low[rule.latitude]] for one in summaries_of(shards)])
    north, south = reduction.maximum(np.where(ends > 90.0, ends, 0.0)).tolist()
    if max(north, south) > 90.0:
        raise InputError(
            f'coordinates="sphere": expected latitudes from -90 to 90, got {north or -south:g}: are the inputs swapped?'
        )
    as_is = (0.0,) * dimension, (1.0,) * dimension
    return Coordinates("sphere", *as_is, rule.longitude, latitude=rule.latitude)


def _directions(one: Summary, rule: CoordinateRule) -> Array:
    """(count, and the sums of cosines and sines of longitude and of latitudes), as if all were at the centre."""
    longitude, latitude = np.radians(one.centre[rule.longitude]), one.centre[rule.latitude]
    return one.count * np.array([1.0, np.cos(longitude), np.sin(longitude), latitude])


def _reach(one: Summary, rule: CoordinateRule, longitude: float) -> Array:
    """How far the longitudes are from the centre, and from each other; the latitudes' end in the north and south.

    Rounded outwards, so that no number is a row's place; within the limits, where the exact ones are.
    """
    high, low = np.split(outer_corners(one.low, one.high), 2)
    exact = _ends(one.low, one.high, rule, longitude)
    limits = np.array([FARTHEST, WIDEST, HIGHEST, HIGHEST])
    return np.where(exact <= limits, np.minimum(_ends(-low, high, rule, longitude), limits), exact)


def _ends(low: Array, high: Array, rule: CoordinateRule, longitude: float) -> Array:
    ends = np.array([low[rule.longitude], high[rule.longitude]])
    apart = ends - longitude
    apart -= 360.0 * np.round(apart / 360.0)
    return np.array([np.abs(apart).max(), np.ptp(ends), high[rule.latitude], -low[rule.latitude]])


def _error(east: float, width: float, north: float, south: float) -> str:
    """Why there is no local projection for data that reach so far; empty if there is one."""
    if max(north, south) > 90.0:
        return f"expected latitudes from -90 to 90, got some from {-south:g} to {north:g}: are the inputs swapped?"
    if width > WIDEST:
        return (
            f"expected longitudes of each agent within 180 degrees, got some {width:g} degrees apart: give "
            'coordinates="sphere"; if the data are in files and cross 180 degrees, give longitudes from 0 to 360'
        )
    if east > FARTHEST or max(north, south) > HIGHEST:
        return (
            f"expected places within {FARTHEST:g} degrees of longitude from their centre and below {HIGHEST:g} degrees "
            f"of latitude, got {east:g} and {max(north, south):g}: a plane is no map of them"
        )
    return ""
