"""Passes over files at the workers of a cluster, as one listener hears of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fleetgp.progress import Listener, Pace, Progress

#: How often a worker tells of a pass, besides its beginning.
TICKS = 100


class Ticks:
    """At a worker: a listener that tells of each pass as often, whatever it hears.

    What workers tell is taken together, thing by thing, and a worker in the place of a lost one tells as many again.

    >>> told: list[Progress] = []
    >>> listener = Ticks(told.append)
    >>> for rows in (0, 30, 31, 40, 0, 40):  # two passes
    ...     listener(Progress("moments", rows, 40, ""))
    >>> len(told) == 2 * (TICKS + 1), [told[tick].round for tick in (0, 1, 75, 76, 100, 101)]
    (True, [0, 30, 30, 31, 40, 0])
    """

    def __init__(self, tell: Callable[[Progress], None]) -> None:
        self._tell, self._told = tell, 0

    def __call__(self, heard: Progress) -> None:
        assert heard.rounds is not None, "after the first pass it is known how many rows there are"
        over = heard.round == heard.rounds
        due = TICKS if over else TICKS * heard.round // heard.rounds
        while self._told <= due:
            self._tell(heard)
            self._told += 1
        if over:
            self._told = 0


class MergedPasses:
    """Of all workers, for a listener: what every one of them has told."""

    def __init__(self, listener: Listener | None) -> None:
        self._listener = listener
        self._task, self._pace = "", Pace()

    def __call__(self, told: Sequence[Progress]) -> None:
        task, rows, total = told[0].task, sum(one.round for one in told), sum(one.rounds or 0 for one in told)
        if task != self._task:
            self._task, self._pace = task, Pace(rows)
        if self._listener is not None:
            detail = self._pace.told(rows, None if rows == total else total)
            self._listener(Progress(task, rows, total, detail, unit="row"))
