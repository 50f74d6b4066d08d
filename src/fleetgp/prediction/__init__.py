"""The prediction methods: six aggregations, thirteen decentralized, and the exact GP."""

from fleetgp.prediction.methods import PREDICTION_METHODS, PredictionMethod, prediction_method
from fleetgp.prediction.predict import PredictionOptions, predict, predict_in_units
from fleetgp.prediction.prediction import Prediction

__all__ = [
    "PREDICTION_METHODS",
    "Prediction",
    "PredictionMethod",
    "PredictionOptions",
    "predict",
    "predict_in_units",
    "prediction_method",
]
