"""A calibration, and the kernels that were compared, in a model's description."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from fleetgp.fleet import Fleet
from fleetgp.fleet.calibrating import current_calibration
from fleetgp.prediction import Calibration, Holding, PredictionOptions, prediction_method
from fleetgp.prediction.calibration import Knot
from fleetgp.storage.json_values import to_json, typed
from fleetgp.training import Compared


def calibration_facts(fleet: Fleet) -> dict[str, Any] | None:
    """That of the fleet at its theta; None if there is none."""
    found = current_calibration(fleet, None)
    if found is None:
        return None
    sent = {} if found.ledger is None else found.ledger.by_kind()
    names = ("method", "eta", "neighbours", "hold", "level", "cells")
    return {
        **{name: getattr(found, name) for name in names},
        "knots": [asdict(knot) for knot in found.knots],
        "sent": {kind: asdict(traffic) for kind, traffic in sent.items()},
    }


def read_calibration(facts: Mapping[str, Any], fleet: Fleet) -> Calibration:
    """The converse, without the ledger; what cannot be raises a ValueError, KeyError, TypeError or InputError."""
    assert fleet.theta is not None, "every model has one"
    holding = Holding(typed(facts, "hold", str), typed(facts, "level", float), typed(facts, "cells", int))
    options = PredictionOptions().changed({"eta": facts["eta"], "neighbours": facts["neighbours"]})
    method = prediction_method(typed(facts, "method", str)).name
    knots = tuple(Knot(**knot) for knot in facts["knots"])
    if tuple(knot.hold for knot in knots) != holding.holds:
        raise ValueError(f"calibration: expected knots for {', '.join(holding.holds)}")
    numbers = np.array([[knot.factor, knot.deviation, knot.rows, knot.before, knot.after] for knot in knots], float)
    if not (np.isfinite(numbers).all() and (numbers[:, :3] > 0.0).all()):
        raise ValueError(f"calibration: expected positive factors, deviations and rows, got {numbers[:, :3].tolist()}")
    facts_of_it = holding.hold, holding.level, holding.cells_for(fleet.agents), knots
    return Calibration(method, options.eta, options.neighbours, *facts_of_it, np.array(fleet.theta))


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
