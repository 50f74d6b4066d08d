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


def moved_in(shift: Array, options: TrainingOptions) -> TrainingOptions:
    """The options, with starts and what is known of theta for the coordinates of the model.

    shift: what to add to log theta of these for that of the user, (P,).
    """
    starts = None if options.starts is None else options.starts - shift
    known = None if options.known is None else options.known.rescaled(np.exp(-shift))
    return replace(options, starts=starts, known=known)


def heard_outside(shift: Array, report: Report) -> Report:
    """A report of theta as the user says it."""

    def told(start: int, done: int, thetas: Array, chosen: bool) -> None:
        report(start, done, _told(shift, thetas), chosen)

    return told


def told_outside(coordinates: Coordinates, shift: Array, fit: Fit) -> Fit:
    """The result, in units that the user knows; its moments and its scaling stay those of the model."""
    starts = tuple(replace(start, theta0=_told(shift, start.theta0)) for start in fit.starts)
    return replace(
        fit,
        thetas=_told(shift, fit.thetas),
        history=_told(shift, fit.history),
        starts=starts,
        known=fit.known.rescaled(np.exp(shift)),
        mean=None if fit.mean is None else _told_mean(coordinates, fit.mean),
        coordinates=coordinates,
    )


def _told(shift: Array, theta: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.asarray(theta * np.exp(shift))


def _told_mean(coordinates: Coordinates, mean: MeanFit) -> MeanFit:
    """Slopes in units of the inputs, or per kilometre; the centre as a place."""
    if not mean.slopes:
        return mean
    units = np.ones(len(mean.slopes)) if coordinates.name != "scaled" else np.array(coordinates.unit)
    at = coordinates.given(np.array(mean.at))
    slopes, errors = np.array(mean.slopes) / units, np.array(mean.errors) / [1.0, *units]
    return replace(mean, slopes=tuple(slopes.tolist()), at=tuple(at.tolist()), errors=tuple(errors.tolist()))
