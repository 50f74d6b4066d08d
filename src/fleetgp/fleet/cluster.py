"""A fleet on a Ray cluster: its agents in groups, a worker for each; this process only follows them."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import ray

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
from fleetgp.io.file_shards import Elsewhere, FileShards
from fleetgp.io.passes import listener_of_passes
from fleetgp.linalg.threads import cores
from fleetgp.model.observations import Observations
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
from fleetgp.prediction.gradient import Gradient
from fleetgp.prediction.joint import Joint
from fleetgp.progress import Progress
from fleetgp.training import Fit, TrainingMethod, TrainingOptions
from fleetgp.training.run import Report


class OnCluster:
    """The agents of a fleet at the workers of a cluster.

    workers: how many; None: as many as there are cores, and no more than agents.  address: see `Session`.
    before: what keeps the cluster open on which the files were read.
    The cluster is joined, and the workers started, when there is work for the first time.
    """

    def __init__(
        self, graph: Topology, workers: int | None, address: str | None, before: Elsewhere | None = None
    ) -> None:
        self._graph, self._workers, self._address, self._before = graph, workers, address, before
        self._opened: Opened | None = None

    @property
    def opened(self) -> Opened:
        if self._opened is None:
            self._opened = Opened(self._graph, self._workers, self._address)
        return self._opened

    def train(
        self,
        method: TrainingMethod,
        shards: Sequence[Observations],
        graph: Topology,
        kernels: Kernels,
        options: TrainingOptions,
        report: Report,
    ) -> Fit:
        if isinstance(shards, Streamed):
            refuse_rows(method)
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
        outputs: Sequence[Sequence[Observations]],
        graph: Topology,
        kernel: Kernel,
        options: TrainingOptions,
        report: Report,
    ) -> tuple[Fit, ...]:
        hosting = self.opened.crew.hosting
        held = zip(*(self.opened.data.of(shards, hosting) for shards in outputs), strict=True)
        task = self.opened.crew.task(graph, train_group_together, [(data, method, kernel, options) for data in held])
        for told in task:
            report(*merged_report(method, told, hosting))
        return tuple(merged_fit(method, parts, hosting) for parts in zip(*task.results, strict=True))

    def answers(
        self,
        source: Source,
        options: PredictionOptions,
        conditioner: Conditioner | None,
        before: Answers | None = None,
    ) -> Answers:
        earlier = before if isinstance(before, AnswersOnCluster) else None
        return AnswersOnCluster(self, source, options, grows=conditioner is not None, before=earlier)

    def calibrate(
        self, source: Source, method: PredictionMethod, options: PredictionOptions, holding: Holding
    ) -> Calibration:
        if isinstance(source.shards, Streamed):
            refuse_rows(method)
        crew = self.opened.crew
        held = zip(crew.hosting, self.opened.data.of(source.shards, crew.hosting), strict=True)
        given = [(data, _of_group(source, group), method, options, holding) for group, data in held]
        found: list[Calibration] = crew.task(source.graph, calibrate_group, given).finish()
        return replace(found[0], ledger=Ledger.merged(part.ledger for part in found if part.ledger is not None))

    def check_here(self, what: str) -> None:
        raise elsewhere(what)

    def forget(self, name: int) -> None:
        """What the workers keep under a name is needed no more."""
        if self._opened is not None and ray.is_initialized():
            self._opened.crew.forget(name)

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None
        if self._before is not None:
            self._before.close()


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


def elsewhere(what: str) -> InputError:
    """The error of what needs all agents in this process."""
    return InputError(f'{what} needs all agents in this process: expected backend="in-process", got "ray"')


#: Agents whose data are put into a cluster's store together: few calls for a large fleet, and a small one for new rows.
TOGETHER = 256


class Data:
    """The agents' data in the store of the cluster, each put there once: workers take theirs from it, or read files."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, ...], tuple[list[Observations], Any]] = {}  # by agents that are together

    def of(self, shards: Sequence[Observations], hosting: Sequence[Sequence[int]]) -> list[Held]:
        """What every group's worker gets."""
        if isinstance(shards, FileShards):
            return [shards.group(group) for group in hosting]
        return [
            [self._put(tuple(group[k : k + TOGETHER]), shards) for k in range(0, len(group), TOGETHER)]
            for group in hosting
        ]

    def _put(self, agents: tuple[int, ...], shards: Sequence[Observations]) -> Any:
        """The data of some agents; a reference to the store."""
        own = [shards[agent] for agent in agents]
        kept, reference = self._kept.get(agents, ([], None))
        if not kept or any(one is not other for one, other in zip(kept, own, strict=True)):
            reference = ray.put(own)
            self._kept[agents] = own, reference
        return reference


_NAMES = itertools.count()


class AnswersOnCluster:
    """The workers' answers as one. What their agents have agreed on stays with them, under a name.

    before: those with fewer rows, whose name this takes over.
    """

    def __init__(
        self,
        backend: OnCluster,
        source: Source,
        options: PredictionOptions,
        *,
        grows: bool,
        before: AnswersOnCluster | None = None,
    ) -> None:
        self._backend, self._source, self._options, self._grows = backend, source, options, grows
        self._given: list[tuple[Any, ...]] = []
        self._crew: Crew | None = None
        self._name: list[int] = []  # none, or one
        if before is not None and before._name:
            self._name.append(before._name.pop())
        weakref.finalize(self, _forget, self._name, backend)

    def blocks(self, question: Question) -> Iterator[tuple[int, Prediction]]:
        if isinstance(self._source.shards, Streamed):
            refuse_rows(question.method)
        return self._follow(question)

    def joint(self, question: Question) -> Joint:
        raise elsewhere("a joint posterior")

    def gradient(self, question: Question) -> Gradient:
        raise elsewhere("a gradient")

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
