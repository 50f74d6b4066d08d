"""Where the agents of a fleet are computed: all in this process, or in groups on a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Literal, Protocol, get_args, runtime_checkable

from fleetgp.data.dataset import Dataset
from fleetgp.engines.moments.fleet import FleetMoments
from fleetgp.errors import InputError, check_name
from fleetgp.fleet.predictor import FleetPredictor, Predictor, calibrate_hosted, renew
from fleetgp.fleet.snapshot import ModelSnapshot
from fleetgp.graph import Topology
from fleetgp.io.file_dataset import FileDataset
from fleetgp.kernels.expression import Kernels
from fleetgp.kernels.stationary import Kernel
from fleetgp.network import InProcess, Network
from fleetgp.prediction import (
    Calibration,
    Holding,
    Prediction,
    PredictionCache,
    PredictionMethod,
    PredictionOptions,
    Question,
)
from fleetgp.prediction.results import Gradient, Joint
from fleetgp.training import Fit, TrainingMethod, TrainingOptions, train, train_together
from fleetgp.training.run import Report
from fleetgp.validation import check_whole

BackendName = Literal["in-process", "ray"]


@runtime_checkable
class Backend(Protocol):
    """Trains and answers for all agents of a fleet."""

    def train(
        self,
        method: TrainingMethod,
        shards: Dataset,
        network: Network,
        kernels: Kernels,
        options: TrainingOptions,
        report: Report,
    ) -> Fit:
        """network: of all agents in this process, where they are here; elsewhere its graph counts."""

    def train_together(
        self,
        method: TrainingMethod,
        outputs: Sequence[Dataset],
        network: Network,
        kernel: Kernel,
        options: TrainingOptions,
        report: Report,
    ) -> tuple[Fit, ...]:
        """Several outputs, with one result for each."""

    def predictor(
        self, snapshot: ModelSnapshot, options: PredictionOptions, cache: PredictionCache | None = None
    ) -> FleetPredictor:
        """cache: of the fleet, whose rows may grow; None for one of its own."""

    def calibrate(
        self, snapshot: ModelSnapshot, method: PredictionMethod, options: PredictionOptions, holding: Holding
    ) -> Calibration: ...

    def check_here(self, what: str) -> None:
        """One clear error for what needs all agents in this process, if they are not."""

    def close(self) -> None:
        """Give back what was taken for the fleet. Safe to call twice."""


class LocalBackend:
    """All agents in this process."""

    train = staticmethod(train)
    train_together = staticmethod(train_together)

    def predictor(
        self, snapshot: ModelSnapshot, options: PredictionOptions, cache: PredictionCache | None = None
    ) -> FleetPredictor:
        if cache is not None:
            renew(cache, snapshot, options)
        return LocalPredictor(Predictor(snapshot, options, cache))

    def calibrate(
        self, snapshot: ModelSnapshot, method: PredictionMethod, options: PredictionOptions, holding: Holding
    ) -> Calibration:
        return calibrate_hosted(snapshot, InProcess(snapshot.graph), method, options, holding)

    def check_here(self, what: str) -> None:
        pass

    def close(self) -> None:
        pass


class LocalPredictor:
    """Of all agents, each time over a network of its own: its ledger counts what was sent for this answer."""

    def __init__(self, hosted: Predictor) -> None:
        self._hosted = hosted

    @property
    def last_moments(self) -> tuple[FleetMoments, tuple[int, ...]] | None:
        return self._hosted.last_moments

    def predict_in_blocks(self, question: Question) -> Iterator[tuple[int, Prediction]]:
        return self._hosted.predict_in_blocks(InProcess(self._hosted.snapshot.graph), question)

    def joint(self, question: Question) -> Joint:
        return self._hosted.joint(InProcess(self._hosted.snapshot.graph), question)

    def gradient(self, question: Question) -> Gradient:
        return self._hosted.gradient(InProcess(self._hosted.snapshot.graph), question)


IN_PROCESS = LocalBackend()


def chosen_backend(
    name: str | Backend, shards: Dataset, graph: Topology, workers: int | None, address: str | None
) -> Backend:
    """By its name, with what was given for it; or one that there is already."""
    if isinstance(name, Backend):
        return name
    check_backend(name, graph.agents, workers, address)
    if name == "in-process":
        return IN_PROCESS
    if not shards.at_workers:
        raise InputError(
            'expected data in memory for backend="ray", or a file for each agent, got agents that share files, or a '
            'model without rows: use "in-process"'
        )
    from fleetgp.fleet.cluster import ClusterBackend

    return ClusterBackend(graph, workers, address, shards.rows if isinstance(shards, FileDataset) else None)


def check_backend(name: str, agents: int, workers: int | None, address: str | None) -> None:
    """One clear error where so many agents cannot be computed as it was asked for."""
    check_name("backend", name, get_args(BackendName))
    if name == "in-process":
        if workers is not None or address is not None:
            raise InputError('workers and address are of backend="ray": give that as well, or leave them out')
        return
    if workers is not None:
        check_whole("workers", workers, least=1)
        if workers > agents:
            raise InputError(f"expected at most one worker for each of the {agents} agents, got {workers}")
    check_ray('backend="ray"')


def check_ray(what: str) -> None:
    """One clear error where Ray is not installed."""
    if find_spec("ray") is None:
        raise InputError(f'{what} needs Ray: pip install "fleetgp[cluster]"')


def refuse_rows(method: TrainingMethod | PredictionMethod) -> None:
    """One clear error for a method that needs rows where the workers of a cluster have files."""
    if method.name not in ("dec-full-gp", "full-gp"):
        raise InputError(
            f"{method.name} needs rows, and the workers of a cluster only add up what is in the files: expected "
            "dec-full-gp or full-gp, or all agents in this process "
            '(backend="in-process", on the command line no --cluster)'
        )
