"""A fleet on a Ray cluster: its agents in groups, a worker for each; this process only follows them."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import ray

from fleetgp.data.partition import Shard
from fleetgp.data.streamed import Streamed
from fleetgp.errors import InputError
from fleetgp.fleet.answering import Answers, Question
from fleetgp.fleet.backends import refuse_rows
from fleetgp.fleet.groups import Held, answer_in_group, calibrate_group, train_group, train_group_together
from fleetgp.fleet.parts import merged_fit, merged_prediction, merged_report
from fleetgp.fleet.passes import MergedPasses
from fleetgp.fleet.source import Source
from fleetgp.gp.choices import Kernels
from fleetgp.gp.kernels import Kernel
from fleetgp.graph import Topology
from fleetgp.graph.groups import groups_of
from fleetgp.io.file_shards import FileShards
from fleetgp.io.passes import listener_of_passes
from fleetgp.linalg.threads import cores
from fleetgp.network import Ledger
from fleetgp.network.ray.crew import Crew, Task
from fleetgp.network.ray.session import Session
from fleetgp.prediction import (
    Calibration,
    Conditioner,
    Holding,
    Prediction,
    PredictionMethod,
    PredictionOptions,
)
from fleetgp.progress import Progress
from fleetgp.training import Fit, TrainingMethod, TrainingOptions
from fleetgp.training.run import Report


class OnCluster:
    """The agents of a fleet at the workers of a cluster.

    workers: how many; None: as many as there are cores, and no more than agents.  address: see `Session`.
    The cluster is joined, and the workers started, when there is work for the first time.
    """

    def __init__(self, graph: Topology, workers: int | None, address: str | None) -> None:
        self._graph, self._workers, self._address = graph, workers, address
        self._opened: Opened | None = None

    @property
    def opened(self) -> Opened:
        if self._opened is None:
            self._opened = Opened(self._graph, self._workers, self._address)
        return self._opened

    def train(
        self,
        method: TrainingMethod,
        shards: Sequence[Shard],
        graph: Topology,
        kernels: Kernels,
        options: TrainingOptions,
        report: Report,
    ) -> Fit:
        _check(method, shards)
        hosting = self.opened.crew.hosting
        given = [(data, method, kernels, options) for data in self.opened.data.of(shards, hosting)]
        task = self.opened.crew.task(graph, train_group, given)
        passes = MergedPasses(listener_of_passes())
        for told in task:
            if isinstance(told[0], Progress):
                passes(told)
            else:
                report(*merged_report(method, told, hosting))
        return merged_fit(method, task.results, hosting)

    def train_together(
        self,
        method: TrainingMethod,
        outputs: Sequence[Sequence[Shard]],
        graph: Topology,
        kernel: Kernel,
        options: TrainingOptions,
        report: Report,
    ) -> tuple[Fit, ...]:
        _check(method, outputs[0])
        hosting = self.opened.crew.hosting
        held = zip(*(self.opened.data.of(shards, hosting) for shards in outputs), strict=True)
        task = self.opened.crew.task(graph, train_group_together, [(data, method, kernel, options) for data in held])
        for told in task:
            report(*merged_report(method, told, hosting))
        return tuple(merged_fit(method, parts, hosting) for parts in zip(*task.results, strict=True))

    def answers(self, source: Source, options: PredictionOptions, conditioner: Conditioner | None) -> Answers:
        return AnswersOnCluster(self, source, options, grows=conditioner is not None)

    def calibrate(
        self, source: Source, method: PredictionMethod, options: PredictionOptions, holding: Holding
    ) -> Calibration:
        _check(method, source.shards)
        crew = self.opened.crew
        held = zip(crew.hosting, self.opened.data.of(source.shards, crew.hosting), strict=True)
        given = [(data, _of_group(source, group), method, options, holding) for group, data in held]
        found: list[Calibration] = crew.task(source.graph, calibrate_group, given).finish()
        return replace(found[0], ledger=Ledger.merged(part.ledger for part in found if part.ledger is not None))

    def check_here(self, what: str) -> None:
        raise InputError(f'{what} needs all agents in this process: expected backend="in-process", got "ray"')

    def forget(self, name: int) -> None:
        """What the workers keep under a name is needed no more."""
        if self._opened is not None and ray.is_initialized():
            self._opened.crew.forget(name)

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None


class Opened:
    """A session and its workers, which end with the fleet, or with this process."""

    def __init__(self, graph: Topology, workers: int | None, address: str | None) -> None:
        wanted = min(cores(), graph.agents) if workers is None else workers
        session = Session(address, wanted)
        try:
            self.crew = Crew(groups_of(graph.union, session.room_for(workers, graph.agents)))
        except BaseException:
            session.close()
            raise
        self.data = Data()
        self.close = weakref.finalize(self, _close, self.crew, session)


def _close(crew: Crew, session: Session) -> None:
    if ray.is_initialized():
        crew.close()
    session.close()


class Data:
    """The agents' data in the store of the cluster, each put there once: workers take theirs from it, or read files."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Shard, Any]] = {}

    def of(self, shards: Sequence[Shard], hosting: Sequence[Sequence[int]]) -> list[Held]:
        """What every group's worker gets."""
        if isinstance(shards, FileShards):
            return [shards.group(group) for group in hosting]
        for agent, shard in enumerate(shards):
            kept = self._kept.get(agent)
            if kept is None or kept[0][0] is not shard[0] or kept[0][1] is not shard[1]:
                self._kept[agent] = shard, ray.put(shard)
        return [[self._kept[agent][1] for agent in group] for group in hosting]


_NAMES = itertools.count()


class AnswersOnCluster:
    """The workers' answers as one. What their agents have agreed on stays with them, under a name."""

    def __init__(self, backend: OnCluster, source: Source, options: PredictionOptions, *, grows: bool) -> None:
        self._backend, self._source, self._options, self._grows = backend, source, options, grows
        self._given: list[tuple[Any, ...]] = []
        self._crew: Crew | None = None
        self._name: list[int] = []  # none, or one
        weakref.finalize(self, _forget, self._name, backend)

    def blocks(self, question: Question) -> Iterator[tuple[int, Prediction]]:
        _check(question.method, self._source.shards)
        return self._follow(question)

    def _follow(self, question: Question) -> Iterator[tuple[int, Prediction]]:
        task = self._task(question)
        finished = False
        try:
            for told in task:
                yield merged_prediction(told, task.hosting, question.to)
            finished = True
        finally:
            if not finished:  # some may have agreed on what others have not
                _forget(self._name, self._backend)

    def _task(self, question: Question) -> Task:
        opened = self._backend.opened
        crew, source = opened.crew, self._source
        if self._crew is not crew:
            self._crew = crew
            self._given = []
            for group, data in zip(crew.hosting, opened.data.of(source.shards, crew.hosting), strict=True):
                own = _of_group(source, group)
                self._given.append((data, [ray.put((own, self._options))], self._grows))
        if not self._name:
            self._name.append(next(_NAMES))
        asked = ray.put(question)
        return crew.task(source.graph, answer_in_group, [(self._name[0], *given, asked) for given in self._given])


def _of_group(source: Source, group: Sequence[int]) -> Source:
    """What a group's worker needs to know, but for the data."""
    return replace(source, shards=(), theta=source.theta[list(group)] if source.theta.ndim == 2 else source.theta)


def _forget(name: list[int], backend: OnCluster) -> None:
    if name:
        backend.forget(name.pop())


def _check(method: TrainingMethod | PredictionMethod, shards: Sequence[Shard]) -> None:
    """One clear error for a method that workers do not have, for such data."""
    if not method.decentralized:
        raise InputError(
            f"{method.name} needs a central node, and the workers of a cluster have none: choose a dec- method, or "
            'backend="in-process"'
        )
    if isinstance(shards, Streamed):
        refuse_rows(method)
