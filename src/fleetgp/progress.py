"""Progress of long work: a callback, a bar on the terminal, or nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array


@dataclass(frozen=True)
class Progress:
    """What a callback gets after every round. rounds: how many there will be, or None if nobody knows yet.

    unit: what is counted, where it is not rounds.  thetas: in training, (M, P) each agent's estimate so far.
    chosen: whether it is of the start that the fleet has chosen, or of the only one.
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
    """True: a bar on the terminal (with rich where it is installed); a callable: itself; False: nothing."""
    if callable(progress):
        yield progress
    elif not progress:
        yield None
    else:
        try:
            from rich.console import Console
            from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bars
        except ImportError:
            yield _plain
            sys.stderr.write("\n")
            return
        columns = (
            TextColumn("{task.description:<14}"),
            BarColumn(24),
            TextColumn("{task.fields[unit]} {task.completed:>4}"),
        )
        terminal = Console(stderr=True)
        with Bars(*columns, TimeElapsedColumn(), TextColumn("{task.fields[detail]}"), console=terminal) as bars:
            tasks: dict[str, TaskID] = {}

            def show(p: Progress) -> None:
                if p.task not in tasks:
                    tasks[p.task] = bars.add_task(p.task, total=p.rounds, detail="", unit=p.unit)
                bars.update(tasks[p.task], completed=p.round, total=p.rounds, detail=p.detail)

            yield show


class Remembering:
    """Passes progress on, and remembers the estimates of the chosen start, or of the one that got furthest."""

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
