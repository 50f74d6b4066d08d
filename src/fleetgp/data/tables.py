"""Observations from files with named columns: CSV, Parquet and NPZ. Needs the extra "data".

A NetCDF field of sea-surface temperature counts as a table with the columns lon, lat and sst (degrees Celsius).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.data.sst import load_sst
from fleetgp.errors import InputError, unknown_name
from fleetgp.files import whole

#: How each kind of file is read, by its ending.
FORMATS = (".csv", ".parquet", ".npz", ".nc")


@dataclass(frozen=True)
class Observations:
    """inputs (N, D), observations (N,), and who made them: labels (N,), or None. dropped: rows left out."""

    inputs: Array
    observations: Array
    labels: tuple[str, ...] | None
    dropped: int = 0


def read_observations(
    path: str | Path,
    *,
    inputs: Sequence[str],
    target: str,
    agent: str | None = None,
    missing: Literal["refuse", "drop"] = "refuse",
) -> Observations:
    """Columns of a table, by name. Rows with missing or infinite values are refused, or dropped and counted."""
    if missing not in ("refuse", "drop"):
        raise unknown_name("missing", missing, ("refuse", "drop"))
    columns = read_columns(path, [*inputs, target, *([agent] if agent else [])], text=agent)
    numbers = np.column_stack([_numeric(columns[name], name, path) for name in (*inputs, target)])
    sound: BoolArray = np.asarray(np.isfinite(numbers).all(axis=1))
    labels = None
    if agent is not None:
        present = np.array([_present(value) for value in columns[agent]], dtype=bool)
        sound &= present
        labels = tuple(_text(value) for value in columns[agent][sound])
    bad = np.flatnonzero(~sound)
    if bad.size and missing == "refuse":
        raise InputError(
            f"{path}: {bad.size} of {len(sound)} rows have missing or infinite values (first: row {bad[0] + 1}): "
            'fill them, or drop them (missing="drop", on the command line --missing drop)'
        )
    if not sound.any():
        raise InputError(f"{path}: no row with values in all of {[*inputs, target]}")
    if agent is not None and labels is not None:
        named = dict.fromkeys(_text(value) for value in columns[agent][present])
        heard = set(labels)
        empty = [name for name in named if name not in heard]
        if empty:
            raise InputError(f"{path}: agent {empty[0]!r} has no row with values in all of {[*inputs, target]}")
    return Observations(numbers[sound, :-1], numbers[sound, -1], labels, int(bad.size))


def read_columns(path: str | Path, names: Sequence[str], *, text: str | None = None) -> dict[str, Any]:
    """Some columns of a table, or one error that says which there are. text: a column to take as it is written."""
    columns = read_table(path, text=text)
    for name in names:
        if name not in columns:
            have = ", ".join(name if name == name.strip() else repr(name) for name in columns)
            hint = ": separate the columns by commas" if len(columns) == 1 and ";" in have else ""
            raise InputError(f"{path}: there is no column {name!r}; it has {have}{hint}")
    lengths = {len(columns[name]) for name in names}
    if len(lengths) > 1:
        raise InputError(f"{path}: the columns {list(names)} have different lengths: {sorted(lengths)}")
    return {name: columns[name] for name in names}


def read_table(path: str | Path, *, text: str | None = None) -> dict[str, Any]:
    """All columns of a table, or one error."""
    file = Path(path)
    if file.suffix.lower() not in FORMATS:
        raise InputError(f"{path}: a file that ends in {', '.join(FORMATS)} was expected")
    if file.is_dir():
        raise InputError(f"{path}: a file was expected, but it is a folder")
    if not file.is_file():
        raise InputError(f"{path}: there is no such file")
    try:
        return _columns(file, text)
    except InputError:
        raise
    except (OSError, ValueError, KeyError, EOFError) as error:
        why = "it is no NumPy archive" if file.suffix.lower() == ".npz" and isinstance(error, ValueError) else error
        raise InputError(f"{path}: it cannot be read as {file.suffix[1:].upper()}: {why}") from error


def check_ending(path: str | Path) -> None:
    """One clear error where `write_columns` could not write."""
    endings = FORMATS[:3]
    if Path(path).suffix.lower() not in endings:
        raise InputError(f"{path}: a name that ends in {', '.join(endings)} was expected")


def write_columns(path: str | Path, columns: Mapping[str, Any]) -> None:
    """A table by its ending, whole or not at all."""
    check_ending(path)
    file = Path(path)
    with whole(file) as partial:
        if file.suffix.lower() == ".npz":
            with partial.open("wb") as stream:
                np.savez(stream, **columns)
        elif file.suffix.lower() == ".csv":
            _pandas(file).DataFrame(columns).to_csv(partial, index=False)
        else:
            _pandas(file).DataFrame(columns).to_parquet(partial, index=False)


def _pandas(file: Path) -> Any:
    try:
        import pandas as pd
    except ImportError as error:
        raise InputError(f'{file}: CSV and Parquet need pandas: install the extra "data"') from error
    return pd


def _columns(file: Path, text: str | None) -> dict[str, Any]:
    if file.suffix.lower() == ".npz":
        with np.load(file, allow_pickle=False) as archive:
            return {name: np.ravel(archive[name]) for name in archive.files}
    if file.suffix.lower() == ".nc":
        field = load_sst(file)
        places, celsius = field.points()
        return {"lon": places[:, 0], "lat": places[:, 1], "sst": celsius}
    pd = _pandas(file)
    if file.suffix.lower() != ".csv":
        table = pd.read_parquet(file)
        return {str(name): table[name].to_numpy() for name in table.columns}
    table = pd.read_csv(file)
    columns = {str(name): table[name].to_numpy() for name in table.columns}
    if text in columns:  # an agent may be called NA, or 007
        columns[text] = pd.read_csv(file, usecols=[text], dtype=str, keep_default_na=False)[text].to_numpy(dtype=object)
    return columns


def _numeric(values: Any, name: str, path: str | Path) -> Array:
    if np.asarray(values).dtype.kind in "mM":
        raise InputError(f"{path}: column {name!r} must hold numbers, but it holds times: give hours or days, say")
    try:
        return np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: column {name!r} must hold numbers: {error}") from error


def _present(value: object) -> bool:
    return value is not None and value == value and str(value) != ""


def _text(value: object) -> str:
    """A label as text; 3.0, which a column with gaps makes of 3, as "3"."""
    number = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value)) if number else str(value)  # type: ignore[call-overload]
