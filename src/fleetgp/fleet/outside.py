"""Points that the data say nothing about, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.data.coordinates import CoordinateRule
from fleetgp.data.longitudes import summaries_along_arc
from fleetgp.data.summary import corners
from fleetgp.data.times import told_value
from fleetgp.model.observations import Observations


def told_of_outside(
    queries: Array,
    uninformed: BoolArray,
    shards: Sequence[Observations],
    names: Sequence[str] | None,
    units: Mapping[str, str],
    rule: CoordinateRule,
    what: str = "points are no better known than the prior, which is all their answer says",
) -> str:
    """How many points the data say nothing about, where the data are, and what may be wrong; empty for none.

    units: of the inputs by name, where they are known; times are told as dates.  rule: which input is a longitude.
    """
    count = int(uninformed.sum())
    if not count:
        return ""
    first = int(np.flatnonzero(uninformed)[0])
    low, high = corners(summaries_along_arc(shards, rule))
    labels = names or [f"input {d + 1}" for d in range(len(low))]
    told = [
        (name, *(told_value(value, units.get(name)) for value in values))
        for name, *values in zip(labels, queries[first], low, high, strict=True)
    ]
    place = ", ".join(f"{name} {value}" for name, value, _, _ in told)
    ranges = ", ".join(f"{name} {a} to {b}" for name, _, a, b in told)
    hint = _turned(queries[uninformed], low, high, labels, rule.longitude)
    return (
        f"{count:,} of {len(queries):,} {what} (first: number {first + 1}, at {place}); the data cover {ranges}{hint}"
    )


def _turned(outside: Array, low: Array, high: Array, labels: Sequence[str], known: int) -> str:
    """The hint that longitudes run from 0 to 360 in one place and from -180 to 180 in the other.

    known: the input for which it makes no difference, -1 for none.
    """
    for d, name in enumerate(labels):
        values = outside[:, d]
        if d == known or low[d] < -180.0 or high[d] > 360.0 or ((values >= low[d]) & (values <= high[d])).any():
            continue
        for shift, verb in ((-360.0, "subtract 360 from"), (360.0, "add 360 to")):
            if ((values + shift >= low[d]) & (values + shift <= high[d])).any():
                return f". Are these longitudes from {'0 to 360' if shift < 0 else '-180 to 180'}? Then {verb} {name}"
    return ""
