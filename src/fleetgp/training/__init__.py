"""The eleven training methods."""

from fleetgp.training.fit import Fit, Start
from fleetgp.training.methods import TRAINING_METHODS, TrainingMethod, training_method
from fleetgp.training.options import TrainingOptions
from fleetgp.training.train import train
from fleetgp.training.trainer import Trainer, TrainingInfo, TrainingState

__all__ = [
    "TRAINING_METHODS",
    "Fit",
    "Start",
    "Trainer",
    "TrainingInfo",
    "TrainingMethod",
    "TrainingOptions",
    "TrainingState",
    "train",
    "training_method",
]
