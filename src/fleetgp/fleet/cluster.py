"""A fleet on a Ray cluster: a worker for each group of agents, which trains and answers; this process follows them.

The merged results of all groups are those of one process with all agents, to the last bit.
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
from fleetgp.io.survey import listener_of_passes, report_passes_to
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
from fleetgp.prediction.conditioned import SentGroups
from fleetgp.prediction.results import Gradient, Joint, kept_once, worst
from fleetgp.progress import Listener, Pace, Progress
from fleetgp.training import Fit, TrainingMethod, TrainingOptions, train, train_together
from fleetgp.training.run import Report

#: Arguments of a `Report`: the start, the round, theta (A, P), and whether the start is the chosen one.
RoundReport = tuple[int, int, Array, bool]
#: The agents of each group.
Hosting = Sequence[Sequence[int]]


def joined_rows(parts: Sequence[Any], hosting: Hosting, axis: int = 0) -> Any:
    """Join arrays whose axis runs over the agents of a group to one that runs over all agents.

    >>> joined_rows([np.array([0.0, 2.0]), np.array([1.0])], [[0, 2], [1]]).tolist()
    [0.0, 1.0, 2.0]
    """
    order = np.argsort([agent for group in hosting for agent in group])
    return np.concatenate(parts, axis=axis).take(order, axis=axis)


def merged_report(method: TrainingMethod, reports: Sequence[RoundReport], hosting: Hosting) -> RoundReport:
    start, done, thetas, chosen = reports[0]
    if not method.one_expert:
        thetas = joined_rows([part[2] for part in reports], hosting)
    return start, done, thetas, chosen


def merged_fit(method: TrainingMethod, fits: Sequence[Fit], hosting: Hosting) -> Fit:
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
    blocks: Sequence[tuple[int, Prediction]], hosting: Hosting, to: int | None
) -> tuple[int, Prediction]:
    """Merge the answers of all groups at one block. to: the only agent that received it, or None."""
    number, parts = blocks[0][0], [part for _, part in blocks]
    asked = next(k for k, group in enumerate(hosting) if (to or 0) in group)
    whole: dict[str, Any] = {  # a row that a worker stores once arrives here as many
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


#: How often a worker reports a pass, besides its beginning.
TICKS = 100


class Ticks:
    """A listener at a worker that sends the same number of reports for every pass.

    The reports of all workers are merged one by one, and a worker that replaces a lost one sends as many again.

    >>> sent: list[Progress] = []
    >>> listener = Ticks(sent.append)
    >>> for rows in (0, 30, 31, 40, 0, 40):  # two passes
    ...     listener(Progress("moments", rows, 40, ""))
    >>> len(sent) == 2 * (TICKS + 1), [sent[tick].round for tick in (0, 1, 75, 76, 100, 101)]
    (True, [0, 30, 30, 31, 40, 0])
    """

    def __init__(self, tell: Callable[[Progress], None]) -> None:
        self._tell, self._sent = tell, 0

    def __call__(self, progress: Progress) -> None:
        assert progress.rounds is not None, "the number of rows is known after the first pass"
        over = progress.round == progress.rounds
        due = TICKS if over else TICKS * progress.round // progress.rounds
        while self._sent <= due:
            self._tell(progress)
            self._sent += 1
        if over:
            self._sent = 0


class MergedPasses:
    """Passes a listener the sum of all workers' progress."""

    def __init__(self, listener: Listener | None) -> None:
        self._listener = listener
        self._task, self._pace = "", Pace()

    def __call__(self, parts: Sequence[Progress]) -> None:
        task, rows, total = parts[0].task, sum(one.round for one in parts), sum(one.rounds or 0 for one in parts)
        if task != self._task:
            self._task, self._pace = task, Pace(rows)
        if self._listener is not None:
            detail = self._pace.describe(rows, None if rows == total else total)
            self._listener(Progress(task, rows, total, detail, unit="row"))


#: Seconds that data may take to come from the store of the cluster.
FETCH = 3600.0
#: A group's data: references to the store of the cluster, each to the data of some agents; or sums over files.
GroupData = list[Any] | FileSums


def _fetched(data: GroupData) -> Dataset:
    """Return the group's data; of files only the rows that were drawn."""
    if isinstance(data, FileSums):
        return data.having(ray.get(list(data.elsewhere), timeout=FETCH)) if data.elsewhere else data
    return InMemory(chain(*ray.get(data, timeout=FETCH)))


def train_group(
    network: Network,
    memory: Memory,
    tell: Callable[[Any], None],
    data: Sequence[GroupData],
    method: TrainingMethod,
    kernels: Kernels,
    options: TrainingOptions,
    together: bool,
) -> tuple[Fit, ...]:
    """The group's part of a training. It sends the arguments of a `Report`, and the progress of passes over files.

    data: of each output.
    """
    with report_passes_to(Ticks(tell)):
        outputs = [_fetched(one) for one in data]
        if together:
            return train_together(method, outputs, network, kernels[0], options, lambda *report: tell(report))
        return (train(method, outputs[0], network, kernels, options, lambda *report: tell(report)),)


def calibrate_group(
    network: Network,
    memory: Memory,
    tell: Callable[[Any], None],
    data: GroupData,
    snapshot: ModelSnapshot,
    method: PredictionMethod,
    options: PredictionOptions,
    holding: Holding,
) -> tuple[Calibration, SentGroups]:
    """The group's part of a calibration, of which only the ledger differs between groups, and the groups of rows."""
    calibration = calibrate_hosted(replace(snapshot, shards=_fetched(data)), network, method, options, holding)
    return calibration, snapshot.sent


def answer_in_group(
    network: Network,
    memory: Memory,
    tell: Callable[[Any], None],
    name: int,
    data: GroupData,
    model: Sequence[Any],
    grows: bool,
    question: Question,
) -> SentGroups:
    """The group's part of the answers. It sends the blocks, and returns the groups of rows that it sent for them.

    name: of the posteriors and agreements that stay here.  model: a reference to the snapshot, without the data, and
    the options.  grows: whether new rows are added to the posteriors of an earlier name.
    """
    references = [model, data] if isinstance(data, FileSums) else [model, *data]
    known, predictor = memory.own.get(name, (None, None))
    if known != references:  # another model, or the same one with more rows
        ((snapshot, options),) = ray.get(list(model), timeout=FETCH)
        cache = memory.own.setdefault("cache", PredictionCache()) if grows else PredictionCache()
        predictor = Predictor(replace(snapshot, shards=_fetched(data)), options, cache)
        memory.own[name] = references, predictor
    predictor.cache.shared = memory.shared.setdefault(name, {})
    sent = predictor.snapshot.sent
    before = dict(sent)
    for number, block in predictor.predict_in_blocks(question, network):
        tell(
            (number, replace(block, ledger=Ledger.merged([block.ledger])))
        )  # a copy: that of the network continues to count
    return {agent: groups for agent, groups in sent.items() if groups is not before.get(agent)}


class ClusterBackend:
    """Computes the agents of a fleet at the workers of a cluster.

    workers: how many; None for as many as there are cores or, if these are fewer, agents.  address: see `Session`.
    before: keeps the cluster open on which the files were read.
    The cluster is joined, and the workers are started, when they are first needed.
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
        by_group = zip(*(self.opened.data.of(shards, hosting) for shards in outputs), strict=True)
        given = [(data, method, kernels, options, together) for data in by_group]
        task = self.opened.crew.task(graph, train_group, given)
        passes = MergedPasses(listener_of_passes())
        for reports in task:
            if isinstance(reports[0], Progress):
                passes(reports)
            else:
                report(*merged_report(method, reports, hosting))
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
        by_group = zip(crew.hosting, self.opened.data.of(snapshot.shards, crew.hosting), strict=True)
        given = [(data, _of_group(snapshot, group), method, options, holding) for group, data in by_group]
        results = crew.task(snapshot.graph, calibrate_group, given).finish()
        parts: list[Calibration] = [calibration for calibration, _ in results]
        for _, sent in results:
            snapshot.sent.update(sent)
        return replace(parts[0], ledger=Ledger.merged(part.ledger for part in parts if part.ledger is not None))

    def check_here(self, what: str) -> None:
        raise elsewhere(what)

    def forget(self, name: int) -> None:
        """Let the workers drop what they keep under a name."""
        if self._opened is not None and ray.is_initialized():
            self._opened.crew.forget(name)

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None
        if self._before is not None:
            self._before.close()


class Opened:
    """A session and its workers, which end with the backend or this process."""

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
    return InputError(f'{what} needs all agents in this process: expected backend="in-process", got "ray"')


#: How many agents' data are put into the store together: few calls for a large fleet, and a small one for new rows.
TOGETHER = 256


class Data:
    """Puts the agents' data into the store of the cluster once, for the workers to fetch. Workers read files."""

    def __init__(self) -> None:
        self._stored: dict[tuple[int, ...], tuple[list[Observations], Any]] = {}  # by agents that are together

    def of(self, shards: Dataset, hosting: Hosting) -> list[GroupData]:
        """Return what every group's worker gets."""
        if isinstance(shards, FileDataset):
            return [shards.of_agents(group) for group in hosting]
        return [
            [self._put(tuple(group[k : k + TOGETHER]), shards) for k in range(0, len(group), TOGETHER)]
            for group in hosting
        ]

    def _put(self, agents: tuple[int, ...], shards: Dataset) -> Any:
        """Store the data of some agents, unless they are there; return the reference."""
        own = [shards[agent] for agent in agents]
        stored, reference = self._stored.get(agents, ([], None))
        if not stored or any(one is not other for one, other in zip(stored, own, strict=True)):
            reference = ray.put(own)
            self._stored[agents] = own, reference
        return reference


_NAMES = itertools.count()


class RemoteCache:
    """The name under which the workers keep posteriors and agreements, while this object is in use."""

    def __init__(self, backend: ClusterBackend) -> None:
        self.name = next(_NAMES)
        self.forget = weakref.finalize(self, backend.forget, self.name)


class ClusterPredictor:
    """Merges the workers' answers. The workers keep what their agents have agreed on.

    cache: the fleet's, whose rows may grow; None for a new one.
    """

    #: Moments stay at the workers.
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
            for sent in task.results:
                self._snapshot.sent.update(sent)
            finished = True
        finally:
            if not finished:  # some agents may have agreed on what others have not
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
        reference = ray.put(question)
        return crew.task(snapshot.graph, answer_in_group, [(name, *given, reference) for given in self._given])


def _of_group(snapshot: ModelSnapshot, group: Sequence[int]) -> ModelSnapshot:
    """Return the snapshot that a group's worker gets, without data."""
    theta = snapshot.theta[list(group)] if snapshot.theta.ndim == 2 else snapshot.theta
    sent = {agent: snapshot.sent[agent] for agent in group if agent in snapshot.sent}
    kept = tuple(snapshot.kept[agent] for agent in group) if snapshot.kept else ()
    return replace(snapshot, shards=InMemory(()), theta=theta, sent=sent, kept=kept)
