"""What a thread has to do, in order. A source may have only so many actions waiting, so that nobody can flood it."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Callable

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
