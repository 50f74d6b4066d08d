"""The agents' data as a caller gives them: checked, copied, with the names of their columns if they have any."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from fleetgp.arrays import Array, duplicate_rows
from fleetgp.consensus.coordinates import agree_on_coordinates
from fleetgp.consensus.reductions import Alone
from fleetgp.data.coordinates import CoordinateRule
from fleetgp.data.growing import added
from fleetgp.data.longitudes import summaries_along_arc, told_of_seam
from fleetgp.data.sphere import refuse_files
from fleetgp.data.streamed import Shards, Streamed, summaries_of
from fleetgp.data.summary import corners, joined
from fleetgp.data.suspicions import told_suspicions
from fleetgp.data.watched import Watched
from fleetgp.errors import FleetGPWarning, InputError
from fleetgp.given import as_names, as_numbers, by_name, check_aligned, check_finite, column_names
from fleetgp.model.observations import Observations

#: Beyond so many deviations from 0, theirs and those of the model, observations have a mean; of few nothing is said.
OFFSET, FEWEST_TO_JUDGE = 3.0, 10


def check_shards(shards: Any, inputs: Sequence[str] | None = None) -> tuple[Shards, tuple[str, ...] | None]:
    """Every agent's data as float arrays, and the inputs' names, or one error that names the agent.

    Data frames are put in the order of `inputs`, or of agent 0's columns.
    """
    if isinstance(shards, Streamed):  # checked while they were read
        return shards, None if inputs is None else as_names(inputs, "inputs")
    if not isinstance(shards, Sequence) or not len(shards):
        raise InputError("shards must be a list of (X_i, y_i), one per agent, with at least one agent")
    for agent, shard in enumerate(shards):
        if not isinstance(shard, list | tuple) or len(shard) != 2:
            raise InputError(f"agent {agent}: expected a pair (X, y), got {type(shard).__name__}")
        check_aligned(shard[0], shard[1], f"agent {agent}: ", ("X", "y"), stacklevel=3)
    names = _names([x for x, _ in shards], inputs)
    checked = [_check_shard(shard, agent, names) for agent, shard in enumerate(shards)]
    dimension = checked[0].dimension
    for agent, one in enumerate(checked):
        if one.dimension != dimension:
            raise InputError(
                f"agent {agent}: X has {one.dimension} columns, but agent 0 has {dimension}: "
                "all agents must have the same inputs"
            )
    if names is not None and len(names) != dimension:
        raise InputError(f"expected a name for each of the {dimension} inputs, got {', '.join(names)}")
    return checked, names


def checked_rows(
    old: Observations, agent: int, more: tuple[Any, Any], names: Sequence[str] | None, watched: Watched | None
) -> tuple[Observations, Watched]:
    """New rows of an agent, checked as the old ones were; what they make suspicious is said.

    watched: what was seen of the old rows, if they were looked at before.
    """
    check_aligned(*more, f"agent {agent}: ", ("X", "y"), stacklevel=4)
    new = _check_shard(more, agent, names)
    if new.dimension != old.dimension:
        raise InputError(f"agent {agent}: expected X with {old.dimension} columns, got {new.dimension}")
    labels = _labels(names, old.dimension)
    before = Watched.of(old.inputs, old.values) if watched is None else watched
    after, known = before.plus(Watched.of(new.inputs, new.values)), before.told(labels)
    for told in after.told(labels):
        if told not in known:
            warnings.warn(f"agent {agent}: {told}", FleetGPWarning, stacklevel=4)
    return new, after


def same_shards(one: Sequence[Observations], other: Sequence[Observations]) -> bool:
    """Whether these are the same arrays, which nobody may write to, or the same files."""
    if isinstance(one, Streamed) or isinstance(other, Streamed):
        return one is other
    return len(one) == len(other) and all(mine is its for mine, its in zip(one, other, strict=True))


def rows_added(before: Sequence[Observations], now: Sequence[Observations]) -> list[Observations] | None:
    """The rows that have come to each agent, at the end of its data; None if anything else is different.

    Data in files do not grow.
    """
    if isinstance(before, Streamed) or isinstance(now, Streamed):
        return [] if before is now else None
    return added(before, now)


def refuse_duplicates(shards: Sequence[Observations], why: str) -> None:
    """One clear error for rows whose inputs are the same, where that makes a covariance singular."""
    for agent, own in enumerate(shards):
        pair = duplicate_rows(own.inputs)
        if pair is not None:
            raise InputError(
                f"agent {agent}: rows {pair[0]} and {pair[1]} are duplicates, and {why}, "
                "which makes its covariance singular: give a positive sigma_eps"
            )


def places_of(shards: Sequence[Observations], rule: CoordinateRule) -> Array:
    """(M, D) where each agent's data are, in units of how far all data reach along each axis, or on the sphere."""
    refuse_files(rule, shards)
    if rule.name == "sphere":
        found = agree_on_coordinates(Alone(), shards, rule).apply(shards)
        return np.stack([own.inputs.mean(axis=0)[[rule.longitude, rule.latitude, -1]] for own in found])
    known = summaries_along_arc(shards, rule)
    low, high = corners(known)
    centres = np.stack([one.centre for one in known])
    return np.asarray((centres - low) / np.where(high > low, high - low, 1.0))


def warn_of_shards(
    shards: Sequence[Observations], names: Sequence[str] | None, rule: CoordinateRule, stacklevel: int
) -> None:
    """Say what is probably not meant: fill values, mixed longitudes, dates as numbers, copied rows."""
    for told in told_of_seam(shards, names or (), rule):
        warnings.warn(told, FleetGPWarning, stacklevel=stacklevel + 1)
    if isinstance(shards, Streamed):  # it was said while they were read
        return
    inputs, values = np.concatenate([own.inputs for own in shards]), np.concatenate([own.values for own in shards])
    for told in told_suspicions(inputs, values, _labels(names, inputs.shape[1])):
        warnings.warn(told, FleetGPWarning, stacklevel=stacklevel + 1)


def warn_of_offset(shards: Sequence[Observations], largest: float, stacklevel: int) -> None:
    """Say that observations lie far from 0, the model's mean, where a theta is given that does not expect it.

    largest: of its sigmas.
    """
    found = joined(summaries_of(shards))
    deviation = (found.squares / max(1, found.count)) ** 0.5
    if found.count < FEWEST_TO_JUDGE or abs(found.mean) <= OFFSET * max(deviation, largest):
        return
    warnings.warn(
        f"theta is for a model whose mean is 0, but the observations lie about {found.mean:.4g}, with a deviation of "
        f"{deviation:.2g}: if it is from a fleet with normalize=True, or with a mean function, give the same here; "
        "else normalize=True is probably meant",
        FleetGPWarning,
        stacklevel=stacklevel + 1,
    )


def _labels(names: Sequence[str] | None, dimension: int) -> Sequence[str]:
    return names or [f"column {d} of X" for d in range(dimension)]


def _names(given: Sequence[Any], inputs: Sequence[str] | None) -> tuple[str, ...] | None:
    """The inputs' names: as they were given, or those of agent 0's columns, which all must have."""
    found = [column_names(x, f"agent {agent}: X") for agent, x in enumerate(given)]
    if inputs is not None:
        return as_names(inputs, "inputs")
    first = found[0]
    for agent, names in enumerate(found):
        if (names is None) != (first is None):
            told = ", ".join(next(n for n in found if n is not None))
            raise InputError(
                f"agent {agent}: X has {'no ' if names is None else ''}column names, but agent 0 has "
                f"{'none' if first is None else told}: give data frames with the same columns to all agents, or to none"
            )
        if names is not None and first is not None and set(names) != set(first):
            raise InputError(
                f"agent {agent}: X has the columns {', '.join(names)}, but agent 0 has {', '.join(first)}: "
                "all agents must have the same inputs"
            )
    return first


def _check_shard(shard: tuple[Any, Any], agent: int, names: Sequence[str] | None) -> Observations:
    given, told = shard
    where = f"agent {agent}: X"
    if names is not None and column_names(given, where) is not None:
        given = by_name(given, names, where)
    inputs, observations = as_numbers(given, where), as_numbers(told, f"agent {agent}: y")
    if inputs.ndim != 2 or observations.shape != inputs.shape[:1] or inputs.shape[1] == 0:
        raise InputError(
            f"agent {agent}: X must be (N, D) and y (N,), but their shapes are {inputs.shape} and {observations.shape}"
        )
    if not len(inputs):
        raise InputError(f"agent {agent} has no data: every agent needs at least one point, or must leave the fleet")
    check_finite(inputs, where)
    check_finite(observations, f"agent {agent}: y")
    return Observations(inputs, observations).locked()  # posteriors are kept for as long as the data are the same
