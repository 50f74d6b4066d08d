"""What is said of a model's mean function and coordinates."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from fleetgp.cli.output import plain_table
from fleetgp.data.coordinates import CoordinateRule
from fleetgp.storage.model import Model


def told_inputs(rule: CoordinateRule, inputs: Sequence[str]) -> list[str]:
    """The units of the length-scales along the inputs."""
    places = (rule.longitude, rule.latitude) if rule.name == "kilometres" else ()
    return ["kilometres" if d in places else name for d, name in enumerate(inputs)]


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
