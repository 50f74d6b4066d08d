"""Splitting one data set over the agents of a fleet."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.errors import InputError, unknown_name

Shard = tuple[Array, Array]
By = Literal["stripes", "random"]


def partition(X: object, y: object, *, agents: int, by: By = "stripes", axis: int = 0, seed: int = 0) -> list[Shard]:
    """A list of (X_i, y_i), one per agent, with N_i equal up to one.

    "stripes": agents get neighbouring stripes along an input axis, equally many points each (the paper's
    layout). "random": every agent gets points from everywhere.

    >>> shards = partition([[0.3], [0.1], [0.2], [0.4]], [3, 1, 2, 4], agents=2)
    >>> [y.tolist() for _, y in shards]
    [[1.0, 2.0], [3.0, 4.0]]
    """
    inputs, observations = np.asarray(X, dtype=float), np.asarray(y, dtype=float)
    if inputs.ndim != 2 or observations.shape != inputs.shape[:1]:
        raise InputError(f"X must be (N, D) and y (N,), but {inputs.shape} and {observations.shape} came")
    if not 1 <= agents <= len(inputs):
        raise InputError(f"agents must lie between 1 and the {len(inputs)} points, but {agents} came")
    return [(inputs[rows], observations[rows]) for rows in _split(inputs, agents, by, axis, seed)]


def _split(inputs: Array, agents: int, by: str, axis: int, seed: int) -> list[IntArray]:
    if by == "stripes":
        if not -inputs.shape[1] <= axis < inputs.shape[1]:
            raise InputError(f"axis must name one of the {inputs.shape[1]} input dimensions, but {axis} came")
        return np.array_split(np.argsort(inputs[:, axis], kind="stable"), agents)
    if by == "random":
        return np.array_split(np.random.default_rng(seed).permutation(len(inputs)), agents)
    raise unknown_name("partition", by, ("stripes", "random"))
