"""What is reported of a training: its progress, and sentences about how it ended and what helps then."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fleetgp.arrays import Array
from fleetgp.data.transforms import DISTORTED, Coordinates
from fleetgp.engines.base import describe_theta
from fleetgp.errors import FleetGPWarning, NotConvergedWarning, warn
from fleetgp.progress import Listener, Progress, Remembering
from fleetgp.training.fit import Fit, disagreement
from fleetgp.training.methods import training_method
from fleetgp.training.options import TrainingOptions

#: Options with which a user sets the length of steps.
STEPS = ("rho", "kappa", "lipschitz", "step")
#: Observations whose size is so many times their standard deviation are far from zero.
FAR_FROM_ZERO = 16.0
#: Less than this, in log theta, is no way that a training has gone.
NOWHERE = 0.01


def about_end(fit: Fit, options: TrainingOptions, names: Sequence[str]) -> str:
    """What a user should know of the end of a training; empty if it is an ordinary one. names: of theta."""
    if fit.status == "diverged":
        return about_divergence(fit, options, names)
    sentences = [
        about_coordinates(fit.coordinates),
        about_offset(fit),
        about_mean(fit),
        about_flat(fit, names),
        about_bounds(fit),
        about_floor(fit, options.noise_floor) if fit.at_floor.any() else "",
    ]
    return ". ".join(filter(None, sentences))


def about_coordinates(coordinates: Coordinates) -> str:
    """What it means that the Earth is no plane where the data are."""
    if coordinates.distortion <= DISTORTED:
        return ""
    return (
        f"distances in kilometres are wrong by up to {coordinates.distortion:.0%} where the data are: they reach too "
        "far, or too far from the equator, for a plane"
    )


def about_mean(fit: Fit) -> str:
    """What it means that the mean function has not settled."""
    if fit.mean is None or fit.mean.settled:
        return ""
    if not np.isfinite(fit.mean.errors).all():
        return "the mean function is that of ordinary least squares: generalized least squares has no answer at theta"
    often = "once" if fit.mean.turns == 1 else f"{fit.mean.turns} times"
    return f"the mean function has not settled: theta was trained {often} and ended by {fit.status}"


def about_offset(fit: Fit) -> str:
    """What it means that the observations are far from zero, where the model takes them to vary around zero."""
    if fit.offset < FAR_FROM_ZERO:
        return ""
    return (
        f"the observations are far from zero: their size is about {fit.offset:.0f} times their standard deviation, and "
        'the model has mean zero. Use normalize=True or mean="constant"'
    )


def about_flat(fit: Fit, names: Sequence[str]) -> str:
    """Along which hyperparameters the likelihood is flat, and which ones stand at a limit of the training."""
    theta = fit.theta
    sentences = [
        f"the likelihood does not depend on {names[k]} (now {theta[k]:.4g}): {_cause(names[k])}"
        for k in fit.flat_numbers
    ]
    sentences += [
        f"{names[k]} stands at the limit of the search, {theta[k]:.4g}, and the optimum lies there or beyond: "
        f'give {names[k]} bounds or, for observations with a trend, mean="linear"'
        for k in fit.stopped_numbers
    ]
    return ". ".join(sentences)


def _cause(name: str) -> str:
    """Why a likelihood is flat along a hyperparameter, and what a user may do about it."""
    if name.endswith("alpha"):
        return "with a large alpha rq is se, which has one hyperparameter less"
    if name.startswith("sigma_f"):
        return "this part of the kernel explains nothing of the observations"
    return "the observations do not depend on its input, which may be left out"


def about_rounds(fit: Fit, options: TrainingOptions) -> str:
    """What to do about a training that ended before it converged; empty if it converged, or was not asked to."""
    settled = fit.mean is None or fit.mean.settled
    if fit.status != "round limit" or options.tol == 0.0 or not settled:
        return ""
    if fit.rounds < options.rounds:
        return (
            f"{fit.method} stopped after {fit.rounds} rounds before it converged, since rounding hides any further "
            "progress: theta may be off. Raise noise_floor, give bounds, or use a larger tol"
        )
    return (
        f"{fit.method} reached its limit of {options.rounds} rounds before it converged: theta may be off. Give more "
        "rounds, continue with theta0=fit.theta, or use a larger tol"
    )


def warn_of_end(fit: Fit, options: TrainingOptions, names: Sequence[str], who: str = "") -> None:
    """Warn of what a user should know of the end of a training. who: stands before it."""
    for sentence, kind in (
        (about_end(fit, options, names), FleetGPWarning),
        (about_rounds(fit, options), NotConvergedWarning),
    ):
        if sentence:
            warn(f"{who}{sentence}", kind)


def about_divergence(fit: Fit, options: TrainingOptions, names: Sequence[str]) -> str:
    """Which hyperparameter went farthest, and what to do about it. names: of theta."""
    start = fit.history[0, 0]
    with np.errstate(all="ignore"):
        moved = np.log(fit.history) - np.log(start)
    held = np.logical_or(*fit.known.touched(fit.thetas))[
        : -fit.noises
    ]  # not so noise: with too little there is no likelihood
    moved[..., np.flatnonzero(held)] = 0.0  # at a bound, where it may end
    sound = np.flatnonzero(np.isfinite(moved).all(axis=(1, 2)))  # the start is
    agent, which = np.unravel_index(np.abs(moved[sound[-1]]).argmax(), moved.shape[1:])
    far, end = moved[sound[-1], agent, which], fit.history[sound[-1], agent, which]
    said = f"{fit.method} diverged: "
    own = training_method(fit.method).options
    given = [name for name in STEPS if name in own and getattr(options, name) is not None]
    if given:
        return f"{said}its steps were too long. Leave out {' and '.join(given)}, to have them chosen for these data"
    if abs(far) < NOWHERE:
        return f"{said}there is no likelihood at {describe_theta(start, names)}. Start closer to the scale of the data"
    label = names[which]
    return f"{said}{label} went from {start[which]:.4g} to {end:.4g}. {_advice(far, label, fit)}"


def _advice(far: float, label: str, fit: Fit) -> str:
    """far: how far it went, in log theta."""
    if label.startswith("sigma_eps") and far < 0.0:
        floor = "Give a noise_floor; its default is 1e-3" if fit.noise_floor == 0.0 else "Give a larger noise_floor"
        return f"The observations look free of noise, and their likelihood has no best sigma_eps. {floor}"
    if label.startswith("l_") and far > 0.0:
        return f"The observations do not depend on the input of {label}. Leave that input out, or bound {label}"
    if label.endswith("alpha") and far > 0.0:
        return f"With a large {label} rq is se: take se, which has one hyperparameter less, or bound {label}"
    if label == "sigma_f" and far < 0.0:
        return "The observations do not vary with the inputs. Are these the right columns?"
    return f"Start elsewhere, with another theta0, or give {label} bounds"


def about_sample(fit: Fit) -> str:
    """What was trained on, at first and at last; empty if it was all observations from the start."""
    if len(fit.held):
        return (
            f"Trained on a random sample only: {int(fit.drawn.sum()):,} of the {int(fit.held.sum()):,} observations "
            "in the files."
        )
    if not len(fit.sample):
        return ""
    first = f"Trained first on a random sample of {int(fit.sample.sum()):,} observations"
    if fit.status != "time limit":
        return f"{first}, then on all."
    return f"{first}, and had come to {int(fit.used.sum()):,} when the time was up."


def about_approximation(fit: Fit) -> str:
    """Whose likelihood is approximate, and how good it is; empty if all are exact."""
    many = sum(engine == "vecchia" for engine in fit.engine)
    if not many:
        return ""
    whose, each = "The likelihood", ""
    if len(fit.engine) > 1:
        whose, each = f"The likelihood of {many} of {len(fit.engine)} agents", " an agent, at most"
    change = fit.approximation.max(initial=0.0)
    good = f": twice as many neighbours would change it by some {change:.2g} nats{each}" if change else ""
    return f"{whose} is approximate (vecchia){good}."


def about_floor(fit: Fit, noise_floor: float) -> str:
    """What it means that a training ended at the floor."""
    return (
        f"{', '.join(fit.floored)} stands at its floor, {fit.noise_floor:.3g}, at {int(fit.at_floor.sum())} of "
        f"{len(fit.thetas)} "
        f"agents: at this resolution the observations look free of noise. The floor is {noise_floor:g} of their "
        "deviation: noise_floor changes it, 0 switches it off"
    )


def about_bounds(fit: Fit) -> str:
    """Which hyperparameters ended at bounds that were given; empty if none did."""
    low, high = fit.known.touched(fit.thetas)
    ends = [("lower", low, fit.known.lower), ("upper", high, fit.known.upper)]
    ends_met = [
        f"{name} stands at its {end} bound, {value:.4g}"
        for number, name in enumerate(fit.known.names)
        for end, touched, value in ((end, touched[number], values[number]) for end, touched, values in ends)
        if touched
    ]
    beyond = ": the optimum lies there or beyond" if fit.status == "converged" else ""
    return f"{', '.join(ends_met)}{beyond}" if ends_met else ""


class TrainingProgress:
    """A `Report` that passes every round to a listener, and remembers the estimates that are worth most."""

    def __init__(self, method: str, options: TrainingOptions, listener: Listener | None) -> None:
        self._method = method
        self._several = options.starts is None or len(options.starts) > 1
        self._rounds = options.rounds if options.tol == 0 else None
        self._listener = Remembering(listener)
        self._last: tuple[int, int] | None = None  # the start that was reported last, and its round
        self._chosen = 0

    def begun(self) -> None:
        self._listener(Progress(self._label(0), 0, self._rounds, ""))

    def __call__(self, start: int, done: int, thetas: Array, chosen: bool) -> None:
        if self._last is not None and self._last[0] != start:
            number, rounds = self._last
            self._listener(Progress(self._label(number), rounds, rounds, "compared"))  # its bar stands still
        self._last = start, done
        self._chosen = start if chosen else self._chosen
        detail = f"disagreement {disagreement(thetas):.1e}" if len(thetas) > 1 else ""
        self._listener(Progress(self._label(start), done, self._rounds, detail, thetas=thetas, chosen=chosen))

    def ended(self, fit: Fit) -> None:
        """Of the start that was chosen, how the training ended: others, and it on a sample, only were compared."""
        for number, start in enumerate(fit.starts):
            rounds, status = (fit.rounds, fit.status) if number == self._chosen else (start.rounds, start.status)
            self._listener(Progress(self._label(number), rounds, rounds, status))

    @property
    def furthest(self) -> Progress | None:
        return self._listener.furthest

    def _label(self, start: int) -> str:
        return f"{self._method} #{start + 1}" if self._several else self._method
