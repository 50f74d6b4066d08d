"""What an agent was asked for and has not done yet: questions and trainings. Any thread adds; the view loop takes."""

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
#: Questions, and trainings, that may wait at an agent.
MOST_WAITING = 64

Trainer = Annotated[str, one_of(TRAINERS)]
Predictor = Annotated[str, one_of(PREDICTORS)]
#: Sends {"answer": ...} or {"error": ...} to the asker.
Reply = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Question(Strict):
    """Queries (T, D) for all, and how to combine the answers."""

    queries: Matrix
    method: Predictor


@dataclass(frozen=True)
class TrainRequest(Strict):
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


@dataclass(eq=False)
class PendingQuestion:
    """deadline: on the monotonic clock; seconds: what was promised.  asker: what the asker calls itself, for the log.

    tries: how often the fleet has begun to answer.
    """

    question: Question
    seconds: float
    deadline: float
    reply: Reply
    tries: int = 0
    asker: str = ""

    @property
    def expired(self) -> bool:
        return time.monotonic() >= self.deadline


class Requests:
    """Questions and trainings, each in the order in which they came.

    fulfilled, outcome: the number of the last training that was done, and how that ended.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._questions: deque[PendingQuestion] = deque()
        self._trainings: deque[tuple[int, TrainRequest]] = deque()
        self._numbered = self.fulfilled = 0
        self.outcome = ""

    @property
    def any(self) -> bool:
        return bool(self._questions or self._trainings)

    @property
    def waiting(self) -> int:
        return len(self._questions)

    def ask(self, pending: PendingQuestion) -> None:
        with self._lock:
            if len(self._questions) >= MOST_WAITING:
                raise NetworkError(f"{MOST_WAITING} questions wait here already: ask another agent, or later")
            self._questions.append(pending)

    def question(self) -> PendingQuestion | None:
        """The next one; it stays until it is answered."""
        with self._lock:
            return self._questions[0] if self._questions else None

    def finish(self, pending: PendingQuestion, **reply: Any) -> None:
        """Send the answer or the error, once."""
        with self._lock:
            if pending not in self._questions:
                return
            self._questions.remove(pending)
        try:
            pending.reply(reply)
        except Exception as error:  # the asker may be gone
            self._log.warn("nobody there to answer", error=str(error))

    def refuse_all(self, why: str) -> None:
        for pending in list(self._questions):
            self.finish(pending, error=why)

    def expire(self, reason: str) -> None:
        """Answer those whose time is up that no answer has come, and why: what the agent is doing instead."""
        for pending in list(self._questions):
            if pending.expired:
                self.finish(pending, error=f"no answer within {pending.seconds:.3g} s: {reason}")

    def add_training(self, request: TrainRequest) -> int:
        """Its number."""
        with self._lock:
            if len(self._trainings) >= MOST_WAITING:
                raise NetworkError(f"{MOST_WAITING} trainings wait here already: ask again when some are done")
            self._numbered += 1
            self._trainings.append((self._numbered, request))
            return self._numbered

    def training(self) -> TrainRequest | None:
        """The next one; it stays until it is done, since a view may end before."""
        with self._lock:
            return self._trainings[0][1] if self._trainings else None

    def resume(self, request: TrainRequest) -> None:
        """It was interrupted: it continues from its estimates."""
        with self._lock:
            if self._trainings and self._trainings[0][1] == request:
                self._trainings[0] = (self._trainings[0][0], replace(request, cold=False))

    def fulfil(self, request: TrainRequest, outcome: str) -> None:
        with self._lock:
            if self._trainings and self._trainings[0][1] == request:
                self.fulfilled, self.outcome = self._trainings.popleft()[0], outcome

    def give_up_trainings(self, why: str) -> None:
        with self._lock:
            if self._trainings:
                self.fulfilled, self.outcome = self._trainings[-1][0], why
                self._trainings.clear()
