"""The eleven training methods."""

from fleetgp.training.fit import Compared, Fit, Start
from fleetgp.training.kernel_choice import train_best
from fleetgp.training.methods import TRAINING_METHODS, TrainingMethod, training_method
from fleetgp.training.multi_output import train_together
from fleetgp.training.options import TrainingOptions
from fleetgp.training.train import train
from fleetgp.training.trainer import Trainer, TrainingInfo, TrainingState

__all__ = [
    "TRAINING_METHODS",
    "Compared",
    "Fit",
    "Start",
    "Trainer",
    "TrainingInfo",
    "TrainingMethod",
    "TrainingOptions",
    "TrainingState",
    "train",
    "train_best",
    "train_together",
    "training_method",
]
