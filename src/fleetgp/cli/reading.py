"""How the commands read tables and fields, files that are larger than memory included."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from fleetgp.cli import options
from fleetgp.cli.arguments import Given
from fleetgp.data.dataset import Dataset, joined
from fleetgp.errors import InputError, NothingToLearnError
from fleetgp.fleet.backends import refuse_rows
from fleetgp.fleet.files import MEMORY, read_files
from fleetgp.io.fields import told_of_empty
from fleetgp.io.formats import Reading
from fleetgp.io.survey import CHUNKED, size_of
from fleetgp.options import RowOptions
from fleetgp.training import training_method

#: How a CSV file is read, and any file of points; a command makes a `Reading` of it.
TABLE_READING = Annotated[dict[str, Any], Given(Reading, ("sep", "decimal", "encoding"))]
FILE_READING = Annotated[dict[str, Any], Given(Reading, ("date", "box", "stride", "sep", "decimal", "encoding", "at"))]
#: How a file of observations is read, and which of its rows count.
READING = Annotated[dict[str, Any], Given(Reading)]
ROWS = Annotated[dict[str, Any], Given(RowOptions)]
#: A file of more bytes is read in chunks, whatever its kind.
LARGE = 200_000_000


@dataclass(frozen=True)
class AgentData:
    """The agents' names and data, how many rows were left out, what else was done to the values, and units."""

    names: list[str]
    shards: Dataset | Sequence[tuple[Any, ...]]
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
