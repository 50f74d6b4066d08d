"""Points to ask for, and the answer beside them: the same table for a model folder and for a running fleet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.cli.output import warn
from fleetgp.data.times import time_unit_among
from fleetgp.errors import InputError
from fleetgp.files import check_writable
from fleetgp.io.formats import Reading, input_numbers
from fleetgp.io.tables import check_ending, read_columns, write_columns
from fleetgp.metrics.scores import half_width

#: The columns of an answer, behind those of the points.
ADDED = ("mean", "std", "std_observed", "agents", "uninformed")
#: And the ends of intervals.
ENDS = ("low", "high")


def check_answer_file(out: Path, points: Path) -> None:
    """One clear error where the answer cannot go, before any work is done for it."""
    check_ending(out)
    check_writable(out)
    if out.exists() and points.exists() and out.samefile(points):
        raise InputError(f"{out}: the answer would replace the points: choose another name")


def read_points(
    points: Path, inputs: Sequence[str], out: Path, reading: Reading, units: Mapping[str, str]
) -> tuple[Array, dict[str, Any]]:
    """The queries (T, D), and all columns of the file, to go into the answer: from CSV to CSV as they are written.

    units: of the model's inputs, those that are times.
    """
    reading = replace(reading, time_unit=time_unit_among(units))
    as_written = out.suffix.lower() == ".csv"
    table = read_columns(points, inputs, text=lambda name: as_written and name not in inputs, reading=reading)
    found = {name: input_numbers(table.columns[name], name, points, reading) for name in inputs}
    for name, (_, unit) in found.items():
        if unit and unit != units.get(name):
            raise InputError(f"{points}: column {name!r} has dates, but in the model it is no time: give numbers")
    queries = np.column_stack([values for values, _ in found.values()])
    if not len(queries):
        raise InputError(f"{points}: expected points, got a file without rows")
    if not np.isfinite(queries).all():
        bad = np.flatnonzero(~np.isfinite(queries).all(axis=1))
        raise InputError(
            f"{points}: {bad.size} of {len(queries)} rows have missing or infinite values "
            f"(first: row {bad[0] + 1}): remove them"
        )
    for note in table.notes:
        warn(f"{points}: {note}")
    others = {name: column for name, column in table.columns.items() if len(column) == len(queries)}
    left_out = [name for name in table.columns if name not in others]
    if left_out:
        warn(f"{points}: {', '.join(left_out)} have another length than the points: left out of the answer")
    refuse_clash(points, others, ADDED)
    return queries, others


def refuse_clash(points: Path, columns: Mapping[str, Any], added: Iterable[str]) -> None:
    """One clear error where columns of the points would be lost."""
    clash = [name for name in added if name in columns]
    if clash:
        raise InputError(f"{points}: the answer has a column {clash[0]!r} too: rename that of the points")


def write_answer(
    out: Path,
    others: dict[str, Any],
    mean: Array,
    std: Array,
    std_observed: Array,
    agents: IntArray,
    uninformed: BoolArray,
    level: float | None = None,
    more: Mapping[str, Array] | None = None,
) -> None:
    """The table of an answer: the columns of the points, `ADDED`, intervals of this level, more columns behind it."""
    out.parent.mkdir(parents=True, exist_ok=True)
    answer: dict[str, Any] = dict(zip(ADDED, (mean, std, std_observed, agents, uninformed), strict=True))
    if level is not None:
        half = half_width(level) * std_observed
        answer |= zip(ENDS, (mean - half, mean + half), strict=True)
    write_columns(out, {**others, **answer, **(more or {})})


def check_level(level: float | None, points: Path, columns: Mapping[str, Any]) -> None:
    """One clear error for intervals that cannot be, or that would replace columns of the points."""
    if level is not None:
        half_width(level)
        refuse_clash(points, columns, ENDS)
