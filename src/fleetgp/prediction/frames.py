"""An answer as a data frame or as a dataset. Needs the extra "data" (pandas, xarray)."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from fleetgp.arrays import Array
from fleetgp.data.points import Points, coordinate_facts, names_of
from fleetgp.errors import InputError
from fleetgp.given import as_numbers, column_names
from fleetgp.io.formats import pandas_for
from fleetgp.io.sst import xarray

#: Of the target itself: columns whose units are its own.
OF_TARGET = ("mean", "std", "std_observed")


def answer_frame(points: Points | None, columns: Mapping[str, Any], queries: Any) -> Any:
    """The columns of an answer beside the queries that were asked, or beside those that are given."""
    pd = pandas_for("to_frame")
    count = len(next(iter(columns.values())))
    if queries is not None:
        named = column_names(queries, "queries") is not None
        given: Any = queries if named else as_numbers(queries, "queries")
        if given.ndim != 2 or len(given) != count:
            raise InputError(f"queries: expected those of the answer, {count} rows, got the shape {np.shape(given)}")
        inputs = {name: given[name].to_numpy() for name in given.columns} if named else {}
        inputs |= {} if named else dict(zip(names_of(None, given.shape[1]), given.T, strict=True))
    elif points is not None:
        inputs = {name: points.shown(own, name) for name, own in zip(points.names, points.values.T, strict=True)}
    else:
        raise InputError("to_frame: the answer does not know its queries: give them, to_frame(queries)")
    clash = [name for name in inputs if name in columns]
    if clash:
        raise InputError(f"the answer has a column {clash[0]!r} too: rename that of the queries")
    return pd.DataFrame({**inputs, **columns})


def shown_axis(points: Points, values: Array, name: str) -> Any:
    """The coordinates along an axis; times as xarray has them."""
    shown = points.shown(values, name)
    return shown.astype("datetime64[ns]") if shown.dtype.kind == "M" else shown


def answer_dataset(points: Points | None, columns: Mapping[str, Any]) -> Any:
    """The columns of an answer over the axes of the grid that its queries are, the last input first."""
    xr = xarray()
    if points is None:
        raise InputError("to_dataset: the answer does not know its queries: ask for all of them at once")
    found = [np.unique(own, return_inverse=True) for own in points.values.T]
    sizes = tuple(len(values) for values, _ in found)
    count = len(points.values)
    cells = np.ravel_multi_index(tuple(place for _, place in found), sizes) if count else np.zeros(0, dtype=np.int64)
    if not count or prod(sizes) != count or len(np.unique(cells)) != count:
        told = " x ".join(map(str, sizes))
        raise InputError(
            f"to_dataset: expected queries on a grid, every combination of their coordinates once, got {count} that "
            f"have {told} different coordinates: to_frame takes any"
        )
    shown = {name: shown_axis(points, values, name) for name, (values, _) in zip(points.names, found, strict=True)}
    axes = [name for name, size in zip(points.names, sizes, strict=True) if size > 1][::-1]
    order = np.argsort(cells)
    shape = [size for size in sizes if size > 1]
    unit = points.units.get(points.target, "")

    def variable(name: str, values: Any) -> tuple[Any, ...]:
        facts = {"units": unit} if unit and name in OF_TARGET else {}
        return axes, np.asarray(values)[order].reshape(shape).T, facts

    coordinates = {
        name: (name if name in axes else (), own if name in axes else own[0], coordinate_facts(name, points.units))
        for name, own in shown.items()
    }
    clash = [name for name in coordinates if name in columns]
    if clash:
        raise InputError(f"the dataset has a variable {clash[0]!r} too: rename that input")
    return xr.Dataset({name: variable(name, own) for name, own in columns.items()}, coords=coordinates)
