"""A training in the coordinates of its model: what goes in is changed, what comes out is told as the user says it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fleetgp.arrays import Array
from fleetgp.data.coordinates import Coordinates
from fleetgp.training.fit import Fit
from fleetgp.training.mean import MeanFit
from fleetgp.training.options import TrainingOptions
from fleetgp.training.run import Report


def moved_in(coordinates: Coordinates, options: TrainingOptions) -> TrainingOptions:
    """The options, with starts for these coordinates."""
    starts = options.starts
    return options if starts is None else replace(options, starts=starts - coordinates.shift(starts))


def heard_outside(coordinates: Coordinates, report: Report) -> Report:
    """A report of theta as the user says it."""

    def told(start: int, done: int, thetas: Array, chosen: bool) -> None:
        report(start, done, _told(coordinates, thetas), chosen)

    return told


def told_outside(coordinates: Coordinates, fit: Fit) -> Fit:
    """The result, in units that the user knows; its moments and its scaling stay those of the model."""
    starts = tuple(replace(start, theta0=_told(coordinates, start.theta0)) for start in fit.starts)
    return replace(
        fit,
        thetas=_told(coordinates, fit.thetas),
        history=_told(coordinates, fit.history),
        starts=starts,
        mean=None if fit.mean is None else _told_mean(coordinates, fit.mean),
        coordinates=coordinates,
    )


def _told(coordinates: Coordinates, theta: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.asarray(theta * np.exp(coordinates.shift(theta)))


def _told_mean(coordinates: Coordinates, mean: MeanFit) -> MeanFit:
    """Slopes in units of the inputs, or per kilometre; the centre as a place."""
    if not mean.slopes:
        return mean
    units = np.ones(len(mean.slopes)) if coordinates.name != "scaled" else np.array(coordinates.unit)
    at = coordinates.given(np.array(mean.at))
    slopes, errors = np.array(mean.slopes) / units, np.array(mean.errors) / [1.0, *units]
    return replace(mean, slopes=tuple(slopes.tolist()), at=tuple(at.tolist()), errors=tuple(errors.tolist()))
