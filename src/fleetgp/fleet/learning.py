"""`Fleet.train` and `Fleet.trainer`.

What a fleet adds to a training: options that it knows itself, and what becomes of one that is interrupted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fleetgp.arrays import Array
from fleetgp.data.dataset import Dataset
from fleetgp.engines.base import retold
from fleetgp.errors import InputError, NothingToLearnError, WorkerLostError, warn
from fleetgp.fleet.privacy import refuse_private
from fleetgp.fleet.shards import check_starts
from fleetgp.fleet.source import held_by
from fleetgp.io.survey import passes_told_to
from fleetgp.network import InProcess
from fleetgp.options import default_kernel
from fleetgp.progress import Listener, Progress, listening
from fleetgp.training import Fit, Trainer, TrainingMethod, TrainingOptions, training_method
from fleetgp.training.constraints import Ends, MedianAndFactor, ParameterConstraints
from fleetgp.training.options import preset_options
from fleetgp.training.problem import prepare
from fleetgp.training.reporting import TrainingProgress, warn_of_end

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
    known = ParameterConstraints.of(fleet.names, bounds, priors, fixed) if said else None
    if known is not None and len({kernel.names(fleet.dimension) for kernel in fleet.kernels}) > 1:
        raise InputError(
            "bounds, priors and fixed values are of one kernel's hyperparameters, got several kernels with different "
            "ones to choose from: give one kernel, or leave them out"
        )
    model: dict[str, Any] = {"normalize": fleet.normalize, "mean": fleet.mean, "coordinates": fleet.coordinates}
    options = TrainingOptions(starts=starts, seed=chosen_seed, known=known, **model, **given)
    method.check_options(options)
    return options


def refuse_constant(target: str, shards: Dataset) -> None:
    """One clear error where all observations are the same."""
    if shards.constant and sum(shards.counts) > 1:
        raise NothingToLearnError(f"the target {target!r}")


def of_sample(fit: Fit, shards: Dataset, before: Fit | None) -> Fit:
    """The fit, which says so if it is of a sample of what is in the files; moments are of all of it.

    before: what the fleet was trained to.
    """
    held = held_by(shards, before)
    if shards.sampled and fit.moments is None:
        held = np.array(shards.counts)
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
    fleet.last_fit, fleet.unfinished = None, furthest
    fleet.theta = np.exp(np.log(furthest.thetas).mean(axis=0))
    return f"{said}: fleet.theta holds its estimates; train(theta0=fleet.theta) goes on from them"


def train(
    fleet: Fleet,
    method: str = "dec-fact-gp",
    *,
    preset: Literal["paper"] | None = None,
    theta0: Sequence[float] | Array | None = None,
    rounds: int | None = None,
    tol: float | None = None,
    seconds: float | None = None,
    rho: float | None = None,
    kappa: float | None = None,
    lipschitz: float | None = None,
    nested: Literal["l-bfgs", "gradient-descent"] | None = None,
    step: float | None = None,
    nested_iterations: int | None = None,
    noise_floor: float | None = None,
    bounds: Mapping[str, Ends] | None = None,
    priors: Mapping[str, MedianAndFactor] | None = None,
    fixed: Mapping[str, float] | None = None,
    seed: int | None = None,
    engine: str | None = None,
    n_neighbours: int | None = None,
    progress: bool | Listener = False,
) -> Fit:
    """Agree on the hyperparameters; the result stays on the fleet as `last_fit` and, unless it diverged, `theta`.

    An interrupted training (Ctrl-C) leaves its estimates as `theta` to a fleet that has none or only such ones, and
    itself as `unfinished`; `last_fit` is of finished trainings only.

    preset: "paper" for the paper's settings where you give no other: rho=500, kappa and lipschitz 5,000, nested
        gradient descent, no noise floor, 100 rounds of the decentralized methods and tol=1e-3 of the others. A fleet
        whose kernel was not chosen takes the paper's, "se", and warns. The paper does not normalize: give
        normalize=False to the fleet.
    theta0: where to start, (P,), or several starts, (S, P), of which the best total likelihood wins;
        None takes three starts from the size of the data. Then agents with more than 1,500 observations train on
        samples of theirs first, and on all with the best start: `sample` of the result.
    rounds, tol: stop when the agents agree and stand still to tol (1e-5) in log theta, or after this many rounds
        (2,000); `tol=0` runs exactly `rounds` rounds.
    seconds: stop after this time, with the best theta so far and status "time limit".
    bounds: the lowest and the highest value of hyperparameters, by name: {"l_lon": (0.1, 5), "noise": (None, 1)},
        None for open. The names are l_ with an input's name or, where inputs have none, its number, sigma_f and
        sigma_eps; "length" stands for all length-scales, "signal" and "noise" for the two sigmas. In the units of
        the data, also with normalize. `at_bounds` of the result says who ended at one.
    priors: log-normal, the median and a factor: with {"noise": (0.1, 2)} sigma_eps is taken to lie between 0.05 and
        0.2 with a probability of 68 %. They count once for the fleet: the result is the mode of log theta.
    fixed: values that stay: {"noise": 0.1}.
    progress: True for a bar on the terminal, or a callable that gets a `Progress`.

    `TrainingOptions` describes the other options. One that the method does not have is an InputError, which names
    the methods that have it. A training warns if it diverged, reached its round limit (`NotConvergedWarning`), ended
    at a bound, or ended where the likelihood is flat: `flat` of the result has the hyperparameters.
    """
    row = training_method(method)
    refuse_private(row, fleet.private, rows=min(fleet.data.counts))
    _take_default_kernel(fleet, row, preset)
    given: dict[str, Any] = {"rounds": rounds, "tol": tol, "seconds": seconds, "noise_floor": noise_floor}
    given |= {"rho": rho, "kappa": kappa, "lipschitz": lipschitz, "engine": engine, "n_neighbours": n_neighbours}
    given |= {"nested": nested, "step": step, "nested_iterations": nested_iterations}
    options = options_of(fleet, row, theta0, seed, bounds, priors, fixed, preset, **given)
    with listening(progress) as listener, passes_told_to(listener):
        fit = _train(fleet, row, options, TrainingProgress(method, options, listener))
    warn_of_end(fit, options, fleet.names)
    return fit


def trainer(
    fleet: Fleet,
    method: str = "dec-fact-gp",
    *,
    theta0: Sequence[float] | Array | None = None,
    seed: int | None = None,
    bounds: Mapping[str, Ends] | None = None,
    priors: Mapping[str, MedianAndFactor] | None = None,
    fixed: Mapping[str, float] | None = None,
    **options: Any,
) -> Trainer:
    """A training that you step yourself, round by round; the fleet's `last_fit` and `theta` stay as they are.

    bounds, priors, fixed: as in `train`.
    options: tol, rho, kappa, lipschitz, nested, step, nested_iterations, noise_floor, engine and n_neighbours, as
        in `train`.
        full-gp, fact-gp and g-fact-gp have no single steps.
    """
    row = training_method(method)
    refuse_private(row, fleet.private, rows=min(fleet.data.counts))
    row.check_stepwise(options)
    fleet._backend.check_here("trainer")
    if fleet.coordinates.name != "as-given":
        raise InputError(f'trainer: expected coordinates="as-given", got "{fleet.coordinates.name}": use train')
    if fleet.robust:
        raise InputError("trainer: expected a fleet without robust, whose trainings go in turns: use train")
    chosen = options_of(fleet, row, theta0, seed, bounds, priors, fixed, **options)
    return Trainer(prepare(row, fleet.data, InProcess(fleet.graph), fleet.kernel, chosen), chosen)


def _take_default_kernel(fleet: Fleet, method: TrainingMethod, preset: str | None) -> None:
    """Give the fleet the kernel that the method needs, if none was chosen and no theta depends on it."""
    needed = default_kernel(method.name, preset=preset)
    if fleet.kernel_given or fleet.theta is not None or needed == fleet.kernel.name:
        return
    who = method.name if default_kernel(method.name) == needed else f'preset="{preset}"'
    warn(
        f'no kernel was chosen, and {who} needs kernel="{needed}" instead of the default '
        f'"{fleet.kernel.name}": the fleet has the kernel "{needed}" now. Give kernel="{needed}" to the fleet'
    )
    fleet.kernel = needed


def _train(fleet: Fleet, method: TrainingMethod, options: TrainingOptions, progress: TrainingProgress) -> Fit:
    try:
        progress.begun()
        with retold(names=fleet.names):
            fit = fleet._backend.train(method, fleet.data, fleet.graph, fleet.kernels, options, progress)
    except (KeyboardInterrupt, WorkerLostError) as interrupt:
        interrupt.add_note(keep_unfinished(fleet, progress.furthest))
        raise
    fit = fleet.adopt(of_sample(fit, fleet.data, fleet.last_fit))
    progress.ended(fit)
    return fit
