"""Data that grow: which rows have come since."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fleetgp.data.partition import Shard


def added(before: Sequence[Shard], now: Sequence[Shard]) -> list[Shard] | None:
    """The rows that have come to each data set, at its end; None if anything else is different.

    >>> X, y = np.arange(6.0).reshape(3, 2), np.arange(3.0)
    >>> [len(rows) for _, rows in added([(X[:2], y[:2]), (X, y)], [(X, y), (X, y)])], added([(X, y)], [(X[1:], y[1:])])
    ([1, 0], None)
    """
    if len(before) != len(now):
        return None
    sizes = [len(y) for _, y in before]
    firsts = [new if new is old else (new[0][:n], new[1][:n]) for old, new, n in zip(before, now, sizes, strict=True)]
    return [(x[n:], y[n:]) for (x, y), n in zip(now, sizes, strict=True)] if same_data(before, firsts) else None


def same_data(one: Sequence[Shard], other: Sequence[Shard]) -> bool:
    """Whether two lists of data sets hold the same numbers."""
    return len(one) == len(other) and all(
        mine is its or all(a is b or np.array_equal(a, b) for a, b in zip(mine, its, strict=True))
        for mine, its in zip(one, other, strict=True)
    )
