"""Observations from files with named columns: CSV, Parquet and NPZ. Needs the extra "data".

A NetCDF field of sea-surface temperature counts as a table with the columns lon, lat and sst (degrees Celsius).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.data.partition import is_present
from fleetgp.data.suspicions import is_any_of, refuse_suspicious
from fleetgp.errors import InputError, check_name, shortened
from fleetgp.files import whole
from fleetgp.given import as_fills, as_names, as_numbers, is_nothing
from fleetgp.io.formats import FORMATS, Reading, Table, Which, pandas_for, read_table, separated_otherwise

#: What to do with rows that have missing values.
Missing = Literal["refuse", "drop"]


@dataclass(frozen=True)
class Observations:
    """inputs (N, D), observations (N,), and who made them: labels (N,), or None.

    With a list of targets observations are (N, K), NaN where one is missing.
    dropped: rows left out.  notes: what was done to the values of the file.  deviations: the known standard deviations
    of the observations (N,), or None.

    >>> Observations(np.zeros((2, 1)), np.ones(2), labels=("ada", "bo")).dropped
    0
    """

    inputs: Array
    observations: Array
    labels: tuple[str, ...] | None
    dropped: int = 0
    notes: tuple[str, ...] = ()
    deviations: Array | None = None

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
) -> Observations:
    """Columns of a table, by name. Rows with missing or infinite values are refused, or dropped and counted.

    target: one, or a list of several: then a row is dropped if it has none of them, and notes say what else is missing.
    deviation: that of the known standard deviations of the target.
    fill: values that stand for nothing, for example [-9999]. Without it a value that looks like one is an error; an
    empty list says that all are real.  reading: what the file does not say of itself.
    of_agent: the rows are a running agent's, whose fill is set in the description of its fleet.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "boats.csv")
    ...     written = path.write_text("lon,lat,sst,boat\\n0,1,15.5,ada\\n1,1,15.7,bo\\n")
    ...     found = read_observations(path, inputs=["lon", "lat"], target="sst", agent="boat")
    >>> found.inputs.tolist(), found.observations.tolist(), found.labels
    ([[0.0, 1.0], [1.0, 1.0]], [15.5, 15.7], ('ada', 'bo'))
    """
    check_name("missing", missing, get_args(Missing))
    targets = _check_columns(inputs, target, agent, deviation)
    needed = [*inputs, *([deviation] if deviation else [])]
    named = [*needed, *targets]
    table = read_columns(path, [*named, *([agent] if agent else [])], text=lambda name: name == agent, reading=reading)
    settable = reading is None or reading.settable
    numbers = np.column_stack([numeric(table.columns[name], name, path, reading) for name in named])
    if fill is not None:
        numbers[is_any_of(numbers, as_fills(fill))] = np.nan
    refuse_suspicious(numbers, named, str(path), fills=fill is None or len(fill) > 0, of_agent=of_agent)
    known, width = np.isfinite(numbers), len(needed)
    sound: BoolArray = np.asarray(known[:, :width].all(axis=1) & known[:, width:].any(axis=1))
    labels: tuple[str, ...] | None = None
    if agent is not None:
        present = np.array([is_present(value) for value in table.columns[agent]], dtype=bool)
        sound &= present
        labels = tuple(label_text(value) for value in table.columns[agent][sound])
    bad = np.flatnonzero(~(sound & known.all(axis=1)))
    if bad.size and missing == "refuse":
        raise missing_rows(path, bad.size, len(sound), int(bad[0]), settable=settable)
    if not sound.any() or not known[sound].any(axis=0).all():
        raise InputError(f"{path}: no row with values in all of {named}")
    if agent is not None and labels is not None:
        labelled = dict.fromkeys(label_text(value) for value in table.columns[agent][present])
        empty = [name for name in labelled if name not in set(labels)]
        if empty:
            raise InputError(f"{path}: agent {empty[0]!r} has no row with values in all of {named}")
    found = np.where(known, numbers, np.nan)[sound]
    observations = found[:, -1] if isinstance(target, str) else found[:, width:]
    own = None if deviation is None else check_deviation_column(path, deviation, found[:, len(inputs)])
    rest = labels, int((~sound).sum()), table.notes + _left(found, named), own
    return Observations(found[:, : len(inputs)], observations, *rest)


def _check_columns(
    inputs: Sequence[str], target: str | Sequence[str], agent: str | None, deviation: str | None
) -> tuple[str, ...]:
    """The targets; one clear error for what cannot be the name of a column."""
    if not as_names(inputs, "inputs"):
        raise InputError("inputs: expected the names of one column or more, got none")
    for name, column in (("agent", agent), ("deviation", deviation)):
        if column is not None and (not isinstance(column, str) or not column):
            raise InputError(f"{name}: expected the name of a column, got {shortened(column)}")
    targets = (target,) if isinstance(target, str) else as_names(target, "target")
    if deviation is not None and len(targets) > 1:
        raise InputError("deviation: expected one target with it, got several: leave one out")
    return targets


def _left(found: Array, named: Sequence[str]) -> tuple[str, ...]:
    """What is missing in rows that are taken for what else they have."""
    missing = dict(zip(named, np.isnan(found).sum(axis=0).tolist(), strict=True))
    return tuple(
        f"{name} is missing in {count:,} rows, which do not count for it" for name, count in missing.items() if count
    )


def check_deviation_column(where: object, name: str, values: Array) -> Array:
    """Standard deviations, none of them below 0, or one clear error."""
    if (values < 0.0).any():
        raise InputError(
            f"{where}: column {name!r}: expected standard deviations of at least 0, got {values[values < 0.0][0]:g}"
        )
    return values


def missing_rows(path: str | Path, count: int, rows: int, first: int, *, settable: bool = True) -> InputError:
    """The error of a table with rows that cannot be used."""
    setting = "on the command line --missing drop" if settable else "in the agent's table of fleet.toml"
    return InputError(
        f"{path}: {count} of {rows} rows have missing or infinite values (first: row {first + 1}): "
        f'fill them, or drop them (missing="drop", {setting})'
    )


def read_columns(
    path: str | Path, names: Sequence[str], *, text: Which | None = None, reading: Reading | None = None
) -> Table:
    """A table that has some columns of the same length, or one error that says which there are."""
    table = read_table(path, text=text, reading=reading)
    check_names(path, names, list(table.columns), reading)
    lengths = {len(table.columns[name]) for name in names}
    if len(lengths) > 1:
        raise InputError(f"{path}: the columns {list(names)} have different lengths: {sorted(lengths)}")
    return table


def check_names(path: str | Path, names: Sequence[str], have: Sequence[str], reading: Reading | None = None) -> None:
    """One clear error, which says what there is, where a column is missing."""
    for name in names:
        if name not in have:
            told = ", ".join(name if name == name.strip() else repr(name) for name in have)
            hint = separated_otherwise(have, settable=reading is None or reading.settable)
            raise InputError(f"{path}: there is no column {name!r}; it has {told}{hint}")


def numeric(values: Any, name: str, path: str | Path, reading: Reading | None = None, before: int = 0) -> Array:
    """A column as floats, NaN where a value is missing, or one clear error. reading: how the file was read.

    before: how many rows of the file come before these.
    """
    array, reading = np.asarray(values), reading or Reading()
    hint = ""
    if array.dtype.kind == "O":
        array = np.array([np.nan if is_nothing(value) else value for value in array], dtype=object)
        comma = any(isinstance(value, str) and re.fullmatch(r"\s*[-+]?\d+,\d+\s*", value) for value in array)
        how = "say so (--decimal ,)" if reading.settable else "write points"
        hint = f". Are these decimal commas? Then {how}" if comma else ""
        row = _first_text(array, reading.decimal or ".")
        if row is not None:  # one such cell makes texts of all others
            raise InputError(
                f"{path}: column {name!r} must hold numbers: expected a number, got {shortened(array[row])} "
                f"(first: row {before + row + 1}){hint}"
            )
    try:
        return as_numbers(array, f"{path}: column {name!r} must hold numbers")
    except InputError as error:
        raise InputError(f"{error}{hint}") from error


def _first_text(values: Any, decimal: str) -> int | None:
    """The first row of a column whose text is no number; None if there is none."""
    for row, value in enumerate(values):
        if isinstance(value, str):
            try:
                float(value.replace(decimal, ".").replace("_", "no number"))  # Python would read 1_000
            except ValueError:
                return row
    return None


def check_ending(path: str | Path) -> None:
    """One clear error where `write_columns` could not write."""
    endings = FORMATS[:3]
    if Path(path).suffix.lower() not in endings:
        raise InputError(f"{path}: expected a name that ends in {', '.join(endings)}")


def write_columns(path: str | Path, columns: Mapping[str, Any]) -> None:
    """A table by its ending, whole or not at all."""
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
    """A label as text without blanks around it; 3.0, which a column with gaps makes of 3, as "3"."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value).strip()
