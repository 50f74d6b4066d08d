"""The prediction methods: six aggregations, fifteen decentralized, and the exact GP."""

from fleetgp.options import PredictionOptions
from fleetgp.prediction.answer import gradient, joint, predict, predict_in_blocks
from fleetgp.prediction.calibration import Calibration, Holding
from fleetgp.prediction.committee import Committee, register_rule
from fleetgp.prediction.conditioned import Conditioned, Conditioner
from fleetgp.prediction.exact import Exact
from fleetgp.prediction.methods import (
    METHODS,
    PREDICTION_METHODS,
    PredictionMethod,
    SharedState,
    prediction_method,
    register,
)
from fleetgp.prediction.nearest import Nearest
from fleetgp.prediction.npae import Npae
from fleetgp.prediction.results import Gradient, Joint, Prediction
from fleetgp.prediction.rules import RULES, AggregationRule, Beliefs, JointRule, Pieces
from fleetgp.prediction.suggestion import Suggestion

register(  # in the order in which they are listed
    Exact("dec-full-gp", decentralized=True),
    Exact("full-gp"),
    *(Committee(rule.name, aggregation=rule) for rule in RULES),
    Npae("npae"),
    *(Committee(f"dec-{rule.name}", decentralized=True, aggregation=rule) for rule in RULES),
    Npae("dec-npae", decentralized=True, solver="jor"),
    Npae("dec-npae-star", decentralized=True, solver="jor-star"),
    *(Committee(f"dec-nn-{rule.name}", decentralized=True, nearest=True, aggregation=rule) for rule in RULES),
    Npae("dec-nn-npae", decentralized=True, nearest=True, solver="dale"),
    Nearest("dec-nearest", decentralized=True),
)

__all__ = [
    "METHODS",
    "PREDICTION_METHODS",
    "AggregationRule",
    "Beliefs",
    "Calibration",
    "Conditioned",
    "Conditioner",
    "Gradient",
    "Holding",
    "Joint",
    "JointRule",
    "Pieces",
    "Prediction",
    "PredictionMethod",
    "PredictionOptions",
    "SharedState",
    "Suggestion",
    "gradient",
    "joint",
    "predict",
    "predict_in_blocks",
    "prediction_method",
    "register_rule",
]
