"""Cells: independent pieces of work, done in processes here or on a cluster; each is kept as soon as it is done."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from threadpoolctl import threadpool_limits

import fleetgp as fg
from fleetgp.errors import FleetGPWarning, InputError, WorkerLostError
from fleetgp.files import ResumableCache
from fleetgp.linalg.threads import processors
from fleetgp.progress import Listener, Progress

if TYPE_CHECKING:
    from fleetgp.network.ray.session import Session

#: A piece of work: from plain values to plain values. It is a function of a module, so that other processes find it.
Work = Callable[[dict[str, Any]], dict[str, Any]]
#: The status of a method that refused the work; `why` is beside it.
REFUSED = "refused"
#: One BLAS thread per worker: as many workers as cores do not fight over them.
SINGLE = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


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


def kept_in(folder: Path, experiment: str, settings: Mapping[str, Any]) -> ResumableCache:
    """The finished cells of an experiment with these settings."""
    return ResumableCache(folder / "cells", {"experiment": experiment, "version": fg.__version__, **settings})


def run_cells(
    cells: Sequence[Cell],
    work: Work,
    kept: ResumableCache,
    *,
    listener: Listener | None = None,
    label: str = "cells",
    place: Place | None = None,
) -> dict[str, dict[str, Any]]:
    """The results by name. place: without it, processes of this machine."""
    results = {cell.name: kept.get(cell.name) for cell in cells}
    missing = sorted((cell for cell in cells if results[cell.name] is None), key=lambda cell: -cell.effort)
    total = sum(cell.effort for cell in cells) or 1.0
    left = sum(cell.effort for cell in missing)

    def report(detail: str) -> None:
        if listener is not None:
            done = sum(result is not None for result in results.values())
            share = f"{100.0 * (1.0 - left / total):3.0f} % of the work"
            listener(Progress(label, done, len(cells), f"{share}  {detail}", unit="cell"))

    report("starting" if missing else "")
    if missing:
        try:
            with closing((place or Processes()).results(work, [cell.task for cell in missing])) as arriving:
                for number, result in arriving:
                    cell = missing[number]
                    results[cell.name] = result
                    kept.put(cell.name, result)
                    left -= cell.effort
                    report(cell.name)
        except WorkerLostError as error:
            raise WorkerLostError(
                f"{label}: {error}; what was finished is kept, and the same command continues"
            ) from error
    return results


def refusals(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Who refused, how often and why, in words.

    >>> refusals([{"method": "dec-full-gp", "status": "refused", "why": "too rough"}, {"status": "converged"}])
    ['dec-full-gp refused 1 time: too rough']
    """
    counts = Counter((row["method"], row["why"]) for row in rows if row["status"] == REFUSED)
    return [f"{method} refused {n} time{'s' if n > 1 else ''}: {why}" for (method, why), n in counts.items()]


class Processes:
    """Fresh processes of this machine. workers: how many; None: one per core."""

    def __init__(self, workers: int | None = None) -> None:
        self._workers = workers

    def results(self, work: Work, tasks: Sequence[dict[str, Any]]) -> Generator[tuple[int, dict[str, Any]]]:
        """(number, work(task)) of every task, begun in their order, each as soon as it is there."""
        with _pool(min(self._workers or processors(), len(tasks))) as pool:
            with _uninterrupted():  # a process inherits that it must not listen to Ctrl-C
                jobs = {pool.submit(work, task): number for number, task in enumerate(tasks)}
            for job in as_completed(jobs):
                try:
                    result = job.result()
                except BrokenProcessPool as error:
                    raise WorkerLostError(
                        "a worker process died (out of memory?): try again, with fewer workers"
                    ) from error
                yield jobs[job], result

    def close(self) -> None:
        """Nothing is left that could be closed."""


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
    """In a worker: Ctrl-C is the parent's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prepare_worker()


def prepare_worker() -> None:
    """What is compiled at first use is compiled before anything is timed."""
    warnings.simplefilter("ignore", FleetGPWarning)  # the reports have their own words for what did not converge
    field = fg.synthetic_field(60, seed=0)
    for agents in (1, 3):
        fg.Fleet(fg.partition(field.inputs, field.observations, agents=agents), kernel="se", normalize=False).train(
            "fact-gp", theta0=fg.PAPER_THETA0, rounds=2
        )


class OnCluster:
    """Workers of a Ray cluster. workers: how many; None: one for each core of the cluster.  address: see `Session`.

    The cluster is joined, or a local one started, when there is work for the first time. All of its machines need this
    repository, at the same place.
    """

    def __init__(self, workers: int | None = None, address: str | None = None) -> None:
        self._workers, self._address = workers, address
        self._session: Session | None = None

    def results(self, work: Work, tasks: Sequence[dict[str, Any]]) -> Generator[tuple[int, dict[str, Any]]]:
        """(number, work(task)) of every task, begun in their order, each as soon as it is there."""
        from ray import cloudpickle

        from fleetgp.fleet.ray_tasks import ray_map
        from fleetgp.network.ray.session import Session

        if self._session is None:
            self._session = Session(self._address, self._workers or min(processors(), len(tasks)))
        workers = self._session.room_for(self._workers, len(tasks))
        # A worker does not know where this package is: it gets the code of `at_worker`, and the rest by name.
        cloudpickle.register_pickle_by_value(sys.modules[__name__])
        root = str(Path(__file__).resolve().parents[1])
        return ray_map(at_worker, [(root, work.__module__, work.__name__, task) for task in tasks], workers, "cell")

    def close(self) -> None:
        """Leave the cluster, or end what was started. Safe to call twice."""
        if self._session is not None:
            self._session.close()
            self._session = None


def at_worker(root: str, module: str, function: str, task: dict[str, Any]) -> dict[str, Any]:
    """In a process of the cluster. root: the folder of the repository."""
    if not Path(root, "reproduction").is_dir():
        raise InputError(f"expected the repository in {root} on every machine of the cluster, but one has none there")
    if root not in sys.path:
        sys.path.append(root)
    importlib.import_module("reproduction.cells").prepare_cluster_worker()
    result: dict[str, Any] = getattr(importlib.import_module(module), function)(task)
    return result


@cache
def prepare_cluster_worker() -> None:
    """Once in a process."""
    threadpool_limits(1)  # a worker is one core's
    prepare_worker()
