"""The first pass over files on a Ray cluster: a file at a time, as many at once as there are workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import ray

from fleetgp.fleet.errands import errands
from fleetgp.io.file_shards import Source
from fleetgp.io.survey import Survey
from fleetgp.linalg.threads import cores
from fleetgp.network.ray.session import Session


def survey_on_cluster(source: Source, workers: int | None, address: str | None) -> Survey:
    """What `Source.survey` finds. A file whose process is lost is read again. workers, address: as of a `Fleet`."""
    files = len(source.files)
    session = Session(address, min(cores(), files) if workers is None else workers)
    try:
        given = ray.put(source)
        found = errands(
            survey_file, [(given, number) for number in range(files)], session.room_for(workers, files), "file"
        )
        return source.joined(_in_order(found))
    finally:
        session.close()


def survey_file(source: Source, number: int) -> Survey:
    """In a process of the cluster."""
    return source.survey_of(source.files[number], source.owners[number])


def _in_order(found: Iterable[tuple[int, Survey]]) -> Iterator[Survey]:
    """By their numbers, each as soon as it and all before it are there."""
    waiting: dict[int, Survey] = {}
    following = 0
    for number, survey in found:
        waiting[number] = survey
        while following in waiting:
            yield waiting.pop(following)
            following += 1
