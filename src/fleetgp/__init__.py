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
    from fleetgp.advice import Advice as Advice
    from fleetgp.advice import Link as Link
    from fleetgp.advice import Verification as Verification
    from fleetgp.advice import recommend as recommend
    from fleetgp.advice import verify as verify
    from fleetgp.data import PAPER_THETA as PAPER_THETA
    from fleetgp.data import PAPER_THETA0 as PAPER_THETA0
    from fleetgp.data import Field as Field
    from fleetgp.data import partition as partition
    from fleetgp.data import synthetic_field as synthetic_field
    from fleetgp.engines import register_engine as register_engine
    from fleetgp.errors import FleetGPError as FleetGPError
    from fleetgp.errors import FleetGPWarning as FleetGPWarning
    from fleetgp.errors import GraphError as GraphError
    from fleetgp.errors import InputError as InputError
    from fleetgp.errors import NetworkError as NetworkError
    from fleetgp.errors import NotConvergedWarning as NotConvergedWarning
    from fleetgp.errors import NumericalError as NumericalError
    from fleetgp.estimator import FleetGPRegressor as FleetGPRegressor
    from fleetgp.fleet import ConditionedFleet as ConditionedFleet
    from fleetgp.fleet import CrossValidation as CrossValidation
    from fleetgp.fleet import Fleet as Fleet
    from fleetgp.fleet import Outputs as Outputs
    from fleetgp.fleet import Removal as Removal
    from fleetgp.graph import Graph as Graph
    from fleetgp.graph import GraphSequence as GraphSequence
    from fleetgp.graph import register_graph as register_graph
    from fleetgp.kernels import register_kernel as register_kernel
    from fleetgp.metrics import Scores as Scores
    from fleetgp.metrics import score as score
    from fleetgp.model.hyperparameters import Hyperparameters as Hyperparameters
    from fleetgp.network import InProcess as InProcess
    from fleetgp.network import Ledger as Ledger
    from fleetgp.network import Loopback as Loopback
    from fleetgp.network import Network as Network
    from fleetgp.prediction import PREDICTION_METHODS as PREDICTION_METHODS
    from fleetgp.prediction import Calibration as Calibration
    from fleetgp.prediction import Gradient as Gradient
    from fleetgp.prediction import Joint as Joint
    from fleetgp.prediction import Prediction as Prediction
    from fleetgp.prediction import Suggestion as Suggestion
    from fleetgp.prediction import register_rule as register_rule
    from fleetgp.storage.folder import load_model as load_model
    from fleetgp.storage.folder import save_model as save_model
    from fleetgp.storage.model import Model as Model
    from fleetgp.training import TRAINING_METHODS as TRAINING_METHODS
    from fleetgp.training import Fit as Fit
    from fleetgp.training import Trainer as Trainer
    from fleetgp.training import TrainingInfo as TrainingInfo
    from fleetgp.training import TrainingNeed as TrainingNeed
    from fleetgp.training import TrainingOptions as TrainingOptions
    from fleetgp.training import TrainingState as TrainingState
    from fleetgp.training import register_trainer as register_trainer

#: Where each public name is defined.
_HOMES = {
    "advice": "Advice Link Verification recommend verify",
    "data": "PAPER_THETA PAPER_THETA0 Field partition synthetic_field",
    "engines": "register_engine",
    "errors": "FleetGPError FleetGPWarning GraphError InputError NetworkError NotConvergedWarning NumericalError",
    "estimator": "FleetGPRegressor",
    "fleet": "ConditionedFleet CrossValidation Fleet Outputs Removal",
    "graph": "Graph GraphSequence register_graph",
    "kernels": "register_kernel",
    "metrics": "Scores score",
    "model.hyperparameters": "Hyperparameters",
    "network": "InProcess Ledger Loopback Network",
    "prediction": "PREDICTION_METHODS Calibration Gradient Joint Prediction Suggestion register_rule",
    "storage.folder": "load_model save_model",
    "storage.model": "Model",
    "training": "TRAINING_METHODS Fit Trainer TrainingInfo TrainingNeed TrainingOptions TrainingState register_trainer",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = sorted({*_HOME_OF} - {"FleetGPRegressor"})  # which needs an extra: not for `import *`


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
    return sorted({*globals(), *_HOMES, *_HOME_OF})
