"""What the verdicts of `fleetgp.data.suspicions` should be: by formulas for a whole column at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fleetgp.arrays import Array
from fleetgp.data.suspicions import (
    DISTINCT,
    FILLS,
    LONGITUDE_NAMES,
    REPEATED,
    are_dates,
    describe_copies,
    describe_fill,
    describe_input,
    duplicated_rows,
    far,
    fill_error,
    is_any_of,
    mixed_error,
)
from fleetgp.errors import InputError


def fill_value(values: Array, *, repeated: bool = False, among: Array | None = None) -> tuple[float, int] | None:
    """A value that looks like a fill value, and how often it occurs; None if there is none. NaN is ignored.

    repeated: a lowest or highest value that occurs often counts too. Only for a target: inputs do repeat, at a mooring.
    among: values that were there before, to judge the new ones by.

    >>> fill_value(np.array([12.1, 13.0, -9999.0, 12.7])), fill_value(np.array([-9999.0, 0.0, 9000.0]))
    ((-9999.0, 1), None)
    >>> fill_value(np.append(np.linspace(6, 25, 50), [-99.9] * 3), repeated=True)
    (-99.9, 3)
    """
    new = values[np.isfinite(values)]
    known = new if among is None else np.concatenate([among, new])
    rest = known[~is_any_of(known, FILLS)]
    for value in np.unique(new[is_any_of(new, FILLS)]).tolist():
        if _far(value, rest):
            return value, int((new == value).sum())
    if repeated and rest.size:
        for end in (float(rest.min()), float(rest.max())):
            others = rest[rest != end]
            often = len(rest) - len(others) >= REPEATED and bool((new == end).any())
            if often and len(np.unique(others)) >= DISTINCT and _far(end, others):
                return end, int((new == end).sum())
    return None


def _far(value: float, rest: Array) -> bool:
    return bool(rest.size) and far(value, float(rest.min()), float(rest.max()))


def mixed_longitudes(name: str, values: Array) -> str:
    """What is wrong with a column of longitudes that runs below 0 and above 180; empty if nothing is."""
    if name.strip().lower() not in LONGITUDE_NAMES or not values.size:
        return ""
    west, east = int((values < 0.0).sum()), int((values > 180.0).sum())
    if not (west and east):
        return ""
    return mixed_error(name, west, east)


def refuse_directly(
    columns: Array, names: Sequence[str], where: str, *, fills: bool, of_agent: bool = False, among: Array | None = None
) -> None:
    """One clear error for fill values (unless they were dealt with) and mixed longitudes in the columns of a table.

    The last column is the target.  of_agent: the rows are a running agent's, whose settings are in fleet.toml.
    among: rows that were there before, to judge these by.
    """
    for column, (name, values) in enumerate(zip(names, columns.T, strict=True)):
        before = None if among is None else among[:, column]
        found = fill_value(values, repeated=column == len(names) - 1, among=before) if fills else None
        if found is not None:
            raise InputError(fill_error(where, name, *found, of_agent=of_agent))
        mixed = mixed_longitudes(name, values[np.isfinite(values)])
        if mixed:
            raise InputError(f"{where}: {mixed}")


def suspicions_directly(inputs: Array, observations: Array, names: Sequence[str]) -> list[str]:
    """The same as sentences, for data that did not come from a file; and rows that come twice."""
    told = []
    for name, values in zip((*names, "y"), (*inputs.T, observations), strict=True):
        found = fill_value(values, repeated=values is observations)
        if found is not None:
            told.append(describe_fill(name, *found))
        mixed = mixed_longitudes(name, values)
        if mixed:
            told.append(mixed)
        if values is not observations:
            constant = len(values) > 1 and bool(values.min() == values.max())
            told += describe_input(name, constant=constant, dates=are_dates(values))
    copies = duplicated_rows(np.column_stack([inputs, observations]))
    return [*told, *([describe_copies(str(copies), len(observations))] if copies else [])]
