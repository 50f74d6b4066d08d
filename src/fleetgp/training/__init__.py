"""The nine training methods."""

from fleetgp.training.fit import Fit, Start
from fleetgp.training.methods import TRAINING_METHODS, TrainingMethod, training_method
from fleetgp.training.train import TrainingOptions, train

__all__ = ["TRAINING_METHODS", "Fit", "Start", "TrainingMethod", "TrainingOptions", "train", "training_method"]
