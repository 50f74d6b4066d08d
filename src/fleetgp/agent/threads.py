"""The threads of an agent: one place starts them, names them, waits for their end, and reports when one of them fails.

| thread | started in | does |
| --- | --- | --- |
| main | `service` | the view loop: agrees, trains, answers |
| peer monitor | `node` | serves links and hellos |
| expiries | `node` | reads when the certificates of neighbours expire |
| leaving | `node` | closes the links, which may take long |
| recorder | `agent` | writes new rows to disk |
| deadlines | `agent` | ends questions whose time is up |
| tidying | `agent` | has rows forgotten that have become too old |
| admission | `agent` | takes in newer rosters |
| watch | `agent` | looks whether the data file has changed |
| service | `service` | answers the operator |
| metrics | `service` | answers Prometheus |
| certificates | `service` | warns before a certificate expires, and ends the agent then |

Not from here: the door before a TLS port (`network/zenoh/door.py`), Zenoh's own, and those that nobody must wait for:
one that a signal starts to stop the agent (`service`), and one that introduces the agent to those it misses (`node`).
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable

from fleetgp.agent.logs import Log

Work = Callable[[], object]


class Threads:
    """Threads with one owner.

    failure: what ended the first thread that ended with an exception; None if there is none. Nothing fails unseen.
    failed: called by such a thread, after it was logged; the owner then ends the agent.
    ending: set by `close`. A thread that does something from time to time waits on it: `while not ending.wait(1.0)`.
    """

    def __init__(self, log: Log, failed: Callable[[], None] | None = None) -> None:
        self._log, self.failed = log, failed
        self.failure: str | None = None
        self._lock = threading.Lock()
        self._running: list[tuple[threading.Thread, Work | None]] = []
        self.ending = threading.Event()

    def start(self, name: str, work: Work, *, wake: Work | None = None) -> threading.Thread:
        """Run `work` in a thread of its own.

        wake: called by `close`, for work that waits for something else than `ending`; it must not wait long itself.
        """
        thread = threading.Thread(target=self._run, args=(name, work), name=name, daemon=True)
        with self._lock:
            self._running = [(other, woken) for other, woken in self._running if other.is_alive()]
            # Started under the lock: `close` must not find a thread that is not alive yet.
            thread.start()
            self._running.append((thread, wake))
        return thread

    @property
    def names(self) -> list[str]:
        """Of the threads that run."""
        with self._lock:
            return [thread.name for thread, _ in self._running if thread.is_alive()]

    def close(self, seconds: float = 5.0) -> list[str]:
        """Have all threads end, and wait for that; the names of those that did not end in time. Safe to call twice."""
        self.ending.set()
        own = threading.current_thread()  # one of them may close all
        with self._lock:
            running = [(thread, wake) for thread, wake in self._running if thread.is_alive() and thread is not own]
        for _, wake in running:
            if wake is not None:
                wake()
        deadline = time.monotonic() + seconds
        for thread, _ in running:
            thread.join(max(0.0, deadline - time.monotonic()))
        late = [thread.name for thread, _ in running if thread.is_alive()]
        if late:
            self._log.warn("threads did not end", threads=late, seconds=seconds)
        return late

    def _run(self, name: str, work: Work) -> None:
        try:
            work()
        except BaseException as error:  # whatever it is: a thread that ends unseen leaves an agent that seems to work
            why = f"{type(error).__name__}: {error}"
            self._log.error("a thread failed", thread=name, error=why)
            self.failure = self.failure or f"its thread {name!r} failed: {why}"
            if self.failed is not None:
                self.failed()


Action = Callable[[], None]


class Inbox:
    """Actions for one thread. A source may have so many of them waiting; what comes beyond is refused.

    >>> inbox = Inbox()
    >>> inbox.put(lambda: None, source="wake", most=1), inbox.put(lambda: None, source="wake", most=1)
    (True, False)
    >>> inbox.get(0.0) is not None, inbox.get(0.0) is None
    (True, True)
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[Action, object]] = queue.SimpleQueue()
        self._waiting: Counter[object] = Counter()
        self._lock = threading.Lock()

    def put(self, action: Action, *, source: object = None, most: int = 0) -> bool:
        """Whether it was taken. Without a source there is no limit."""
        if source is not None:
            with self._lock:
                if self._waiting[source] >= most:
                    return False
                self._waiting[source] += 1
        self._queue.put((action, source))
        return True

    def get(self, seconds: float) -> Action | None:
        """The next action, or None if there was none in time."""
        try:
            action, source = self._queue.get(timeout=seconds) if seconds > 0.0 else self._queue.get_nowait()
        except queue.Empty:
            return None
        if source is not None:
            with self._lock:
                self._waiting[source] -= 1
        return action

    def serve(self, closing: threading.Event, failed: Callable[[Exception], None]) -> None:
        """Do the actions, one after the other, until `closing` is set. failed: gets what one raises."""
        while not closing.is_set():
            action = self.get(1.0)
            if action is not None and not closing.is_set():
                try:
                    action()
                except Exception as error:
                    failed(error)
