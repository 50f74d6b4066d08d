"""Checks of a training and of the likelihoods behind it, at the fleet's theta and on its own rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from fleetgp.advice.subject import MOST_LIKELY, MOST_ROWS, Subject
from fleetgp.advice.verification import Check
from fleetgp.arrays import Array, BoolArray
from fleetgp.data.streamed import Streamed, counts_of, dimension_of
from fleetgp.engines.base import Evaluation
from fleetgp.engines.dense import reference
from fleetgp.engines.expert import Expert, FleetExpert
from fleetgp.errors import NumericalError
from fleetgp.fleet.privacy import kinds_of_training
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations
from fleetgp.training import Fit, training_method
from fleetgp.training.objective import Objective

#: In the logarithm of a hyperparameter: agents of a training that has converged differ by less, by default a hundred
#: times.
AGREED = 1e-3
#: In standard errors of theta, by the curvature of the likelihood: half the square of it is what is left to gain, in
#: nats.
STATIONARY = 0.1
#: Steps of differences in log theta: of fourth order for gradients, of first order for curvature.
STEP, CURVED = 5e-3, 1e-4
#: Of a gradient against differences, relative to the largest entry, or to 1 nat.
SLOPE = 1e-4
#: Of an engine against the formulas: likelihoods in nats per row, means in sigma_f, variances in its square.
EXACT, APPROXIMATE = 1e-6, 0.05
#: Rows of an agent that gradients are of.
SOME_ROWS = 500
#: Rows of an agent that engines are compared on, and for how many agents.
FEW_ROWS, FEW_AGENTS = 200, 5
#: Rows among these at which posteriors are compared.
QUERIED = 20
#: Of a likelihood that is computed again, relative.
AGAIN = 1e-6


def training_checks(subject: Subject) -> Iterator[Check]:
    """All of them; those about a training are not applicable where theta was given."""
    fit = subject.fleet.fit
    names = {
        "training converged": _converged,
        "agents agree on theta": _agreement,
        "theta is not at a bound": _bounds,
        "theta is stationary": _stationary,
        "likelihood is the same again": _again,
        "training sent only what it may": _sent,
    }
    for name, check in names.items():
        yield Check.idle(name, "Theta was given, not trained.") if fit is None else check(subject, fit, name)
    yield _gradient(subject, "gradients match differences")
    yield from _engines(subject)


def _converged(subject: Subject, fit: Fit, name: str) -> Check:
    meaning = "The stopping rule held." if fit.status == "converged" else f"It ended by {fit.status}: train on from it."
    return Check.of(name, float(fit.status != "converged"), 0.0, meaning)


def _agreement(subject: Subject, fit: Fit, name: str) -> Check:
    return Check.of(
        name,
        fit.disagreement,
        AGREED,
        "The largest difference between two agents in the logarithm of a hyperparameter.",
    )


def _bounds(subject: Subject, fit: Fit, name: str) -> Check:
    found = ", ".join(fit.at_bounds)
    meaning = f"{found} stands at a bound: the best value may lie beyond it." if found else "All are inside."
    return Check.of(name, float(len(fit.at_bounds)), 0.0, meaning)


def _sent(subject: Subject, fit: Fit, name: str) -> Check:
    allowed = kinds_of_training(training_method(fit.method))
    extra = [kind for kind in fit.ledger.kinds if kind not in allowed]
    meaning = f"{fit.method} may send {', '.join(allowed)}" + (f", and sent {', '.join(extra)}." if extra else ".")
    return Check.of(name, float(len(extra)), 0.0, meaning)


# ---- the optimum ---------------------------------------------------------------------------------------------------


def _stationary(subject: Subject, fit: Fit, name: str) -> Check:
    why = _too_large(subject, fit)
    if why:
        return Check.idle(name, why)
    view, theta = subject.model
    units = subject.source.kernel.units(dimension_of(subject.source.shards))
    shift = view.scaling.shift(units) + view.coordinates.shift(units)
    experts: list[Expert]
    if fit.moments is not None:
        experts = [FleetExpert(fit.moments)]
    elif training_method(fit.method).meet == "pool":
        experts = subject.experts([Observations.joined(subject.fleet.data)])
    else:
        experts = subject.experts(subject.trained_on())
    objective = Objective(experts, fit.known.prior.shifted(-shift), 1.0 / len(experts))
    x, free = np.log(theta), ~_held(fit)
    slope = _slope(objective, x)
    columns = [(_slope(objective, x + CURVED * e) - _slope(objective, x - CURVED * e)) for e in np.eye(len(x))[free]]
    curvature = np.array(columns)[:, free] / (2.0 * CURVED)
    meaning = "How far theta is from the optimum of the rows that are there now, in its own standard errors."
    return Check.of(name, _distance(slope[free], 0.5 * (curvature + curvature.T)), STATIONARY, meaning)


def _too_large(subject: Subject, fit: Fit) -> str:
    rows, pool = sum(counts_of(subject.fleet.data)), training_method(fit.method).meet == "pool"
    if fit.moments is not None:
        return ""
    if isinstance(subject.fleet.data, Streamed):
        return "The rows are in files."
    most = MOST_ROWS if pool else MOST_LIKELY
    return f"There are {rows:,} rows: it is checked up to {most:,}." if rows > most else ""


def _held(fit: Fit) -> BoolArray:
    """(P,) which hyperparameters are fixed, or stand at a bound or the floor."""
    held = np.zeros(fit.thetas.shape[1], dtype=bool)
    if fit.known.names:
        low, high = fit.known.touched(fit.thetas)
        held |= low | high | fit.known.bounds.fixed
    if fit.floored:
        held[-fit.noises :] |= np.asarray((fit.thetas[:, -fit.noises :] <= 1.01 * fit.noise_floor).any(axis=0))
    return held


def _slope(objective: Objective, x: Array) -> Array:
    """The gradient of the fleet's likelihood at log theta, (P,)."""
    return np.asarray(objective(np.tile(x, (len(objective.experts), 1))).gradient.sum(axis=0))


def _distance(slope: Array, curvature: Array) -> float:
    """sqrt(g'H^-1 g); infinite where H is not positive: no minimum.

    >>> _distance(np.array([2.0]), np.array([[4.0]])), _distance(np.array([2.0]), np.array([[-4.0]]))
    (1.0, inf)
    """
    if not len(slope):
        return 0.0
    if not np.isfinite(curvature).all() or np.linalg.eigvalsh(curvature)[0] <= 0.0:
        return np.inf
    return float(np.sqrt(slope @ np.linalg.solve(curvature, slope)))


def _again(subject: Subject, fit: Fit, name: str) -> Check:
    if fit.moments is not None or training_method(fit.method).meet == "pool":
        return Check.idle(name, "The likelihood is of all data in one place.")
    if "vecchia" in fit.engine:
        return Check.idle(name, "The likelihood is approximate: it hangs on the order of the rows.")
    why = _too_large(subject, fit)
    if why:
        return Check.idle(name, why)
    experts, (_, theta) = subject.experts(subject.trained_on()), subject.model
    own = np.log(theta) + np.log(fit.thetas) - np.log(fit.theta)  # each agent at its own estimate
    nll = float(Objective(experts)(own).nll.sum())
    meaning = (
        "The likelihood of the rows that are there now, against that of the training: if they differ, train again."
    )
    return Check.of(name, abs(nll - fit.nll) / max(1.0, abs(fit.nll)), AGAIN, meaning)


# ---- likelihoods ---------------------------------------------------------------------------------------------------


def _gradient(subject: Subject, name: str) -> Check:
    experts, (_, theta) = subject.experts(subject.part(SOME_ROWS)), subject.model
    worst = max((_slope_error(expert.evaluate, np.log(theta)) for expert in experts), default=0.0)
    return Check.of(
        name, worst, SLOPE, "Every agent's gradient of its likelihood against differences of it, the largest error."
    )


def _slope_error(evaluate: Callable[[Array], Evaluation], x: Array) -> float:
    def nll(at: Array) -> float:
        return evaluate(at).nll

    try:
        gradient = evaluate(x).gradient
        near, far = (
            np.array([nll(x + step * e) - nll(x - step * e) for e in np.eye(len(x))]) for step in (STEP, 2.0 * STEP)
        )
    except NumericalError:
        return np.inf
    differences = (8.0 * near - far) / (12.0 * STEP)
    return float(np.abs(gradient - differences).max() / max(1.0, np.abs(gradient).max()))


def _engines(subject: Subject) -> Iterator[Check]:
    fit, (_, theta) = subject.fleet.fit, subject.model
    used = sorted({"dense"} if fit is None else set(fit.engine))
    parts = sorted(subject.part(FEW_ROWS), key=lambda own: -len(own))[:FEW_AGENTS]
    for engine in used:
        worst = max(_engine_error(expert, theta) for expert in subject.experts(parts, engine))
        limit = APPROXIMATE if engine == "vecchia" else EXACT
        told = "an approximation" if engine == "vecchia" else "exact"
        yield Check.of(
            f"engine {engine} agrees with the formulas",
            worst,
            limit,
            f"Likelihood, mean and variance of up to {FEW_ROWS} rows of {len(parts)} agents; the engine is {told}.",
        )


def _engine_error(expert: Expert, theta: Array) -> float:
    """The largest difference to the formulas as they read."""
    data, kernel, places = expert.data, expert.kernel, expert.data.inputs[:QUERIED]
    try:
        found = expert.evaluate(np.log(theta))
        mean, variance = expert.condition(theta).mean_and_variance(places)
    except NumericalError:
        return np.inf
    nll, _ = reference.likelihood(data, kernel, np.log(theta), found.jitter)
    errors = [abs(found.nll - nll) / len(data)]
    if found.jitter == 0.0:
        wanted, spread = reference.posterior(data, kernel, theta, places)
        signal = float(kernel.variance(places, Hyperparameters.from_theta(theta)).max())
        errors += [np.abs(mean - wanted).max() / np.sqrt(signal), np.abs(variance - spread).max() / signal]
    return float(max(errors))
