"""How the commands read tables and fields, files that are larger than memory included."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from fleetgp.cli import options
from fleetgp.cli.options import one_of
from fleetgp.data.streamed import Streamed
from fleetgp.data.summary import joined
from fleetgp.data.times import TimeUnit
from fleetgp.errors import InputError, NothingToLearnError
from fleetgp.fleet.backends import refuse_rows
from fleetgp.fleet.files import MEMORY, read_files
from fleetgp.io.chunks import CHUNKED, size_of
from fleetgp.io.fields import told_of_empty
from fleetgp.io.formats import Reading
from fleetgp.io.tables import Missing
from fleetgp.training import training_method

DATE = Annotated[str | None, typer.Option(help="NetCDF, Zarr: which day of several, YYYY-MM-DD.")]
BOX = Annotated[list[float] | None, typer.Option(help="NetCDF, Zarr: west, south, east, north, in degrees.")]
STRIDE = Annotated[int | None, typer.Option(help="NetCDF, Zarr: every so many-th row and column.", min=1)]
AT = Annotated[
    list[str] | None,
    typer.Option(help="NetCDF, Zarr: the values of other axes, for example: --at depth=5 time=2021-01-05"),
]
CELSIUS = Annotated[bool, typer.Option("--celsius", help="NetCDF, Zarr: convert targets in kelvin to degrees Celsius.")]
TIME_UNIT = Annotated[
    str, typer.Option(help="What inputs that are times are counted in, since 1970: days, hours or seconds.")
]
SEP = Annotated[str | None, typer.Option(help="CSV: what separates the columns; tab, for example. (default: ,)")]
DECIMAL = Annotated[str | None, typer.Option(help="CSV: the decimal sign. (default: .)")]
ENCODING = Annotated[str | None, typer.Option(help="CSV: for example latin-1. (default: utf-8)")]
MISSING = Annotated[str, typer.Option(help="Rows with missing values: refuse or drop.")]
FILL = Annotated[
    list[str] | None, typer.Option(help="Values that stand for nothing: -9999, say; none if all values are real.")
]
#: A file of more bytes is read in chunks, whatever its kind.
LARGE = 200_000_000


@dataclass(frozen=True)
class TableReading:
    """How a table is to be read."""

    sep: SEP = None
    decimal: DECIMAL = None
    encoding: ENCODING = None

    @property
    def reading(self) -> Reading:
        return Reading(sep=self.sep, decimal=self.decimal, encoding=self.encoding)


@dataclass(frozen=True)
class FileReading:
    """How a table or a NetCDF file is to be read."""

    date: DATE = None
    box: BOX = None
    stride: STRIDE = None
    at: AT = None
    sep: SEP = None
    decimal: DECIMAL = None
    encoding: ENCODING = None

    @property
    def reading(self) -> Reading:
        told = self.date, four_sides(self.box), self.stride, self.sep, self.decimal, self.encoding
        return Reading(*told, at=values_of(self.at))


@dataclass(frozen=True)
class ObservedReading(FileReading):
    """The same of observations: what becomes of missing values, and what times are counted in."""

    celsius: CELSIUS = False
    missing: MISSING = "refuse"
    fill: FILL = None
    time_unit: TIME_UNIT = "days"

    @property
    def what(self) -> dict[str, Any]:
        """What `read_observations` takes."""
        unit = one_of("--time-unit", self.time_unit, get_args(TimeUnit))
        reading = replace(self.reading, time_unit=unit, celsius=self.celsius)
        return {"missing": missing_of(self.missing), "fill": fills_of(self.fill), "reading": reading}


def four_sides(box: Sequence[float] | None) -> tuple[float, float, float, float] | None:
    """--box as four numbers, or one clear error."""
    if not box:
        return None
    if len(box) != 4:
        told = " ".join(f"{side:g}" for side in box)
        raise InputError(f"--box: expected four numbers (west south east north), got {len(box)}: {told}")
    west, south, east, north = box
    return west, south, east, north


def values_of(at: Sequence[str] | None) -> dict[str, float | str] | None:
    """--at as values by name.

    >>> values_of(["depth=5", "time=2021-01-05"])
    {'depth': 5.0, 'time': '2021-01-05'}
    """
    found: dict[str, float | str] = {}
    for text in at or ():
        name, given, value = text.partition("=")
        if not given or not name or not value:
            raise InputError(f"--at: expected a name and a value, like depth=5, got {text!r}")
        try:
            found[name] = float(value)
        except ValueError:
            found[name] = value
    return found or None


def fills_of(fill: Sequence[str] | None) -> list[float] | None:
    """--fill as numbers; "none" says that there are none."""
    if not fill:
        return None
    if list(fill) == ["none"]:
        return []
    try:
        return [float(value) for value in fill]
    except ValueError as error:
        raise InputError(f"--fill: expected numbers, or none, got {' '.join(fill)}") from error


def missing_of(given: str) -> Missing:
    """--missing as one of its values."""
    return one_of("--missing", given, get_args(Missing))


@dataclass(frozen=True)
class AgentData:
    """The agents' names and data, how many rows were left out, what else was done to the values, and units."""

    names: list[str]
    shards: Streamed | Sequence[tuple[Any, ...]]
    dropped: int
    notes: tuple[str, ...]
    units: Mapping[str, str]


@dataclass(frozen=True)
class Streaming:
    """How files are read that may be larger than memory."""

    sample: options.SAMPLE = None
    memory: options.MEMORY = None

    def chunked(self, files: Sequence[Path], agents: int | None) -> bool:
        """Whether the files are read in chunks."""
        if len(files) == 1 and self.sample is None and self.memory is None:
            file = files[0]
            return agents is None and file.suffix.lower() in CHUNKED and file.exists() and size_of(file)[0] > LARGE
        if agents is not None:
            raise InputError(
                "--agents splits the rows of one file, which is read as a whole: expected --agent, or a file for each "
                "agent"
            )
        return True

    def read(self, files: Sequence[Path], what: dict[str, Any], seed: int, training: str, out: Path) -> AgentData:
        """The agents' data, for a training whose model goes to `out`.

        what: the options of `read_observations`, whether there are bars, and the backend of a fleet on a cluster.
        """
        if "backend" in what:
            refuse_rows(training_method(training))
        cache = reading_beside(out)
        limit = MEMORY if self.memory is None else self.memory
        try:
            found = read_files(files, **what, sample=self.sample, memory=limit, cache=cache, seed=seed)
        except InputError as error:
            going_on = "; the same command goes on from what was read" if cache.exists() else ""
            raise InputError(f"{error}{going_on}") from error
        if joined(found.summaries).squares == 0.0:
            raise NothingToLearnError(f"the column {what['target']!r}")
        if what["agent"] is not None:
            check_column("", what["agent"], len(found), found.points)
        notes = (*found.notes, *told_of_empty(found.empty))
        return AgentData(list(found.names), found, found.dropped, notes, found.units)


def check_column(where: str, column: str | None, agents: int, rows: int) -> None:
    """One clear error where a column can hardly be the one that names the agents."""
    if agents > 20 and 2 * agents > rows:
        raise InputError(f"{where}the column {column!r} names {agents} agents in {rows} rows: is it the right one?")


def reading_beside(out: Path) -> Path:
    """Where what is known of finished files is kept until the model is written."""
    return out.with_name(f".{out.name}.reading")


def forget_reading(out: Path) -> None:
    shutil.rmtree(reading_beside(out), ignore_errors=True)
