"""What a fleet adds to a training: its options, and what is said of a sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fleetgp.data.dataset import Dataset
from fleetgp.errors import InputError, NothingToLearnError
from fleetgp.fleet.shards import check_starts
from fleetgp.fleet.snapshot import held_by
from fleetgp.kernels.expression import Kernels
from fleetgp.training import Fit, TrainingMethod, TrainingOptions
from fleetgp.training.constraints import ParameterConstraints
from fleetgp.training.options import preset_options


def training_options(
    method: TrainingMethod,
    given: Mapping[str, Any],
    model: Mapping[str, Any],
    observed: Mapping[str, Dataset],
    kernels: Kernels,
    names: tuple[str, ...],
    preset: str | None = None,
) -> TrainingOptions:
    """The options of a training, checked.

    given: those that the caller gave, by name.  model: seed, normalize, mean and coordinates of the fleet.
    observed: the data of each target.  names: of the hyperparameters.
    """
    options = dict(given)
    theta0 = options.pop("theta0", None)
    known = [options.pop(name, None) for name in ("bounds", "priors", "fixed")]
    if preset is not None:
        options = preset_options(preset, method) | options
    for target, data in observed.items():
        if data.constant and sum(data.counts) > 1:
            raise NothingToLearnError(f"the target {target!r}")
    data = next(iter(observed.values()))
    starts = None if theta0 is None else check_starts(data, theta0, names)
    some = any(each is not None and not (isinstance(each, Mapping) and not each) for each in known)
    constraints = ParameterConstraints.of(names, *known) if some else None
    if some and len({kernel.names(data.dimension) for kernel in kernels}) > 1:
        raise InputError(
            "bounds, priors and fixed values are of one kernel's hyperparameters, got several kernels with different "
            "ones to choose from: give one kernel, or leave them out"
        )
    result = TrainingOptions(**{**model, **options, "starts": starts, "known": constraints})
    method.check_options(result)
    return result


def of_sample(fit: Fit, data: Dataset, before: Fit | None) -> Fit:
    """The fit, which says so if it is of a sample of what is in the files; moments are of all of it.

    before: what the fleet was trained to.
    """
    held = held_by(data, before)
    if data.sampled and fit.moments is None:
        held = np.array(data.counts)
    if not len(held):
        return fit
    return replace(fit, drawn=np.array(list(map(len, data))), held=held)
