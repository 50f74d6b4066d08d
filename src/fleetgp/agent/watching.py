"""Looks from time to time whether an agent's file of observations has changed."""

from __future__ import annotations

import threading
from collections.abc import Callable

from fleetgp.agent.activity import Activity
from fleetgp.agent.disk.observations import ObservationStore
from fleetgp.agent.logs import Log

#: Seconds between two looks.
WATCH = 1.0


def watch_file(
    data: ObservationStore, activity: Activity, log: Log, changed: Callable[[], None], ending: threading.Event
) -> None:
    """Until `ending` is set. A file that cannot be read is logged once; its rows from before are still used."""
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
