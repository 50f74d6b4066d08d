"""Many independent pieces of work: each is kept as soon as it is done, Ctrl-C loses only those at work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol

from fleetgp.errors import WorkerLostError
from fleetgp.io.kept import Kept
from fleetgp.progress import Listener, Progress
from reproduction.processes import Processes, Work

#: The status of a method that refused the work; `why` is beside it.
REFUSED = "refused"


@dataclass(frozen=True)
class Cell:
    """A piece of work: its name on disk, its settings (plain values), a guess of its effort; the longest go first."""

    name: str
    task: dict[str, Any]
    effort: float = 1.0


class Place(Protocol):
    """Where cells are computed: `Processes` of this machine, or `OnCluster`."""

    def results(self, work: Work, tasks: Sequence[dict[str, Any]]) -> Generator[tuple[int, dict[str, Any]]]:
        """(number, work(task)) of every task, begun in their order, each as soon as it is there."""

    def close(self) -> None:
        """Give back what was taken for the work. Safe to call twice."""


def run_cells(
    cells: Sequence[Cell],
    work: Work,
    kept: Kept,
    *,
    listener: Listener | None = None,
    label: str = "cells",
    place: Place | None = None,
) -> dict[str, dict[str, Any]]:
    """The results by name. place: without it, processes of this machine."""
    found = {cell.name: kept.get(cell.name) for cell in cells}
    todo = sorted((cell for cell in cells if found[cell.name] is None), key=lambda cell: -cell.effort)
    total = sum(cell.effort for cell in cells) or 1.0
    left = sum(cell.effort for cell in todo)

    def tell(detail: str) -> None:
        if listener is not None:
            done = sum(piece is not None for piece in found.values())
            share = f"{100.0 * (1.0 - left / total):3.0f} % of the work"
            listener(Progress(label, done, len(cells), f"{share}  {detail}", unit="cell"))

    tell("starting" if todo else "")
    if todo:
        try:
            with closing((place or Processes()).results(work, [cell.task for cell in todo])) as results:
                for number, piece in results:
                    cell = todo[number]
                    found[cell.name] = piece
                    kept.put(cell.name, piece)
                    left -= cell.effort
                    tell(cell.name)
        except WorkerLostError as error:
            raise WorkerLostError(
                f"{label}: {error}; what was finished is kept, and the same command goes on"
            ) from error
    return found


def refusals(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Who refused, how often and why, in words.

    >>> refusals([{"method": "dec-full-gp", "status": "refused", "why": "too rough"}, {"status": "converged"}])
    ['dec-full-gp refused 1 time: too rough']
    """
    found = Counter((row["method"], row["why"]) for row in rows if row["status"] == REFUSED)
    return [f"{method} refused {n} time{'s' if n > 1 else ''}: {why}" for (method, why), n in found.items()]
