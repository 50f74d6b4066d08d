"""The threads that change an agent's data: one writes what operators send, one looks at the data file."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from fleetgp.agent.logs import Activity, Log
from fleetgp.agent.observations import ObservationStore
from fleetgp.agent.requests import Reply
from fleetgp.agent.threads import Inbox
from fleetgp.errors import FleetGPError, InputError, NetworkError

#: What an agent cannot do with rows that are to leave, if its disk is full.
NOT_GONE = "write down that rows leave, and keeps all of them"
#: So many requests may wait for the disk; each can be of some megabytes.
WAITING = 8


class Recorder:
    """Writes new rows in a thread of its own: a slow disk holds up neither heartbeats nor answers.

    name: the agent's.  recorded: called by that thread when rows were written.
    """

    def __init__(self, name: str, data: ObservationStore, log: Log, recorded: Callable[[], None]) -> None:
        self._name, self._data, self._log, self._recorded = name, data, log, recorded
        self._inbox, self._closing = Inbox(), threading.Event()

    def observe(self, rows: Any, request: Any, reply: Reply) -> None:
        """Have rows written, then the sender answered."""
        self._put(lambda: self._record(rows, request), "keep these rows, and has kept none of them", reply)

    def remove(self, name: Any, reply: Reply, **which: Any) -> None:
        """Have rows taken back, then the operator answered with the receipt. which: see `ObservationStore.remove`."""
        self._put(lambda: self._let_go(lambda: self._data.remove(name, **which)), NOT_GONE, reply)

    def forget(self, name: Any, before: Any, reply: Reply) -> None:
        """Have rows before a time forgotten, then the operator answered with the receipt."""
        self._put(lambda: self._let_go(lambda: self._data.forget(before, name)), NOT_GONE, reply)

    def tidy(self) -> None:
        """Have rows forgotten that the clock has made too old."""
        self._inbox.put(self._tidy, source="tidy", most=1)

    def _put(self, work: Callable[[], dict[str, Any]], what: str, reply: Reply) -> None:
        def attempt() -> dict[str, Any]:
            try:
                return {"answer": work()}
            except InputError as error:
                return {"error": str(error), "wrong": True}
            except Exception as error:  # the disk is full, say: the agent continues as if nobody had asked
                kind = "" if isinstance(error, FleetGPError | OSError) else f"{type(error).__name__}: "
                self._log.error("rows refused", error=f"{kind}{error}")
                return {"error": f"{self._name} cannot {what}: {kind}{error}"}

        if not self._inbox.put(lambda: reply(attempt()), source="rows", most=WAITING):
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
        before = self._data.forgotten
        appended = self._data.append(rows, request)
        if not appended.repeated:
            self._log("observed", rows=appended.rows, in_all=self._data.rows)
            self._log_forgotten(before)
            self._recorded()
        return {"rows": appended.rows, "repeated": appended.repeated, "in_all": self._data.rows}

    def _let_go(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        receipt = work()
        if not receipt["repeated"]:
            facts = {key: receipt[key] for key in ("name", "removed", "forgotten") if key in receipt}
            self._log("rows left", **facts, in_all=self._data.rows)
            self._recorded()
        return {**receipt, "in_all": self._data.rows}

    def _tidy(self) -> None:
        before = self._data.forgotten
        if self._data.tidy():
            self._log_forgotten(before)
            self._recorded()

    def _log_forgotten(self, before: int) -> None:
        if self._data.forgotten > before:
            self._log("forgotten", rows=self._data.forgotten - before, in_all=self._data.rows)


#: Seconds between two looks at the file.
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
