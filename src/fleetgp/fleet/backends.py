"""Where the agents of a fleet are computed: all in this process, or in groups on a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Literal, Protocol, get_args, runtime_checkable

from fleetgp.data.dataset import Dataset
from fleetgp.errors import InputError, check_name
from fleetgp.fleet.predictor import FleetPredictor, Predictor, calibrate_hosted, renew
from fleetgp.fleet.snapshot import ModelSnapshot
from fleetgp.graph import Topology
from fleetgp.io.file_dataset import FileDataset
from fleetgp.kernels.expression import Kernels
from fleetgp.network import InProcess
from fleetgp.prediction import (
    Calibration,
    Holding,
    PredictionCache,
    PredictionMethod,
    PredictionOptions,
)
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
        outputs: Sequence[Dataset],
        graph: Topology,
        kernels: Kernels,
        options: TrainingOptions,
        report: Report,
        *,
        together: bool = False,
    ) -> tuple[Fit, ...]:
        """One result for each output. together: they share length-scales, and one kernel; otherwise there is one."""

    def predictor(
        self, snapshot: ModelSnapshot, options: PredictionOptions, cache: PredictionCache | None = None
    ) -> FleetPredictor:
        """cache: of the fleet, whose rows may grow; None for one of its own."""

    def calibrate(
        self, snapshot: ModelSnapshot, method: PredictionMethod, options: PredictionOptions, holding: Holding
    ) -> Calibration: ...

    def check_here(self, what: str) -> None:
        """Refuse what needs all agents in this process, if they are elsewhere."""

    def close(self) -> None:
        """Release the workers. Safe to call twice."""


class LocalBackend:
    """All agents in this process."""

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
        if together:
            return train_together(method, outputs, InProcess(graph), kernels[0], options, report)
        return (train(method, outputs[0], InProcess(graph), kernels, options, report),)

    def predictor(
        self, snapshot: ModelSnapshot, options: PredictionOptions, cache: PredictionCache | None = None
    ) -> FleetPredictor:
        if cache is not None:
            renew(cache, snapshot, options)
        return Predictor(snapshot, options, cache)

    def calibrate(
        self, snapshot: ModelSnapshot, method: PredictionMethod, options: PredictionOptions, holding: Holding
    ) -> Calibration:
        return calibrate_hosted(snapshot, InProcess(snapshot.graph), method, options, holding)

    def check_here(self, what: str) -> None:
        pass

    def close(self) -> None:
        pass


IN_PROCESS = LocalBackend()


def chosen_backend(
    name: str | Backend, shards: Dataset, graph: Topology, workers: int | None, address: str | None
) -> Backend:
    """The backend of this name with its settings, or the backend that is given itself."""
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
    """Refuse a backend that does not exist, settings of another one, and more workers than agents."""
    check_name("backend", name, get_args(BackendName))
    if name == "in-process":
        if workers is not None or address is not None:
            raise InputError('workers and address belong to backend="ray": give it as well, or leave them out')
        return
    if workers is not None:
        check_whole("workers", workers, least=1)
        if workers > agents:
            raise InputError(f"expected at most one worker for each of the {agents} agents, got {workers}")
    check_ray('backend="ray"')


def check_ray(what: str) -> None:
    """Refuse what needs Ray where it is not installed."""
    if find_spec("ray") is None:
        raise InputError(f'{what} needs Ray: pip install "fleetgp[cluster]"')


def refuse_rows(method: TrainingMethod | PredictionMethod) -> None:
    """Refuse a method that needs rows where the workers of a cluster have files."""
    if method.name not in ("dec-full-gp", "full-gp"):
        raise InputError(
            f"{method.name} needs rows, and the workers of a cluster only add up what is in the files: expected "
            "dec-full-gp or full-gp, or all agents in this process "
            '(backend="in-process", on the command line no --cluster)'
        )
