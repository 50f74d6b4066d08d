"""Points to ask for, and the answer beside them: the same table for a model folder and for a running fleet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.cli.output import warn
from fleetgp.data.times import time_unit_of
from fleetgp.errors import InputError
from fleetgp.files import check_writable
from fleetgp.io.formats import Reading
from fleetgp.io.numbers import input_numbers
from fleetgp.io.tables import check_ending, read_columns, write_columns

#: The columns of an answer, behind those of the points.
ADDED = ("mean", "std", "std_observed", "agents")


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
    reading = replace(reading, time_unit=next(filter(None, map(time_unit_of, units.values())), "days"))
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
    clash = set(ADDED) & set(others)
    if clash:
        raise InputError(f"{points}: the answer has a column {clash.pop()!r} too: rename that of the points")
    return queries, others


def write_answer(
    out: Path, others: dict[str, Any], mean: Array, std: Array, std_observed: Array, agents: IntArray
) -> None:
    """The table of an answer: the columns of the points, and `ADDED`."""
    out.parent.mkdir(parents=True, exist_ok=True)
    write_columns(out, {**others, **dict(zip(ADDED, (mean, std, std_observed, agents), strict=True))})
