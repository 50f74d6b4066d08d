"""Rows that leave a fleet: which ones, what stays of them in groups, and the receipt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.consensus.agreements import FEWEST_ROWS
from fleetgp.data.conditions import Comparison, Condition
from fleetgp.data.times import moment
from fleetgp.errors import InputError, shortened
from fleetgp.model.observations import Observations
from fleetgp.options import Keep
from fleetgp.prediction.groups import NONE, split
from fleetgp.prediction.kept import KeptGroups
from fleetgp.units import counted

#: The name of the request that brought each row of an agent, (N,); "" for none.
Requests = NDArray[np.object_]
#: The rows of each group.
Groups = tuple[IntArray, ...]
#: Rows of a kept group, at least, where there are enough. docs/memory.md has the errors with 10, 20 and 40.
COARSE = 20
#: Rows that leave together do so as soon as this part of an agent's rows is too old.
SLACK = 0.1
#: An agent keeps so many rows, its newest ones, however old they are.
NEWEST = FEWEST_ROWS


@dataclass(frozen=True)
class Removal:
    """The receipt of rows that have left: what was removed, and from what.

    agent: its name.  rows: how many rows have left.  remaining: how many rows it has now.
    summarized: how many of the rows that left stay in kept groups.
    groups: how many groups were withdrawn, because a row of them has left.  waiting: how many of their rows remain, and
        wait until they make new groups.
    kept_groups, kept_rows: how many kept groups were removed whole, because they may contain such a row, and how many
        forgotten rows they were made of.
    overdue: how many rows are too old, but stay until they can leave together with others.
    ended: results that used these rows. Moments and samples are recomputed when they are next needed; a calibration has
        to be repeated.

    >>> from fleetgp import Fleet, partition, synthetic_field
    >>> field = synthetic_field(60, seed=1)
    >>> fleet = Fleet(partition(field.inputs, field.observations, agents=3), theta=[1.2, 0.3, 1.3, 0.1])
    >>> print(fleet.remove(1, [3, 4]))
    agent 1: 2 rows removed, 18 remain
    """

    agent: str
    rows: int
    remaining: int
    summarized: int = 0
    groups: int = 0
    waiting: int = 0
    kept_groups: int = 0
    kept_rows: int = 0
    overdue: int = 0
    ended: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [f"agent {self.agent}: {counted(self.rows, 'row')} removed, {self.remaining:,} remain"]
        if self.summarized:
            parts.append(f"{self.summarized:,} of the removed rows stay in kept groups")
        if self.groups:
            parts.append(f"{counted(self.groups, 'group')} withdrawn, {counted(self.waiting, 'row')} of them wait")
        if self.kept_groups:
            whole = f"{counted(self.kept_groups, 'kept group')} removed whole"
            parts.append(f"{whole}, made of {counted(self.kept_rows, 'forgotten row')}")
        if self.overdue:
            parts.append(f"{counted(self.overdue, 'row')} overdue: they leave together with others")
        if self.ended:
            parts.append(f"ended: {', '.join(self.ended)}")
        return "; ".join(parts)


# ---- which rows ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Selection:
    """Rows of an agent that are asked for: (N,) which, and (G,) which kept groups may contain such rows."""

    rows: BoolArray
    kept: BoolArray


def select(
    data: Observations,
    kept: KeptGroups,
    names: Sequence[str],
    units: Mapping[str, str],
    time: int | None,
    requests: Requests | None,
    given: Mapping[str, Any],
) -> Selection:
    """Return what one of the selectors rows, where, between and request asks for. names: of inputs and target."""
    chosen = [name for name, value in given.items() if value is not None]
    if len(chosen) != 1:
        raise InputError(f"remove: expected one of {', '.join(given)}, got {' and '.join(chosen) or 'none of them'}")
    (name,), value = chosen, given[chosen[0]]
    nowhere = np.zeros(len(kept), dtype=bool)
    if name == "rows":
        return Selection(_checked_rows(value, len(data)), nowhere)
    if name == "request":
        if not isinstance(value, str) or not value:
            raise InputError(f"request: expected the name that observe() was given, got {shortened(value)}")
        rows = np.zeros(len(data), dtype=bool) if requests is None else np.asarray(requests == value, dtype=bool)
        groups = np.array([value in some for some in kept.requests], dtype=bool)
        if not rows.any() and not groups.any():
            raise InputError(f"remove: the agent has no rows that were observed as the request {value!r}")
        return Selection(rows, groups)
    condition = Condition.parsed(value, names, units) if name == "where" else _between(value, names, units, time)
    may = [condition.may_hold(low, high) for low, high in zip(kept.low, kept.high, strict=True)]
    return Selection(condition.rows(np.column_stack([data.inputs, data.values])), np.array(may, dtype=bool))


def _checked_rows(rows: Any, count: int) -> BoolArray:
    try:
        array = np.atleast_1d(np.asarray(rows))
    except ValueError:
        array = np.zeros((0, 0))
    if array.dtype == bool and array.shape == (count,):
        return array.copy()
    if array.ndim != 1 or array.dtype == bool or not (array.size == 0 or np.issubdtype(array.dtype, np.integer)):
        raise InputError(
            f"rows: expected the numbers of rows from 0 to {count - 1}, or a mask of {count}, got {shortened(rows)}"
        )
    wrong = array[(array < 0) | (array >= count)]
    if wrong.size:
        raise InputError(f"rows: expected the numbers of rows from 0 to {count - 1}, got {wrong[0]}")
    result = np.zeros(count, dtype=bool)
    result[array.astype(np.int64)] = True
    return result


def _between(value: Any, names: Sequence[str], units: Mapping[str, str], time: int | None) -> Condition:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise InputError(f"between: expected two points in time, the first and the last, got {shortened(value)}")
    time = needed(time, "between")
    first, last = (moment(one, units.get(names[time]), "between") for one in value)
    if first > last:
        raise InputError(f"between: expected the earlier point in time first, got {shortened(value)}")
    return Condition((Comparison(time, ">=", first), Comparison(time, "<=", last)))


def needed(time: int | None, what: str) -> int:
    """Return the input that is the time, which an argument needs."""
    if time is None:
        raise InputError(
            f"{what}: expected one input that is the time, got none: give dates, or name the input by time "
            "(--time on the command line)"
        )
    return time


@dataclass(frozen=True)
class Limit:
    """What is too old: rows before a point in time, and more than so many rows. None for no limit."""

    before: float | None = None
    max_rows: int | None = None

    def exceeded(self, times: Array | None, count: int) -> BoolArray:
        """(N,) which rows of an agent are too old, in the order of their arrival. times: (N,), if they have any.

        >>> Limit(before=2.0, max_rows=6).exceeded(np.array([9.0, 1.0, 3.0, 5.0, 4.0, 8.0, 7.0, 6.0]), 8).tolist()
        [False, True, True, False, False, False, False, False]
        """
        order = np.arange(count) if times is None else np.argsort(times, kind="stable")
        result = np.zeros(count, dtype=bool)
        if self.before is not None and times is not None:
            result |= times < self.before
        if self.max_rows is not None and count > self.max_rows:
            result[order[: count - self.max_rows]] = True
        result[order[-NEWEST:]] = False
        return result


# ---- without breaking what others hold -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Departure:
    """Rows of an agent that leave, and the groups that they make where they are kept.

    rows: (N,) which.  sent: the groups that have been sent as far as they stay, as rows from before.
    groups: the rows of each kept group.  withdrawn, waiting: see `Removal`.
    """

    rows: BoolArray
    sent: Groups
    groups: Groups = ()
    withdrawn: int = 0
    waiting: int = 0


def removed(rows: BoolArray, sent: Groups) -> Departure:
    """Rows that are taken back: every group that had one of them is withdrawn. sent: by the agent."""
    lost = [some for some in sent if rows[some].any()]
    waiting = sum(int((~rows[some]).sum()) for some in lost)
    return Departure(rows, tuple(some for some in sent if not rows[some].any()), (), len(lost), waiting)


def forgotten(rows: BoolArray, sent: Groups, keep: Keep, places: Array, *, patient: bool) -> Departure:
    """Rows that are too old, as far as they can leave.

    A difference of two summaries must not describe fewer rows than a group. So groups that were sent leave whole. Those
    with rows that are not too old are joined with near ones and cut in two groups: of what leaves, and of what stays.

    places: (N, D) in units in which near rows are near.  patient: whether rows may wait for others, so that near ones
    are joined: those of groups that are cut, and all that are kept.
    """
    least, enough = min(map(len, sent), default=0), max(COARSE, SLACK * len(rows)) if patient else 0
    cut = [some for some in sent if rows[some].any() and not rows[some].all()]
    of_cut = np.zeros_like(rows)
    of_cut[np.concatenate([NONE, *cut])] = True
    at_once, together = rows & ~of_cut, rows & of_cut
    if keep == "summary" and at_once.sum() < enough:
        at_once[:] = False
    if together.sum() < enough:
        together[:] = False
    leave = [some for some in sent if at_once[some].any()]
    stay = [some for some in sent if not at_once[some].any() and not together[some].any()]
    for joined in _joined([some for some in cut if together[some].any()], rows, least, places):
        group = np.sort(np.concatenate(joined))
        if sum(_smaller(rows[some]) for some in joined) >= least:
            leave, stay = [*leave, group[rows[group]]], [*stay, group[~rows[group]]]
        else:
            together[group], stay = False, [*stay, *joined]
    free = at_once.copy()
    free[np.concatenate([NONE, *sent])] = False
    kept = _coarse(np.flatnonzero(free), leave, places, max(NEWEST, least)) if keep == "summary" else ()
    withdrawn = sum(bool((at_once | together)[some].any()) for some in sent)
    return Departure(at_once | together, tuple(stay), kept, withdrawn)


def _joined(groups: Sequence[IntArray], rows: BoolArray, least: int, places: Array) -> list[list[IntArray]]:
    """Groups that are to be cut, joined with near ones until any difference of them and the two parts is a group."""
    if not groups:
        return []
    smaller = np.array([_smaller(rows[some]) for some in groups])
    centres = np.array([places[some].mean(axis=0) for some in groups])
    return [[groups[i] for i in part] for part in split(centres, least, smaller)]


def _smaller(rows: BoolArray) -> int:
    """The size of the smaller part of a group: so many rows at least are in a difference of the group and a part."""
    return int(min(rows.sum(), (~rows).sum()))


def _coarse(free: IntArray, groups: Sequence[IntArray], places: Array, least: int) -> Groups:
    """Kept groups of rows that leave: of groups that were sent, and of rows that were in none, if they suffice."""
    result = [free[some] for some in split(places[free], COARSE)] if len(free) >= least else []
    if groups:
        centres, counts = np.array([places[some].mean(axis=0) for some in groups]), np.array(list(map(len, groups)))
        result += [np.concatenate([groups[i] for i in part]) for part in split(centres, COARSE, counts)]
    return tuple(result)


def renumbered(groups: Groups, gone: BoolArray) -> Groups:
    """Return groups of rows as rows of what remains."""
    numbers = np.cumsum(~gone) - 1
    return tuple(numbers[some] for some in groups)


def summarized(own: Observations, inputs: Array, groups: Groups, requests: Requests | None) -> KeptGroups:
    """Return kept groups of an agent's rows. inputs: (N, D) with longitudes without a seam."""
    table = np.column_stack([own.inputs, own.values])
    return KeptGroups.of(own.at(inputs), groups, requests, table)
