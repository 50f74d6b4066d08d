"""Data that grow: which rows have come since."""

from __future__ import annotations

from collections.abc import Sequence

from fleetgp.model.observations import Observations


def added(before: Sequence[Observations], now: Sequence[Observations]) -> list[Observations] | None:
    """The rows that have come to each data set, at its end; None if anything else is different.

    >>> import numpy as np
    >>> data = Observations(np.arange(6.0).reshape(3, 2), np.arange(3.0))
    >>> first, last = data.rows(slice(2)), data.rows(slice(1, None))
    >>> [len(rows) for rows in added([first, data], [data, data])], added([data], [last])
    ([1, 0], None)
    """
    if len(before) != len(now):
        return None
    sizes = [len(one) for one in before]
    firsts = [new if new is old else new.rows(slice(n)) for old, new, n in zip(before, now, sizes, strict=True)]
    return [new.rows(slice(n, None)) for new, n in zip(now, sizes, strict=True)] if same_data(before, firsts) else None


def same_data(one: Sequence[Observations], other: Sequence[Observations]) -> bool:
    """Whether two lists of data sets hold the same numbers."""
    return len(one) == len(other) and all(mine.same(its) for mine, its in zip(one, other, strict=True))
