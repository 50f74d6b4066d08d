"""The prediction methods: six aggregations, fifteen decentralized, and the exact GP."""

from fleetgp.prediction.calibration import Calibration, Holding
from fleetgp.prediction.conditioned import Conditioned, Conditioner
from fleetgp.prediction.methods import PREDICTION_METHODS, PredictionMethod, prediction_method
from fleetgp.prediction.options import PredictionOptions
from fleetgp.prediction.predict import agree_on, answer
from fleetgp.prediction.results import Gradient, Joint, Prediction
from fleetgp.prediction.suggestion import Suggestion

__all__ = [
    "PREDICTION_METHODS",
    "Calibration",
    "Conditioned",
    "Conditioner",
    "Gradient",
    "Holding",
    "Joint",
    "Prediction",
    "PredictionMethod",
    "PredictionOptions",
    "Suggestion",
    "agree_on",
    "answer",
    "prediction_method",
]
