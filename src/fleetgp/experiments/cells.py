"""Many independent pieces of work on all cores: each is kept as soon as it is done, Ctrl-C loses only those at work."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fleetgp.errors import FleetGPError, FleetGPWarning
from fleetgp.io.kept import Kept
from fleetgp.progress import Listener, Progress

#: One BLAS thread per worker: as many workers as cores do not fight over them.
SINGLE = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


#: The status of a method that refused the work; `why` is beside it.
REFUSED = "refused"


@dataclass(frozen=True)
class Cell:
    """A piece of work: its name on disk, its settings (plain values), a guess of its effort; the longest go first."""

    name: str
    task: dict[str, Any]
    effort: float = 1.0


def run_cells(
    cells: Sequence[Cell],
    work: Callable[[dict[str, Any]], dict[str, Any]],
    kept: Kept,
    *,
    listener: Listener | None = None,
    label: str = "cells",
    workers: int | None = None,
) -> dict[str, dict[str, Any]]:
    """The results by name. `work` is a function of a module, so that another process can find it."""
    found = {cell.name: kept.get(cell.name) for cell in cells}
    todo = sorted((cell for cell in cells if found[cell.name] is None), key=lambda cell: -cell.effort)
    total = sum(cell.effort for cell in cells) or 1.0
    left = sum(cell.effort for cell in todo)

    def tell(detail: str) -> None:
        if listener is not None:
            done = sum(piece is not None for piece in found.values())
            share = f"{100.0 * (1.0 - left / total):3.0f} % of the work"
            listener(Progress(label, done, len(cells), f"{share}  {detail}", unit="cell"))

    tell("")
    if todo:
        with _pool(min(workers or cores(), len(todo))) as pool:
            with _uninterrupted():  # a process inherits that it must not listen to Ctrl-C
                jobs: dict[Future[dict[str, Any]], Cell] = {pool.submit(work, cell.task): cell for cell in todo}
            for job in as_completed(jobs):
                cell = jobs[job]
                try:
                    found[cell.name] = job.result()
                except BrokenProcessPool as error:
                    raise FleetGPError(
                        f"a worker process died at {label} (out of memory?); what was finished is kept: "
                        "try again, with fewer workers"
                    ) from error
                kept.put(cell.name, found[cell.name])
                left -= cell.effort
                tell(cell.name)
    return found


def refusals(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Who refused, how often and why, in words.

    >>> refusals([{"method": "dec-full-gp", "status": "refused", "why": "too rough"}, {"status": "converged"}])
    ['dec-full-gp refused 1 time: too rough']
    """
    found = Counter((row["method"], row["why"]) for row in rows if row["status"] == REFUSED)
    return [f"{method} refused {n} time{'s' if n > 1 else ''}: {why}" for (method, why), n in found.items()]


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Fresh processes; whatever happens here, none of them outlives it."""
    before = {name: os.environ.get(name) for name in SINGLE}
    others = set(multiprocessing.active_children())
    os.environ.update(SINGLE)
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_begin)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()
        raise
    else:
        pool.shutdown()
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


@contextmanager
def _uninterrupted() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _begin() -> None:
    """In a worker: Ctrl-C is the parent's, and what is compiled at first use is compiled before anything is timed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore", FleetGPWarning)  # the reports have their own words for what did not converge
    import fleetgp as fg

    field = fg.synthetic_field(60, seed=0)
    for agents in (1, 3):
        fg.Fleet(fg.partition(field.inputs, field.observations, agents=agents)).train(
            "fact-gp", theta0=fg.PAPER_THETA0, rounds=2
        )
