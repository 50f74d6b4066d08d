"""New rows, written by a thread of their own: a slow disk holds up neither heartbeats nor answers."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from fleetgp.agent.disk.observations import ObservationStore
from fleetgp.agent.logs import Log
from fleetgp.errors import FleetGPError, InputError, NetworkError

#: So many requests may wait for the disk; each can be of some megabytes.
WAITING = 8

Reply = Callable[[dict[str, Any]], None]


class Recorder:
    """name: the agent's.  taken: called by the recorder's thread when rows have come."""

    def __init__(self, name: str, data: ObservationStore, log: Log, taken: Callable[[], None]) -> None:
        self._name, self._data, self._log, self._taken = name, data, log, taken
        self._jobs: queue.Queue[tuple[Any, Any, Reply] | None] = queue.Queue(WAITING)
        self._closing = threading.Event()

    def put(self, rows: Any, request: Any, reply: Reply) -> None:
        """Have rows written, and whoever told them answered."""
        try:
            self._jobs.put_nowait((rows, request, reply))
        except queue.Full:
            raise NetworkError(
                f"{self._name} has {WAITING} requests to write down before this one: repeat it a little later"
            ) from None

    def close(self) -> None:
        """Finish the one that is being written; the others were never acknowledged, and whoever sent them knows."""
        self._closing.set()
        with suppress(queue.Full):  # then `work` looks at `_closing` after the next job
            self._jobs.put_nowait(None)

    def work(self) -> None:
        """The work of its thread, until it is closed."""
        while (job := self._jobs.get()) is not None and not self._closing.is_set():
            rows, request, reply = job
            told = self._record(rows, request)
            try:
                reply(told)
            except Exception as error:  # whoever told them may be gone, and will ask again
                self._log.warn("nobody there to answer", error=str(error))

    def _record(self, rows: Any, request: Any) -> dict[str, Any]:
        try:
            taken = self._data.append(rows, request)
        except InputError as error:
            return {"error": str(error), "wrong": True}
        except Exception as error:  # the disk is full, say: the agent goes on without these rows
            kind = "" if isinstance(error, FleetGPError | OSError) else f"{type(error).__name__}: "
            self._log.error("rows refused", error=f"{kind}{error}")
            return {"error": f"{self._name} cannot keep these rows, and has kept none of them: {kind}{error}"}
        if not taken.repeated:
            self._log("observed", rows=taken.rows, in_all=self._data.rows)
            self._taken()
        return {"answer": {"rows": taken.rows, "repeated": taken.repeated, "in_all": self._data.rows}}
