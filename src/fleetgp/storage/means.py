"""The mean function and the coordinates of a model in its folder; older folders have none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from fleetgp.data.coordinates import Coordinates, coordinate_rule
from fleetgp.data.scaling import Scaling
from fleetgp.storage.json_values import to_json, typed
from fleetgp.training.mean import MeanFit


def mean_facts(mean: MeanFit) -> dict[str, Any]:
    return {**asdict(mean), "errors": [to_json(error) for error in mean.errors]}


def read_mean(facts: Mapping[str, Any] | None, dimension: int) -> MeanFit | None:
    """What `mean_facts` wrote, checked."""
    if facts is None:
        return None
    slopes, at = (_numbers(facts[name], f"mean: {name}", dimension) for name in ("slopes", "at"))
    errors = tuple(np.nan if error is None else float(error) for error in facts["errors"])
    turns, settled = typed(facts, "turns", int), typed(facts, "settled", bool)
    return MeanFit(typed(facts, "constant", float), slopes, at, errors, turns, settled)


def read_scaling(facts: Mapping[str, Any], dimension: int) -> Scaling:
    offset, scale = (float(facts[name]) for name in ("offset", "scale"))
    if not (np.isfinite([offset, scale]).all() and scale > 0.0):
        raise ValueError(f"scaling: expected a number and a positive number, got {offset} and {scale}")
    slope, centre = (_numbers(facts.get(name, ()), f"scaling: {name}", dimension) for name in ("slope", "centre"))
    if len(slope) != len(centre):
        raise ValueError("scaling: expected a slope with its centre, got one of them")
    return Scaling(offset, scale, slope, centre)


def read_coordinates(facts: Mapping[str, Any] | None, inputs: Sequence[str], model: str) -> Coordinates:
    """model: the name of the model's own."""
    if facts is None:
        return Coordinates()
    rule = coordinate_rule(facts["name"], inputs)
    if rule.name != model:
        raise ValueError(f"coordinates: expected {model}, as the model has them, got {rule.name}")
    origin, unit = (_numbers(facts[name], f"coordinates: {name}", len(inputs)) for name in ("origin", "unit"))
    if bool(origin) != (rule.name != "as-given") or len(unit) != len(origin) or min(unit, default=1.0) <= 0.0:
        raise ValueError(f"coordinates: expected an origin and units of {rule.name}, got {origin} and {unit}")
    latitude = rule.latitude if rule.name == "sphere" else -1
    return Coordinates(rule.name, origin, unit, rule.longitude, float(facts["distortion"]), latitude)


def _numbers(values: Sequence[Any], what: str, dimension: int) -> tuple[float, ...]:
    found = tuple(float(value) for value in values)
    if len(found) not in (0, dimension) or not np.isfinite(found).all():
        raise ValueError(f"{what}: expected none or {dimension} numbers, got {len(found)}")
    return found
