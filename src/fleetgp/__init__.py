"""FleetGP: Gaussian-process regression for fleets.

Every agent keeps its own data, talks only to its neighbours, and all agents end with one model.
"""

from fleetgp.data import PAPER_THETA, PAPER_THETA0, Field, partition, synthetic_field
from fleetgp.errors import FleetGPError, FleetGPWarning, GraphError, InputError, NetworkError, NumericalError
from fleetgp.fleet import Fleet
from fleetgp.graph import Graph, GraphSequence
from fleetgp.hyperparameters import Hyperparameters
from fleetgp.model import Model, load_model, save_model
from fleetgp.network import InProcess, Ledger, Loopback, Network
from fleetgp.prediction import PREDICTION_METHODS, Prediction
from fleetgp.training import TRAINING_METHODS, Fit

__version__ = "0.1.0"

__all__ = [
    "PAPER_THETA",
    "PAPER_THETA0",
    "PREDICTION_METHODS",
    "TRAINING_METHODS",
    "Field",
    "Fit",
    "Fleet",
    "FleetGPError",
    "FleetGPWarning",
    "Graph",
    "GraphError",
    "GraphSequence",
    "Hyperparameters",
    "InProcess",
    "InputError",
    "Ledger",
    "Loopback",
    "Model",
    "Network",
    "NetworkError",
    "NumericalError",
    "Prediction",
    "load_model",
    "partition",
    "save_model",
    "synthetic_field",
]
