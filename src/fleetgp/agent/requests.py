"""What an agent was asked for and has not done yet: questions and trainings. Any thread adds; the view loop takes.

What an agent is asked: a question to the fleet, or a training; checked in one place, whoever asks.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np

from fleetgp.agent.description import PREDICTORS, TRAINERS
from fleetgp.agent.logs import Log
from fleetgp.agent.records import Matrix, Strict, one_of
from fleetgp.arrays import Array
from fleetgp.errors import InputError, NetworkError
from fleetgp.network.wire import LARGEST

#: More points are not answered at once.
MOST_POINTS = 20_000

Trainer = Annotated[str, one_of(TRAINERS)]
Predictor = Annotated[str, one_of(PREDICTORS)]


@dataclass(frozen=True)
class Question(Strict):
    """Queries (T, D) for all, and how to combine the answers."""

    queries: Matrix
    method: Predictor


@dataclass(frozen=True)
class Wish(Strict):
    """A training that somebody asked for. cold: from the file's own starts instead of the current estimates."""

    cold: bool = False
    method: Trainer | None = None


def check_queries(queries: Array, dimension: int) -> None:
    """An InputError where nobody can answer at these points."""
    if queries.ndim != 2 or queries.shape[1] != dimension:
        raise InputError(f"expected queries of shape (T, {dimension}), got {queries.shape}")
    if not 0 < len(queries) <= MOST_POINTS:
        raise InputError(f"expected 1 to {MOST_POINTS} points at once, got {len(queries)}")
    if not np.isfinite(queries).all():
        raise InputError("expected finite queries, got some that are missing or infinite")
    if np.abs(queries).max() > LARGEST:
        raise InputError(f"some queries are beyond {LARGEST:g}: use other units")


#: Questions that may wait at an agent.
MOST_WAITING = 64


@dataclass(eq=False)
class Asked:
    """deadline: on the monotonic clock; seconds: what was promised.  reply: tells {"answer": ...} or {"error": ...}.

    tries: how often the fleet has begun to answer.  asker: what the asker calls itself, for the log.
    """

    question: Question
    seconds: float
    deadline: float
    reply: Callable[[dict[str, Any]], None]
    tries: int = 0
    asker: str = ""

    @property
    def expired(self) -> bool:
        return time.monotonic() >= self.deadline


class Requests:
    """Questions and wishes, each in the order in which they came.

    fulfilled, outcome: the number of the last wish that was done, and how that ended.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._asked: deque[Asked] = deque()
        self._wishes: deque[tuple[int, Wish]] = deque()
        self._wished = self.fulfilled = 0
        self.outcome = ""

    @property
    def any(self) -> bool:
        return bool(self._asked or self._wishes)

    @property
    def waiting(self) -> int:
        return len(self._asked)

    # ---- questions ------------------------------------------------------------------------------------------

    def ask(self, asked: Asked) -> None:
        with self._lock:
            if len(self._asked) >= MOST_WAITING:
                raise NetworkError(f"{MOST_WAITING} questions wait here already: ask another agent, or later")
            self._asked.append(asked)

    def question(self) -> Asked | None:
        """The next one; it stays until it is answered."""
        with self._lock:
            return self._asked[0] if self._asked else None

    def finish(self, asked: Asked, **told: Any) -> None:
        """Answer whoever asked, once."""
        with self._lock:
            if asked not in self._asked:
                return
            self._asked.remove(asked)
        try:
            asked.reply(told)
        except Exception as error:  # the asker may be gone
            self._log.warn("nobody there to answer", error=str(error))

    def refuse_all(self, why: str) -> None:
        for asked in list(self._asked):
            self.finish(asked, error=why)

    def expire(self, reason: str) -> None:
        """Tell everyone whose time is up that no answer has come, and why: what the agent is doing instead."""
        for asked in list(self._asked):
            if asked.expired:
                self.finish(asked, error=f"no answer within {asked.seconds:.3g} s: {reason}")

    # ---- wishes ---------------------------------------------------------------------------------------------

    def add_wish(self, wish: Wish) -> int:
        """Its number."""
        with self._lock:
            if len(self._wishes) >= MOST_WAITING:
                raise NetworkError(f"{MOST_WAITING} trainings wait here already: ask again when some are done")
            self._wished += 1
            self._wishes.append((self._wished, wish))
            return self._wished

    def wish(self) -> Wish | None:
        """The next one; it stays until it is fulfilled, since a view may end before."""
        with self._lock:
            return self._wishes[0][1] if self._wishes else None

    def warm_up(self, wish: Wish) -> None:
        """It was broken off: go on where it was."""
        with self._lock:
            if self._wishes and self._wishes[0][1] == wish:
                self._wishes[0] = (self._wishes[0][0], replace(wish, cold=False))

    def fulfil(self, wish: Wish, outcome: str) -> None:
        with self._lock:
            if self._wishes and self._wishes[0][1] == wish:
                self.fulfilled, self.outcome = self._wishes.popleft()[0], outcome

    def give_up_wishes(self, why: str) -> None:
        with self._lock:
            if self._wishes:
                self.fulfilled, self.outcome = self._wishes[-1][0], why
                self._wishes.clear()
