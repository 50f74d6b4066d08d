"""Files with named columns: CSV, Parquet and NPZ. NetCDF and Zarr are `io.fields`. Needs the extra "data".

The unpacked size of a file is checked before it is read. Columns become numbers, NaN where a value is missing.
"""

from __future__ import annotations

import csv
import io
import re
import tokenize
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np

from fleetgp.arrays import Array
from fleetgp.data.suspicions import is_any_of
from fleetgp.data.times import TimeUnit, are_dates_as_text, are_times, check_time_unit, numbers_of_times, units_of_times
from fleetgp.declarations import (
    FLAG,
    TEXT,
    Kind,
    as_text,
    declared,
    four_sides,
    one_of,
    unchecked,
    values_by_name,
    whole,
)
from fleetgp.errors import InputError, shortened
from fleetgp.model.observations import Observations
from fleetgp.validation import as_fills, as_flag, as_names, as_numbers, as_path, is_nothing

#: The kinds of files that are read, by their endings: tables, and fields.
TABLES, FIELDS = (".csv", ".parquet", ".npz"), (".nc", ".zarr")
FORMATS = TABLES + FIELDS
#: A file may unpack to this many bytes in any case, and beyond it to so many times its own size.
UNPACKED, RATIO = 1 << 30, 100
#: A table may have so many columns: far more than a model can have inputs, and few enough to be read in seconds.
MOST_COLUMNS = 10_000
#: Characters that the header of a CSV file and its first row may have together, with the blank lines before them.
LONGEST_START = 1 << 21

_TEXT = (".csv",)
_OPTIONS: dict[str, tuple[str, ...]] = dict.fromkeys(("date", "box", "stride", "at", "celsius"), FIELDS)
_OPTIONS |= {"sep": _TEXT, "decimal": _TEXT, "encoding": _TEXT}
_SEPARATORS = {"tab": "\t", "\\t": "\t", "semicolon": ";", "comma": ","}


#: Values of options, see `Reading`.
BOX = Kind(list[float], four_sides, "four numbers")
AT = Kind(list[str], unchecked, "values by name", values_by_name)
_declared = partial(declared, toml=False)

#: Which columns, by their names.
Which = Callable[[str], bool]


@dataclass(frozen=True)
class Reading:
    """How to read a file. date, box, stride: of a field in NetCDF or Zarr, as in `load_sst`.

    celsius: convert targets of such a file that are in kelvin to degrees Celsius.
    at: the values of other axes of such a field, {"depth": 5}: the nearest cell, if it is within half a cell.
    sep, decimal, encoding: of a CSV file; a comma, a point and UTF-8 by default. An option for another kind of file
    than the one that is read is an error.
    settable: whether the caller can set these; if not, no error recommends them.
    time_unit: what inputs that are times are counted in, since 1970.

    >>> Reading(sep=";", decimal=",").encoding is None
    True
    """

    date: str | None = _declared(None, TEXT, "NetCDF, Zarr: which day of several, YYYY-MM-DD.")
    box: Sequence[float] | None = _declared(None, BOX, "NetCDF, Zarr: west, south, east, north, in degrees.")
    stride: int | None = _declared(None, whole(least=1), "NetCDF, Zarr: every nth row and column.")
    sep: str | None = _declared(None, TEXT, "CSV: what separates the columns; tab, for example.", otherwise=",")
    decimal: str | None = _declared(None, TEXT, "CSV: the decimal sign.", otherwise=".")
    encoding: str | None = _declared(None, TEXT, "CSV: for example latin-1.", otherwise="utf-8")
    settable: bool = True
    at: Mapping[str, float | str] | None = _declared(
        None, AT, "NetCDF, Zarr: the values of other axes, for example: depth=5 time=2021-01-05"
    )
    time_unit: TimeUnit = declared(
        "days",
        one_of(get_args(TimeUnit)),
        "What inputs that are times are counted in, since 1970: days, hours or seconds.",
        toml=False,
    )
    celsius: bool = _declared(False, FLAG, "NetCDF, Zarr: convert targets in kelvin to degrees Celsius.")

    def __post_init__(self) -> None:
        for option in ("sep", "decimal", "encoding"):
            if getattr(self, option) is not None:
                as_text(option, getattr(self, option))
        if self.at is not None and not isinstance(self.at, Mapping):
            raise InputError(f'at: expected values by the names of axes, {{"depth": 5}}, got {shortened(self.at)}')
        check_time_unit(self.time_unit)
        as_flag(self.settable, "settable")
        as_flag(self.celsius, "celsius")

    def check(self, file: Path) -> None:
        """Refuse options that are for other kinds of files."""
        for option, kinds in _OPTIONS.items():
            if getattr(self, option) not in (None, False) and file.suffix.lower() not in kinds:
                endings = " or ".join(kinds)
                raise InputError(f"{file}: {option} (--{option}) is for files that end in {endings}: leave it out")


def checked_reading(reading: object) -> Reading:
    """Return the reading, or the default one; refuse anything else."""
    if reading is not None and not isinstance(reading, Reading):
        raise InputError(f'reading: expected a Reading, as fg.io.Reading(sep=";"), got {shortened(reading)}')
    return reading or Reading()


@dataclass(frozen=True)
class Table:
    """Columns by name, and their units, where they are known. notes: what was done to the values.

    empty: cells of a field without a value, which are no rows.
    """

    columns: dict[str, Any]
    notes: tuple[str, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    empty: int = 0


def read_table(path: str | Path, *, text: Which | None = None, reading: Reading | None = None) -> Table:
    """Read all columns of a table. text: which columns of a CSV to take as they are written."""
    file, how = as_path(path, "path"), checked_reading(reading)
    check_file(file, how)
    reader = {".csv": _csv, ".parquet": _parquet, ".npz": _npz}[file.suffix.lower()]
    with reading_errors(file):
        return reader(file, text, how)


@contextmanager
def reading_errors(file: Path) -> Iterator[None]:
    """Raise whatever a library says of an unreadable file as an InputError."""
    try:
        yield
    except InputError:
        raise
    except MemoryError as error:
        raise InputError(f"{file}: it does not fit into the memory of this machine: give a part of it") from error
    except (OSError, ValueError, KeyError, EOFError, RuntimeError, NotImplementedError) as error:
        raise InputError(f"{file}: it cannot be read as {file.suffix[1:].upper()}: {error}") from error


def check_file(file: Path, how: Reading) -> None:
    """Refuse what is no regular file of a known kind, and options of other kinds."""
    kind = file.suffix.lower()
    if kind not in FORMATS:
        raise InputError(f"{file}: expected a file that ends in {', '.join(FORMATS)}")
    if not file.exists():
        raise InputError(f"{file}: there is no such file")
    if file.is_dir() != (kind == ".zarr"):
        raise InputError(f"{file}: expected a {'folder, as Zarr is one' if kind == '.zarr' else 'file, got a folder'}")
    if not file.is_dir() and not file.is_file():
        raise InputError(f"{file}: expected a regular file, got a pipe, a socket or a device: write the data to a file")
    how.check(file)


def check_names(path: object, names: Sequence[str], have: Sequence[str], reading: Reading | None = None) -> None:
    """Refuse missing columns, and list those that there are."""
    for name in names:
        if name not in have:
            columns = ", ".join(name if name == name.strip() else repr(name) for name in have)
            hint = separated_otherwise(have, settable=reading is None or reading.settable)
            raise InputError(f"{path}: there is no column {name!r}; it has {columns}{hint}")


def pandas_for(what: object) -> Any:
    """Return pandas, or raise an error that names what needs it (a file, a call) and the extra."""
    try:
        import pandas as pd
    except ImportError as error:
        raise InputError(f'{what} needs pandas: pip install "fleetgp[data]"') from error
    return pd


def separated_otherwise(names: Sequence[str], *, settable: bool = True) -> str:
    """Return the hint that a file with a single column has another separator."""
    for separator, option in ((";", ";"), ("\t", "tab"), ("|", "|")):
        if len(names) == 1 and separator in names[0]:
            return ": separate the columns by commas" + (
                f", or say how they are (--sep '{option}')" if settable else ""
            )
    return ""


def _check_columns(file: Path, count: int, least: str = "") -> None:
    """Refuse a table with more columns than can be read in reasonable time."""
    if count > MOST_COLUMNS:
        raise InputError(
            f"{file}: expected at most {MOST_COLUMNS:,} columns, got {least}{count:,}: keep the columns that are "
            "needed, and check that every observation is a row, not a column"
        )


def _check_expansion(file: Path, size: int) -> None:
    """Refuse a file that unpacks to far more than its own size."""
    if size > UNPACKED and size > RATIO * file.stat().st_size:
        times = size // max(1, file.stat().st_size)
        raise InputError(
            f"{file}: it says that it unpacks to {size / 1e9:.3g} GB, {times:,} times its own size: "
            "it is damaged, or made to fill the memory"
        )


# ---- one reader for each kind of file ------------------------------------------------------------------------


def _csv(file: Path, text: Which | None, how: Reading) -> Table:
    pd, options = pandas_for(file), csv_options(how)
    with csv_errors(file, how):
        names = csv_names(file, options)
        table = pd.read_csv(file, low_memory=False, **options)
    check_fields(table, names, file, how)
    columns = {str(name): table[name].to_numpy() for name in table.columns}
    written = [name for name in table.columns if text is not None and text(str(name))]
    if written:  # an agent may be called NA, or 007
        texts = pd.read_csv(file, usecols=written, dtype=str, keep_default_na=False, **options)
        columns |= {str(name): texts[name].to_numpy(dtype=object) for name in written}
    return Table(columns)


def csv_options(how: Reading) -> dict[str, str]:
    """What pandas must know to read the file."""
    separator = _SEPARATORS.get(how.sep or "comma", how.sep or "comma")
    for name, value in (("sep", separator), ("decimal", how.decimal or ".")):
        if len(value) != 1:
            raise InputError(f"{name} (--{name}) must be one character, or tab, got {value!r}")
    return {"sep": separator, "decimal": how.decimal or ".", "encoding": how.encoding or "utf-8"}


def csv_names(file: Path, options: dict[str, str]) -> list[str]:
    """The names in the header, which must differ."""
    _check_start(file, options)
    header = pandas_for(file).read_csv(file, header=None, nrows=1, dtype=str, keep_default_na=False, **options)
    names = [str(name) for name in header.iloc[0]]
    twice = [name for name, count in Counter(names).items() if name and count > 1]
    if twice:
        raise InputError(f"{file}: two columns are called {twice[0]!r}: rename one of them")
    return names


def _check_start(file: Path, options: dict[str, str]) -> None:
    """Refuse a header or a first row with too many columns: pandas refuses longer rows after these by itself."""
    with file.open(encoding=options["encoding"]) as stream:
        start, more = io.StringIO(stream.read(LONGEST_START)), bool(stream.read(1))
    rows = 0
    with suppress(csv.Error):  # a field without an end
        for row in csv.reader(start, delimiter=options["sep"]):
            _check_columns(file, min(len(row), MOST_COLUMNS + 1), "at least ")
            rows += bool("".join(row).strip())  # pandas skips blank lines
            if rows == 2:
                break
    if more and (rows < 2 or not start.read(1)):
        raise InputError(
            f"{file}: expected at most {LONGEST_START:,} characters in its header and its first row: check that "
            "every observation is a line, and every quote is closed"
        )


def check_fields(table: Any, names: Sequence[str], file: Path, how: Reading) -> None:
    """Refuse a table in which pandas took fields without a name in the header as labels of the rows."""
    if not isinstance(table.index, pandas_for(file).RangeIndex):
        hint = separated_otherwise(names, settable=how.settable) or ": give each a name"
        raise InputError(f"{file}: its rows have more fields than the {len(names)} of its header{hint}")


@contextmanager
def csv_errors(file: Path, how: Reading) -> Iterator[None]:
    """Explain a wrong or unknown encoding."""
    try:
        yield
    except UnicodeDecodeError as error:
        with file.open("rb") as stream:
            wide = stream.read(2) in (b"\xff\xfe", b"\xfe\xff")
        what = f"it is written in UTF-16, not in {error.encoding}" if wide else f"it is not written in {error.encoding}"
        name = "utf-16" if wide else "latin-1"
        advice = f', or give its encoding, for example encoding="{name}" (on the command line --encoding {name})'
        raise InputError(f"{file}: {what}: save it as UTF-8{advice if how.settable else ''}") from error
    except LookupError as error:
        raise InputError(f"{file}: unknown encoding {how.encoding!r}: utf-8, latin-1 and cp1252 are common") from error


def _parquet(file: Path, text: Which | None, how: Reading) -> Table:
    pd = pandas_for(file)
    try:
        from pyarrow.parquet import read_metadata
    except ImportError as error:
        raise InputError(f'{file}: Parquet needs pyarrow: pip install "fleetgp[data]"') from error
    facts = read_metadata(file)
    _check_columns(file, facts.num_columns)
    _check_expansion(file, 8 * facts.num_rows * facts.num_columns)
    table = pd.read_parquet(file)
    return Table({str(name): table[name].to_numpy() for name in table.columns})


def _npz(file: Path, text: Which | None, how: Reading) -> Table:
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
    except zipfile.BadZipFile as error:
        raise InputError(f"{file}: it cannot be read as NPZ: it is no NumPy archive") from error
    _check_columns(file, len(members))
    _check_expansion(file, sum(member.file_size for member in members))
    columns: dict[str, Any] = {}
    with np.load(file, allow_pickle=False) as arrays:
        for name in arrays.files:
            try:
                columns[name] = arrays[name]
            except (ValueError, SyntaxError, RecursionError, MemoryError, tokenize.TokenError) as error:
                raise InputError(f"{file}: the array {name!r} cannot be read: {error}") from error
            if not isinstance(columns[name], np.ndarray):
                raise InputError(f"{file}: it holds {name!r}, which is no array: NumPy's savez writes arrays only")
    return Table({name: np.ravel(array) for name, array in columns.items()})


@dataclass(frozen=True)
class Columns:
    """The columns to read, by name, and how. target: one name, or several.

    deviation: the column of the target's known standard deviations.  fill: values that stand for nothing; None where
        nobody has said so, and values that look like such are refused.
    """

    inputs: Sequence[str]
    target: str | Sequence[str]
    agent: str | None = None
    deviation: str | None = None
    fill: Sequence[float] | None = None
    reading: Reading = field(default_factory=Reading)

    def check(self) -> None:
        """Refuse wrong names before anything is read."""
        if not as_names(self.inputs, "inputs"):
            raise InputError("inputs: expected the names of one column or more, got none")
        for name, column in (("agent", self.agent), ("deviation", self.deviation)):
            if column is not None and (not isinstance(column, str) or not column):
                raise InputError(f"{name}: expected the name of a column, got {shortened(column)}")
        if self.deviation is not None and len(self.targets) > 1:
            raise InputError("deviation: expected one target with it, got several: leave one out")

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.target,) if isinstance(self.target, str) else as_names(self.target, "target")

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns that every row must have."""
        return *self.inputs, *([self.deviation] if self.deviation else [])

    @property
    def numbers(self) -> tuple[str, ...]:
        """The columns of numbers, the targets last."""
        return *self.needed, *self.targets

    @property
    def all(self) -> tuple[str, ...]:
        return *self.numbers, *([self.agent] if self.agent else [])

    @property
    def judged(self) -> bool:
        """Whether values that look as if they stood for nothing are refused."""
        return self.fill is None or len(self.fill) > 0

    def numbers_of(self, table: Table, where: object, before: int = 0) -> tuple[Array, dict[str, str]]:
        """Return `numbers` (n, ..), NaN where a value is missing, and the units of the inputs that are times.

        before: how many rows of the file come before these.
        """
        inputs = {name: input_numbers(table.columns[name], name, where, self.reading, before) for name in self.inputs}
        rest = self.numbers[len(inputs) :]
        others = [numeric(table.columns[name], name, where, self.reading, before) for name in rest]
        numbers = np.column_stack([*(values for values, _ in inputs.values()), *others])
        if self.fill is not None:
            numbers[is_any_of(numbers, as_fills(self.fill))] = np.nan
        return numbers, {name: unit for name, (_, unit) in inputs.items() if unit}

    def observations(self, rows: Array) -> Observations:
        """Rows of `numbers` with one target as observations."""
        width = len(self.inputs)
        return Observations(rows[:, :width], rows[:, -1], rows[:, width] if self.deviation else None)


#: What begins like a date, in the order of whatever country.
_OTHER_DATE = re.compile(r"\s*\d{1,4}[./-]\d{1,2}[./-]\d{1,4}(?!\d)")


def input_numbers(
    values: Any, name: str, path: object, reading: Reading | None = None, before: int = 0
) -> tuple[Array, str]:
    """Return an input as floats and its units; units only of times, or dates as text, which `numeric` does not take.

    >>> input_numbers(np.array(["2021-01-05", "2021-01-06T12:00"], dtype=object), "day", "t.csv")
    (array([18632. , 18633.5]), 'days since 1970-01-01')
    """
    unit = (reading or Reading()).time_unit
    if are_times(values) or (np.asarray(values).dtype.kind in "OUT" and are_dates_as_text(values)):
        return numbers_of_times(values, unit, f"{path}: column {name!r}"), units_of_times(unit)
    try:
        return numeric(values, name, path, reading, before), ""
    except InputError as error:
        texts = (value for value in np.asarray(values).ravel() if isinstance(value, str))
        if any(_OTHER_DATE.match(text) for text in texts):
            raise InputError(f"{error}. Are these dates? Then write them like 2023-06-04 19:23") from error
        raise


def numeric(values: Any, name: str, path: object, reading: Reading | None = None, before: int = 0) -> Array:
    """Return a column as floats, NaN where a value is missing. before: how many rows of the file come before these."""
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
