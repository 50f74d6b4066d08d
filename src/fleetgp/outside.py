"""Points that the data say nothing about, in words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.data.partition import Shard


def told_of_outside(queries: Array, uninformed: BoolArray, shards: Sequence[Shard], names: Sequence[str] | None) -> str:
    """How many points are no better known than the prior, where the data are, and what may be wrong; or nothing."""
    count = int(uninformed.sum())
    if not count:
        return ""
    first = int(np.flatnonzero(uninformed)[0])
    low = np.min([x.min(axis=0) for x, _ in shards], axis=0)
    high = np.max([x.max(axis=0) for x, _ in shards], axis=0)
    labels = names or [f"input {d + 1}" for d in range(len(low))]
    place = ", ".join(f"{value:.6g}" for value in queries[first])
    ranges = "; ".join(f"{name} {a:.6g} to {b:.6g}" for name, a, b in zip(labels, low, high, strict=True))
    return (
        f"{count} of {len(queries)} points are no better known than the prior, which is all their answer says "
        f"(first: row {first}, at {place}); the data cover {ranges}" + _turned(queries[uninformed], low, high, labels)
    )


def _turned(outside: Array, low: Array, high: Array, labels: Sequence[str]) -> str:
    """The hint that longitudes run from 0 to 360 in one place and from -180 to 180 in the other."""
    for d, name in enumerate(labels):
        values = outside[:, d]
        if low[d] < -180.0 or high[d] > 360.0 or ((values >= low[d]) & (values <= high[d])).any():
            continue
        for shift, word in ((-360.0, "subtract"), (360.0, "add")):
            inside = (values + shift >= low[d]) & (values + shift <= high[d])
            if inside.mean() > 0.5:
                verb = f"{word} 360 {'from' if shift < 0 else 'to'}"
                return f". Are these longitudes from {'0 to 360' if shift < 0 else '-180 to 180'}? Then {verb} {name}"
    return ""
