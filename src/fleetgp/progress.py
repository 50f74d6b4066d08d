"""Progress of long work: a callback, a bar on the terminal, or nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """What a callback gets after every round; `rounds` is the most there can be."""

    task: str
    round: int
    rounds: int
    detail: str


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
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bars
        except ImportError:
            yield _plain
            sys.stderr.write("\n")
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Bars(*columns, TextColumn("{task.fields[detail]}")) as bars:
            tasks: dict[str, object] = {}

            def show(p: Progress) -> None:
                if p.task not in tasks:
                    tasks[p.task] = bars.add_task(p.task, total=p.rounds, detail="")
                bars.update(tasks[p.task], completed=p.round, detail=p.detail)  # type: ignore[arg-type]

            yield show


def _plain(p: Progress) -> None:
    sys.stderr.write(f"\r{p.task}: round {p.round} of at most {p.rounds}, {p.detail}   ")
    sys.stderr.flush()
