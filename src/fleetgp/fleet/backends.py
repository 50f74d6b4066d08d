"""Where the agents of a fleet are computed: all in this process, or in groups on a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, Protocol, Self, get_args

from fleetgp.data.partition import Shard
from fleetgp.data.streamed import Streamed
from fleetgp.errors import InputError, unknown_name
from fleetgp.fleet.answering import Answers, HostedAnswers, Question
from fleetgp.fleet.source import Source
from fleetgp.given import check_whole
from fleetgp.gp.kernels import Kernel
from fleetgp.graph import Topology
from fleetgp.network import InProcess
from fleetgp.prediction import Conditioner, Prediction, PredictionOptions
from fleetgp.training import Fit, TrainingMethod, TrainingOptions, train
from fleetgp.training.run import Report

BackendName = Literal["in-process", "ray"]


class Backend(Protocol):
    """Trains and answers for all agents of a fleet."""

    def train(
        self,
        method: TrainingMethod,
        shards: Sequence[Shard],
        graph: Topology,
        kernel: Kernel,
        options: TrainingOptions,
        report: Report,
    ) -> Fit: ...

    def answers(self, source: Source, options: PredictionOptions, conditioner: Conditioner | None) -> Answers:
        """conditioner: the one of the fleet, for data that grow; None for one of these answers' own."""

    def check_here(self, what: str) -> None:
        """One clear error for what needs all agents in this process, if they are not."""

    def close(self) -> None:
        """Give back what was taken for the fleet. Safe to call twice."""


class Closing:
    """What has a backend, and gives back what it took."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def close(self) -> None:
        """End the workers of a fleet on a cluster; the next training or prediction starts others."""
        self._backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AllHere:
    """All agents in this process."""

    def train(
        self,
        method: TrainingMethod,
        shards: Sequence[Shard],
        graph: Topology,
        kernel: Kernel,
        options: TrainingOptions,
        report: Report,
    ) -> Fit:
        return train(method, shards, InProcess(graph), kernel, options, report)

    def answers(self, source: Source, options: PredictionOptions, conditioner: Conditioner | None) -> Answers:
        return AnswersHere(HostedAnswers(source, options, conditioner or Conditioner()))

    def check_here(self, what: str) -> None:
        pass

    def close(self) -> None:
        pass


class AnswersHere:
    """Of all agents, each time over a network of its own: its ledger counts what was sent for this answer."""

    def __init__(self, hosted: HostedAnswers) -> None:
        self._hosted = hosted

    def blocks(self, question: Question) -> Iterator[tuple[int, Prediction]]:
        return self._hosted.blocks(InProcess(self._hosted.source.graph), question)


IN_PROCESS = AllHere()


def chosen_backend(
    name: str, shards: Sequence[Shard], graph: Topology, workers: int | None, address: str | None
) -> Backend:
    """By its name, with what was given for it."""
    if name not in get_args(BackendName):
        raise unknown_name("backend", name, get_args(BackendName))
    if name == "in-process":
        if workers is not None or address is not None:
            raise InputError('workers and address are of backend="ray": give that as well, or leave them out')
        return IN_PROCESS
    if isinstance(shards, Streamed):
        raise InputError(
            'expected data in memory for backend="ray", got files that are read in chunks: use "in-process"'
        )
    if workers is not None:
        check_whole("workers", workers, least=1)
        if workers > graph.agents:
            raise InputError(f"expected at most one worker for each of the {graph.agents} agents, got {workers}")
    try:
        from fleetgp.fleet.cluster import OnCluster
    except ModuleNotFoundError as error:
        raise InputError('backend="ray" needs Ray: pip install "fleetgp[cluster]"') from error
    return OnCluster(graph, workers, address)
