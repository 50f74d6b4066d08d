"""How good a prediction is, against values that it did not see.

A prediction is a mean and a variance at each of T places, taken as Gaussian. The variance must be that of the truth:
`std_observed**2` of a `Prediction` where the truth is observations, `std**2` where it is the field itself. Small is
good, but for the coverage, which shall be what was promised. `score` has all of them at once.
"""

from fleetgp.metrics.scores import (
    LEVEL,
    Scores,
    Trivial,
    coverage,
    crps,
    framed,
    half_width,
    interval_score,
    log_density,
    mae,
    msll,
    nlpd,
    rmse,
    score,
)

__all__ = [
    "LEVEL",
    "Scores",
    "Trivial",
    "coverage",
    "crps",
    "framed",
    "half_width",
    "interval_score",
    "log_density",
    "mae",
    "msll",
    "nlpd",
    "rmse",
    "score",
]
