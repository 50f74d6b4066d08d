"""What an agent is asked: a question to the fleet, or a training; checked in one place, whoever asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fleetgp.agent.description import PREDICTORS, TRAINERS
from fleetgp.agent.records import Matrix, Strict, one_of
from fleetgp.arrays import Array
from fleetgp.errors import InputError
from fleetgp.network.peer_checks import LARGEST

#: More points are not answered at once.
MOST_POINTS = 20_000

Trainer = Annotated[str, one_of(TRAINERS)]
Predictor = Annotated[str, one_of(PREDICTORS)]


@dataclass(frozen=True)
class Question(Strict):
    """Queries (T, D) for all, and how to combine the answers."""

    queries: Matrix
    method: Predictor


@dataclass(frozen=True)
class Wish(Strict):
    """A training that somebody asked for. cold: from the file's own starts instead of the current estimates."""

    cold: bool = False
    method: Trainer | None = None


def check_queries(queries: Array, dimension: int) -> None:
    """An InputError where nobody can answer at these points."""
    if queries.ndim != 2 or queries.shape[1] != dimension:
        raise InputError(f"expected queries of shape (T, {dimension}), got {queries.shape}")
    if not 0 < len(queries) <= MOST_POINTS:
        raise InputError(f"expected 1 to {MOST_POINTS} points at once, got {len(queries)}")
    if not np.isfinite(queries).all():
        raise InputError("expected finite queries, got some that are missing or infinite")
    if np.abs(queries).max() > LARGEST:
        raise InputError(f"some queries are beyond {LARGEST:g}: use other units")
