"""Checks of answers, method by method, on the fleet's own rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.special import ndtri

from fleetgp.advice.subject import Subject
from fleetgp.advice.verification import Check
from fleetgp.arrays import Array, BoolArray
from fleetgp.fleet.privacy import kinds_of_prediction
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.network.ledger import Ledger
from fleetgp.prediction import Prediction, prediction_method
from fleetgp.prediction.methods import PredictionMethod

#: Of agents' answers to the same query, in deviations: along the tree they are the same bits.
AGREED = 1e-9
#: Of a method and its central twin: means in deviations, variances relative.
TWIN = 1e-6
#: Of variances against the prior, relative: rounding.
ROUNDING = 1e-9
#: Of the same answer computed again.
AGAIN = 1e-12
#: Of intervals of these levels; the coverage of sound models is off by as much, and by three standard errors.
LEVELS, MISFIT, ERRORS = (0.5, 0.8, 0.95), 0.05, 3.0
#: Fewer hidden rows say nothing about coverage.
FEWEST_HIDDEN = 20


def prediction_checks(subject: Subject, name: str) -> Iterator[Check]:
    """Those of one method."""
    method = prediction_method(name)
    conditioned = subject.conditioned()
    found = conditioned.predict(subject.points, name)
    noisy = conditioned.predict(subject.points, name, noisy=True)
    again = subject.conditioned().predict(subject.points, name)
    yield Check.of(
        f"{name}: agents agree",
        _spread(found),
        AGREED,
        "The largest difference between two agents' answers, in standard deviations.",
    )
    yield _twin(subject, method)
    yield Check.of(
        f"{name}: variances lie between 0 and the prior",
        _beyond(subject, found, noisy),
        ROUNDING,
        "By how much the variance of f is above the prior's, relatively; infinite if one is not positive, or not below "
        "that of an observation.",
    )
    yield Check.of(
        f"{name}: the same again",
        _apart(found, again),
        AGAIN,
        "The largest difference to the same answer, computed anew, in standard deviations.",
    )
    yield sent_check(f"{name}: sent only what it may", subject, method, found.ledger)
    yield from _coverage(subject, name)


def sent_check(name: str, subject: Subject, method: PredictionMethod, ledger: Ledger) -> Check:
    """Of a ledger of answers."""
    allowed = kinds_of_prediction(method, subject.source.kernel)
    extra = [kind for kind in ledger.kinds if kind not in allowed]
    meaning = f"{method.name} may send {', '.join(allowed)}" + (f", and sent {', '.join(extra)}." if extra else ".")
    return Check.of(name, float(len(extra)), 0.0, meaning)


def _spread(found: Prediction) -> float:
    """Between agents, whatever the variances are: others judge those."""
    return float(np.ptp(found.means, axis=0).max() / np.sqrt(np.abs(found.variances).max()))


def _beyond(subject: Subject, found: Prediction, noisy: Prediction) -> float:
    view, theta = subject.model
    kernel = subject.source.kernel
    places = view.coordinates.places(subject.points)
    prior = view.scaling.scale**2 * kernel.variance(places, Hyperparameters.from_theta(theta))
    if not (found.variances > 0.0).all() or not (noisy.variances > found.variances).all():
        return np.inf
    return max(0.0, float((found.variances / prior).max() - 1.0))


def _apart(one: Prediction, other: Prediction, where: BoolArray | slice = slice(None)) -> float:
    """The largest difference of means in deviations, or of variances relative to each other."""
    variance = np.abs(other.variance[where])
    means = np.abs(one.mean[where] - other.mean[where]) / np.sqrt(variance)
    return float(max(means.max(initial=0.0), np.abs(one.variance[where] / variance - 1.0).max(initial=0.0)))


# ---- the central twin ----------------------------------------------------------------------------------------------


def _twin(subject: Subject, method: PredictionMethod) -> Check:
    """Against the same rule at a central node; of dec-nn- methods with everybody taking part."""
    name = f"{method.name}: equals its central twin"
    if not method.decentralized:
        return Check.idle(name, "It is the central one.")
    if method.rule == "nearest":
        found = subject.conditioned().predict(subject.points, method.name)
        other = subject.alone().predict(subject.points, method.name)
        return Check.of(name, _apart(found, other), TWIN, "Against one agent that has the rows of all.")
    eta = 0.0 if method.nearest else None
    conditioned = subject.conditioned()
    found = conditioned.predict(subject.points, method.name, eta=eta)
    everyone = np.asarray(found.participants.all(axis=0))
    if not everyone.any():
        return Check.idle(name, "There is no point at which all agents take part.")
    other = conditioned.predict(subject.points, method.rule)
    how = f" at the {int(everyone.sum())} points where, with eta=0, everybody takes part" if method.nearest else ""
    meaning = f"Against {method.rule} over a server{how}: means in standard deviations, variances relative."
    return Check.of(name, _apart(found, other, everyone), TWIN, meaning)


# ---- calibration ---------------------------------------------------------------------------------------------------


def _coverage(subject: Subject, name: str) -> Iterator[Check]:
    """How many hidden rows lie in intervals that the fleet predicts from the rest."""
    names = [f"{name}: {100 * level:.0f} % intervals" for level in LEVELS]
    z = _standardized(subject, name)
    for level, title in zip(LEVELS, names, strict=True):
        if len(z) < FEWEST_HIDDEN:
            yield Check.idle(title, f"Only {len(z)} rows could be hidden: {FEWEST_HIDDEN} are needed.")
            continue
        share = float((np.abs(z) <= ndtri(0.5 + 0.5 * level)).mean())
        error = float(np.sqrt(level * (1.0 - level) / len(z)))
        told = f"{100 * share:.0f} % of {len(z):,} hidden rows lie inside, give or take {100 * error:.0f} %"
        off, limit = abs(share - level), MISFIT + ERRORS * error
        if off > limit:
            wrong = "too sure of itself" if share < level else "too cautious"
            told += f": the fleet is {wrong}, and fleet.calibrate mends it"
        yield Check.of(title, off, limit, told + ".", telling=True)


def _standardized(subject: Subject, name: str) -> Array:
    """How many deviations each hidden row is off, by the agent's own answer."""
    pairs = list(zip(subject.source.shards, subject.hidden(), strict=True))
    rest, asked = [own.rows(~mask) for own, mask in pairs], [own.rows(mask) for own, mask in pairs]
    counts = list(map(len, asked))
    if sum(counts) < FEWEST_HIDDEN:
        return np.zeros(sum(counts))
    places = np.concatenate([one.inputs for one in asked])
    found = subject.calibrated(rest, name).predict(places, name, noisy=True)
    starts, parts = np.cumsum([0, *counts]), []
    for agent, one in enumerate(asked):
        own = slice(starts[agent], starts[agent + 1])
        variance = np.abs(found.variances[agent, own])
        if one.noise_std is not None:
            variance = variance + one.noise_std**2  # which nobody else knows of
        parts.append((one.values - found.means[agent, own]) / np.sqrt(variance))
    return np.concatenate(parts)
