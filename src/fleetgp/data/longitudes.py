"""Longitudes along the shortest arc that holds them: data on both sides of 180 degrees lie next to each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fleetgp.arrays import Array
from fleetgp.data.coordinates import CoordinateRule
from fleetgp.data.streamed import Streamed, summaries_of
from fleetgp.data.summary import Summary
from fleetgp.data.suspicions import LONGITUDE_NAMES
from fleetgp.model.observations import Observations

#: Longitudes stay as they are given unless an arc of so many degrees is empty: data all around the globe have no ends.
EMPTY = 60.0


def shortest_arc(low: Array, high: Array) -> tuple[float, float]:
    """The west and the east end of the shortest arc that holds intervals of longitude, (n,) each.

    Without an empty arc of at least 60 degrees inside them, the lowest and the highest longitude.

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
    """The same places, with whole turns added where a longitude is outside an arc.

    >>> turned_into(np.array([170.0, -175.0]), 170.0, 185.0).tolist()
    [170.0, 185.0]
    """
    turns = np.round((longitudes - 0.5 * (west + east)) / 360.0)
    return np.asarray(longitudes - 360.0 * turns)


def arc_of(shards: Sequence[Observations], longitude: int) -> tuple[float, float]:
    """The shortest arc that holds the longitudes of all rows; of data in files, that of their agents' intervals."""
    if isinstance(shards, Streamed):
        low, high = (np.array([getattr(one, end)[longitude] for one in shards.summaries]) for end in ("low", "high"))
        return shortest_arc(low, high)
    values = np.concatenate([one.inputs[:, longitude] for one in shards])
    return shortest_arc(values, values)


def rows_along_arc(shards: Sequence[Observations], rule: CoordinateRule) -> list[Observations]:
    """Rows in memory, with longitudes along their shortest arc if the coordinates know which input these are."""
    if rule.longitude < 0:
        return list(shards)
    arc = arc_of(shards, rule.longitude)
    found = []
    for one in shards:
        own = one.inputs[:, rule.longitude]
        turned = turned_into(own, *arc)
        if not np.array_equal(own, turned):
            inputs = one.inputs.copy()
            inputs[:, rule.longitude] = turned
            one = one.at(inputs)
        found.append(one)
    return found


def summaries_along_arc(shards: Sequence[Observations], rule: CoordinateRule) -> Sequence[Summary]:
    """One per agent, with longitudes along the shortest arc of all data; nothing is loaded."""
    if not isinstance(shards, Streamed):
        return summaries_of(rows_along_arc(shards, rule))
    if rule.longitude < 0:
        return shards.summaries
    west, east = arc_of(shards, rule.longitude)
    found = []
    for one in shards.summaries:
        middle = 0.5 * (one.low + one.high)[rule.longitude : rule.longitude + 1]
        turn = np.zeros(len(one.low))
        turn[rule.longitude] = (turned_into(middle, west, east) - middle)[0]
        found.append(replace(one, low=one.low + turn, high=one.high + turn, centre=one.centre + turn))
    return found


def told_of_seam(shards: Sequence[Observations], names: Sequence[str], rule: CoordinateRule) -> list[str]:
    """Sentences on inputs called longitude whose data lie on both sides of 180 degrees (or of 0, from 0 to 360) where
    the coordinates take them for numbers.
    """
    if rule.longitude >= 0:
        return []
    found = []
    for d, name in enumerate(names):
        if name.strip().lower() not in LONGITUDE_NAMES:
            continue
        known = summaries_of(shards)
        low, high = min(one.low[d] for one in known), max(one.high[d] for one in known)
        west, east = arc_of(shards, d)
        if low < -180.0 or high > 360.0 or high - low <= east - west:
            continue
        other = "0 to 360" if low < 0.0 else "-180 to 180"
        found.append(
            f"input {name!r} runs from {low:g} to {high:g}, but all its values lie within {east - west:.3g} degrees of "
            f'longitude: with coordinates="{rule.name}" the two ends are {high - low:.3g} degrees apart. Give '
            f'coordinates="kilometres", or "sphere" for large areas (--coordinates), or longitudes from {other}'
        )
    return found
