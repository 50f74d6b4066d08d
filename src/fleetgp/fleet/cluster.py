"""A fleet on a Ray cluster: its agents in groups, a worker for each; this process only follows them.

One result from those of the groups of a fleet: as if all agents had been in one process, to the last bit.

Passes over files at the workers of a cluster, as one listener hears of them.

What a worker of a cluster does, for its group of agents: a training, or answers.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import ray

from fleetgp.arrays import Array
from fleetgp.data.dataset import Dataset, InMemory
from fleetgp.errors import InputError
from fleetgp.fleet.backends import refuse_rows
from fleetgp.fleet.predictor import FleetPredictor, Predictor, calibrate_hosted, renew
from fleetgp.fleet.snapshot import ModelSnapshot
from fleetgp.graph import Topology
from fleetgp.graph.topology import groups_of
from fleetgp.io.file_dataset import FileDataset, FileSums, RowsElsewhere
from fleetgp.io.survey import listener_of_passes, passes_told_to
from fleetgp.kernels.expression import Kernels
from fleetgp.linalg.threads import cores
from fleetgp.model.observations import Observations
from fleetgp.network import Ledger, Network
from fleetgp.network.ray.crew import Crew, Task
from fleetgp.network.ray.host import Memory
from fleetgp.network.ray.session import Session
from fleetgp.prediction import (
    Calibration,
    Holding,
    Prediction,
    PredictionCache,
    PredictionMethod,
    PredictionOptions,
    Question,
)
from fleetgp.prediction.results import Gradient, Joint, kept_once, worst
from fleetgp.progress import Listener, Pace, Progress
from fleetgp.training import Fit, TrainingMethod, TrainingOptions, train, train_together
from fleetgp.training.run import Report

#: Arguments of a `Report`: the start, the round, theta (A, P), and whether the start is the chosen one.
Told = tuple[int, int, Array, bool]
Hosting = Sequence[Sequence[int]]


def joined_rows(parts: Sequence[Any], hosting: Hosting, axis: int = 0) -> Any:
    """Arrays whose axis runs over the agents of a group, as one that runs over all agents.

    >>> joined_rows([np.array([0.0, 2.0]), np.array([1.0])], [[0, 2], [1]]).tolist()
    [0.0, 1.0, 2.0]
    """
    order = np.argsort([agent for group in hosting for agent in group])
    return np.concatenate(parts, axis=axis).take(order, axis=axis)


def merged_report(method: TrainingMethod, told: Sequence[Told], hosting: Hosting) -> Told:
    """What all groups tell of one round."""
    start, done, thetas, chosen = told[0]
    if not method.one_expert:
        thetas = joined_rows([part[2] for part in told], hosting)
    return start, done, thetas, chosen


def merged_fit(method: TrainingMethod, fits: Sequence[Fit], hosting: Hosting) -> Fit:
    """Of the trainings of all groups."""
    first = fits[0]
    ledger = Ledger.merged(fit.ledger for fit in fits)
    agents = sum(map(len, hosting))
    along = {"thetas": 0, "history": 1, "jitter": 0, "used": 0, "sample": 0, "approximation": 0, "outliers": 0}
    whole: dict[str, Any] = {}
    for name, axis in along.items():
        values = [getattr(fit, name) for fit in fits]
        if method.one_expert and values[0].size and name != "sample":  # every agent has the same
            whole[name] = np.repeat(values[0].take([0], axis=axis), agents, axis=axis)
        else:
            whole[name] = joined_rows(values, hosting, axis) if values[0].size else values[0]
    engine = joined_rows([fit.engine for fit in fits], hosting).tolist()
    if method.one_expert:
        return replace(first, **whole, engine=tuple(engine), ledger=ledger)
    nlls = joined_rows([fit.nlls for fit in fits], hosting)
    start_nlls = joined_rows([fit.start_nlls for fit in fits], hosting, axis=1)
    starts = tuple(replace(start, nll=float(nll.sum())) for start, nll in zip(first.starts, start_nlls, strict=True))
    sums = {"nll": float(nlls.sum()), "nlls": nlls, "start_nlls": start_nlls, "starts": starts}
    return replace(first, **whole, **sums, engine=tuple(engine), ledger=ledger)


def merged_prediction(
    told: Sequence[tuple[int, Prediction]], hosting: Hosting, to: int | None
) -> tuple[int, Prediction]:
    """Of the answers of all groups at one block. to: the only agent that was told."""
    number, parts = told[0][0], [part for _, part in told]
    asked = next(k for k, group in enumerate(hosting) if (to or 0) in group)
    whole: dict[str, Any] = {  # what was one row at a worker is many when it gets here
        name: kept_once(joined_rows([getattr(p, name) for p in parts], hosting))
        for name in ("means", "field_variances", "explained", "factors", "noise")
    }
    whole["participants"] = kept_once(parts[asked].participants)
    largest = {
        name: np.max([getattr(part, name) for part in parts], axis=0)
        for name in ("query_rounds", "solver_rounds", "residual")
    }
    return number, replace(
        parts[asked],
        **whole,
        **largest,
        asked=to or 0,
        status=worst(part.status for part in parts),
        jitter=max(part.jitter for part in parts),
        engine=tuple(joined_rows([part.engine for part in parts], hosting).tolist()),
        ledger=Ledger.merged(part.ledger for part in parts),
    )


#: How often a worker tells of a pass, besides its beginning.
TICKS = 100


class Ticks:
    """At a worker: a listener that tells of each pass as often, whatever it hears.

    What workers tell is taken together, thing by thing, and a worker in the place of a lost one tells as many again.

    >>> told: list[Progress] = []
    >>> listener = Ticks(told.append)
    >>> for rows in (0, 30, 31, 40, 0, 40):  # two passes
    ...     listener(Progress("moments", rows, 40, ""))
    >>> len(told) == 2 * (TICKS + 1), [told[tick].round for tick in (0, 1, 75, 76, 100, 101)]
    (True, [0, 30, 30, 31, 40, 0])
    """

    def __init__(self, tell: Callable[[Progress], None]) -> None:
        self._tell, self._told = tell, 0

    def __call__(self, heard: Progress) -> None:
        assert heard.rounds is not None, "after the first pass it is known how many rows there are"
        over = heard.round == heard.rounds
        due = TICKS if over else TICKS * heard.round // heard.rounds
        while self._told <= due:
            self._tell(heard)
            self._told += 1
        if over:
            self._told = 0


class MergedPasses:
    """Of all workers, for a listener: what every one of them has told."""

    def __init__(self, listener: Listener | None) -> None:
        self._listener = listener
        self._task, self._pace = "", Pace()

    def __call__(self, told: Sequence[Progress]) -> None:
        task, rows, total = told[0].task, sum(one.round for one in told), sum(one.rounds or 0 for one in told)
        if task != self._task:
            self._task, self._pace = task, Pace(rows)
        if self._listener is not None:
            detail = self._pace.describe(rows, None if rows == total else total)
            self._listener(Progress(task, rows, total, detail, unit="row"))


#: Seconds that data may take to come from the store of the cluster.
FETCH = 3600.0

#: Where a group's data are: references to the store of the cluster, each of some agents' data; or files.
Held = list[Any] | FileSums


def _taken(data: Held) -> Dataset:
    """The group's data; files stay where they are, but for the rows that were drawn of them."""
    if isinstance(data, FileSums):
        return data.having(ray.get(list(data.elsewhere), timeout=FETCH)) if data.elsewhere else data
    return InMemory(chain(*ray.get(data, timeout=FETCH)))


def train_group(
    network: Network,
    memory: Memory,
    tell: Callable[[Any], None],
    data: Sequence[Held],
    method: TrainingMethod,
    kernels: Kernels,
    options: TrainingOptions,
    together: bool,
) -> tuple[Fit, ...]:
    """The group's part of a training. It sends the arguments of a `Report`, and the progress of passes over files.

    data: of each output.
    """
    with passes_told_to(Ticks(tell)):
        outputs = [_taken(one) for one in data]
        if together:
            return train_together(method, outputs, network, kernels[0], options, lambda *report: tell(report))
        return (train(method, outputs[0], network, kernels, options, lambda *report: tell(report)),)


def calibrate_group(
    network: Network,
    memory: Memory,
    tell: Callable[[Any], None],
    data: Held,
    snapshot: ModelSnapshot,
    method: PredictionMethod,
    options: PredictionOptions,
    holding: Holding,
) -> Calibration:
    """The group's part of a calibration. The result is the same everywhere, but for the ledger."""
    return calibrate_hosted(replace(snapshot, shards=_taken(data)), network, method, options, holding)


def answer_in_group(
    network: Network,
    memory: Memory,
    tell: Callable[[Any], None],
    name: int,
    data: Held,
    model: Sequence[Any],
    grows: bool,
    question: Question,
) -> None:
    """The group's part of the answers. It tells the blocks.

    name: under which the posteriors and agreements stay here.  model: a reference to the snapshot, without the data,
    and the options.  grows: whether new rows enter the posteriors that there are of an earlier name.
    """
    references = [model, data] if isinstance(data, FileSums) else [model, *data]
    held, predictor = memory.own.get(name, (None, None))
    if held != references:  # another model, or the same one with more rows
        ((snapshot, options),) = ray.get(list(model), timeout=FETCH)
        cache = memory.own.setdefault("cache", PredictionCache()) if grows else PredictionCache()
        predictor = Predictor(replace(snapshot, shards=_taken(data)), options, cache)
        memory.own[name] = references, predictor
    predictor.cache.shared = memory.shared.setdefault(name, {})
    for number, block in predictor.predict_in_blocks(network, question):
        tell((number, replace(block, ledger=Ledger.merged([block.ledger]))))  # the network's own goes on counting


class ClusterBackend:
    """The agents of a fleet at the workers of a cluster.

    workers: how many; None: as many as there are cores, and no more than agents.  address: see `Session`.
    before: what keeps the cluster open on which the files were read.
    The cluster is joined, and the workers started, when there is work for the first time.
    """

    def __init__(
        self, graph: Topology, workers: int | None, address: str | None, before: RowsElsewhere | None = None
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
        outputs: Sequence[Dataset],
        graph: Topology,
        kernels: Kernels,
        options: TrainingOptions,
        report: Report,
        *,
        together: bool = False,
    ) -> tuple[Fit, ...]:
        if not outputs[0].in_memory:
            refuse_rows(method)
        hosting = self.opened.crew.hosting
        held = zip(*(self.opened.data.of(shards, hosting) for shards in outputs), strict=True)
        task = self.opened.crew.task(graph, train_group, [(own, method, kernels, options, together) for own in held])
        passes = MergedPasses(listener_of_passes())
        for told in task:
            if isinstance(told[0], Progress):
                passes(told)
            else:
                report(*merged_report(method, told, hosting))
        return tuple(merged_fit(method, parts, hosting) for parts in zip(*task.results, strict=True))

    def predictor(
        self, snapshot: ModelSnapshot, options: PredictionOptions, cache: PredictionCache | None = None
    ) -> FleetPredictor:
        if cache is not None:
            renew(cache, snapshot, options)
        return ClusterPredictor(self, snapshot, options, cache)

    def calibrate(
        self, snapshot: ModelSnapshot, method: PredictionMethod, options: PredictionOptions, holding: Holding
    ) -> Calibration:
        if not snapshot.shards.in_memory:
            refuse_rows(method)
        crew = self.opened.crew
        held = zip(crew.hosting, self.opened.data.of(snapshot.shards, crew.hosting), strict=True)
        given = [(data, _of_group(snapshot, group), method, options, holding) for group, data in held]
        found: list[Calibration] = crew.task(snapshot.graph, calibrate_group, given).finish()
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

    def of(self, shards: Dataset, hosting: Sequence[Sequence[int]]) -> list[Held]:
        """What every group's worker gets."""
        if isinstance(shards, FileDataset):
            return [shards.of_agents(group) for group in hosting]
        return [
            [self._put(tuple(group[k : k + TOGETHER]), shards) for k in range(0, len(group), TOGETHER)]
            for group in hosting
        ]

    def _put(self, agents: tuple[int, ...], shards: Dataset) -> Any:
        """The data of some agents; a reference to the store."""
        own = [shards[agent] for agent in agents]
        kept, reference = self._kept.get(agents, ([], None))
        if not kept or any(one is not other for one, other in zip(kept, own, strict=True)):
            reference = ray.put(own)
            self._kept[agents] = own, reference
        return reference


_NAMES = itertools.count()


class RemoteCache:
    """A name under which the workers keep what a `PredictionCache` would hold, for as long as this is in use."""

    def __init__(self, backend: ClusterBackend) -> None:
        self.name = next(_NAMES)
        self.forget = weakref.finalize(self, backend.forget, self.name)


class ClusterPredictor:
    """The workers' answers as one. What their agents have agreed on stays with them.

    cache: of the fleet, whose rows may grow; None for one of its own.
    """

    #: No moments come to this process.
    last_moments = None

    def __init__(
        self,
        backend: ClusterBackend,
        snapshot: ModelSnapshot,
        options: PredictionOptions,
        cache: PredictionCache | None = None,
    ) -> None:
        self._backend, self._snapshot, self._options, self._grows = backend, snapshot, options, cache is not None
        self._cache = cache or PredictionCache()
        self._given: list[tuple[Any, ...]] = []
        self._crew: Crew | None = None

    def predict_in_blocks(self, question: Question) -> Iterator[tuple[int, Prediction]]:
        if not self._snapshot.shards.in_memory:
            refuse_rows(question.method)
        return self._follow(question)

    def joint(self, question: Question) -> Joint:
        raise elsewhere("a joint posterior")

    def gradient(self, question: Question) -> Gradient:
        raise elsewhere("a gradient")

    def _follow(self, question: Question) -> Iterator[tuple[int, Prediction]]:
        remote = self._cache.remote = self._cache.remote or RemoteCache(self._backend)
        task = self._task(question, remote.name)
        finished = False
        try:
            for parts in task:
                yield merged_prediction(parts, task.hosting, question.to)
            finished = True
        finally:
            if not finished:  # some may have agreed on what others have not
                remote.forget()
                self._cache.remote = None if self._cache.remote is remote else self._cache.remote

    def _task(self, question: Question, name: int) -> Task:
        opened = self._backend.opened
        crew, snapshot = opened.crew, self._snapshot
        if self._crew is not crew:
            self._crew = crew
            self._given = []
            for group, data in zip(crew.hosting, opened.data.of(snapshot.shards, crew.hosting), strict=True):
                own = _of_group(snapshot, group)
                self._given.append((data, [ray.put((own, self._options))], self._grows))
        asked = ray.put(question)
        return crew.task(snapshot.graph, answer_in_group, [(name, *given, asked) for given in self._given])


def _of_group(snapshot: ModelSnapshot, group: Sequence[int]) -> ModelSnapshot:
    """What a group's worker needs to know, but for the data."""
    theta = snapshot.theta[list(group)] if snapshot.theta.ndim == 2 else snapshot.theta
    return replace(snapshot, shards=InMemory(()), theta=theta)
