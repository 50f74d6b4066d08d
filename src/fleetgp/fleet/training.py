"""What a fleet adds to a training: its options, its progress, and the note that it was of a sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from fleetgp.data.dataset import Dataset
from fleetgp.data.transforms import View
from fleetgp.engines.base import translate_theta_errors
from fleetgp.errors import InputError, NothingToLearnError, WorkerLostError
from fleetgp.fleet.shards import check_starts
from fleetgp.fleet.snapshot import ModelSnapshot, held_by
from fleetgp.io.survey import report_passes_to
from fleetgp.kernels.expression import Kernels
from fleetgp.linalg.threads import side_by_side
from fleetgp.model.observations import Observations
from fleetgp.progress import Listener, Progress, listening
from fleetgp.training import Fit, TrainingMethod, TrainingOptions
from fleetgp.training.constraints import ParameterConstraints
from fleetgp.training.drift import Drift, TrainingNeed, judge, keys_of, new_among, score, search_box
from fleetgp.training.options import preset_options
from fleetgp.training.reporting import TrainingProgress


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


@contextmanager
def reported(
    progress: bool | Listener,
    method: str,
    options: TrainingOptions,
    names: tuple[str, ...],
    keep_unfinished: Callable[[Progress | None], str],
) -> Iterator[TrainingProgress]:
    """Report a training to a listener; if it is interrupted, keep its estimates and note that on the exception.

    names: of the hyperparameters, for errors.
    """
    with listening(progress) as listener, report_passes_to(listener):
        reporter = TrainingProgress(method, options, listener)
        try:
            reporter.begun()
            with translate_theta_errors(names=names):
                yield reporter
        except (KeyboardInterrupt, WorkerLostError) as interrupt:
            interrupt.add_note(keep_unfinished(reporter.furthest))
            raise


def note_sample(fit: Fit, data: Dataset, before: Fit | None) -> Fit:
    """Note on a fit that it is from a sample of the rows in the files; moments are from all rows.

    before: the fleet's last fit.
    """
    held = held_by(data, before)
    if data.sampled and fit.moments is None:
        held = np.array(data.counts)
    if not len(held):
        return fit
    return replace(fit, drawn=np.array(list(map(len, data))), held=held)


def training_need(snapshot: ModelSnapshot, trained: Dataset, fit: Fit) -> TrainingNeed:
    """Score the rows of each agent that are not among those that the fit is of, and decide by all of them."""
    if not (snapshot.shards.in_memory and trained.in_memory):
        raise InputError("needs_training scores rows, and these are in files: give the fleet the rows themselves")
    view, noises = View(fit.scaling, fit.coordinates), snapshot.kernel.noise_count
    box = search_box(fit.known, snapshot.names, fit.noise_floor, noises)

    def one(pair: tuple[Observations, Observations]) -> Drift:
        data, before = pair
        new = new_among(data, keys_of(before))
        return score(Drift(), data.rows(~new), data.rows(new), snapshot.kernel, snapshot.mean_theta, view, box)

    parts = side_by_side(one, list(zip(snapshot.shards, trained, strict=True)))
    return judge(parts, sum(snapshot.shards.counts))
