"""What a fleet adds to a training: options that it knows itself, and what becomes of one that is interrupted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fleetgp.data.streamed import Streamed, counts_of
from fleetgp.data.summary import joined
from fleetgp.errors import InputError, NothingToLearnError
from fleetgp.fleet.source import held_by
from fleetgp.fleet.thetas import check_starts
from fleetgp.model.observations import Observations
from fleetgp.progress import Progress
from fleetgp.training import Fit, TrainingMethod, TrainingOptions
from fleetgp.training.known import Known
from fleetgp.training.options import preset_options

if TYPE_CHECKING:
    from fleetgp.fleet.fleet import Fleet
    from fleetgp.fleet.outputs import Outputs


#: By the names of hyperparameters.
ByName = Mapping[str, Any] | None


def options_of(
    fleet: Fleet | Outputs,
    method: TrainingMethod,
    theta0: object,
    seed: int | None,
    bounds: ByName = None,
    priors: ByName = None,
    fixed: ByName = None,
    preset: str | None = None,
    **given: Any,
) -> TrainingOptions:
    """What was given (what is not None), checked, with what the fleet knows itself."""
    given = {name: value for name, value in given.items() if value is not None}
    if preset is not None:
        given = preset_options(preset, method) | given
    for target, shards in fleet.observed():
        refuse_constant(target, shards)
    starts = None if theta0 is None else check_starts(fleet.data, theta0, fleet.names)
    chosen_seed = fleet.seed if seed is None else seed
    said = [
        each for each in (bounds, priors, fixed) if each is not None and not (isinstance(each, Mapping) and not each)
    ]
    known = Known.of(fleet.names, bounds, priors, fixed) if said else None
    if known is not None and len({kernel.names(fleet.dimension) for kernel in fleet.kernels}) > 1:
        raise InputError(
            "bounds, priors and fixed values are of one kernel's hyperparameters, got several kernels with different "
            "ones to choose from: give one kernel, or leave them out"
        )
    model: dict[str, Any] = {"normalize": fleet.normalize, "mean": fleet.mean, "coordinates": fleet.coordinates}
    options = TrainingOptions(starts=starts, seed=chosen_seed, known=known, **model, **given)
    options.refuse_foreign(method)
    return options


def refuse_constant(target: str, shards: Sequence[Observations]) -> None:
    """One clear error where all observations are the same."""
    if isinstance(shards, Streamed):
        constant = joined(shards.summaries).squares == 0.0
    else:
        values = [own.values for own in shards]
        constant = min(y.min() for y in values) == max(y.max() for y in values)
    if constant and sum(counts_of(shards)) > 1:
        raise NothingToLearnError(f"the target {target!r}")


def of_sample(fit: Fit, shards: Sequence[Observations], before: Fit | None) -> Fit:
    """The fit, which says so if it is of a sample of what is in the files; moments are of all of it.

    before: what the fleet was trained to.
    """
    held = held_by(shards, before)
    if isinstance(shards, Streamed) and shards.sampled and fit.moments is None:
        held = np.array(counts_of(shards))
    if not len(held):
        return fit
    return replace(fit, drawn=np.array(list(map(len, shards))), held=held)


def keep_unfinished(fleet: Fleet, furthest: Progress | None) -> str:
    """Keep the estimates of an interrupted training, unless the fleet has better ones; say which it was."""
    if furthest is None or furthest.thetas is None:
        return "the training was interrupted before its first round: the fleet is as it was"
    said = f"the training was interrupted after {furthest.round} rounds of {furthest.task}"
    if fleet.theta is not None and fleet.unfinished is None:
        return f"{said}: the fleet keeps the theta that it had"
    if len(fleet.kernels) > 1:
        return f"{said}: the fleet is as it was, since estimates are of no use without the kernel that was chosen"
    fleet.fit, fleet.unfinished = None, furthest
    fleet.theta = np.exp(np.log(furthest.thetas).mean(axis=0))
    return f"{said}: fleet.theta holds its estimates; train(theta0=fleet.theta) goes on from them"
