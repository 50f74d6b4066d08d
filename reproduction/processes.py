"""Pieces of work in fresh processes of this machine, as many at once as there are cores."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from fleetgp.errors import FleetGPWarning, WorkerLostError
from fleetgp.linalg.threads import processors

#: A piece of work: from plain values to plain values. It is a function of a module, so that other processes find it.
Work = Callable[[dict[str, Any]], dict[str, Any]]

#: One BLAS thread per worker: as many workers as cores do not fight over them.
SINGLE = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class Processes:
    """workers: how many; None: one a core."""

    def __init__(self, workers: int | None = None) -> None:
        self._workers = workers

    def results(self, work: Work, tasks: Sequence[dict[str, Any]]) -> Generator[tuple[int, dict[str, Any]]]:
        """(number, work(task)) of every task, begun in their order, each as soon as it is there."""
        with _pool(min(self._workers or processors(), len(tasks))) as pool:
            with _uninterrupted():  # a process inherits that it must not listen to Ctrl-C
                jobs: dict[Future[dict[str, Any]], int] = {
                    pool.submit(work, task): number for number, task in enumerate(tasks)
                }
            for job in as_completed(jobs):
                try:
                    found = job.result()
                except BrokenProcessPool as error:
                    told = "a worker process died (out of memory?): try again, with fewer workers"
                    raise WorkerLostError(told) from error
                yield jobs[job], found

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
    import fleetgp as fg

    field = fg.synthetic_field(60, seed=0)
    for agents in (1, 3):
        fg.Fleet(fg.partition(field.inputs, field.observations, agents=agents), kernel="se", normalize=False).train(
            "fact-gp", theta0=fg.PAPER_THETA0, rounds=2
        )
