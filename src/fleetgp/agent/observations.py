"""An agent's own data: a file, which may grow, and rows that it was sent. Nothing that was acknowledged is lost.

Rows leave by age, by number and on request: what has left does not come back, though the file may still have it.
"""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from fleetgp.agent.description import Description
from fleetgp.agent.forgetting import keys_of_rows, now_of, without
from fleetgp.agent.journal import RECEIPTS, Journal
from fleetgp.agent.journal_lines import Departure
from fleetgp.agent.logs import Log
from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.consensus.agreements import FEWEST_ROWS, outer_corners
from fleetgp.data.conditions import Comparison, Condition
from fleetgp.data.dataset import InMemory
from fleetgp.data.suspicions import is_any_of, refuse_suspicious
from fleetgp.data.times import duration, format_value, moment, time_input, units_of_times
from fleetgp.errors import InputError, NetworkError, shortened
from fleetgp.files import private_folder, whole
from fleetgp.fleet.forgetting import Limit, forgotten, removed, renumbered, summarized
from fleetgp.io.formats import Columns, Reading, Table
from fleetgp.io.tables import check_deviation_column, observations_of, read_columns
from fleetgp.model.noise import SAME, NoiseModel
from fleetgp.model.observations import Observations
from fleetgp.network.wire import LARGEST
from fleetgp.options import Keep
from fleetgp.prediction.kept import KeptGroups

#: Groups of forgotten rows that an agent keeps where nothing else limits them.
MOST_KEPT = 200
#: Seconds that an operator's request to forget waits for the fleet to be idle.
BUSY = 20.0
REQUEST = re.compile(r"[\w-]{1,64}", re.ASCII)


class Appended(NamedTuple):
    """rows: how many a request brought.  repeated: they were there already."""

    rows: int
    repeated: bool


class Stand(NamedTuple):
    """The rows that count at one moment, of the file and sent ones. Arrays are replaced, never changed.

    kept: groups that stand for forgotten rows.  arrived: how many rows there have ever been.  removed: how many of them
    were taken back.  departures: how often rows have left since the start.
    """

    table: Array
    sent: Array
    kept: KeptGroups
    arrived: int
    removed: int
    departures: int

    @property
    def number(self) -> tuple[int, int]:
        """Another one where other rows count."""
        return self.arrived, self.departures

    @property
    def values(self) -> Array:
        """All of them, (N, C)."""
        return np.concatenate([self.table, self.sent])

    def __len__(self) -> int:
        return len(self.table) + len(self.sent)


class Sent(NamedTuple):
    """What an agent has sent of its rows: the rows of each group.

    scales: (D,) by which near rows are near.  most: so many groups of forgotten rows may be kept.
    ended: what else was made of the rows, for a receipt.
    """

    groups: tuple[IntArray, ...]
    scales: Array
    most: int
    ended: tuple[str, ...]


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
        time=description.time,
        window=description.memory.window,
        by_clock=description.by_clock,
        max_rows=description.memory.max_rows,
        keep=description.keep,
        longitude=description.coordinates.longitude,
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
    time: the input that is the time; None: the one whose values are dates in the file, if there is one.
    window, max_rows: rows that are older than the newest by more, and the oldest beyond so many, are forgotten.
    by_clock: the window ends now instead of at the newest row.
    keep: what stays of forgotten rows.  longitude: which input it is; -1 for none.
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
        time: str | None = None,
        window: float | str | None = None,
        by_clock: bool = False,
        max_rows: int | None = None,
        keep: Keep = "nothing",
        longitude: int = -1,
    ) -> None:
        self.inputs, self.columns = tuple(inputs), (*inputs, *([deviation] if deviation else []), target)
        self.file, self._deviation, self._noise, self._group = file, deviation, noise_model, group
        self._copy = journal.with_name("watched.csv")
        self.missing, self.fill, self.watched, self.private = missing, fill, watched, private
        self.dropped = 0
        self.units: Mapping[str, str] = {}  # of the file's columns, where they are known: of dates
        self._stamp: tuple[int, int] | None = None
        self._writing = threading.Lock()
        #: Held while groups may be on their way that were made of the rows as they are: nothing is forgotten meanwhile.
        self.sending = threading.RLock()
        table = self._read()
        self._time, self.time = time, time_input(self.inputs, self.units, time)
        if window is not None and self.time is None:
            raise self._timeless("window")
        self._window = None if window is None else duration(window, self._unit, "window")
        self._by_clock, self._max_rows, self._keep, self._longitude = by_clock, max_rows, keep, longitude
        self.journal = Journal(journal, self.columns, LARGEST)
        #: What the agent has sent of its rows now. An agent that has sent nothing replaces it by nothing.
        self.sent: Callable[[Observations], Sent] = self._nothing_sent
        #: Gets the rows that remain, and the groups that are left of those that were sent.
        self.regroup: Callable[[Observations, Sequence[IntArray]], None] = lambda *_: None
        self._departures, self._in_file = 0, len(table)
        self._since: dict[str, int] = {}  # the departures that requests were
        self.asked = 0  # the number of the last departure that an operator has asked for
        self._kept_facts: Any = None
        self._kept = KeptGroups.none(len(self.inputs))
        self.stand = Stand(table[:0], self.journal.rows, self._kept, 0, 0, -1)
        self._stand(table[self._counted(table)])
        self._place: tuple[Stand | None, dict[str, list[float]]] = (None, {})

    @property
    def _unit(self) -> str | None:
        """The unit of the time; without a file it is that of dates."""
        if self.time is None:
            return None
        return self.units.get(self.inputs[self.time], None if self._stamp else units_of_times("days"))

    @property
    def rows(self) -> int:
        """How many rows count."""
        return len(self.stand)

    @property
    def arrived(self) -> int:
        """How many rows there have ever been, those included that have left."""
        return self.stand.arrived

    @property
    def removed(self) -> int:
        """How many rows were taken back."""
        return self.stand.removed

    @property
    def forgotten(self) -> int:
        """How many rows were let go by age or number."""
        return max(0, self.arrived - self.rows - self.removed)

    @property
    def parts(self) -> tuple[Array, Array]:
        """The rows of the file, and those that were sent. Arrays are replaced, never changed."""
        return self.stand.table, self.stand.sent

    @property
    def shard(self) -> Observations:
        """The rows as they are now."""
        return self.observations(self.stand)

    def observations(self, stand: Stand) -> Observations:
        """The rows at some moment."""
        rows, width = stand.values, len(self.inputs)
        known = rows[:, width] if self._deviation else None
        return self._noise.observed(Observations(rows[:, :width], rows[:, -1], known), self._group)

    @property
    def place(self) -> dict[str, list[float]]:
        """Where the rows are: the corners of their box, and their mean. Computed again only where there are others.

        Of private rows the corners are rounded outwards, and the middle of this box takes the place of the mean. Empty
        without rows.
        """
        stand = self.stand
        known, place = self._place
        if known is not stand:
            if not len(stand):
                return {}
            inputs = self.observations(stand).inputs
            low, high, centre = inputs.min(axis=0), inputs.max(axis=0), inputs.mean(axis=0)
            if self.private:
                high, low = np.split(outer_corners(low, high), 2)
                low = -low
                centre = (low + high) / 2.0
            place = {"low": low.tolist(), "high": high.tolist(), "centre": centre.tolist()}
            self._place = stand, place
        return place

    def append(self, rows: Any, request: str | None = None) -> Appended:
        """Take in rows of inputs and target; they are on disk when this returns, and nowhere if it fails.

        request: the name of this batch; one whose name is on disk already is not written again.
        """
        values = self._checked(rows)
        name = uuid.uuid4().hex if request is None else request
        _check_request(name)
        with self._writing:
            # What was taken once is not judged again: the file may have changed since.
            values = self._without_gaps(values, judged=not self.journal.knows(name))
            if self._too_few(self.rows + len(values)):
                raise InputError(
                    f'private = "rows" needs at least {FEWEST_ROWS} rows of an agent that has any, got {len(values)}: '
                    "observe more at once"
                )
            repeated = not self.journal.append(values, name)
            self._settle()
            return Appended(len(values), repeated)

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
            there = self.stand.values
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
        with self._writing:
            before, table = self._in_file, self._read()
            self.time = time_input(self.inputs, self.units, self._time) if self.time is None else self.time
            counted = table[self._counted(table)]
            if self._too_few(len(counted) + len(self.journal.rows)):  # until there are more
                return 0
            self._in_file = len(table)
            self._settle(counted)
            return self._in_file - before

    def _too_few(self, rows: int) -> bool:
        """Whether so many rows would not stay private."""
        return self.private and 0 < rows < FEWEST_ROWS

    # ---- what leaves -----------------------------------------------------------------------------------------

    def tidy(self) -> int:
        """Forget what is too old or too much, unless somebody is writing; how many rows."""
        if not self._writing.acquire(blocking=False):
            return 0
        try:
            before = self.rows
            self._settle()
            return before - self.rows
        finally:
            self._writing.release()

    def forget(self, before: Any, name: str) -> dict[str, Any]:
        """Let the rows with an earlier time go; return the receipt. name: of this request, for a repetition."""
        if self.time is None:
            raise self._timeless("before")
        point = moment(before, self._unit, "before")
        if not self.sending.acquire(timeout=BUSY):
            raise NetworkError("the agent is busy with the others: repeat it a little later")
        try:
            with self._writing:
                known = self._receipt(name)
                if known is not None:
                    return known
                return self._let_go(Limit(point), name, {"before": self._shown(point)}, patient=False)
        finally:
            self.sending.release()

    def remove(self, name: str, *, request: Any = None, where: Any = None, between: Any = None) -> dict[str, Any]:
        """Take rows back: those that were sent as this request, for which the condition holds, and within these times.

        Return the receipt. name: of this request to remove them, for a repetition.
        """
        if request is None and where is None and between is None:
            raise InputError("remove: expected a request, a condition or two times, got none of them")
        with self._writing:
            known = self._receipt(name)
            if known is not None:
                return known
            rows, groups, facts = self._chosen(request, where, between)
            self._check_rest(rows)
            stand, count = self.stand, int(rows.sum())
            sent = self.sent(self.shard)
            departure, gone = removed(rows, sent.groups), stand.kept.rows(groups)
            receipt = {
                "removed": count,
                "groups": departure.withdrawn,
                "waiting": departure.waiting,
                "kept_groups": len(gone),
                "kept_rows": int(gone.counts.sum()),
                "ended": list(sent.ended),
                **facts,
            }
            kept = stand.kept.rows(~groups) if len(gone) else None
            return self._gone(name, receipt, rows, kept=kept, removed=count)

    def departure_of(self, name: str) -> int | None:
        """The number of the departure that this request was, 0 before the start; None if there was none."""
        return self._since.get(name, 0) if name in self.journal.receipts else None

    def receipt(self, name: Any) -> dict[str, Any]:
        """The receipt of an earlier request."""
        known = self._receipt(name)
        if known is None:
            raise InputError(f"there is no receipt {name!r}: expected one of the last {RECEIPTS} removals")
        return known

    def _receipt(self, name: Any) -> dict[str, Any] | None:
        """What a request of this name got; None if it is new."""
        _check_request(name)
        known = self.journal.receipts.get(name)
        return None if known is None else {**known, "repeated": True, "copies": self._copies}

    @property
    def _copies(self) -> list[str]:
        """Copies of damaged files, which may still have rows that have left."""
        return [str(copy) for copy in self.journal.copies]

    def _chosen(self, request: Any, where: Any, between: Any) -> tuple[BoolArray, BoolArray, dict[str, Any]]:
        """(N,) the rows that an operator means, (G,) the kept groups that may contain such rows, and in what words."""
        values, kept, facts = self.stand.values, self.stand.kept, dict[str, Any]()
        rows, groups = np.ones(len(values), dtype=bool), np.ones(len(kept), dtype=bool)
        if request is not None:
            _check_request(request)
            meant = self.journal.requests_of(request, frozenset().union(*kept.requests))
            if not meant:
                raise InputError(f"remove: no rows were sent as the request {request!r}")
            rows[: len(self.stand.table)] = False
            rows[len(self.stand.table) :] = self.journal.of_requests(meant)
            groups &= np.array([not meant.isdisjoint(names) for names in kept.requests], dtype=bool)
            facts["request"] = request
        for condition in self._conditions(where, between, facts):
            rows &= condition.rows(values)
            low, high = (self._with_deviation(ends, end) for ends, end in ((kept.low, -np.inf), (kept.high, np.inf)))
            groups &= np.array([condition.may_hold(*ends) for ends in zip(low, high, strict=True)], dtype=bool)
        return rows, groups, facts

    def _conditions(self, where: Any, between: Any, facts: dict[str, Any]) -> list[Condition]:
        conditions = []
        if where is not None:
            conditions.append(Condition.parsed(where, self.columns, self.units))
            facts["where"] = where
        if between is not None:
            if self.time is None:
                raise self._timeless("between")
            if not isinstance(between, list | tuple) or len(between) != 2:
                raise InputError(f"between: expected two times, got {shortened(between)}")
            first, last = (moment(value, self._unit, "between") for value in between)
            if first > last:
                raise InputError(f"between: expected the earlier time first, got {shortened(list(between))}")
            conditions.append(Condition((Comparison(self.time, ">=", first), Comparison(self.time, "<=", last))))
            facts["between"] = [self._shown(first), self._shown(last)]
        return conditions

    def _with_deviation(self, ends: Array, unknown: float) -> Array:
        """Extremes of kept groups (G, D + 1), with the column of the deviation, of which nothing is known."""
        return np.insert(ends, len(self.inputs), unknown, axis=1) if self._deviation else ends

    def _check_rest(self, leaving: BoolArray) -> None:
        """One error where the rows that are left would not stay private."""
        rest = len(leaving) - int(leaving.sum())
        if self._too_few(rest):
            raise InputError(
                f'{rest} of {len(leaving)} rows would be left, and private = "rows" needs at least {FEWEST_ROWS} of an '
                "agent that has any: remove all of them, or fewer"
            )

    def _timeless(self, what: str) -> InputError:
        inputs = ", ".join(self.inputs)
        return InputError(f"{what}: expected an input that is the time, got {inputs}: name it (`time` in fleet.toml)")

    def _settle(self, table: Array | None = None) -> None:
        """Take what has come, and let go what is too old or too much. table: the rows of the file that count."""
        self._stand(self.stand.table if table is None else table)
        limit = Limit(None, self._max_rows)
        if self._window is not None and self.time is not None:
            now = now_of(self.stand.values[:, self.time], self._unit, by_clock=self._by_clock)
            limit = Limit(now - self._window, self._max_rows)
        with suppress(OSError):  # a full disk: the next one tries again
            if self.sending.acquire(blocking=False):
                try:
                    self._let_go(limit, "", {}, patient=True)
                finally:
                    self.sending.release()
            if self.journal.wasteful:
                self.journal.compact()

    def _let_go(self, limit: Limit, name: str, facts: dict[str, Any], *, patient: bool) -> dict[str, Any]:
        """Forget what is too old or too much, as far as it can leave the groups that were sent; return the receipt."""
        stand = self.stand
        times = None if self.time is None else stand.values[:, self.time]
        rows = limit.exceeded(times, len(stand))
        if not rows.any():
            nothing = dict.fromkeys(("forgotten", "overdue", "summarized", "groups", "waiting"), 0)
            return self._gone(name, {**nothing, **facts}, rows) if name else {}
        shard = self.observations(stand)
        sent = self.sent(shard)
        turned = InMemory([shard]).along_arc(self._longitude)[0].inputs
        departure = forgotten(rows, sent.groups, self._keep, turned / sent.scales, patient=patient)
        if not departure.rows.any() and not name:
            return {}
        kept, horizon = None, None
        if departure.groups:
            names = np.concatenate([np.full(len(stand.table), "", dtype=object), self.journal.names])
            new = summarized(shard, turned, departure.groups, names)
            kept = stand.kept.plus(new).within(sent.most, sent.scales, self._longitude)
            known = tuple(frozenset(filter(self.journal.knows, some)) for some in kept.requests)
            kept = KeptGroups.unpacked(kept.packed, kept.dimension, known)
        if times is not None and departure.rows.any():
            oldest = float(times[~departure.rows].min())
            horizon = oldest if limit.before is None else min(oldest, limit.before)
        receipt = {
            "forgotten": int(departure.rows.sum()),
            "overdue": int((rows & ~departure.rows).sum()),
            "summarized": sum(map(len, departure.groups)),
            "groups": departure.withdrawn,
            "waiting": departure.waiting,
            **facts,
        }
        result = self._gone(name, receipt, departure.rows, kept=kept, horizon=horizon)
        if departure.withdrawn:
            self.regroup(self.shard, renumbered(departure.sent, departure.rows))
        return result

    def _gone(self, name: str, facts: dict[str, Any], rows: BoolArray, **more: Any) -> dict[str, Any]:
        """Let rows (N,) leave; return the receipt. They are on disk as gone when this returns.

        What an operator has asked for is also taken out of the file at once.
        """
        stand, kept = self.stand, more.pop("kept", None)
        receipt = {"name": name, "time": time.time(), **facts}
        early = np.zeros(len(rows), dtype=bool)
        if self.time is not None and more.get("horizon") is not None:
            early = stand.values[:, self.time] < more["horizon"]
        table = stand.table[rows[: len(stand.table)]]
        listed = stand.table[(rows & ~early)[: len(stand.table)]]
        departure = Departure(
            request=name,
            sent=self.journal.sent(rows[len(stand.table) :]),
            keys=keys_of_rows(listed, self.columns),
            times=np.full(len(listed), np.nan) if self.time is None else listed[:, self.time],
            kept=None if kept is None else facts_of_kept(kept),
            receipt=receipt if name else None,
            **more,
        )
        self.journal.leave(departure)
        self._departures += 1
        self._stand(stand.table[~rows[: len(stand.table)]] if len(table) else stand.table)
        if name:
            self._since[name] = self.asked = self._departures
            for old in list(self._since)[:-RECEIPTS]:
                del self._since[old]
            with suppress(OSError):  # a full disk: they do not count any more, and a later one rewrites it
                self.journal.compact()
        return {**receipt, "repeated": False, "copies": self._copies}

    def _stand(self, table: Array) -> None:
        if self.journal.kept is not self._kept_facts:
            self._kept_facts = self.journal.kept
            self._kept = kept_of_facts(self.journal.kept, len(self.inputs))
        journal, arrived = self.journal, self._in_file + len(self.journal.rows) + self.journal.gone
        stand = Stand(table, journal.rows, self._kept, arrived, journal.removed, self._departures)
        same_arrays = all(one is other for one, other in zip(self.stand[:3], stand[:3], strict=True))
        if not same_arrays or self.stand[3:] != stand[3:]:
            self.stand = stand

    def _nothing_sent(self, shard: Observations) -> Sent:
        spread = shard.inputs.std(axis=0) if len(shard) else np.ones(shard.dimension)
        return Sent((), np.where(spread > 0.0, spread, 1.0), MOST_KEPT, ())

    def _counted(self, table: Array) -> BoolArray:
        """(n,) which rows of the file count."""
        counted = without(table, self.columns, self.journal.keys)
        if self.time is not None:
            counted &= table[:, self.time] >= self.journal.horizon
        return counted

    def _shown(self, time: float) -> str:
        return format_value(time, self._unit)

    # ---- the file --------------------------------------------------------------------------------------------

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


def facts_of_kept(kept: KeptGroups) -> dict[str, Any]:
    """Kept groups as plain values."""
    return {"groups": kept.packed.tolist(), "requests": [sorted(names) for names in kept.requests]}


def kept_of_facts(facts: Any, dimension: int) -> KeptGroups:
    """The converse; those of other inputs are of no use."""
    if facts is None or not facts["groups"] or len(facts["groups"][0]) != KeptGroups.width(dimension):
        return KeptGroups.none(dimension)
    return KeptGroups.unpacked(np.array(facts["groups"]), dimension, facts["requests"])


def _check_request(name: Any) -> None:
    if not isinstance(name, str) or REQUEST.fullmatch(name) is None:
        raise InputError(
            f"expected a request of 1 to 64 letters, digits, dashes and underscores, got {shortened(name)}"
        )


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
