"""Files with named columns, some thousand rows at a time: CSV, Parquet, NetCDF and Zarr. Needs the extra "data"."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fleetgp.arrays import Array
from fleetgp.data.suspicions import is_any_of
from fleetgp.errors import InputError
from fleetgp.io.columns import Columns, Part
from fleetgp.io.fields import field_chunks
from fleetgp.io.formats import (
    Reading,
    check_fields,
    check_file,
    check_names,
    csv_errors,
    csv_names,
    csv_options,
    pandas_for,
)
from fleetgp.io.numbers import input_numbers, numeric

#: The kinds of files that are read in chunks, by their endings.
CHUNKED = (".csv", ".parquet", ".nc", ".zarr")
#: Values of all columns of a text file that are in memory at once, at most: wide tables come in fewer rows.
MOST_VALUES = 1 << 22
#: What pandas takes for a missing number.
NO_NUMBER = ("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A",
             "NA", "NULL", "NaN", "None", "n/a", "nan", "null")  # fmt: skip


@dataclass(frozen=True)
class Chunk:
    """Some rows. numbers: (n, D + 1), the target last; NaN where there is none.  labels: (n,), who made them.

    before: how many rows of the file come before these.  empty: cells of a field that hold nothing, and are no rows.
    units: of the columns, where the file tells them.  notes: what was done to the values.
    """

    numbers: Array
    labels: Any | None
    before: int
    empty: int = 0
    units: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def chunks(file: Path, columns: Columns, rows: int) -> Iterator[Chunk]:
    """All rows of a file in their order, at most so many at once; one error that names the file, and where it broke."""
    _check(file, columns.reading)
    reader = {".csv": _csv, ".parquet": _parquet}.get(file.suffix.lower(), field_chunks)
    read = 0
    found = reader(file, columns, rows)
    while True:
        try:
            part = next(found)
        except StopIteration:
            return
        except InputError as error:
            raise InputError(f"{error}{_after(read)}") from error
        except (OSError, ValueError, KeyError, IndexError, EOFError, RuntimeError, NotImplementedError) as error:
            kind = file.suffix[1:].upper()
            raise InputError(f"{file}: it cannot be read as {kind}: {str(error).strip():.300}{_after(read)}") from error
        inputs = [input_numbers(part.values[name], name, file, columns.reading, read) for name in columns.inputs]
        observed = numeric(part.values[columns.target], columns.target, file, columns.reading, read)
        numbers = np.column_stack([*(own for own, _ in inputs), observed])
        numbers[is_any_of(numbers, columns.fill)] = np.nan
        labels = part.values[columns.agent] if columns.agent else None
        told = {name: unit for name, (_, unit) in zip(columns.inputs, inputs, strict=True) if unit}
        units = {**part.units, **told}
        listed = tuple(units.get(name, "") for name in columns.numbers) if units else ()
        yield Chunk(numbers, labels, read, part.empty, listed, part.notes)
        read += len(numbers)


def size_of(file: Path) -> tuple[int, int]:
    """Bytes, and when it was last written to (in nanoseconds): of a folder, of all that is in it."""
    files = [entry for entry in file.rglob("*") if entry.is_file()] if file.is_dir() else [file]
    facts = [entry.stat() for entry in files]
    return sum(fact.st_size for fact in facts), max((fact.st_mtime_ns for fact in facts), default=0)


def _after(read: int) -> str:
    return f" (after row {read})" if read else ""


def _check(file: Path, reading: Reading) -> None:
    """One clear error for what is no file that can be read in chunks."""
    kind = file.suffix.lower()
    if kind not in CHUNKED:
        hint = ": NPZ is read as a whole only, write Parquet" if kind == ".npz" else ""
        raise InputError(f"{file}: expected a file that ends in {', '.join(CHUNKED)}{hint}")
    check_file(file, reading)


def _csv(file: Path, columns: Columns, rows: int) -> Iterator[Part]:
    how = columns.reading
    options = csv_options(how)
    with csv_errors(file, how):
        have = csv_names(file, options)
    check_names(file, columns.all, have, how)
    written: dict[str, Any] = {}
    if columns.agent is not None:  # it may be called NA, or 007
        gaps = {name: list(NO_NUMBER) for name in columns.numbers}
        written = {"dtype": {columns.agent: str}, "keep_default_na": False, "na_values": gaps}
    few = max(1, min(rows, MOST_VALUES // len(have)))
    # All columns are read: with some of them, pandas would not notice rows that are too long.
    with csv_errors(file, how):
        reader = pandas_for(file).read_csv(file, low_memory=False, chunksize=few, **written, **options)
    with reader:
        while True:
            with csv_errors(file, how):
                table = next(reader, None)
            if table is None:
                return
            check_fields(table, have, file, how)
            yield Part({name: table[name].to_numpy() for name in columns.all})


def _parquet(file: Path, columns: Columns, rows: int) -> Iterator[Part]:
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise InputError(f'{file}: Parquet needs pyarrow: pip install "fleetgp[data]"') from error
    # Pages come one by one through a small buffer, however long a row group is.
    options = {"pre_buffer": False, "buffer_size": 1 << 20, "page_checksum_verification": True}
    with ParquetFile(file, **options) as table:
        check_names(file, columns.all, table.schema_arrow.names, columns.reading)
        for batch in table.iter_batches(batch_size=rows, columns=list(columns.all), use_threads=False):
            yield Part({name: np.asarray(batch.column(name).to_pandas()) for name in columns.all})
