"""How a model shall see its data, and what is said of its mean function and coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.table import Table

from fleetgp import defaults
from fleetgp.cli import options
from fleetgp.cli.output import plain_table
from fleetgp.consensus.agreements import check_mean
from fleetgp.data.coordinates import CoordinateRule, coordinate_rule, seen_by
from fleetgp.data.times import time_unit_of
from fleetgp.fleet import Fleet
from fleetgp.kernels.expression import as_kernels
from fleetgp.kernels.stationary import OBSERVED
from fleetgp.storage.model import Model

MEAN = Annotated[str, typer.Option(help="The mean function: zero, constant, or linear in the inputs.")]
COORDINATES = Annotated[
    str,
    typer.Option(
        help="as-given, scaled; for inputs called lon and lat (or longitude, latitude) kilometres, or sphere."
    ),
]


@dataclass(frozen=True)
class Seen:
    """How the model sees the data."""

    normalize: options.NORMALIZE = defaults.NORMALIZE
    mean: MEAN = defaults.MEAN
    coordinates: COORDINATES = defaults.COORDINATES

    def checked(self, inputs: Sequence[str], kernel: str) -> dict[str, Any]:
        """As a fleet takes them, or one clear error, before anything is read."""
        rule = coordinate_rule(self.coordinates, inputs)
        seen_by(rule, as_kernels(kernel, inputs), inputs, self.mean)
        return {"normalize": self.normalize, "mean": check_mean(self.mean), "coordinates": rule.name}


def told_inputs(rule: CoordinateRule, inputs: Sequence[str]) -> list[str]:
    """The units of the length-scales along the inputs."""
    places = (rule.longitude, rule.latitude) if rule.name in ("kilometres", "sphere") else ()
    return ["kilometres" if d in places else name for d, name in enumerate(inputs)]


def told_units(fleet: Fleet, inputs: Sequence[str], target: str) -> list[str]:
    """What each hyperparameter is measured in; nothing for plain numbers."""
    names = told_inputs(fleet.coordinates, inputs)
    told = [f"{name} ({unit})" if (unit := _unit(fleet, name)) else name for name in [*names, target]]
    return [
        told[unit] if unit >= 0 else told[-1] if unit == OBSERVED else "" for unit in fleet.kernel.units(len(names))
    ]


def _unit(fleet: Fleet, name: str) -> str:
    """That of an input or of the target, as a file gave it: of a time without since when."""
    unit = fleet.units.get(name, "")
    return time_unit_of(unit) or unit


def told_mean(model: Model) -> list[Table | str]:
    """The mean function with its standard errors; nothing where it is zero."""
    fit = model.fleet.fit
    if fit is None or fit.mean is None:
        return []
    mean, target = fit.mean, model.target
    per = [f"{target} per {unit}" for unit in told_inputs(model.fleet.coordinates, model.inputs)]
    if model.fleet.coordinates.name == "kilometres":
        per = [each.replace("per kilometres", "per kilometre") for each in per]
    table = plain_table("", "mean function", "value", "standard error", "unit")
    for (name, value), error, unit in zip(mean.named(model.inputs).items(), mean.errors, [target, *per], strict=False):
        table.add_row(name, f"{value:.4g}", f"{error:.2g}", unit)
    place = ", ".join(f"{name} {at:.6g}" for name, at in zip(model.inputs, mean.at, strict=False))
    return [table, *([f"The constant is the mean at {place}."] if place else [])]
