"""The sections of a model folder: mean function, coordinates, calibration and moments.

The mean function and the coordinates of a model in its folder; older folders have none.

A calibration, and the kernels that were compared, in a model's description.

Data that a model folder has no rows of: the moments of the whole fleet, and what each agent's data are like.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from fleetgp.data.dataset import Dataset
from fleetgp.data.transforms import Coordinates, Scaling, coordinate_rule
from fleetgp.engines.basis import Box
from fleetgp.engines.moments.fleet import FleetMoments, fits, response_sizes
from fleetgp.errors import InputError
from fleetgp.fleet import Fleet
from fleetgp.fleet.answering import current_calibration
from fleetgp.model.observations import Summary
from fleetgp.prediction import Calibration, Holding, PredictionOptions, prediction_method
from fleetgp.prediction.calibration import Knot
from fleetgp.storage.tensors import MOMENTS, Shape, load_arrays, save_arrays, to_json, typed
from fleetgp.training import Compared, MeanFit


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


def calibration_facts(fleet: Fleet) -> dict[str, Any] | None:
    """That of the fleet at its theta; None if there is none."""
    found = current_calibration(fleet, None)
    if found is None:
        return None
    sent = {} if found.ledger is None else found.ledger.by_kind()
    names = ("method", "eta", "n_neighbours", "holdout", "level", "cells")
    return {
        **{name: getattr(found, name) for name in names},
        "knots": [asdict(knot) for knot in found.knots],
        "sent": {kind: asdict(traffic) for kind, traffic in sent.items()},
    }


def read_calibration(facts: Mapping[str, Any], fleet: Fleet) -> Calibration:
    """The converse, without the ledger; what cannot be raises a ValueError, KeyError, TypeError or InputError."""
    assert fleet.theta is not None, "every model has one"
    facts = _renamed(facts) | {"knots": [_renamed(knot) for knot in facts["knots"]]}
    holding = Holding(typed(facts, "holdout", str), typed(facts, "level", float), typed(facts, "cells", int))
    options = PredictionOptions().changed({"eta": facts["eta"], "n_neighbours": facts["n_neighbours"]})
    method = prediction_method(typed(facts, "method", str)).name
    knots = tuple(Knot(**knot) for knot in facts["knots"])
    if tuple(knot.holdout for knot in knots) != holding.holds:
        raise ValueError(f"calibration: expected knots for {', '.join(holding.holds)}")
    numbers = np.array([[knot.factor, knot.deviation, knot.rows, knot.before, knot.after] for knot in knots], float)
    if not (np.isfinite(numbers).all() and (numbers[:, :3] > 0.0).all()):
        raise ValueError(f"calibration: expected positive factors, deviations and rows, got {numbers[:, :3].tolist()}")
    facts_of_it = holding.holdout, holding.level, holding.cells_for(fleet.agents), knots
    return Calibration(method, options.eta, options.n_neighbours, *facts_of_it, np.array(fleet.theta))


def _renamed(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Older folders call a holdout hold, and n_neighbours neighbours."""
    names = {"hold": "holdout", "neighbours": "n_neighbours"}
    return {names.get(name, name): value for name, value in dict(facts).items()}


def compared_facts(compared: Sequence[Compared]) -> list[dict[str, Any]]:
    return [
        {**asdict(one), "density": to_json(one.density), "theta": [to_json(value) for value in one.theta]}
        for one in compared
    ]


def read_compared(facts: Sequence[Mapping[str, Any]]) -> tuple[Compared, ...]:
    found = []
    for one in facts:
        density = -np.inf if one["density"] is None else float(one["density"])
        theta = tuple(np.nan if value is None else float(value) for value in one["theta"])
        found.append(Compared(typed(one, "kernel", str), density, typed(one, "rows", int), theta))
    return tuple(found)


class Remembered(Dataset):
    """The agents of a fleet whose rows are in files elsewhere. method: the one that it was trained with."""

    def __init__(self, names: tuple[str, ...], summaries: Sequence[Summary], method: str) -> None:
        self.names, self._summaries, self._method = names, summaries, method

    @property
    def summaries(self) -> Sequence[Summary]:
        return self._summaries

    def load(self) -> NoReturn:
        raise self._gone("its rows")

    def first_rows(self) -> NoReturn:
        raise self._gone("its rows")

    def moments(self, box: Box, sizes: tuple[int, ...]) -> NoReturn:
        raise self._gone("other moments than it has")

    def rescaled(self, scaling: Scaling) -> Remembered:
        return Remembered(self.names, [scaling.summary(one) for one in self.summaries], self._method)

    def moved(self, coordinates: Coordinates) -> Remembered:
        return Remembered(self.names, [coordinates.summary(one) for one in self.summaries], self._method)

    def _gone(self, what: str) -> InputError:
        count = sum(one.count for one in self.summaries)
        return InputError(
            f"the model knows its {count:,} observations by their moments alone, and {what} are needed: predict with "
            f"{self._method} and the theta that it was trained to (on the command line --method {self._method}), or "
            "read the files again"
        )


def save_moments(folder: Path, moments: FleetMoments, summaries: Sequence[Summary]) -> dict[str, Any]:
    """Write the file; what the description says of it."""
    arrays = {
        "moments": moments.packed,
        "box": np.stack([moments.box.centre, moments.box.half]),
        "summaries": np.stack([one.packed for one in summaries]),
    }
    return {"sizes": list(moments.sizes), "sha256": save_arrays(folder / MOMENTS, arrays)}


def load_moments(
    folder: Path, facts: Mapping[str, Any], names: tuple[str, ...], dimension: int, method: str
) -> tuple[Remembered, FleetMoments]:
    """What `save_moments` wrote, checked. method: whose moments they are."""
    sizes = tuple(int(size) for size in facts["sizes"])
    if len(sizes) != dimension or min(sizes) < 1 or not fits(sizes):
        raise ValueError(f"moments: expected the sizes of a grid along {dimension} inputs, got {sizes}")
    length = 1 + int(np.prod(sizes)) + int(np.prod(response_sizes(sizes)))
    shapes: dict[str, Shape] = {"moments": (length,), "box": (2, dimension), "summaries": (len(names), None)}
    arrays = load_arrays(folder, MOMENTS, facts["sha256"], shapes)
    if not all(np.isfinite(array).all() for array in arrays.values()) or not (arrays["box"][1] > 0.0).all():
        raise ValueError("moments: expected finite numbers, and a box with widths above 0")
    if arrays["summaries"].shape[1] not in Summary.widths(dimension):  # older folders have the short ones
        raise ValueError(f"moments: expected summaries of {dimension} inputs, got rows of other lengths")
    summaries = [Summary.unpacked(row, dimension) for row in arrays["summaries"]]
    return Remembered(names, summaries, method), FleetMoments.unpacked(Box(*arrays["box"]), sizes, arrays["moments"])
