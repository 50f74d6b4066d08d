"""The workers of a fleet: they are given work, followed, and replaced where they are lost."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError

from fleetgp.errors import Cancelled, NetworkError, WorkerLostError
from fleetgp.graph import Topology
from fleetgp.network.ray.host import Ended, Function, Place, Readings, started

#: Seconds that a worker may take to start, or to answer whether it lives.
START, SILENCE = 180.0, 120.0
#: Seconds for which a group waits for another one's frame while all of them live: against deadlocks alone.
ROUND = 3600.0
#: Workers that may be lost in one task.
LOSSES = 5

_EPOCHS = itertools.count(1)


class Crew:
    """One worker for each group of agents.

    hosting: the groups.  timeout: seconds for which a group waits for another one's frame.
    """

    def __init__(self, hosting: Sequence[Sequence[int]], *, timeout: float = ROUND) -> None:
        self.hosting = tuple(tuple(group) for group in hosting)
        self.timeout = timeout
        self.hosts: list[Any] = [started() for _ in hosting]
        self.known: set[int] = set()  # those that have been there once
        self.busy = False
        self.lost = 0  # workers that were replaced, ever

    def task(self, topology: Topology, function: Function, arguments: Sequence[tuple[Any, ...]]) -> Task:
        """function(network, memory, report, *arguments[k]) at worker k, all at the same time."""
        if self.busy:
            raise NetworkError("the workers have another task: take all of its results, or close it, before the next")
        return Task(self, topology, function, arguments)

    def replace(self, number: int) -> None:
        """Another worker in the place of one that is lost, or does not answer."""
        ray.kill(self.hosts[number])
        self.hosts[number] = started()
        self.known.discard(number)
        self.lost += 1

    def forget(self, key: object) -> None:
        """What the workers kept under a name is needed no more."""
        for host in self.hosts:
            host.forget.remote(key)

    def close(self) -> None:
        for host in self.hosts:
            ray.kill(host)
        self.hosts = []


class Task:
    """Work that is going on at all workers. Iterate over their reports, number by number: a list, worker by worker.

    results: what the function returned at each worker, after the last one.
    Leaving before the end, by Ctrl-C or an error, ends the work.
    """

    def __init__(
        self, crew: Crew, topology: Topology, function: Function, arguments: Sequence[tuple[Any, ...]]
    ) -> None:
        self._crew, self._topology, self._function, self._arguments = crew, topology, function, arguments
        self._epoch = next(_EPOCHS)
        self._taken = [0] * len(crew.hosts)
        self._reports: list[list[Any]] = [[] for _ in crew.hosts]
        self._ended: list[Ended | None] = [None] * len(crew.hosts)
        self._left = LOSSES
        self._lives = [0] * len(crew.hosts)  # hosts that were lost, of each number
        self._began: float | None = None

    @property
    def hosting(self) -> tuple[tuple[int, ...], ...]:
        return self._crew.hosting

    @property
    def results(self) -> list[Any]:
        return [ended.result for ended in self._ended if ended is not None]

    def finish(self) -> list[Any]:
        """The results, where nothing is reported."""
        for _ in self:
            pass
        return self.results

    def __iter__(self) -> Iterator[list[Any]]:
        everyone = set(range(len(self._crew.hosts)))
        self._crew.busy = True
        try:
            lost = self._take_places(everyone)
            self._replace(lost)
            self._set_to_work(everyone - lost, {})
            while any(ended is None for ended in self._ended):
                self._listen()
                while all(self._reports):
                    yield [reports.pop(0) for reports in self._reports]
        finally:
            self._crew.busy = False
            if not all(ended and ended.error is None for ended in self._ended) and ray.is_initialized():
                for host in self._crew.hosts:
                    host.cancel.remote(self._epoch)

    def _listen(self) -> None:
        """What is new at the workers that are still at work. An error at one of them is the task's."""
        running = {k for k, ended in enumerate(self._ended) if ended is None}
        hosts, taken = self._crew.hosts, self._taken
        answers, lost = _answers({k: hosts[k].reports.remote(self._epoch, taken[k]) for k in running}, SILENCE)
        for k, (reports, ended) in answers.items():
            self._reports[k] += reports
            taken[k] += len(reports)
            self._ended[k] = ended
        errors = [ended.error for ended in self._ended if ended and ended.error]
        if errors:  # of several, one that is no mere consequence
            raise min(errors, key=lambda error: isinstance(error, NetworkError | Cancelled))
        self._replace(lost)

    # ---- places, and who takes those of lost workers -----------------------------------------------------------

    def _take_places(self, numbers: set[int], shared: Any = None) -> set[int]:
        """Give workers their places; those that are lost. shared: what others hold already, for new ones."""
        crew = self._crew
        calls = {}
        for k in numbers:
            place = Place(
                epoch=self._epoch,
                topology=self._topology,
                hosting=crew.hosting,
                number=k,
                peers=tuple(crew.hosts),
                timeout=crew.timeout,
                lives=tuple(self._lives),
                taken=self._taken[k],
            )
            calls[k] = crew.hosts[k].begin.remote(place, shared)
        answers, lost = _answers(calls, START)
        if homeless := lost - crew.known:
            raise WorkerLostError(
                f"expected {len(crew.hosts)} workers to start within {START:g} s, but {len(homeless)} did not: has the "
                "cluster a free core for each? Ask for fewer workers, or wait until it has"
            )
        crew.known |= set(answers)
        return lost

    def _set_to_work(self, numbers: set[int], past: Mapping[int, Readings]) -> None:
        """past: what others know of the clocks of lost workers. The task's own time begins with the first at work."""
        self._began = self._began or time.time()
        for k in numbers:
            clock = self._began, past.get(k, Readings())
            self._crew.hosts[k].work.remote(self._epoch, *clock, self._function, *self._arguments[k])

    def _replace(self, lost: set[int]) -> None:
        """New workers in the places of lost ones compute again what those had, from what the others sent them."""
        hosts = self._crew.hosts
        while lost:
            self._left -= len(lost)
            if self._left < 0:
                raise WorkerLostError(f"more than {LOSSES} workers were lost in one task: is their memory enough?")
            for k in lost:
                self._crew.replace(k)
                self._lives[k] += 1
            others = set(range(len(hosts))) - lost
            shared = hosts[min(others)].shared.remote(self._epoch) if others else None
            again = self._take_places(lost, shared)
            past: dict[int, Readings] = {}
            for k in lost - again:
                calls = {j: hosts[j].replace.remote(self._epoch, k, self._lives[k], hosts[k]) for j in others}
                answers, more = _answers(calls, SILENCE)
                again, others = again | more, others - more
                if None in answers.values():
                    raise WorkerLostError("a worker was lost, and the others have sent too much to send it all again")
                past[k] = reduce(Readings.joined, answers.values(), Readings())
            self._set_to_work(lost - again, past)
            lost = again


def _answers(calls: dict[int, Any], seconds: float) -> tuple[dict[int, Any], set[int]]:
    """What workers answered in time, and those that are lost."""
    if not calls:
        return {}, set()
    ready, _ = ray.wait(list(calls.values()), num_returns=len(calls), timeout=seconds)
    answers, lost, there = {}, set(), set(ready)
    for k, call in calls.items():
        try:
            if call not in there:
                raise GetTimeoutError
            answers[k] = ray.get(call, timeout=SILENCE)
        except RayTaskError:
            raise
        except RayError:
            lost.add(k)
    return answers, lost
