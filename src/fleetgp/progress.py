"""Progress of long work: a callback, a bar on the terminal, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from fleetgp.arrays import Array
from fleetgp.errors import InputError, shortened


@dataclass(frozen=True)
class Progress:
    """What a callback gets after every round. rounds: how many there will be, None while that is unknown.

    unit: what is counted, if not rounds.  thetas: in training, (M, P) each agent's estimate so far.
    chosen: whether this is the start that the fleet has chosen, or the only one.
    """

    task: str
    round: int
    rounds: int | None
    detail: str
    unit: str = "round"
    thetas: Array | None = None
    chosen: bool = False


Listener = Callable[[Progress], None]


@contextmanager
def listening(progress: bool | Listener) -> Iterator[Listener | None]:
    """Yield the listener for True (a bar on the terminal, by rich if it is installed), a callable (itself) or False."""
    if callable(progress):
        yield progress
    elif not isinstance(progress, bool | np.bool_):
        raise InputError(f"progress: expected True, False or a function of a Progress, got {shortened(progress)}")
    elif not progress:
        yield None
    else:
        try:
            shown = _bars()
        except ImportError:
            yield _plain
            sys.stderr.write("\n")
            return
        with shown as bars:
            tasks: dict[str, Any] = {}

            def show(p: Progress) -> None:
                if p.task not in tasks:
                    tasks[p.task] = bars.add_task(p.task, total=p.rounds, detail="", unit=p.unit)
                bars.update(tasks[p.task], completed=p.round, total=p.rounds, detail=p.detail)

            yield show


def _bars() -> Any:
    """Bars by rich. On a narrow terminal the bar and the text beside it get shorter."""
    from rich.console import Console
    from rich.progress import BarColumn, ProgressColumn, Task, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars
    from rich.table import Column
    from rich.text import Text

    class Detail(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(task.fields["detail"], overflow="ellipsis", no_wrap=True)

    return Bars(
        TextColumn("{task.description:<14}"),
        BarColumn(16),
        TextColumn("{task.fields[unit]} {task.completed:>4,}"),
        TimeElapsedColumn(table_column=Column(no_wrap=True)),
        Detail(),
        console=Console(stderr=True),
    )


class Pace:
    """The speed of counting and the time left, in words. It starts now. done: how many are counted already.

    >>> now = iter([0.0, 2.0, 2.0])
    >>> pace = Pace(clock=lambda: next(now))
    >>> pace.describe(3_000_000, 9_000_000), pace.describe(3_000)
    ('0:04 left, 1.5 million/s, of 9,000,000', '1,500/s')
    """

    def __init__(self, done: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._begun, self._before = clock, clock(), done

    def describe(self, done: int, total: int | None = None, *, about: bool = False) -> str:
        """Describe the pace. total: None if it is unknown, or reached.  about: the total is an estimate."""
        seconds, more = self._clock() - self._begun, done - self._before
        of = [] if total is None else [f"of {'about ' if about else ''}{total:,}"]
        if more <= 0 or seconds <= 0.0:
            return ", ".join(of)
        rate = more / seconds
        fast = [f"{rate / 1e6:.1f} million/s" if rate >= 1e6 else f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1g}/s"]
        left = [] if total is None else [f"{duration((total - done) / rate)} left"]
        return ", ".join(left + fast + of)


def duration(seconds: float) -> str:
    """Format seconds as minutes and seconds, from an hour on with hours.

    >>> duration(21.4), duration(3_700)
    ('0:21', '1:01:40')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class Remembering:
    """Pass progress on, and remember the estimates of the chosen start, or of the one that got furthest."""

    def __init__(self, listener: Listener | None) -> None:
        self._listener = listener
        self.furthest: Progress | None = None

    def __call__(self, progress: Progress) -> None:
        if progress.thetas is not None and np.isfinite(progress.thetas).all():
            best = self.furthest
            if best is None or (progress.chosen, progress.round) > (best.chosen, best.round):
                self.furthest = progress
        if self._listener is not None:
            self._listener(progress)


def _plain(p: Progress) -> None:
    sys.stderr.write(f"\r{p.task}: {p.unit} {p.round}, {p.detail}   ")
    sys.stderr.flush()
