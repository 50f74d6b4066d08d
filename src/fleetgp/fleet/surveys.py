"""The first pass over files on a Ray cluster: a file at a time, as many at once as there are workers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from fleetgp.errors import WorkerLostError
from fleetgp.io.file_shards import Source
from fleetgp.io.passes import FirstPass
from fleetgp.io.survey import Survey
from fleetgp.linalg.threads import cores
from fleetgp.network.ray.crew import LOSSES
from fleetgp.network.ray.session import Session


def survey_on_cluster(source: Source, workers: int | None, address: str | None) -> Survey:
    """What `Source.survey` finds. A file whose process is lost is read again. workers, address: as of a `Fleet`."""
    with FirstPass(source.files) as told:
        session = Session(address, min(cores(), len(source.files)) if workers is None else workers)
        try:
            found = _surveys(source, session.room_for(workers, len(source.files)))
            return source.joined(told.followed(source.files, found))
        finally:
            session.close()


def survey_file(source: Source, number: int) -> Survey:
    """In a process of the cluster."""
    return source.survey_of(source.files[number], source.owners[number])


def _surveys(source: Source, workers: int) -> Iterator[Survey]:
    """Of all files, in their order, each as soon as it and all before it are there."""
    task, given = ray.remote(num_cpus=1, max_retries=LOSSES)(survey_file), ray.put(source)
    waiting: deque[Any] = deque()
    busy: list[Any] = []
    try:
        for number in range(len(source.files)):
            if len(busy) == workers:
                _, busy = ray.wait(busy)
            while waiting and waiting[0] not in busy:
                yield _got(waiting.popleft())
            busy.append(task.remote(given, number))
            waiting.append(busy[-1])
        while waiting:
            yield _got(waiting.popleft())
    finally:
        for call in waiting:
            ray.cancel(call, force=True)


def _got(call: Any) -> Survey:
    try:
        found: Survey = ray.get(call)
    except RayTaskError as error:
        raise error.cause from None
    except RayError as error:
        raise WorkerLostError(f"more than {LOSSES} workers were lost with one file: is their memory enough?") from error
    return found
