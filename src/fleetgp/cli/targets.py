"""One target, or several that are fitted together and have a model each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.cli.files import Taken
from fleetgp.cli.output import emit
from fleetgp.data.streamed import Streamed
from fleetgp.errors import InputError
from fleetgp.kernels.expression import as_kernels
from fleetgp.kernels.stationary import Kernel
from fleetgp.storage.loading import load_model
from fleetgp.storage.model import Model
from fleetgp.storage.saving import check_target, check_targets, save_model, save_models
from fleetgp.training.multi_output import Sharing

TARGETS = Annotated[
    list[str],
    typer.Option(
        "--target",
        help="The column of the observations; of several, which share length-scales, each gets a model of its own.",
    ),
]
#: A result for programs, and for people.
Told = tuple[dict[str, Any], list[str | Table]]


@dataclass(frozen=True)
class Several:
    """The targets of a fit, and the kernel that they have; the first one of those to choose from."""

    targets: tuple[str, ...]
    kernel: Kernel
    inputs: tuple[str, ...]

    @classmethod
    def of(cls, targets: Sequence[str], kernel: str, inputs: Sequence[str]) -> Several:
        return cls(tuple(targets), as_kernels(kernel, inputs)[0], tuple(inputs))

    @property
    def single(self) -> bool:
        return len(self.targets) == 1

    @property
    def column(self) -> str | tuple[str, ...]:
        """What to read."""
        return self.targets[0] if self.single else self.targets

    @property
    def _sharing(self) -> Sharing:
        return Sharing.of(self.kernel, len(self.inputs), len(self.targets))

    @property
    def names(self) -> tuple[str, ...]:
        """Of the hyperparameters."""
        names = self.kernel.names(self.inputs)
        return names if self.single else self._sharing.names(names, self.targets)

    def allowed(self, chunked: bool) -> bool:
        """Whether files are read in chunks, or one clear error."""
        if chunked and not self.single:
            raise InputError(
                f"several targets ({', '.join(self.targets)}) are read from one file as a whole: expected one file, or "
                "one target"
            )
        return chunked

    def made(self, data: Taken, graph: object, **made: Any) -> tuple[fg.Fleet | fg.Outputs, list[Model]]:
        """What is to be trained, and the models of it."""
        fleet: fg.Fleet | fg.Outputs
        if self.single:
            fleet = fg.Fleet(data.shards, graph, inputs=self.inputs, **made)
            fleets = {self.targets[0]: fleet}
        else:
            assert not isinstance(data.shards, Streamed), "it was refused"
            fleet = fg.Outputs(data.shards, graph, targets=self.targets, inputs=self.inputs, **made)
            fleets = fleet.fleets
        for own in fleets.values():
            own.units = data.units
        return fleet, [Model(own, tuple(data.names), self.inputs, target) for target, own in fleets.items()]

    def start(self, folder: Path, names: Sequence[str]) -> Array:
        """The hyperparameters of another model, or of the models of these targets, by their names."""
        if self.single:
            return self._theta(folder, names)
        own = self.kernel.names(self.inputs)
        return self._sharing.joined([self._theta(folder / target, own) for target in self.targets])

    def _theta(self, folder: Path, names: Sequence[str]) -> Array:
        model = load_model(folder)
        if sorted(model.inputs) != sorted(self.inputs):
            raise InputError(
                f"--from {folder}: that model has the inputs {', '.join(model.inputs)}, not {', '.join(self.inputs)}"
            )
        theta = model.theta
        if missing := [name for name in names if name not in theta]:
            raise InputError(
                f"--from {folder}: that model, with the kernel {model.fleet.kernel.name!r}, has no "
                f"{', '.join(missing)}: give its kernel, or leave out --from"
            )
        return np.array([theta[name] for name in names])


def named_columns(target: str | Sequence[str], observations: Array) -> tuple[Sequence[str], Array]:
    """The targets' names and their observations, (K, N)."""
    return ([target], observations[None]) if isinstance(target, str) else (target, observations.T)


def check_places(out: Path, targets: Sequence[str], overwrite: bool) -> None:
    """One clear error where models of these targets may not be written."""
    if len(targets) == 1:
        check_target(out, overwrite)
    else:
        check_targets(out, targets, overwrite)


def save(models: Sequence[Model], out: Path, overwrite: bool) -> None:
    """A model in the folder, or several in folders of their own in it."""
    if len(models) == 1:
        save_model(models[0], out, overwrite=overwrite)
    else:
        save_models(models, out, overwrite=overwrite)


def place_of(model: Model, models: Sequence[Model], out: Path) -> Path:
    """Where a model is."""
    return out if len(models) == 1 else out / model.target


def report(results: Mapping[str, Told], as_json: bool) -> None:
    """The result of one target as it is; of several by their names."""
    if len(results) == 1:
        ((facts, lines),) = results.values()
        emit(facts, *lines, as_json=as_json)
        return
    every: list[str | Table] = []
    for target, (_, lines) in results.items():
        every += [f"[bold]{target}[/bold]", *lines, ""]
    emit({"targets": {target: facts for target, (facts, _) in results.items()}}, *every, as_json=as_json)
