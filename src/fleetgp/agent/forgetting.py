"""Rows that have left an agent: hashes by which those of its data file are known, and the time that counts as now."""

from __future__ import annotations

import datetime

import numpy as np

from fleetgp.arrays import Array, BoolArray, Keys, occurrences, row_hashes
from fleetgp.data.times import moment, time_unit_of


def now_of(times: Array, units: str | None, *, by_clock: bool = False) -> float:
    """Return the time of the newest row; where times are dates, none after the clock: its row may be wrong.

    by_clock: what the clock says, where times are dates.

    >>> now_of(np.array([1.0, 3.0]), None), now_of(np.array([1.0, 1e6]), "days since 1970-01-01") < 1e6
    (3.0, True)
    """
    newest = float(times.max(initial=-np.inf))
    if time_unit_of(units) is None:
        return newest
    clock = moment(datetime.datetime.now(datetime.UTC), units, "now")
    return clock if by_clock else min(newest, clock)


def keys_of_rows(rows: Array, columns: tuple[str, ...]) -> Keys:
    """(N,) a hash of each row, the same in any order of the columns."""
    return row_hashes(rows[:, np.argsort(columns)])


def without(rows: Array, columns: tuple[str, ...], keys: Keys) -> BoolArray:
    """(N,) which rows have not left. keys: of those that have, as often as they have.

    >>> rows = np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0], [1.0, 2.0]])
    >>> without(rows, ("b", "a"), keys_of_rows(rows[[0, 2]], ("b", "a"))).tolist()
    [False, True, False, True]
    """
    if not len(keys) or not len(rows):
        return np.ones(len(rows), dtype=bool)
    own = keys_of_rows(rows, columns)
    names, counts = np.unique(keys, return_counts=True)
    places = np.minimum(np.searchsorted(names, own), len(names) - 1)
    left = np.where(names[places] == own, counts[places], 0)
    return np.asarray(occurrences(own, np.arange(len(own), dtype=float)) >= left)
