"""Hyperparameters as a caller gives them to a fleet, checked against its data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fleetgp.arrays import Array
from fleetgp.errors import InputError
from fleetgp.fleet.shards import refuse_duplicates
from fleetgp.given import as_numbers
from fleetgp.gp.hyperparameters import check_theta
from fleetgp.model.observations import Observations


def check_theta_of(shards: Sequence[Observations], theta: object, names: Sequence[str], name: str = "theta") -> Array:
    """One theta in natural units, (P,), or one clear error. names: of the hyperparameters."""
    values = as_numbers(theta, name)
    if values.shape == (len(names),) and values[-1] == 0:
        refuse_duplicates(shards, f"{name} has sigma_eps = 0")
    return check_theta(values, names, name)


def check_starts(shards: Sequence[Observations], theta0: object, names: Sequence[str]) -> Array:
    """One or several starts as log theta, (S, P)."""
    array = as_numbers(theta0, "theta0")
    rows = array if array.ndim == 2 else [array]
    if not len(rows):
        raise InputError("theta0 must hold at least one start, but it is empty")
    return np.log([check_theta_of(shards, row, names, "theta0") for row in rows])
