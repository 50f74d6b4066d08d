"""One result from those of the groups of a fleet: as if all agents had been in one process, to the last bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fleetgp.arrays import Array
from fleetgp.network import Ledger
from fleetgp.prediction import Prediction
from fleetgp.prediction.prediction import worst
from fleetgp.training import Fit, TrainingMethod

#: Arguments of a `Report`: the start, the round, theta (A, P), and whether the start is the chosen one.
Told = tuple[int, int, Array, bool]
Hosting = Sequence[Sequence[int]]


def joined_rows(parts: Sequence[Any], hosting: Hosting, axis: int = 0) -> Any:
    """Arrays whose axis runs over the agents of a group, as one that runs over all agents.

    >>> joined_rows([np.array([0.0, 2.0]), np.array([1.0])], [[0, 2], [1]]).tolist()
    [0.0, 1.0, 2.0]
    """
    order = np.argsort([agent for group in hosting for agent in group])
    return np.concatenate(parts, axis=axis).take(order, axis=axis)


def _one_expert(method: TrainingMethod) -> bool:
    """Whether every group has one expert for all data, the same."""
    return method.meet in ("moments", "pool")


def merged_report(method: TrainingMethod, told: Sequence[Told], hosting: Hosting) -> Told:
    """What all groups tell of one round."""
    start, done, thetas, chosen = told[0]
    if not _one_expert(method):
        thetas = joined_rows([part[2] for part in told], hosting)
    return start, done, thetas, chosen


def merged_fit(method: TrainingMethod, fits: Sequence[Fit], hosting: Hosting) -> Fit:
    """Of the trainings of all groups."""
    first = fits[0]
    ledger = Ledger.merged(fit.ledger for fit in fits)
    agents = sum(map(len, hosting))
    along = {"thetas": 0, "history": 1, "jitter": 0, "used": 0, "sample": 0, "approximation": 0, "outliers": 0}
    whole: dict[str, Any] = {}
    for name, axis in along.items():
        values = [getattr(fit, name) for fit in fits]
        if _one_expert(method) and values[0].size and name != "sample":  # every agent has the same
            whole[name] = np.repeat(values[0].take([0], axis=axis), agents, axis=axis)
        else:
            whole[name] = joined_rows(values, hosting, axis) if values[0].size else values[0]
    engine = joined_rows([fit.engine for fit in fits], hosting).tolist()
    if _one_expert(method):
        return replace(first, **whole, engine=tuple(engine), ledger=ledger)
    nlls = joined_rows([fit.nlls for fit in fits], hosting)
    start_nlls = joined_rows([fit.start_nlls for fit in fits], hosting, axis=1)
    starts = tuple(replace(start, nll=float(nll.sum())) for start, nll in zip(first.starts, start_nlls, strict=True))
    sums = {"nll": float(nlls.sum()), "nlls": nlls, "start_nlls": start_nlls, "starts": starts}
    return replace(first, **whole, **sums, engine=tuple(engine), ledger=ledger)


def merged_prediction(
    told: Sequence[tuple[int, Prediction]], hosting: Hosting, to: int | None
) -> tuple[int, Prediction]:
    """Of the answers of all groups at one block. to: the only agent that was told."""
    number, parts = told[0][0], [part for _, part in told]
    asked = next(k for k, group in enumerate(hosting) if (to or 0) in group)
    whole = {
        name: joined_rows([getattr(p, name) for p in parts], hosting)
        for name in ("means", "field_variances", "explained", "factors", "noise")
    }
    largest = {
        name: np.max([getattr(part, name) for part in parts], axis=0)
        for name in ("query_rounds", "solver_rounds", "residual")
    }
    return number, replace(
        parts[asked],
        **whole,
        **largest,
        status=worst(part.status for part in parts),
        jitter=max(part.jitter for part in parts),
        engine=tuple(joined_rows([part.engine for part in parts], hosting).tolist()),
        ledger=Ledger.merged(part.ledger for part in parts),
    )
