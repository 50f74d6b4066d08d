"""An agent's own data: a file, which may grow, and rows that it was sent. Nothing that was acknowledged is lost."""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from fleetgp.agent.description import Description
from fleetgp.agent.journal import Journal
from fleetgp.agent.logs import Activity, Log
from fleetgp.agent.requests import Reply
from fleetgp.agent.threads import Inbox
from fleetgp.arrays import Array
from fleetgp.consensus.agreements import FEWEST_ROWS, outer_corners
from fleetgp.data.suspicions import is_any_of, refuse_suspicious
from fleetgp.errors import FleetGPError, InputError, NetworkError, shortened
from fleetgp.files import private_folder, whole
from fleetgp.io.formats import Columns, Reading, Table
from fleetgp.io.tables import check_deviation_column, observations_of, read_columns
from fleetgp.model.noise import SAME, NoiseModel
from fleetgp.model.observations import Observations
from fleetgp.network.wire import LARGEST

REQUEST = re.compile(r"[\w-]{1,64}", re.ASCII)


class Appended(NamedTuple):
    """rows: how many a request brought.  repeated: they were there already."""

    rows: int
    repeated: bool


def store_of(description: Description, name: str, folder: Path, log: Log) -> ObservationStore:
    """The data of an agent, its journal in its folder; the log says what was dropped or found damaged."""
    own = description.agents[description.id_of(name)]
    data = ObservationStore(
        description.data_of(description.id_of(name)),
        description.inputs,
        description.target,
        folder / "observed.jsonl",
        missing=own.missing,
        fill=own.fill,
        watched=own.watch,
        deviation=description.deviation,
        noise_model=description.noise_model,
        group=description.id_of(name) if description.noise_model.groups else 0,
        private=description.private is not None,
    )
    if data.file is None:
        log("no data file", why="fleet.toml names none for this agent")
    elif not data.file.exists():
        log.warn("no data file", file=str(own.data), why="there is no such file yet")
    if data.dropped:
        log.warn("rows dropped", rows=data.dropped, file=str(own.data))
    journal = data.journal
    if journal.damaged or journal.missing_rows or journal.missing_bytes:
        copy = "none: no room; the file is left as it is" if journal.damaged else "none: nothing of them is left"
        log.error(
            "observed rows damaged",
            file=str(journal.path),
            unreadable_lines=journal.damaged,
            rows_kept=len(journal.rows),
            rows_missing=journal.missing_rows,
            bytes_missing=journal.missing_bytes,
            copy=str(journal.aside) if journal.aside else copy,
        )
    return data


class ObservationStore:
    """The rows of a file and of a journal. Any thread may append and read; one refreshes.

    file: None if there is none. It may come later; then it is read if it is watched, or at the next start.
    inputs, target, deviation: the columns of the file; there may be no deviation.  journal: of the rows that were sent.
    watched: somebody may be writing to the file; of a CSV only whole lines count.
    noise_model, group: how the noise differs, and which group is this agent's.
    private: the rows are; what others see of where they are is rounded.
    """

    def __init__(
        self,
        file: Path | None,
        inputs: Sequence[str],
        target: str,
        journal: Path,
        *,
        missing: Literal["refuse", "drop"] = "refuse",
        fill: Sequence[float] | None = None,
        watched: bool = False,
        deviation: str | None = None,
        noise_model: NoiseModel = SAME,
        group: int = 0,
        private: bool = False,
    ) -> None:
        self.inputs, self.columns = tuple(inputs), (*inputs, *([deviation] if deviation else []), target)
        self.file, self._deviation, self._noise, self._group = file, deviation, noise_model, group
        self._copy = journal.with_name("watched.csv")
        self.missing, self.fill, self.watched, self.private = missing, fill, watched, private
        self.dropped = 0
        self.units: Mapping[str, str] = {}  # of the file's columns, where they are known: of dates
        self._stamp: tuple[int, int] | None = None
        self._writing = threading.Lock()
        self._table = self._read()
        self.journal = Journal(journal, self.columns, LARGEST)
        self._place: tuple[tuple[object, object], dict[str, list[float]]] = ((None, None), {})

    @property
    def rows(self) -> int:
        return len(self._table) + len(self.journal.rows)

    @property
    def parts(self) -> tuple[Array, Array]:
        """The rows of the file, and those that were sent. Arrays are replaced, never changed."""
        return self._table, self.journal.rows

    @property
    def shard(self) -> Observations:
        """The rows as they are now. Arrays are replaced, never changed."""
        rows, width = np.concatenate([self._table, self.journal.rows]), len(self.inputs)
        known = rows[:, width] if self._deviation else None
        return self._noise.observed(Observations(rows[:, :width], rows[:, -1], known), self._group)

    @property
    def place(self) -> dict[str, list[float]]:
        """Where the rows are: the corners of their box, and their mean. Computed again only where there are others.

        Of private rows the corners are rounded outwards, and the middle of this box takes the place of the mean. Empty
        without rows.
        """
        parts = (self._table, self.journal.rows)
        known, place = self._place
        if not self.rows:
            return {}
        if known[0] is not parts[0] or known[1] is not parts[1]:
            inputs = self.shard.inputs
            low, high, centre = inputs.min(axis=0), inputs.max(axis=0), inputs.mean(axis=0)
            if self.private:
                high, low = np.split(outer_corners(low, high), 2)
                low = -low
                centre = (low + high) / 2.0
            place = {"low": low.tolist(), "high": high.tolist(), "centre": centre.tolist()}
            self._place = parts, place
        return place

    def append(self, rows: Any, request: str | None = None) -> Appended:
        """Take in rows of inputs and target; they are on disk when this returns, and nowhere if it fails.

        request: the name of this batch; one whose name is on disk already is not written again.
        """
        values = self._checked(rows)
        name = uuid.uuid4().hex if request is None else request
        if not isinstance(name, str) or REQUEST.fullmatch(name) is None:
            raise InputError(
                f"expected a request of 1 to 64 letters, digits, dashes and underscores, got {shortened(name)}"
            )
        with self._writing:
            # What was taken once is not judged again: the file may have changed since.
            values = self._without_gaps(values, judged=not self.journal.knows(name))
            if self._too_few(self.rows + len(values)):
                raise InputError(
                    f'private = "rows" needs at least {FEWEST_ROWS} rows of an agent that has any, got {len(values)}: '
                    "observe more at once"
                )
            return Appended(len(values), not self.journal.append(values, name))

    def _without_gaps(self, values: Array, *, judged: bool) -> Array:
        """Rows without the values that stand for a gap; one clear error for those that seem to, beside the others."""
        gaps = is_any_of(values, self.fill or ())
        gapped = np.asarray(gaps.any(axis=1))
        if gapped.any() and (self.missing == "refuse" or gapped.all()):
            column = self.columns[int(np.flatnonzero(gaps.any(axis=0))[0])]
            raise InputError(
                f"{int(gapped.sum())} of {len(values)} rows have a gap (first: row {np.flatnonzero(gapped)[0] + 1}, "
                f"column {column!r}; fill is {list(self.fill or ())}): leave these rows out"
            )
        values = values[~gapped]
        if judged:
            there = np.concatenate([self._table, self.journal.rows])
            fills = self.fill is None or len(self.fill) > 0
            refuse_suspicious(values, self.columns, "the new rows", fills=fills, of_agent=True, among=there)
        return values

    def refresh(self) -> int:
        """Read the file again if it has changed; by how many rows."""
        stamp = self._stamped()
        if stamp == self._stamp:
            return 0
        if stamp is None:
            raise InputError(f"{self.file}: the file is gone; its rows are still used")
        before, table = len(self._table), self._read()
        if self._too_few(len(table) + len(self.journal.rows)):  # until there are more
            return 0
        self._table = table
        return len(table) - before

    def _too_few(self, rows: int) -> bool:
        """Whether so many rows would not stay private."""
        return self.private and 0 < rows < FEWEST_ROWS

    def _read(self) -> Array:
        stamp = self._stamped()
        if self.file is None or stamp is None:
            return np.zeros((0, len(self.columns)))
        written = self.watched and self.file.suffix.lower() == ".csv" and self.file.is_file()
        text = self.file.read_bytes() if written else b""
        values = None if text and not text.endswith(b"\n") else self._values(self.file)
        if values is None or (written and self._stamped() != stamp):  # somebody writes to it, perhaps in between
            return self._read_lines(text[: text.rfind(b"\n") + 1])
        self._stamp = stamp
        return values

    def _read_lines(self, text: bytes) -> Array:
        """The whole lines of a file that is being written; there will be another look at it."""
        if not text:
            return np.zeros((0, len(self.columns)))
        private_folder(self._copy.parent)
        with whole(self._copy) as partial:
            partial.write_bytes(text)
        try:
            return self._values(self._copy)
        finally:
            self._copy.unlink()

    def _values(self, file: Path) -> Array:
        how = Reading(settable=False)  # the description of a fleet does not have these
        columns = Columns(self.inputs, self.columns[-1], deviation=self._deviation, fill=self.fill, reading=how)
        columns.check()
        table = plain_csv(file, columns.all) or read_columns(file, columns.all, reading=how, targets=columns.targets)
        if not len(table.columns[self.columns[-1]]):  # a header alone: its rows may come
            return np.zeros((0, len(self.columns)))
        read = observations_of(table, file, columns, missing=self.missing, of_agent=True)
        self.dropped, self.units = read.dropped, read.units
        return self._checked(read.rows)

    def _stamped(self) -> tuple[int, int] | None:
        try:
            facts = None if self.file is None else self.file.stat()
        except OSError:
            facts = None
        if facts is None or not facts.st_size:  # one that is being made
            return None
        return facts.st_mtime_ns, facts.st_size

    def _checked(self, rows: Any) -> Array:
        wanted = f"rows of {len(self.columns)} numbers ({', '.join(self.columns)})"
        try:
            values = np.array(rows, dtype=float)
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(f"expected {wanted}: {error}") from error
        if values.ndim != 2 or values.shape[1] != len(self.columns) or not len(values):
            raise InputError(f"expected {wanted}, got the shape {values.shape}")
        if not np.isfinite(values).all():
            raise InputError(f"expected {wanted}, got some that are missing or infinite")
        if np.abs(values).max() > LARGEST:
            raise InputError(f"some values are beyond {LARGEST:g}: use other units")
        if self._deviation:
            check_deviation_column("the rows", self._deviation, values[:, -2])
        return values


#: Bytes of a file that is read without pandas.
SMALL = 2**20
#: A quote, 16 digits or more, an exponent, or a negative whole zero. Without these every parser gets the same bits.
_NOT_PLAIN = re.compile(r'"|\d(?:\.?\d){15}|[\d.][eE]|-0+(?![\d.])')


def plain_csv(file: Path, names: Sequence[str]) -> Table | None:
    """Read columns of a small CSV of plain numbers; None for any other file.

    pandas takes 0.2 s and 50 MB to load, in every agent on a machine.
    """
    try:
        if file.suffix.lower() != ".csv" or file.stat().st_size > SMALL:
            return None
        text = file.read_text(encoding="utf-8").removesuffix("\n")
        header, *lines = text.split("\n")
        found = header.split(",")
        columns = [found.index(name) for name in names]
        even = all(line.count(",") == len(found) - 1 for line in lines)
        if not even or len(set(found)) < len(found) or _NOT_PLAIN.search(text):
            return None
        if not lines:
            return Table({name: np.zeros(0) for name in names})
        rows = np.loadtxt(lines, delimiter=",", usecols=columns, ndmin=2, comments=None)
    except (OSError, ValueError):  # no text, not these columns, or cells without a number: the other reader explains it
        return None
    return Table(dict(zip(names, rows.T, strict=True))) if np.isfinite(rows).all() else None


#: So many requests may wait for the disk; each can be of some megabytes.
WAITING = 8


class Recorder:
    """Writes new rows in a thread of its own: a slow disk holds up neither heartbeats nor answers.

    name: the agent's.  recorded: called by that thread when rows were written.
    """

    def __init__(self, name: str, data: ObservationStore, log: Log, recorded: Callable[[], None]) -> None:
        self._name, self._data, self._log, self._recorded = name, data, log, recorded
        self._inbox, self._closing = Inbox(), threading.Event()

    def put(self, rows: Any, request: Any, reply: Reply) -> None:
        """Have rows written, then the sender answered."""
        if not self._inbox.put(lambda: reply(self._record(rows, request)), source="rows", most=WAITING):
            raise NetworkError(
                f"{self._name} has {WAITING} requests to write down before this one: repeat it a little later"
            )

    def close(self) -> None:
        """Finish the batch that is being written; the senders of all others know that these were not acknowledged."""
        self._closing.set()
        self._inbox.put(lambda: None)

    def work(self) -> None:
        def failed(error: Exception) -> None:  # the sender may be gone, and will ask again
            self._log.warn("nobody there to answer", error=str(error))

        self._inbox.serve(self._closing, failed)

    def _record(self, rows: Any, request: Any) -> dict[str, Any]:
        try:
            appended = self._data.append(rows, request)
        except InputError as error:
            return {"error": str(error), "wrong": True}
        except Exception as error:  # the disk is full, say: the agent continues without these rows
            kind = "" if isinstance(error, FleetGPError | OSError) else f"{type(error).__name__}: "
            self._log.error("rows refused", error=f"{kind}{error}")
            return {"error": f"{self._name} cannot keep these rows, and has kept none of them: {kind}{error}"}
        if not appended.repeated:
            self._log("observed", rows=appended.rows, in_all=self._data.rows)
            self._recorded()
        return {"answer": {"rows": appended.rows, "repeated": appended.repeated, "in_all": self._data.rows}}


#: Seconds between two looks.
WATCH = 1.0


def watch_file(
    data: ObservationStore, activity: Activity, log: Log, changed: Callable[[], None], ending: threading.Event
) -> None:
    """Look whether the data file has changed, until `ending` is set.

    A file that cannot be read is logged once; its rows from before are still used.
    """
    while not ending.wait(WATCH):
        try:
            more = data.refresh()
        except Exception as error:  # half a file, say: there will be another look
            if str(error) != activity.data_problem:
                activity.data_problem = str(error)
                log.warn("the watched file cannot be read", error=activity.data_problem)
            continue
        activity.data_problem = ""
        if more:
            log("observed" if more > 0 else "rows gone", rows=abs(more), in_all=data.rows)
            changed()
