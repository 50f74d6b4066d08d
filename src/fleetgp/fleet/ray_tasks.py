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
    """Yield (number, function(*arguments[number])) as each result arrives. An error of the function is raised as it is.

    workers: how many calls run at once.  what: one call, in words, for messages.
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
            yield busy.pop(ready), _result_of(ready, what)
    finally:
        if ray.is_initialized():
            for left in busy:
                ray.cancel(left, force=True)


def _check_room() -> None:
    """Fail where no process can start, instead of waiting for one forever."""
    ready, _ = ray.wait([ray.remote(num_cpus=1)(_here).remote()], timeout=START)
    if not ready:
        raise WorkerLostError(
            f"expected a worker to start within {START:g} s, but none did: has the cluster a free core? Wait until it "
            "has"
        )


def _here() -> None:
    """Do nothing: that it returns shows that a process has started."""


def _result_of(call: Any, what: str) -> Any:
    try:
        return ray.get(call)
    except RayTaskError as error:
        raise error.cause from None
    except RayError as error:
        raise WorkerLostError(
            f"more than {LOSSES} workers were lost with one {what}: is their memory enough?"
        ) from error


def survey_on_cluster(source: FileReader, workers: int | None, address: str | None) -> tuple[Survey, InStore]:
    """Survey the files as `FileReader.survey` does; the rows that it draws stay on the cluster, which stays open.

    A file whose process is lost is read again. workers, address: as for a `Fleet`.
    """
    with FirstPass(source.files) as first_pass:
        session = Session(address, min(cores(), len(source.files)) if workers is None else workers)
        try:
            drawn: list[Any] = []
            surveys = _surveys(source, session.room_for(workers, len(source.files)), drawn)
            return source.joined(first_pass.followed(source.files, surveys)), InStore(session, drawn)
        except BaseException:
            session.close()
            raise


class InStore:
    """The rows drawn from each file, in the store of the cluster; none after this process has reconnected."""

    def __init__(self, session: Session, drawn: list[Any]) -> None:
        self._drawn, self._job = drawn, _job()
        self.close = weakref.finalize(self, session.close)

    def of(self, agents: Sequence[int]) -> tuple[Any, ...]:
        return tuple(self._drawn[agent] for agent in agents) if _job() == self._job else ()


def _job() -> str:
    """Identify this process's connection to the cluster: each new connection is another job."""
    context = ray.get_runtime_context()
    return f"{context.gcs_address} {context.get_job_id()}"


def survey_file(source: FileReader, number: int) -> tuple[Survey, dict[str, Sample]]:
    """Survey a file in a process of the cluster; the rows that were drawn are returned apart."""
    survey = source.survey_of(source.files[number], source.owners[number])
    return replace(survey, samples={}), survey.samples


def _surveys(source: FileReader, workers: int, drawn: list[Any]) -> Iterator[Survey]:
    """Yield the surveys in the order of the files, each as soon as it and all before it are there."""
    task, given = ray.remote(num_cpus=1, num_returns=2, max_retries=LOSSES)(survey_file), ray.put(source)
    waiting: deque[Any] = deque()
    busy: list[Any] = []
    try:
        for number in range(len(source.files)):
            if len(busy) == workers:
                _, busy = ray.wait(busy)
            while waiting and waiting[0] not in busy:
                yield _result_of(waiting.popleft(), "file")
            survey, rows = task.remote(given, number)
            busy.append(survey)
            waiting.append(survey)
            drawn.append(rows)
        while waiting:
            yield _result_of(waiting.popleft(), "file")
    finally:
        for call in waiting:
            ray.cancel(call, force=True)
