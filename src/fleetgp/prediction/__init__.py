"""The prediction methods: six aggregations, fifteen decentralized, and the exact GP."""

from fleetgp.options import PredictionOptions
from fleetgp.prediction.answer import gradient, joint, predict, predict_in_blocks
from fleetgp.prediction.calibration import Calibration, Holding
from fleetgp.prediction.conditioned import Conditioned, Conditioner
from fleetgp.prediction.methods import PredictionMethod, SharedState
from fleetgp.prediction.registry import (
    DECENTRALIZED_METHODS,
    PREDICTION_METHODS,
    prediction_method,
    refuse_foreign,
    register_rule,
)
from fleetgp.prediction.results import Gradient, Joint, Prediction
from fleetgp.prediction.rules import AggregationRule, Beliefs, JointRule, Pieces
from fleetgp.prediction.suggestion import Suggestion

__all__ = [
    "DECENTRALIZED_METHODS",
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
    "refuse_foreign",
    "register_rule",
]
