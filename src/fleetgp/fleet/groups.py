"""What a worker of a cluster does, for its group of agents: a training, or answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import ray

from fleetgp.fleet.answering import HostedAnswers, Question
from fleetgp.fleet.calibrating import calibrate_hosted
from fleetgp.fleet.passes import Ticks
from fleetgp.fleet.source import Source
from fleetgp.gp.choices import Kernels
from fleetgp.gp.kernels import Kernel
from fleetgp.io.file_shards import SummedFiles
from fleetgp.io.passes import passes_told_to
from fleetgp.model.observations import Observations
from fleetgp.network import Ledger, Network
from fleetgp.network.ray.host import Memory
from fleetgp.prediction import Calibration, Conditioner, Holding, PredictionMethod, PredictionOptions
from fleetgp.training import Fit, TrainingMethod, TrainingOptions, train_best, train_together

#: Seconds that data may take to come from the store of the cluster.
FETCH = 3600.0

#: Where a group's data are: references to the store of the cluster, each of some agents' data; or files.
Held = list[Any] | SummedFiles


def _taken(data: Held) -> Sequence[Observations]:
    """The group's data; files stay where they are, but for the rows that were drawn of them."""
    if isinstance(data, SummedFiles):
        return data.having(ray.get(list(data.elsewhere), timeout=FETCH)) if data.elsewhere else data
    return tuple(chain(*ray.get(data, timeout=FETCH)))


def train_group(
    network: Network,
    memory: Memory,
    tell: Callable[[Any], None],
    data: Held,
    method: TrainingMethod,
    kernels: Kernels,
    options: TrainingOptions,
) -> Fit:
    """The group's part of a training. It tells what a `Report` is called with, and how far passes over files are."""
    with passes_told_to(Ticks(tell)):
        return train_best(method, _taken(data), network, kernels, options, lambda *report: tell(report))


def train_group_together(
    network: Network,
    memory: Memory,
    tell: Callable[[Any], None],
    data: Sequence[Held],
    method: TrainingMethod,
    kernel: Kernel,
    options: TrainingOptions,
) -> tuple[Fit, ...]:
    """The group's part of a training of several outputs. data: of each."""
    outputs = [_taken(one) for one in data]
    return train_together(method, outputs, network, kernel, options, lambda *report: tell(report))


def calibrate_group(
    network: Network,
    memory: Memory,
    tell: Callable[[Any], None],
    data: Held,
    source: Source,
    method: PredictionMethod,
    options: PredictionOptions,
    holding: Holding,
) -> Calibration:
    """The group's part of a calibration. The result is the same everywhere, but for the ledger."""
    return calibrate_hosted(replace(source, shards=_taken(data)), network, method, options, holding)


def answer_in_group(
    network: Network,
    memory: Memory,
    tell: Callable[[Any], None],
    name: int,
    data: Held,
    source: Sequence[Any],
    grows: bool,
    question: Question,
) -> None:
    """The group's part of the answers. It tells the blocks.

    name: under which the posteriors and agreements stay here.  grows: whether new rows enter the posteriors that there
    are of an earlier name.
    """
    references = [source, data] if isinstance(data, SummedFiles) else [source, *data]
    held, answers = memory.own.get(name, (None, None))
    if held != references:  # another model, or the same one with more rows
        ((own, options),) = ray.get(list(source), timeout=FETCH)
        conditioner = memory.own.setdefault("conditioner", Conditioner()) if grows else Conditioner()
        agreed = memory.shared.setdefault(name, {})
        answers = HostedAnswers(replace(own, shards=_taken(data)), options, conditioner, agreed)
        memory.own[name] = references, answers
    for number, found in answers.blocks(network, question):
        tell((number, replace(found, ledger=Ledger.merged([found.ledger]))))  # the network's own goes on counting
