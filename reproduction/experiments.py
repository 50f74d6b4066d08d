"""The paper's experiments by name, from end to end: cells that are kept, then a page written from them alone."""

from __future__ import annotations

from pathlib import Path

from fleetgp.progress import Listener
from reproduction import communication, prediction, training
from reproduction.cells import Place
from reproduction.report import Report

EXPERIMENTS = ("training", "prediction", "communication")


def reproduce(
    experiment: str, folder: Path, *, quick: bool, sst: str = "", listener: Listener | None, place: Place | None = None
) -> Report:
    """Run what is not there yet, at a place, and write the page. Finished cells stay in `cells/`."""
    if experiment == "training":
        of_training = training.TrainingPlan.quick() if quick else training.TrainingPlan()
        return training.reproduce(of_training, folder, listener, place)
    if experiment == "prediction":
        of_prediction = prediction.PredictionPlan.quick(sst) if quick else prediction.PredictionPlan(sst)
        return prediction.reproduce(of_prediction, folder, listener, place)
    plan = communication.CommunicationPlan.quick() if quick else communication.CommunicationPlan()
    return communication.reproduce(plan, folder, listener, place)
