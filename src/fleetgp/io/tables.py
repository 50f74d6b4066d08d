"""Observations from files with named columns: CSV, Parquet, NPZ, NetCDF and Zarr. Needs the extra "data".

A graph from a file of edges between named agents.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.data.partition import is_present, warn_of_blanks
from fleetgp.data.suspicions import refuse_suspicious
from fleetgp.errors import GraphError, InputError, check_name
from fleetgp.files import whole
from fleetgp.graph import Graph
from fleetgp.io.fields import read_field
from fleetgp.io.formats import (
    FIELDS,
    TABLES,
    Columns,
    Reading,
    Table,
    Which,
    check_file,
    check_names,
    checked_reading,
    pandas_for,
    read_table,
)
from fleetgp.validation import as_path

#: What to do with rows that have missing values.
Missing = Literal["refuse", "drop"]


@dataclass(frozen=True)
class ObservationTable:
    """inputs (N, D), observations (N,), and labels (N,), the names of their agents, or None.

    With a list of targets observations are (N, K), NaN where one is missing.
    dropped: rows left out.  notes: what was done to the values of the file.  deviations: the known standard deviations
    of the observations (N,), or None.  units: by column, where they are known.

    >>> ObservationTable(np.zeros((2, 1)), np.ones(2), labels=("ada", "bo")).dropped
    0
    """

    inputs: Array
    observations: Array
    labels: tuple[str, ...] | None
    dropped: int = 0
    notes: tuple[str, ...] = ()
    deviations: Array | None = None
    units: Mapping[str, str] = field(default_factory=dict)

    @property
    def rows(self) -> Array:
        """(N, ..) inputs, deviations if there are any, and observations."""
        known = [] if self.deviations is None else [self.deviations]
        return np.column_stack([self.inputs, *known, self.observations])


def read_observations(
    path: str | Path,
    *,
    inputs: Sequence[str],
    target: str | Sequence[str],
    agent: str | None = None,
    deviation: str | None = None,
    missing: Missing = "refuse",
    fill: Sequence[float] | None = None,
    reading: Reading | None = None,
    of_agent: bool = False,
) -> ObservationTable:
    """Read columns of a file, by name. Rows with missing or infinite values are refused, or dropped and counted.

    path: CSV, Parquet or NPZ; or NetCDF or Zarr, any of whose variables may be the target, and any coordinates or
    variables over its axes the inputs: cells without a value are no rows, and notes count them. The names lon, lat and
    sst also stand for other usual names, as in `load_sst`. A temperature in kelvin stays in kelvin, unless `reading`
    has celsius=True.
    An input may be times, or dates as text, YYYY-MM-DD: they become days since 1970 (`Reading.time_unit`), and `units`
    of the result have that unit.

    target: a column, or a list of several: then a row needs one of them, and notes count what else is missing.
    deviation: the column of the known standard deviations of the target.
    fill: values that stand for nothing, for example [-9999]. Without it a value that looks like one is an error; an
    empty list declares all values real.  reading: how to read the file.
    of_agent: the rows are of a running agent, whose fill is set in the description of its fleet.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "boats.csv")
    ...     written = path.write_text("lon,lat,sst,boat\\n0,1,15.5,ada\\n1,1,15.7,bo\\n")
    ...     found = read_observations(path, inputs=["lon", "lat"], target="sst", agent="boat")
    >>> found.inputs.tolist(), found.observations.tolist(), found.labels
    ([[0.0, 1.0], [1.0, 1.0]], [15.5, 15.7], ('ada', 'bo'))
    """
    columns = Columns(inputs, target, agent, deviation, fill, checked_reading(reading))
    check_name("missing", missing, get_args(Missing))
    columns.check()
    table = read_columns(path, columns.all, text=lambda name: name == agent, reading=reading, targets=columns.targets)
    return observations_of(table, path, columns, missing=missing, of_agent=of_agent)


def observations_of(
    table: Table, where: object, columns: Columns, *, missing: Missing, of_agent: bool = False
) -> ObservationTable:
    """Return the usable rows of a table. where: for errors; the rest as in `read_observations`."""
    agent, width, named = columns.agent, len(columns.needed), list(columns.numbers)
    numbers, times = columns.numbers_of(table, where)
    refuse_suspicious(numbers, named, str(where), fills=columns.judged, of_agent=of_agent)
    known = np.isfinite(numbers)
    sound: BoolArray = np.asarray(known[:, :width].all(axis=1) & known[:, width:].any(axis=1))
    labels: tuple[str, ...] | None = None
    if agent is not None:
        present = np.array([is_present(value) for value in table.columns[agent]], dtype=bool)
        sound &= present
        labels = tuple(label_text(value) for value in table.columns[agent][sound])
        warn_of_blanks(table.columns[agent])
    bad = np.flatnonzero(~(sound & known.all(axis=1)))
    if bad.size and missing == "refuse":
        raise missing_rows(where, bad.size, len(sound), int(bad[0]), settable=columns.reading.settable)
    if not sound.any() or not known[sound].any(axis=0).all():
        raise InputError(f"{where}: no row with values in all of {named}")
    if agent is not None and labels is not None:
        labelled = dict.fromkeys(label_text(value) for value in table.columns[agent][present])
        empty = [name for name in labelled if name not in set(labels)]
        if empty:
            raise InputError(f"{where}: agent {empty[0]!r} has no row with values in all of {named}")
    result = np.where(known, numbers, np.nan)[sound]
    inputs, observations = result[:, : len(columns.inputs)], result[:, width:]
    if isinstance(columns.target, str):
        observations = observations[:, -1]
    own = None
    if columns.deviation is not None:
        own = check_deviation_column(where, columns.deviation, result[:, len(columns.inputs)])
    units = {name: unit for name, unit in {**table.units, **times}.items() if unit and name in named}
    rest = labels, int((~sound).sum()), table.notes + _left(result, named), own, units
    return ObservationTable(inputs, observations, *rest)


def _left(result: Array, named: Sequence[str]) -> tuple[str, ...]:
    """Return notes on the targets that are missing in rows that have another one."""
    missing = dict(zip(named, np.isnan(result).sum(axis=0).tolist(), strict=True))
    return tuple(
        f"{name} is missing in {count:,} rows, which do not count for it" for name, count in missing.items() if count
    )


def check_deviation_column(where: object, name: str, values: Array) -> Array:
    """Return the standard deviations; refuse those below 0."""
    if (values < 0.0).any():
        raise InputError(
            f"{where}: column {name!r}: expected standard deviations of at least 0, got {values[values < 0.0][0]:g}"
        )
    return values


def missing_rows(path: object, count: int, rows: int, first: int, *, settable: bool = True) -> InputError:
    """Return the error of a table with unusable rows."""
    setting = "on the command line --missing drop" if settable else "in the agent's table of fleet.toml"
    return InputError(
        f"{path}: {count} of {rows} rows have missing or infinite values (first: row {first + 1}): "
        f'fill them, or drop them (missing="drop", {setting})'
    )


def read_columns(
    path: str | Path,
    names: Sequence[str],
    *,
    text: Which | None = None,
    reading: Reading | None = None,
    targets: Sequence[str] = (),
) -> Table:
    """Read a table that must have some columns, all of the same length.

    targets: the names of the observations, if the rows are no points: only cells of a field that have some are read.
    """
    file, how = as_path(path, "path"), checked_reading(reading)
    check_file(file, how)
    if file.suffix.lower() in FIELDS:
        return read_field(file, names, targets, how)
    table = read_table(path, text=text, reading=reading)
    check_names(path, names, list(table.columns), reading)
    lengths = {len(table.columns[name]) for name in names}
    if len(lengths) > 1:
        raise InputError(f"{path}: the columns {list(names)} have different lengths: {sorted(lengths)}")
    return table


def check_ending(path: str | Path) -> None:
    """Refuse a name of a kind that `write_columns` does not write."""
    if Path(path).suffix.lower() not in TABLES:
        raise InputError(f"{path}: expected a name that ends in {', '.join(TABLES)}")


def write_columns(path: str | Path, columns: Mapping[str, Any]) -> None:
    """Write a table in the format of its name, whole or not at all."""
    check_ending(path)
    file = Path(path)
    with whole(file) as partial:
        if file.suffix.lower() == ".npz":
            with partial.open("wb") as stream:
                np.savez(stream, **columns)
        elif file.suffix.lower() == ".csv":
            pandas_for(file).DataFrame(columns).to_csv(partial, index=False)
        else:
            pandas_for(file).DataFrame(columns).to_parquet(partial, index=False)


def label_text(value: object) -> str:
    """Return a label as text without blanks around it; 3.0, which a column with gaps makes of 3, as "3"."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value).strip()


def read_edges(path: str | Path, agents: Sequence[str]) -> Graph:
    """Read a graph from a file: two agents' names per line, separated by a comma, a tab or blanks; # begins a comment.

    The file and the data must have the same agents.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "edges.txt")
    ...     written = path.write_text("ada bo\\nbo cy  # a weak link\\n")
    ...     read_edges(path, ["ada", "bo", "cy"])
    Graph(agents=3, edges=2)
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: it cannot be read as a list of edges: {error}") from error
    index = {name: number for number, name in enumerate(agents)}
    edges = []
    for number, line in enumerate(text.splitlines(), start=1):
        content = line.split("#", 1)[0].strip()
        if not content:
            continue
        separator = r"\s*[,\t]\s*" if "," in content or "\t" in content else r"\s+"
        names = [name.strip("\"'") for name in re.split(separator, content)]
        if len(names) != 2:
            raise InputError(f"{path}, line {number}: expected two agents, got {content!r}")
        for name in names:
            if name not in index:
                raise GraphError(
                    f"{path}, line {number}: agent {name!r} is not in the data, which have {_some(agents)}"
                )
        if names[0] == names[1]:
            raise GraphError(f"{path}, line {number}: agent {names[0]!r} has an edge to itself: remove the line")
        edges.append((index[names[0]], index[names[1]]))
    linked = {agent for edge in edges for agent in edge}
    alone = [name for name, number in index.items() if number not in linked]
    if alone and len(agents) > 1:
        raise GraphError(f"{path}: no edge for {_some(alone)} of the data: every agent needs one")
    graph = Graph(len(agents), edges, connected=False)
    if len(graph.components) > 1:
        parts = "; ".join(_some([agents[i] for i in part]) for part in graph.components)
        raise GraphError(f"{path}: the graph is not connected: its parts are {parts}. Add edges between them")
    return graph


def _some(names: Sequence[str], most: int = 8) -> str:
    return ", ".join(names[:most]) + (f", ... ({len(names)} in all)" if len(names) > most else "")
