"""What `predict` and `map` share: the model that they ask, the question, and the report of an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.cli import options
from fleetgp.cli.cluster import Cluster
from fleetgp.cli.noises import noise_of
from fleetgp.cli.output import count_of_agents, emit, warn
from fleetgp.cli.sent import told_sent
from fleetgp.data.streamed import Streamed
from fleetgp.errors import WorkerLostError
from fleetgp.fleet.conditioned import told_of_outside
from fleetgp.fleet.privacy import predictor_of
from fleetgp.storage.answers import Answers, ask
from fleetgp.storage.loading import load_model
from fleetgp.storage.model import Model


def known_model(folder: Path, where: Cluster) -> Model:
    """The model in a folder; a warning where its training did not converge, or where it has no work for a cluster."""
    model = load_model(folder, **where.backend)
    if where.backend and isinstance(model.fleet.data, Streamed):
        warn(f"{folder}: the model has no rows, and any agent answers from the moments alone: no cluster is used")
    if model.status in ("interrupted", "round limit", "time limit", "diverged"):
        warn(f"{folder}: the training of this model did not converge ({model.note or model.status})")
    return model


def asked(model: Model, queries: Array, asking: options.Asking, out: Path, quiet: bool) -> Answers:
    """The model's answers, here or at the workers of a cluster, which end with them."""
    chosen, method = asking.chosen, predictor_of(model.fleet.private, asking.method).name
    with model.fleet:
        try:
            return ask(model, queries, method, asking.agent, chosen, out, quiet)
        except WorkerLostError as error:
            raise WorkerLostError(
                f"{error}; what was finished is kept, and the same command goes on from it"
            ) from error


def warn_of_outside(model: Model, points: Array, where: BoolArray, *what: str) -> None:
    """Say how many of the points the data tell nothing about, if there are any."""
    fleet = model.fleet
    told = told_of_outside(points, where, fleet.data, model.inputs, fleet.units, fleet.coordinates, *what)
    if told:
        warn(told)


def report_answers(model: Model, answers: Answers, facts: dict[str, Any], told: str, as_json: bool) -> None:
    if answers.status != "converged":
        advice = "--consensus tree is exact, or try more --rounds"
        warn(f"{answers.method}: {answers.status}; the answer may be off: {advice}")
    if answers.jitter:
        warn(f"a covariance needed jitter, up to {answers.jitter:.1e}")
    several = len(model.agents) > 1
    part, points = float(answers.share.sum()), int(np.isfinite(answers.mean).sum())
    said = (
        f"{answers.method}: {points:,} points, {answers.status}"
        + (f" after {answers.rounds:,} rounds" if answers.rounds else "")
        + (f" and {answers.iterations:,} iterations" if answers.iterations else "")
        + (f"; {part:.1f} of {count_of_agents(len(model.agents))} took part in a point, on average" * several)
        + "."
    )
    facts |= {
        "factors": list(answers.factors),
        "method": answers.method,
        "points": points,
        "status": answers.status,
        "rounds": answers.rounds,
        "iterations": answers.iterations,
        "agent": answers.agent,
        "agents": list(model.agents),
        "took_part": {name: float(share) for name, share in zip(model.agents, answers.share, strict=True)},
        "jitter": answers.jitter,
        "bytes": answers.bytes,
        "sent": answers.sent,
        "uninformed": int(answers.uninformed.sum()),
        "drawn": answers.drawn,
        "held": answers.held,
    }
    label = noise_of(model, answers.agent)
    deviation = (
        "std is the standard deviation of the field, std_observed that of an observation "
        f"({label} = {model.theta[label]:.3g} is in it)."
    )
    sample = f"Answered from a random sample only: {answers.drawn:,} of the {answers.held:,} observations in the files."
    if model.fleet.noise_model.known:
        deviation += " Known deviations of rows are not in it."
    sent = [told_sent(answers.sent, answers.bytes)] if several else []
    drawn = [sample] if answers.held else []
    emit(facts, said, *drawn, *sent, deviation, *told_of_factors(*answers.factors), told, as_json=as_json)


def told_of_factors(low: float, high: float) -> list[str]:
    """What a calibration has done to the deviations of an answer; nothing without one."""
    if (low, high) == (1.0, 1.0):
        return []
    return [f"Calibrated: deviations times {low:.3f}" + ("." if low == high else f" to {high:.3f}.")]
