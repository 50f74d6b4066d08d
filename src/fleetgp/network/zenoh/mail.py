"""Frames on both ends of a link: those that arrive, sorted by epoch, and the last ones that were sent.

An epoch is one task of the agents, with rounds of its own; its number tells its frames from all others. Neighbours
begin and end an epoch at slightly different times, so frames may come before it has begun here, or after its end.
"""

from __future__ import annotations

import queue
import threading
from collections import Counter, OrderedDict, deque
from typing import NamedTuple

from fleetgp.network.edges import Edge
from fleetgp.network.wire import Frame

#: Bytes of one neighbour that may wait to be read: what comes beyond is dropped and counted.
WAITING = 512 * 2**20
#: Epochs that have not begun here, of which one neighbour may have sent frames already.
EARLY = 4
#: Epochs whose end is remembered: frames of older ones count as early, and are dropped as such.
REMEMBERED = 1000
#: Frames that are kept for each neighbour, in case it lacks one; and of those beyond the last two, how many bytes.
KEPT_FRAMES, KEPT_BYTES = 8, 2**22
#: Finished epochs whose last frames are kept as well.
KEPT_EPOCHS = 3


class Arrived(NamedTuple):
    """A frame, the link (sender, receiver) it came over, and its bytes."""

    link: Edge
    frame: Frame
    size: int


class Mail:
    """One epoch's frames, in the order in which they came."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Arrived | None] = queue.SimpleQueue()

    def put(self, arrived: Arrived) -> None:
        self._queue.put(arrived)

    def get(self, seconds: float) -> Arrived | None:
        """The next frame; None if none came in time, or somebody called `wake`."""
        try:
            return self._queue.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return None

    def wake(self) -> None:
        self._queue.put(None)


class Arrivals:
    """Frames that arrive, by epoch. What comes late, or too much of it, is counted in `dropped` and forgotten."""

    def __init__(self, dropped: Counter[str]) -> None:
        self._dropped = dropped
        self._claimed: dict[int, Mail] = {}
        self._early: OrderedDict[tuple[int, int], list[Arrived]] = OrderedDict()  # by epoch and sender
        self._over: deque[int] = deque(maxlen=REMEMBERED)
        self._waiting: Counter[tuple[int, int]] = Counter()  # bytes, by epoch and sender
        self._lock = threading.Lock()

    def claim(self, epoch: int) -> Mail:
        """An epoch begins here: its frames, those that came early and all that will come."""
        with self._lock:
            mail = self._claimed[epoch] = Mail()
            for key in [key for key in self._early if key[0] == epoch]:
                for arrived in self._early.pop(key):
                    mail.put(arrived)
            return mail

    def retire(self, epoch: int) -> None:
        """An epoch is over: its frames come late from now on."""
        with self._lock:
            self._claimed.pop(epoch, None)
            self._over.append(epoch)
            for key in [key for key in self._waiting if key[0] == epoch]:
                del self._waiting[key]

    def came_early(self, epoch: int) -> bool:
        """Whether frames of an epoch came that has not begun here."""
        with self._lock:
            return any(key[0] == epoch for key in self._early)

    def take(self, arrived: Arrived) -> bool:
        """Sort a frame in; whether it is of an epoch that has not begun here."""
        (sender, _), frame, size = arrived
        with self._lock:
            mail = self._claimed.get(frame.epoch)
            if mail is None and frame.epoch in self._over:
                self._dropped["late"] += 1
                return False
            if size + sum(waiting for key, waiting in self._waiting.items() if key[1] == sender) > WAITING:
                self._dropped["flooded"] += 1
                return False
            self._waiting[frame.epoch, sender] += size
            if mail is not None:
                mail.put(arrived)
                return False
            self._early.setdefault((frame.epoch, sender), []).append(arrived)
            self._forget_oldest(sender)
            return True

    def _forget_oldest(self, sender: int) -> None:
        early = [key for key in self._early if key[1] == sender]
        if len(early) > EARLY:
            self._dropped["late"] += len(self._early.pop(early[0]))
            self._waiting.pop(early[0], None)

    def consumed(self, arrived: Arrived) -> None:
        """A frame was read: it waits no more."""
        key = (arrived.frame.epoch, arrived.link[0])
        with self._lock:
            if key in self._waiting:
                self._waiting[key] -= arrived.size


class Departures:
    """The last frames that were sent over every link, epoch by epoch, in case a neighbour lacks one.

    >>> departures = Departures()
    >>> departures.begin(7)
    >>> departures.keep(7, (0, 1), 3, b"a frame")
    >>> departures.find(7, (0, 1), 3), departures.find(7, (0, 1), 4)
    (b'a frame', None)
    """

    def __init__(self) -> None:
        self._kept: dict[int, dict[Edge, list[tuple[int, bytes]]]] = {}
        self._over: list[int] = []
        self._lock = threading.Lock()

    def begin(self, epoch: int) -> None:
        with self._lock:
            self._kept[epoch] = {}
            self._over = [other for other in self._over if other != epoch]

    def keep(self, epoch: int, link: Edge, round: int, data: bytes) -> None:
        """A frame goes out over a link (own agent, neighbour)."""
        with self._lock:
            kept = self._kept.setdefault(epoch, {}).setdefault(link, [])
            kept.append((round, data))
            while len(kept) > KEPT_FRAMES or (len(kept) > 2 and sum(len(old) for _, old in kept[:-2]) > KEPT_BYTES):
                kept.pop(0)

    def find(self, epoch: int, link: Edge, round: int) -> bytes | None:
        with self._lock:
            kept = self._kept.get(epoch, {}).get(link, ())
            return next((data for number, data in kept if number == round), None)

    def retire(self, epoch: int) -> None:
        """An epoch is over; the frames of the last few are kept on."""
        with self._lock:
            self._over.append(epoch)
            while len(self._over) > KEPT_EPOCHS:
                self._kept.pop(self._over.pop(0), None)
