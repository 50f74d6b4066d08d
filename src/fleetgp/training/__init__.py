"""The training methods, and what another one needs."""

from fleetgp.training.drift import TrainingNeed
from fleetgp.training.fit import Compared, Fit, MeanFit, Start
from fleetgp.training.methods import (
    DECENTRALIZED_TRAINERS,
    TRAINING_METHODS,
    TrainingMethod,
    register_trainer,
    training_method,
)
from fleetgp.training.multi_output import train_together
from fleetgp.training.objective import Local
from fleetgp.training.options import TrainingOptions
from fleetgp.training.problem import TrainingProblem
from fleetgp.training.solver import Minimizer, RoundSolver, Solver, StepwiseSolver
from fleetgp.training.train import Trainer, TrainingInfo, TrainingState, train

__all__ = [
    "DECENTRALIZED_TRAINERS",
    "TRAINING_METHODS",
    "Compared",
    "Fit",
    "Local",
    "MeanFit",
    "Minimizer",
    "RoundSolver",
    "Solver",
    "Start",
    "StepwiseSolver",
    "Trainer",
    "TrainingInfo",
    "TrainingMethod",
    "TrainingNeed",
    "TrainingOptions",
    "TrainingProblem",
    "TrainingState",
    "register_trainer",
    "train",
    "train_together",
    "training_method",
]
