"""Agents and queries as a caller gives them: names for numbers, times, and the cells of a dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import numpy as np

from fleetgp.data.times import are_dates_as_text, are_times, numbers_of_times, time_unit_of
from fleetgp.errors import InputError, listed, shortened
from fleetgp.validation import column_names

#: An agent, by its number or, where the data have names for them, by its name.
AgentName = int | str


def check_agent(agent: object, labels: Sequence[str] | int) -> int:
    """Return the number of an agent, given by its number or its name. labels: the agents' names, or how many there are.

    >>> check_agent("Bo", ("Ada", "Bo")), check_agent(0, ("Ada", "Bo"))
    (1, 0)
    """
    count = labels if isinstance(labels, int) else len(labels)
    numbers = tuple(map(str, range(count)))
    named = numbers if isinstance(labels, int) else tuple(labels)
    if isinstance(agent, str) and agent in named:
        return named.index(agent)
    if isinstance(agent, int | np.integer) and not isinstance(agent, bool) and 0 <= agent < count:
        return int(agent)
    if named != numbers:
        raise InputError(
            f"agent: expected a name ({listed(named)}), or a number from 0 to {count - 1}, got {shortened(agent)}"
        )
    raise InputError(f"agent must lie between 0 and {count - 1}, got {shortened(agent)}")


def cells_as_frame(data: Any, inputs: Sequence[str] | None, time: str | None = None) -> Any:
    """Return the cells of an xarray Dataset or DataArray as a data frame of the inputs; anything else as it is.

    time: the input that may be missing.

    There is a row for each combination along the axes of the inputs, in the order of the data's axes, the last fastest.
    """
    if not hasattr(data, "dims") or not hasattr(data, "coords"):
        return data
    kind = type(data).__name__
    if inputs is None:
        raise InputError(f"queries: a {kind} needs a fleet whose inputs have names: Fleet(.., inputs=[..])")
    here = {*data.coords, *getattr(data, "data_vars", ())}
    inputs = [name for name in inputs if name in here or name != time]
    if missing := [name for name in inputs if name not in here]:
        raise InputError(
            f"queries: expected a {kind} with the coordinates {', '.join(inputs)}, got "
            f"{', '.join(map(str, data.coords)) or 'none'}: add {missing[0]!r}"
        )
    import pandas as pd  # xarray needs it, so it is there
    import xarray as xr

    cells = xr.broadcast(*(data[name].reset_coords(drop=True) for name in inputs))
    axes = [axis for axis in data.dims if axis in cells[0].dims]
    return pd.DataFrame({name: own.transpose(*axes).values.ravel() for name, own in zip(inputs, cells, strict=True)})


def with_numbers(frame: Any, units: Mapping[str, str]) -> Any:
    """Return a data frame with times as numbers, for inputs that are times; anything else as it is."""
    columns = column_names(frame, "queries")
    times = [name for name, unit in units.items() if time_unit_of(unit) is not None]
    if columns is None and times and _has_dates(frame):
        raise InputError(
            f"{times[0]!r} is a time: dates need a data frame, with a column {times[0]!r}, got them in an array"
        )
    names = [name for name in units if name in (columns or ()) and hasattr(frame, "assign")]
    numbers = {}
    for name in names:
        unit, values = time_unit_of(units[name]), frame[name]
        if unit is not None and (are_times(values) or are_dates_as_text(values)):
            numbers[name] = numbers_of_times(values, unit, f"queries: {name!r}")
    return frame.assign(**numbers) if numbers else frame


def _has_dates(values: Any) -> bool:
    """Whether an array or lists contain a text, a date or a time."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        return False
    items = np.asarray(values, dtype=object).ravel()
    return any(isinstance(value, str | date | np.datetime64) for value in items)
