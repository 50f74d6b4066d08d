"""The life of a network: it ends once, and stays ended: by `close`, by `cancel`, or with a round that failed."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from fleetgp.errors import Cancelled, NetworkError


class Lifetime(abc.ABC):
    """What may wait in a verb, and can be ended from any thread.

    waiting_for: the neighbours that a verb waits for at the moment; for other threads to look at.
    """

    def __init__(self) -> None:
        self.waiting_for: frozenset[int] = frozenset()
        self._over: BaseException | None = None

    def close(self) -> None:
        """Take part no more: a verb that waits, and every later one, raises a NetworkError. Safe to call twice."""
        self._end(NetworkError("the network is closed: open another one"))

    def cancel(self, why: Cancelled) -> None:
        """End the work: a verb that waits, and every later one, raises what is given here."""
        self._end(why)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _end(self, why: BaseException) -> None:
        if self._over is None:
            self._over = why
            self._wake()

    def _check_open(self) -> None:
        if self._over is not None:
            raise type(self._over)(*self._over.args)

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        """A verb at work. If it fails, neighbours may be in another round: no later round could be trusted."""
        self._check_open()
        try:
            yield
        except BaseException as error:
            why = f"an earlier round failed ({type(error).__name__}: {error})"
            self._end(NetworkError(f"{why}: begin again with another network"))
            raise
        finally:
            self.waiting_for = frozenset()

    @abc.abstractmethod
    def _wake(self) -> None:
        """Wake the thread that waits in a verb, if there may be one: it calls `_check_open`."""
