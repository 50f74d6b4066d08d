"""FleetGP: Gaussian-process regression for fleets.

Every agent keeps its own data, talks only to its neighbours, and all agents end with one model.

Public names are imported when they are first used: a command that only prints its help does not wait for NumPy and
SciPy.
"""

from __future__ import annotations

from fleetgp.version import __version__ as __version__

TYPE_CHECKING = False  # as in typing, which takes longer to load than all of this
if TYPE_CHECKING:
    from fleetgp import data as data
    from fleetgp import io as io
    from fleetgp import metrics as metrics
    from fleetgp import plot as plot
    from fleetgp.advice import Advice, Link, Verification, recommend, verify
    from fleetgp.data import PAPER_THETA, PAPER_THETA0, Field, partition, synthetic_field
    from fleetgp.engines import register_engine
    from fleetgp.errors import (
        FleetGPError,
        FleetGPWarning,
        GraphError,
        InputError,
        NetworkError,
        NotConvergedWarning,
        NumericalError,
    )
    from fleetgp.estimator import FleetGPRegressor as FleetGPRegressor
    from fleetgp.fleet import ConditionedFleet, CrossValidation, Fleet, Outputs
    from fleetgp.graph import Graph, GraphSequence, register_graph
    from fleetgp.kernels import register_kernel
    from fleetgp.metrics import Scores, score
    from fleetgp.model.hyperparameters import Hyperparameters
    from fleetgp.network import InProcess, Ledger, Loopback, Network
    from fleetgp.prediction import (
        PREDICTION_METHODS,
        Calibration,
        Gradient,
        Joint,
        Prediction,
        Suggestion,
        register_rule,
    )
    from fleetgp.storage.folder import load_model, save_model
    from fleetgp.storage.model import Model
    from fleetgp.training import (
        TRAINING_METHODS,
        Fit,
        Trainer,
        TrainingInfo,
        TrainingOptions,
        TrainingState,
        register_trainer,
    )

__all__ = [
    "PAPER_THETA",
    "PAPER_THETA0",
    "PREDICTION_METHODS",
    "TRAINING_METHODS",
    "Advice",
    "Calibration",
    "ConditionedFleet",
    "CrossValidation",
    "Field",
    "Fit",
    "Fleet",
    "FleetGPError",
    "FleetGPWarning",
    "Gradient",
    "Graph",
    "GraphError",
    "GraphSequence",
    "Hyperparameters",
    "InProcess",
    "InputError",
    "Joint",
    "Ledger",
    "Link",
    "Loopback",
    "Model",
    "Network",
    "NetworkError",
    "NotConvergedWarning",
    "NumericalError",
    "Outputs",
    "Prediction",
    "Scores",
    "Suggestion",
    "Trainer",
    "TrainingInfo",
    "TrainingOptions",
    "TrainingState",
    "Verification",
    "load_model",
    "partition",
    "recommend",
    "register_engine",
    "register_graph",
    "register_kernel",
    "register_rule",
    "register_trainer",
    "save_model",
    "score",
    "synthetic_field",
    "verify",
]

#: Where each public name is defined.
_HOMES = {
    "advice": "Advice Link Verification recommend verify",
    "data": "PAPER_THETA PAPER_THETA0 Field partition synthetic_field",
    "engines": "register_engine",
    "errors": "FleetGPError FleetGPWarning GraphError InputError NetworkError NotConvergedWarning NumericalError",
    "estimator": "FleetGPRegressor",  # needs an extra, and is not in __all__, for `import *`
    "fleet": "ConditionedFleet CrossValidation Fleet Outputs",
    "graph": "Graph GraphSequence register_graph",
    "kernels": "register_kernel",
    "metrics": "Scores score",
    "model.hyperparameters": "Hyperparameters",
    "network": "InProcess Ledger Loopback Network",
    "prediction": "PREDICTION_METHODS Calibration Gradient Joint Prediction Suggestion register_rule",
    "storage.folder": "load_model save_model",
    "storage.model": "Model",
    "training": "TRAINING_METHODS Fit Trainer TrainingInfo TrainingOptions TrainingState register_trainer",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """Import a public name from its module, or a module of the package, as in `fg.data`."""
    from importlib import import_module
    from importlib.util import find_spec

    if name in _HOME_OF:
        value: object = getattr(import_module(f"fleetgp.{_HOME_OF[name]}"), name)
        globals()[name] = value
        return value
    if not name.startswith("_") and find_spec(f"fleetgp.{name}") is not None:
        return import_module(f"fleetgp.{name}")
    raise AttributeError(f"module 'fleetgp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_HOMES, *_HOME_OF})
