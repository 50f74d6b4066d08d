"""Which rows of an agent are too old or too many: what a window and a largest number of rows let go."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fleetgp.arrays import Array, BoolArray, Keys, occurrences, row_hashes
from fleetgp.data.times import moment, time_unit_of


class Late(NamedTuple):
    """Rows that are to leave, (N,), and the horizon: rows with an earlier time leave, also those that come later."""

    rows: BoolArray
    horizon: float


@dataclass(frozen=True)
class Retention:
    """window: rows older than this leave, in units of the time.  max_rows: the oldest ones beyond this many leave.

    Without a time the rows are in the order in which they came. The newest row always stays.

    >>> Retention(2.0, 2).late(np.array([1.0, 3.0, 5.0, 4.0]), 4, -np.inf, 5.0)
    Late(rows=array([ True,  True, False, False]), horizon=4.0)
    >>> Retention(max_rows=2).late(None, 3, -np.inf, 0.0).rows.tolist()
    [True, False, False]
    """

    window: float | None = None
    max_rows: int | None = None

    def late(self, times: Array | None, count: int, horizon: float, now: float) -> Late:
        """times: (count,) of all rows that count.  horizon: as it is."""
        rows = np.zeros(count, dtype=bool)
        if times is not None and self.window is not None and count:
            horizon = max(horizon, min(now - self.window, float(times.max())))
            rows |= times < horizon
        beyond = 0 if self.max_rows is None else count - int(rows.sum()) - max(1, self.max_rows)
        if beyond > 0:
            stay = np.flatnonzero(~rows)
            order = stay if times is None else stay[np.argsort(times[stay], kind="stable")]
            rows[order[:beyond]] = True
            if times is not None:
                horizon = max(horizon, float(times[order[beyond]]))
        return Late(rows, horizon)


def now_of(times: Array, units: str | None) -> float:
    """Return the time of the newest row; where times are dates, none after the clock: its row may be wrong.

    >>> now_of(np.array([1.0, 3.0]), None), now_of(np.array([1.0, 1e6]), "days since 1970-01-01") < 1e6
    (3.0, True)
    """
    newest = float(times.max(initial=-np.inf))
    if time_unit_of(units) is None:
        return newest
    return min(newest, moment(datetime.datetime.now(datetime.UTC), units, "now"))


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
