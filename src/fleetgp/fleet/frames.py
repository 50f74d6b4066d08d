"""`Fleet.from_frame` and `Fleet.from_dataset`: data by name, split over the agents. They need the extra "data"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fleetgp.data.partition import By, partition, partition_by_label
from fleetgp.data.times import TimeUnit, are_times
from fleetgp.errors import InputError, check_name, shortened
from fleetgp.fleet.noises import AGENTS
from fleetgp.given import column_names
from fleetgp.io.fields import table_of
from fleetgp.io.formats import Reading, Table, check_names
from fleetgp.io.tables import Missing, Observations, Wanted, observations_of

if TYPE_CHECKING:
    from fleetgp.fleet.fleet import Fleet


def from_frame(
    fleet: type[Fleet],
    /,
    frame: Any,
    graph: object = "path",
    *,
    inputs: Sequence[str],
    target: str,
    agent: str | None = None,
    agents: int | None = None,
    by: By | None = None,
    axis: str | None = None,
    deviation: str | None = None,
    units: Mapping[str, str] | None = None,
    missing: Missing = "refuse",
    fill: Sequence[float] | None = None,
    time_unit: TimeUnit = "days",
    seed: int = 0,
    **options: Any,
) -> Fleet:
    """A fleet from the columns of a data frame (pandas).

    inputs, target: columns, or levels of the index. Inputs may be times, or dates as text: they are counted in
        `time_unit` ("days", "hours" or "seconds") since 1970, `fleet.units` says so, and queries may have times, too.
    agent: the column that names the agent of each row: `fleet.labels` has their names. Without it `agents` says over
        how many to split (1), `by` and `axis` how ("stripes" along an input's name; see `partition`).
    deviation: the column of the known standard deviations of the target.
    units: of columns, {"sst": "°C"}, for maps and figures.
    missing: rows with missing or infinite values are an error, or with "drop" left out: `fleet.dropped` counts them.
    fill: values that stand for nothing, [-9999]; without it one that looks like it is an error, [] says that all are
        real.
    graph, seed, options: as of a `Fleet`. With noise="agents" every sigma_eps has its agent's name.

    >>> import pandas as pd
    >>> from fleetgp import Fleet
    >>> table = pd.DataFrame({"day": pd.to_datetime(["2021-01-01", "2021-01-02", "2021-01-03"]), "t": [3.0, 4.0, None]})
    >>> fleet = Fleet.from_frame(table.assign(boat=["Ada", "Bo", "Bo"]), inputs=["day"], target="t", agent="boat",
    ...                          missing="drop", theta=[1.0, 1.0, 0.1])
    >>> fleet.labels, fleet.units, fleet.dropped
    (('Ada', 'Bo'), {'day': 'days since 1970-01-01'}, 1)
    """
    what = Wanted(inputs, target, agent, deviation)
    if not isinstance(target, str):
        raise InputError(f"target: expected the name of one column, got {shortened(target)}: for several see Outputs")
    what.check(missing)
    check_names("units", list(units or ()), what.all)
    table = Table(_columns(frame, what.all), units=units or {})
    reading = Reading(time_unit=time_unit)
    data = observations_of(table, "the data frame", what, missing=missing, fill=fill, reading=reading)
    return _made(fleet, data, what, graph, Splitting(agents, by, axis, seed), options)


def from_dataset(
    fleet: type[Fleet],
    /,
    data: Any,
    graph: object = "path",
    *,
    inputs: Sequence[str] | None = None,
    target: str | None = None,
    agent: str | None = None,
    agents: int | None = None,
    by: By | None = None,
    axis: str | None = None,
    deviation: str | None = None,
    date: str | None = None,
    box: Sequence[float] | None = None,
    stride: int | None = None,
    at: Mapping[str, float | str] | None = None,
    celsius: bool = False,
    missing: Missing = "refuse",
    fill: Sequence[float] | None = None,
    time_unit: TimeUnit = "days",
    seed: int = 0,
    **options: Any,
) -> Fleet:
    """A fleet from an xarray DataArray, or from a variable of a Dataset: an observation for each cell with a value.

    target: the variable; of a DataArray its name, and of a Dataset with one variable that one.
    inputs: coordinates, or variables over the target's axes. Without them the coordinates of its axes with more than
        one chosen cell, the last axis first: lon, lat, time. Times are as in `from_frame`.
    date, box, stride: a day, west, south, east and north in degrees, and every so many-th row and column of a map.
    at: one value of other axes, {"depth": 5, "time": "2021-01-05"}: the nearest cell, within half a cell.
        Cells that hold nothing are no observations; `fleet.notes` tells how many, and what was chosen.
    celsius: convert a target in kelvin to degrees Celsius. Without it the values stay as they are; `fleet.units` has
        their unit.
    agent, agents, by, axis, deviation, missing, fill, time_unit, seed, graph, options: as in `from_frame`.

    >>> import xarray as xr
    >>> from fleetgp import Fleet
    >>> sst = xr.DataArray([[14.0, 15.0], [np.nan, 16.0]], {"lat": [40.0, 41.0], "lon": [1.0, 2.0]}, ("lat", "lon"),
    ...                    name="sst", attrs={"units": "degC"})
    >>> fleet = Fleet.from_dataset(sst, theta=[1.0, 1.0, 1.0, 0.1], normalize=True)
    >>> fleet.inputs, fleet.shards[0][1].tolist(), fleet.units["sst"]
    (('lon', 'lat'), [14.0, 15.0, 16.0], 'degC')
    """
    reading = Reading(date=date, box=box, stride=stride, at=at, time_unit=time_unit, celsius=celsius)
    data, name = _dataset(data, target)
    chosen = _axes_of(data[name], at) if inputs is None else inputs
    what = Wanted(chosen, name, agent, deviation)
    what.check(missing)
    table = table_of(data, what.all, what.targets, reading, "the dataset")
    found = observations_of(table, "the dataset", what, missing=missing, fill=fill, reading=reading)
    return _made(fleet, found, what, graph, Splitting(agents, by, axis, seed), options)


# ---- who has which rows -----------------------------------------------------------------------------------------


class Splitting:
    """How rows that no label gives to an agent are split."""

    def __init__(self, agents: int | None, by: By | None, axis: str | None, seed: int) -> None:
        self.agents, self.by, self.axis, self.seed = agents, by, axis, seed

    def split(self, data: Observations, inputs: Sequence[str]) -> tuple[list[str], list[tuple[Any, ...]]]:
        """The agents' names, and (X, y) or (X, y, s) of each."""
        every = np.arange(len(data.observations))
        if data.labels is not None:
            if any(given is not None for given in (self.agents, self.by, self.axis)):
                raise InputError("agents, by and axis split rows that have no agent: leave them out, or agent")
            names, parts = partition_by_label(data.inputs, every, data.labels)
        else:
            if self.axis is not None:
                check_name("axis", self.axis, inputs)
            along = 0 if self.axis is None else list(inputs).index(self.axis)
            agents, by = 1 if self.agents is None else self.agents, "stripes" if self.by is None else self.by
            parts = partition(data.inputs, every, agents=agents, by=by, axis=along, seed=self.seed)
            names = [str(number) for number in range(len(parts))]
        columns = [data.observations] if data.deviations is None else [data.observations, data.deviations]
        return names, [(x, *(column[rows.astype(int)] for column in columns)) for x, rows in parts]


def _made(
    fleet: type[Fleet], data: Observations, what: Wanted, graph: object, how: Splitting, options: dict[str, Any]
) -> Fleet:
    names, shards = how.split(data, what.inputs)
    if options.get("noise") == AGENTS:
        options = {**options, "noise": names}
    made = fleet(shards, graph, inputs=what.inputs, seed=how.seed, **options)
    return made.call(names, what.targets[0], data.units, data.dropped, data.notes)


def _columns(frame: Any, names: Sequence[str]) -> dict[str, Any]:
    """Columns of a data frame, or levels of its index."""
    if column_names(frame, "the data frame") is None:
        raise InputError(f"expected a data frame whose columns have names, got {type(frame).__name__}")
    levels = list(getattr(getattr(frame, "index", None), "names", []))
    if any(name in levels and name not in frame.columns for name in names):
        frame = frame.reset_index()
    check_names("the data frame", names, [str(name) for name in frame.columns])
    return {name: frame[name] if are_times(frame[name]) else frame[name].to_numpy() for name in names}


def _dataset(data: Any, target: str | None) -> tuple[Any, str]:
    """A dataset, and the variable that is the target."""
    if target is not None and (not isinstance(target, str) or not target):
        raise InputError(f"target: expected the name of a variable, got {shortened(target)}")
    if hasattr(data, "to_dataset") and hasattr(data, "dims") and not hasattr(data, "data_vars"):
        name = target or data.name or "y"
        return data.to_dataset(name=name), str(name)
    if not hasattr(data, "data_vars"):
        raise InputError(f"expected an xarray DataArray or Dataset, got {type(data).__name__}")
    have = [str(name) for name in data.data_vars]
    if target is None and len(have) != 1:
        raise InputError(f"target: expected one of the variables {', '.join(have)}: name it")
    check_names("the dataset", [target or have[0]], have)
    return data, target or have[0]


def _axes_of(field: Any, at: Mapping[str, Any] | None) -> list[str]:
    """The coordinates along a field's axes, but for those that have one cell, or one value."""
    axes = [str(axis) for axis in reversed(field.dims) if field.sizes[axis] > 1 and axis not in (at or {})]
    bare = [axis for axis in axes if axis not in field.coords]
    if bare or not axes:
        raise InputError(
            f"inputs: expected their names, since {', '.join(bare) or field.name} "
            f"{'has no coordinates' if bare else 'has no axis of several cells'}"
        )
    return axes
