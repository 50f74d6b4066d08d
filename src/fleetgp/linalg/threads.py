"""Who uses the machine: many small agents side by side, or BLAS inside one large agent; never both."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from itertools import accumulate
from threading import Lock, local
from typing import Any, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from fleetgp.arrays import Array

Item = TypeVar("Item")
Result = TypeVar("Result")

#: The largest work array that a thread keeps, in doubles: 32 MB.
LARGEST_SCRATCH = 1 << 22

#: BLAS may use several threads for matrices from this size on. They wait for each other many times in a factorization,
#: each time perhaps for a time slice of other work: beside two busy processes a likelihood of 927 rows takes 0.1 s with
#: one thread and 0.6 to 4 s with two.
LARGE = 2000
#: Side by side unless that takes this many times as long as if no core were ever idle.
MOST_IDLE = 1.3

#: Only one caller at a time may set the process-wide number of BLAS threads.
_TURN = Lock()
_WORKING = local()


@cache
def _libraries() -> tuple[list[Any], list[Any]]:
    """The BLAS of SciPy, which has LAPACK, and any other (NumPy brings its own)."""
    every = [c for c in ThreadpoolController().lib_controllers if c.user_api == "blas"]
    main = [c for c in every if "numpy.libs" not in c.filepath] or every
    return main, [c for c in every if c not in main]


@cache
def cores() -> int:
    """How many threads this process may use: what BLAS was allowed (OPENBLAS_NUM_THREADS) at the start."""
    allowed: list[int] = [c.num_threads for group in _libraries() for c in group]
    return max(1, min([processors(), *allowed]))


def processors() -> int:
    """How many processors of this machine this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory() -> int:
    """Bytes of memory of this machine; 4 GB if it is unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 1 << 32


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores(), thread_name_prefix="fleetgp")


def _start_over() -> None:
    """In a forked child the pool's threads are gone, as is any holder of the lock."""
    global _TURN, _WORKING
    _TURN, _WORKING = Lock(), local()
    _pool.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_over)


@contextmanager
def blas_threads(count: int) -> Iterator[None]:
    """LAPACK with this many threads, NumPy's own BLAS with one.

    Two libraries that both keep idle threads spinning on the same cores stall each other for milliseconds.
    """
    if working():
        yield
        return
    cores()  # before anything is limited
    main, other = _libraries()
    with _TURN, _at_work():
        before = [(c, c.num_threads) for c in (*main, *other)]
        try:
            for c in main:
                _limit(c, count)
            for c in other:
                _limit(c, 1)
            yield
        finally:
            for c, threads in before:
                _limit(c, threads)


def _limit(library: Any, count: int) -> None:
    """From the thread that holds the lock.

    From 3.8 on threadpoolctl silently ignores all but the first thread that ever set a number, so that results would
    depend on the thread. Its restriction may be lifted by callers that take turns.
    """
    lift = getattr(library, "clear_controlling_thread", None)
    if lift is not None:
        lift(force=True)
    library.set_num_threads(count)
    if lift is not None:
        lift(force=True)


def working() -> bool:
    """Whether this thread already works inside `blas_threads`."""
    return getattr(_WORKING, "depth", 0) > 0


@contextmanager
def _at_work() -> Iterator[None]:
    _WORKING.depth = getattr(_WORKING, "depth", 0) + 1
    try:
        yield
    finally:
        _WORKING.depth -= 1


def spread(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """[work(item) ...], on all cores."""
    if cores() == 1 or len(items) < 2 or getattr(_WORKING, "helping", False):
        return [work(item) for item in items]

    def helping(item: Item) -> Result:
        _WORKING.helping = True
        with _at_work():
            return work(item)

    jobs = [_pool().submit(helping, item) for item in items]
    try:
        return [job.result() for job in jobs]
    finally:  # no job may still run when the caller continues
        for job in jobs:
            job.cancel()
        wait(jobs)


def scratch(*shapes: tuple[int, ...]) -> list[Array]:
    """Arrays of these shapes to work in, this thread's own until its next call: fresh memory would cost more than the
    arithmetic on small matrices.
    """
    ends = list(accumulate(math.prod(shape) for shape in shapes))
    buffer = getattr(_WORKING, "buffer", None)
    if ends[-1] > LARGEST_SCRATCH:
        buffer = np.empty(ends[-1])
    elif buffer is None or buffer.size < ends[-1]:
        buffer = _WORKING.buffer = np.empty(ends[-1])
    parts = zip([0, *ends[:-1]], ends, shapes, strict=True)
    return [buffer[start:end].reshape(shape) for start, end, shape in parts]


def side_by_side(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """[work(item) ...], on all cores, with one BLAS thread each."""
    with blas_threads(1):
        return spread(work, items)


def share(work: Callable[[Item], object], items: Sequence[Item], *, largest: int) -> None:
    """work(item) for each, on all cores: side by side, or, a few with matrices as large as these, in turn."""
    turns = -(-len(items) // cores())
    if largest >= LARGE and turns * cores() > MOST_IDLE * len(items):
        with blas_threads(cores()):
            for item in items:
                work(item)
    elif items:
        side_by_side(work, items)
