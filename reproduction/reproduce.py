"""The paper's experiments from end to end: cells that are kept, then a page written from them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from fleetgp.io.kept import Kept
from fleetgp.progress import Listener
from fleetgp.version import __version__
from reproduction import (
    communication,
    communication_report,
    prediction,
    prediction_report,
    training,
    training_report,
)
from reproduction.cells import Place, run_cells
from reproduction.report import Report

EXPERIMENTS = ("training", "prediction", "communication")


def reproduce(
    experiment: str, folder: Path, *, quick: bool, sst: str = "", listener: Listener | None, place: Place | None = None
) -> Report:
    """Run what is not there yet, at a place, and write the page. Finished cells stay in `cells/`."""
    if experiment == "training":
        return reproduce_training(
            training.TrainingPlan.quick() if quick else training.TrainingPlan(), folder, listener, place
        )
    if experiment == "prediction":
        plan = prediction.PredictionPlan.quick(sst) if quick else prediction.PredictionPlan(sst)
        return reproduce_prediction(plan, folder, listener, place)
    chosen = communication.CommunicationPlan.quick() if quick else communication.CommunicationPlan()
    kept = _kept(folder, experiment, chosen.as_dict())
    found = run_cells(
        communication.cells(chosen), communication.run, kept, listener=listener, label=experiment, place=place
    )
    return communication_report.write(chosen, list(found.values()), folder)


def reproduce_training(
    plan: training.TrainingPlan, folder: Path, listener: Listener | None = None, place: Place | None = None
) -> Report:
    # How many replications there are is no setting of a cell: more of them find those that are done.
    kept = _kept(folder, "training", training.constants())
    found = run_cells(training.cells(plan), training.run, kept, listener=listener, label="training", place=place)
    return training_report.write(plan, list(found.values()), folder)


def reproduce_prediction(
    plan: prediction.PredictionPlan, folder: Path, listener: Listener | None = None, place: Place | None = None
) -> Report:
    field = prediction.sea(plan.sst)  # a file that will not do is refused before any work
    content = hashlib.sha256(field.values.tobytes()).hexdigest()
    facts = {**plan.as_dict(), "replications": None, "fleets": None, "sst": content, "npae": prediction.NPAE_ROUNDS}
    facts |= {"ours": prediction.OURS}
    kept = _kept(folder, "prediction", facts)
    trained = run_cells(
        [prediction.training_cell(plan)],
        prediction.train,
        kept,
        listener=listener,
        label="hyperparameters",
        place=place,
    )
    (fit,) = trained.values()
    found = run_cells(
        prediction.cells(plan, fit["theta"]),
        prediction.run,
        kept,
        listener=listener,
        label="predictions",
        place=place,
    )
    rows = [row for piece in found.values() for row in piece["rows"]]
    return prediction_report.write(plan, fit, rows, folder)


def _kept(folder: Path, experiment: str, settings: dict[str, Any]) -> Kept:
    return Kept(folder / "cells", {"experiment": experiment, "version": __version__, **settings})
