"""`Fleet.train` and `Fleet.trainer`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from fleetgp.arrays import Array
from fleetgp.data.streamed import counts_of
from fleetgp.errors import FleetGPWarning, InputError, WorkerLostError
from fleetgp.fleet.privacy import refuse_private
from fleetgp.fleet.trainings import keep_unfinished, of_sample, options_of
from fleetgp.gp.failure import retold
from fleetgp.io.passes import passes_told_to
from fleetgp.network import InProcess
from fleetgp.options import default_kernel
from fleetgp.progress import Listener, listening
from fleetgp.training import Fit, Trainer, TrainingMethod, TrainingOptions, training_method
from fleetgp.training.endings import warn_of_end
from fleetgp.training.known import Ends, MedianAndFactor
from fleetgp.training.reporting import TrainingProgress
from fleetgp.training.setting import prepare
from fleetgp.training.trainer import check_stepwise

if TYPE_CHECKING:
    from fleetgp.fleet.fleet import Fleet


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
    neighbours: int | None = None,
    progress: bool | Listener = False,
) -> Fit:
    """Agree on the hyperparameters; the result stays on the fleet as `fit` and, unless it diverged, `theta`.

    An interrupted training (Ctrl-C) leaves its estimates as `theta` to a fleet that has none or only such ones, and
    itself as `unfinished`; `fit` is of finished trainings only.

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
    refuse_private(row, fleet.private, rows=min(counts_of(fleet.data)))
    _take_default_kernel(fleet, row, preset)
    given: dict[str, Any] = {"rounds": rounds, "tol": tol, "seconds": seconds, "noise_floor": noise_floor}
    given |= {"rho": rho, "kappa": kappa, "lipschitz": lipschitz, "engine": engine, "neighbours": neighbours}
    given |= {"nested": nested, "step": step, "nested_iterations": nested_iterations}
    options = options_of(fleet, row, theta0, seed, bounds, priors, fixed, preset, **given)
    with listening(progress) as listener, passes_told_to(listener):
        fit = _train(fleet, row, options, TrainingProgress(method, options, listener))
    warn_of_end(fit, options, fleet.names, stacklevel=2)
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
    """A training that you step yourself, round by round; the fleet's `fit` and `theta` stay as they are.

    bounds, priors, fixed: as in `train`.
    options: tol, rho, kappa, lipschitz, nested, step, nested_iterations, noise_floor, engine and neighbours, as
        in `train`.
        full-gp, fact-gp and g-fact-gp have no single steps.
    """
    row = training_method(method)
    refuse_private(row, fleet.private, rows=min(counts_of(fleet.data)))
    check_stepwise(row, options)
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
    warnings.warn(
        f'no kernel was chosen, and {who} needs kernel="{needed}" instead of the default '
        f'"{fleet.kernel.name}": the fleet has the kernel "{needed}" now. Give kernel="{needed}" to the fleet',
        FleetGPWarning,
        stacklevel=3,
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
    fit = fleet.adopt(of_sample(fit, fleet.data, fleet.fit))
    progress.ended(fit)
    return fit
