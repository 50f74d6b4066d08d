"""The prediction methods: six aggregations, fifteen decentralized, and the exact GP."""

from fleetgp.options import PredictionOptions
from fleetgp.prediction.answer import Question, agree, gradient, joint, predict
from fleetgp.prediction.cache import PredictionCache
from fleetgp.prediction.calibration import Calibration, Holding
from fleetgp.prediction.conditioned import Conditioned
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
    "Gradient",
    "Holding",
    "Joint",
    "JointRule",
    "Pieces",
    "Prediction",
    "PredictionCache",
    "PredictionMethod",
    "PredictionOptions",
    "Question",
    "SharedState",
    "Suggestion",
    "agree",
    "gradient",
    "joint",
    "predict",
    "prediction_method",
    "refuse_foreign",
    "register_rule",
]
