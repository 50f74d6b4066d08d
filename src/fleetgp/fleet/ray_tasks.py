"""Independent pieces of work at the workers of a Ray cluster: one core each, and done again where a worker is lost.

The first pass over files on a Ray cluster: a file at a time, as many at once as there are workers.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from fleetgp.data.suspicions import Sample
from fleetgp.errors import WorkerLostError
from fleetgp.io.file_dataset import FileReader
from fleetgp.io.survey import FirstPass, Survey
from fleetgp.linalg.threads import cores
from fleetgp.network.ray.crew import LOSSES, START
from fleetgp.network.ray.session import Session


def ray_map(
    function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], workers: int, what: str
) -> Generator[tuple[int, Any]]:
    """(number, function(*arguments[number])) for all, begun in their order, so many at once; each as soon as it is
    there. An error of the function is raised as it is. what: a piece of work, in words.
    """
    _check_room()
    call = ray.remote(num_cpus=1, max_retries=LOSSES)(function)
    busy: dict[Any, int] = {}
    begun = 0
    try:
        while busy or begun < len(arguments):
            while begun < len(arguments) and len(busy) < workers:
                busy[call.remote(*arguments[begun])] = begun
                begun += 1
            (ready, *_), _ = ray.wait(list(busy))
            found = _got(ready, what)
            yield busy.pop(ready), found
    finally:
        if ray.is_initialized():
            for left in busy:
                ray.cancel(left, force=True)


def _check_room() -> None:
    """One clear error where no process can start: work would wait for it for ever."""
    ready, _ = ray.wait([ray.remote(num_cpus=1)(_here).remote()], timeout=START)
    if not ready:
        raise WorkerLostError(
            f"expected a worker to start within {START:g} s, but none did: has the cluster a free core? Wait until it "
            "has"
        )


def _here() -> None:
    """In a process of the cluster."""


def _got(call: Any, what: str) -> Any:
    try:
        return ray.get(call)
    except RayTaskError as error:
        raise error.cause from None
    except RayError as error:
        raise WorkerLostError(
            f"more than {LOSSES} workers were lost with one {what}: is their memory enough?"
        ) from error


def survey_on_cluster(source: FileReader, workers: int | None, address: str | None) -> tuple[Survey, InStore]:
    """What `FileReader.survey` finds, but for the rows that it draws, which stay on the cluster.

    A file whose process is lost is read again. workers, address: as of a `Fleet`. The cluster is left open.
    """
    with FirstPass(source.files) as told:
        session = Session(address, min(cores(), len(source.files)) if workers is None else workers)
        try:
            drawn: list[Any] = []
            found = _surveys(source, session.room_for(workers, len(source.files)), drawn)
            return source.joined(told.followed(source.files, found)), InStore(session, drawn)
        except BaseException:
            session.close()
            raise


class InStore:
    """What was drawn of each file, in the store of the cluster, for as long as that is the one it was drawn on."""

    def __init__(self, session: Session, drawn: list[Any]) -> None:
        self._drawn, self._job = drawn, _job()
        self.close = weakref.finalize(self, session.close)

    def of(self, agents: Sequence[int]) -> tuple[Any, ...]:
        return tuple(self._drawn[agent] for agent in agents) if _job() == self._job else ()


def _job() -> str:
    """Of this process on the cluster that it is connected to: another one after each connection."""
    context = ray.get_runtime_context()
    return f"{context.gcs_address} {context.get_job_id()}"


def survey_file(source: FileReader, number: int) -> tuple[Survey, dict[str, Sample]]:
    """In a process of the cluster: all that is known of a file, and apart from it the rows that were drawn."""
    found = source.survey_of(source.files[number], source.owners[number])
    return replace(found, samples={}), found.samples


def _surveys(source: FileReader, workers: int, drawn: list[Any]) -> Iterator[Survey]:
    """Of all files, in their order, each as soon as it and all before it are there."""
    task, given = ray.remote(num_cpus=1, num_returns=2, max_retries=LOSSES)(survey_file), ray.put(source)
    waiting: deque[Any] = deque()
    busy: list[Any] = []
    try:
        for number in range(len(source.files)):
            if len(busy) == workers:
                _, busy = ray.wait(busy)
            while waiting and waiting[0] not in busy:
                yield _survey_of(waiting.popleft())
            told, rows = task.remote(given, number)
            busy.append(told)
            waiting.append(told)
            drawn.append(rows)
        while waiting:
            yield _survey_of(waiting.popleft())
    finally:
        for call in waiting:
            ray.cancel(call, force=True)


def _survey_of(call: Any) -> Survey:
    try:
        found: Survey = ray.get(call)
    except RayTaskError as error:
        raise error.cause from None
    except RayError as error:
        raise WorkerLostError(f"more than {LOSSES} workers were lost with one file: is their memory enough?") from error
    return found
