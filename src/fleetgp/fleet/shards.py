"""Checks of what a caller gives to a fleet: the agents' data, hyperparameters for these data, and the noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fleetgp.arrays import Array, duplicate_rows
from fleetgp.consensus.agreements import agree_on_coordinates
from fleetgp.consensus.reductions import Alone
from fleetgp.data.dataset import Dataset, InMemory, centres_of, corners, joined
from fleetgp.data.suspicions import LONGITUDE_NAMES, Inspection, suspicions_of
from fleetgp.data.transforms import CoordinateRule
from fleetgp.errors import InputError, shortened, warn
from fleetgp.model.hyperparameters import check_theta
from fleetgp.model.noise import NoiseModel
from fleetgp.model.observations import Observations
from fleetgp.validation import as_names, as_numbers, by_name, check_aligned, check_finite, column_names

#: As many standard deviations from 0 (of the data and of the model) as observations may lie without a warning, which
#: needs at least this many observations.
OFFSET, FEWEST_TO_JUDGE = 3.0, 10
#: One noise per agent.
AGENTS = "agents"
#: The noise as a caller gives it: one for all, AGENTS, or a name for the noise of each agent.
NoiseName = str | Sequence[str] | None


def check_shards(shards: Any, inputs: Sequence[str] | None = None) -> tuple[Dataset, tuple[str, ...] | None]:
    """Return every agent's data as float arrays, and the inputs' names; errors name the agent.

    Columns of data frames are put in the order of `inputs`, or of agent 0's columns.
    """
    if isinstance(shards, Dataset):  # checked while they were read
        return shards, None if inputs is None else as_names(inputs, "inputs")
    if not isinstance(shards, Sequence) or not len(shards):
        raise InputError("shards must be a list of (X_i, y_i), one per agent, with at least one agent")
    shards, known = split_deviations(shards)
    for agent, shard in enumerate(shards):
        if not isinstance(shard, list | tuple) or len(shard) != 2:
            raise InputError(f"agent {agent}: expected a pair (X, y), got {type(shard).__name__}")
        check_aligned(shard[0], shard[1], f"agent {agent}: ", ("X", "y"))
    names = _names([x for x, _ in shards], inputs)
    checked = [_check_shard(shard, agent, names) for agent, shard in enumerate(shards)]
    if not any(len(one) for one in checked):
        raise InputError("no agent has data: expected at least one point in the fleet")
    dimension = checked[0].dimension
    for agent, one in enumerate(checked):
        if one.dimension != dimension:
            raise InputError(
                f"agent {agent}: X has {one.dimension} columns, but agent 0 has {dimension}: "
                "all agents must have the same inputs"
            )
    if names is not None and len(names) != dimension:
        raise InputError(f"expected a name for each of the {dimension} inputs, got {', '.join(names)}")
    if known is not None:
        pairs = enumerate(zip(checked, known, strict=True))
        checked = [replace(own, noise_std=check_deviations(s, own.values, k)).locked() for k, (own, s) in pairs]
    return InMemory(checked), names


def refuse_duplicates(shards: Dataset, why: str) -> None:
    """Refuse rows with the same inputs, which make a covariance singular. why: what else is the case."""
    for agent, own in enumerate(shards):
        pair = duplicate_rows(own.inputs)
        if pair is not None:
            raise InputError(
                f"agent {agent}: rows {pair[0]} and {pair[1]} are duplicates, and {why}, "
                "which makes its covariance singular: give a positive sigma_eps"
            )


def places_of(shards: Dataset, rule: CoordinateRule) -> Array:
    """Return (M, D) the agents' centres, in units of the extent of all data along each axis, or on the sphere."""
    if rule.name == "sphere" and not shards.in_memory:
        raise InputError('coordinates="sphere" needs data in memory, got files: load them, or use "kilometres"')
    if rule.name == "sphere":
        moved = shards.moved(agree_on_coordinates(Alone(), shards, rule))
        return centres_of(moved)[:, [rule.longitude, rule.latitude, -1]]
    known = shards.summaries_along_arc(rule.longitude)
    low, high = corners(known)
    centres = np.stack([one.centre if one.count else 0.5 * low + 0.5 * high for one in known])
    return np.asarray((centres - low) / np.where(high > low, high - low, 1.0))


def describe_seam(shards: Dataset, names: Sequence[str], rule: CoordinateRule) -> list[str]:
    """Describe longitudes on both sides of 180 degrees (or of 0, from 0 to 360) in coordinates without a seam."""
    if rule.longitude >= 0:
        return []
    sentences = []
    for d, name in enumerate(names):
        if name.strip().lower() not in LONGITUDE_NAMES:
            continue
        known = shards.summaries
        low, high = min(one.low[d] for one in known), max(one.high[d] for one in known)
        west, east = shards.arc(d)
        if low < -180.0 or high > 360.0 or high - low <= east - west:
            continue
        other = "0 to 360" if low < 0.0 else "-180 to 180"
        sentences.append(
            f"input {name!r} runs from {low:g} to {high:g}, but all its values lie within {east - west:.3g} degrees of "
            f'longitude: with coordinates="{rule.name}" the two ends are {high - low:.3g} degrees apart. Give '
            f'coordinates="kilometres", or "sphere" for large areas (--coordinates), or longitudes from {other}'
        )
    return sentences


def warn_of_shards(shards: Dataset, names: Sequence[str] | None, rule: CoordinateRule) -> None:
    """Say what is probably not meant: fill values, mixed longitudes, dates as numbers, copied rows."""
    for suspicion in describe_seam(shards, names or (), rule):
        warn(suspicion)
    if not shards.in_memory:  # it was said while they were read
        return
    inputs, values = np.concatenate([own.inputs for own in shards]), np.concatenate([own.values for own in shards])
    for suspicion in suspicions_of(inputs, values, _labels(names, inputs.shape[1])):
        warn(suspicion)


def warn_of_offset(shards: Dataset, largest: float) -> None:
    """Say that observations lie far from 0, the model's mean, where a theta is given that does not expect it.

    largest: of its sigmas.
    """
    whole = joined(shards.summaries)
    deviation = (whole.squares / max(1, whole.count)) ** 0.5
    if whole.count < FEWEST_TO_JUDGE or abs(whole.mean) <= OFFSET * max(deviation, largest):
        return
    warn(
        f"theta is for a model whose mean is 0, but the observations lie about {whole.mean:.4g}, with a deviation of "
        f"{deviation:.2g}: if it is from a fleet with normalize=True, or with a mean function, give the same here; "
        "else normalize=True is probably meant"
    )


def _labels(names: Sequence[str] | None, dimension: int) -> Sequence[str]:
    return names or [f"column {d} of X" for d in range(dimension)]


def _names(given: Sequence[Any], inputs: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the inputs' names: those given, or those of agent 0's columns, which all agents must have."""
    every = [column_names(x, f"agent {agent}: X") for agent, x in enumerate(given)]
    if inputs is not None:
        return as_names(inputs, "inputs")
    first = every[0]
    for agent, names in enumerate(every):
        if (names is None) != (first is None):
            others = ", ".join(next(n for n in every if n is not None))
            raise InputError(
                f"agent {agent}: X has {'no ' if names is None else ''}column names, but agent 0 has "
                f"{'none' if first is None else others}: give data frames with the same columns to all, or to none"
            )
        if names is not None and first is not None and set(names) != set(first):
            raise InputError(
                f"agent {agent}: X has the columns {', '.join(names)}, but agent 0 has {', '.join(first)}: "
                "all agents must have the same inputs"
            )
    return first


def _check_shard(shard: tuple[Any, Any], agent: int, names: Sequence[str] | None) -> Observations:
    given, values = shard
    where = f"agent {agent}: X"
    if names is not None and column_names(given, where) is not None:
        given = by_name(given, names, where)
    inputs, observations = as_numbers(given, where), as_numbers(values, f"agent {agent}: y")
    if inputs.ndim != 2 or observations.shape != inputs.shape[:1] or inputs.shape[1] == 0:
        raise InputError(
            f"agent {agent}: X must be (N, D) and y (N,), but their shapes are {inputs.shape} and {observations.shape}"
        )
    check_finite(inputs, where)
    check_finite(observations, f"agent {agent}: y")
    return Observations(inputs, observations).locked()  # posteriors are kept while the data are the same


def check_theta_of(shards: Dataset, theta: object, names: Sequence[str], name: str = "theta") -> Array:
    """Return a valid theta in natural units, (P,). names: of the hyperparameters."""
    values = as_numbers(theta, name)
    if values.shape == (len(names),) and values[-1] == 0:
        refuse_duplicates(shards, f"{name} has sigma_eps = 0")
    return check_theta(values, names, name)


def check_starts(shards: Dataset, theta0: object, names: Sequence[str]) -> Array:
    array = as_numbers(theta0, "theta0")
    rows = array if array.ndim == 2 else [array]
    if not len(rows):
        raise InputError("theta0 must hold at least one start, but it is empty")
    return np.log([check_theta_of(shards, row, names, "theta0") for row in rows])


def split_deviations(shards: Any) -> tuple[Any, list[Any] | None]:
    """Return (X, y) of each agent, and the known standard deviations s of all agents, or None."""
    with_known = [isinstance(shard, list | tuple) and len(shard) == 3 for shard in shards]
    if not any(with_known):
        return shards, None
    if not all(with_known):
        raise InputError(
            f"agent {with_known.index(False)}: expected (X, y, s) with known deviations s, as other agents have: give "
            "them for all agents or for none (0 where there is no known part)"
        )
    return [shard[:2] for shard in shards], [shard[2] for shard in shards]


def noise_model_of(noise: NoiseName, agents: int, *, known: bool, robust: bool) -> NoiseModel:
    """Return the model of the agents' noise. known: whether there are known standard deviations."""
    return NoiseModel(known=known, robust=robust, groups=tuple(dict.fromkeys(_groups(noise, agents))))


def own_groups(noise: NoiseName, agents: int, noise_model: NoiseModel) -> list[int]:
    return [noise_model.groups.index(name) for name in _groups(noise, agents)] or [0] * agents


def _groups(noise: NoiseName, agents: int) -> list[str]:
    """Return the name of each agent's noise; none if all agents share one."""
    if noise is None:
        return []
    if isinstance(noise, str) and noise == AGENTS:
        return [str(agent) for agent in range(agents)]
    named = not isinstance(noise, str) and isinstance(noise, Sequence) and all(isinstance(name, str) for name in noise)
    if not named or len(noise) != agents or not all(noise):
        raise InputError(
            f'noise: expected None (one for all), "{AGENTS}" (one per agent), or a list with the name of the noise of '
            f"each of the {agents} agents, got {shortened(noise)}"
        )
    return list(noise)


def check_deviations(given: Any, y: Array, agent: int) -> Array:
    """Return the known standard deviations of an agent's observations, (N,)."""
    what = f"agent {agent}: s"
    check_aligned(given, y, f"agent {agent}: ", ("s", "y"))
    values = as_numbers(given, what)
    if values.shape != y.shape:
        raise InputError(f"{what}: expected a standard deviation for each of {len(y)} rows, got {values.shape}")
    check_finite(values, what)
    if (values < 0.0).any():
        row = int(np.flatnonzero(values < 0.0)[0])
        raise InputError(f"{what}: expected standard deviations of at least 0, got {values[row]:g} (first: row {row})")
    return values


def observed_more(
    data: Dataset,
    agent: int,
    more: tuple[Any, Any, Any],
    noise_model: NoiseModel,
    names: Sequence[str] | None,
    inspected: Inspection | None,
    group: int,
) -> tuple[Observations, Inspection]:
    """Check new rows (X, y, s) of an agent, and warn of what is suspicious of them together with the old ones.

    s is None without known deviations.  inspected: the inspection of the old rows, if there was one.
    group: of the agent's noise.
    """
    if not data.in_memory:
        raise data.not_changing("add a file")
    old, (x, y, s) = data[agent], more
    if (s is None) == noise_model.known:
        expected, got = (
            ("known deviations s, as before", "none") if noise_model.known else ("no known deviations s", "some")
        )
        raise InputError(f"agent {agent}: expected {expected}, got {got}")
    check_aligned(x, y, f"agent {agent}: ", ("X", "y"))
    new = _check_shard((x, y), agent, names)
    if new.dimension != old.dimension:
        raise InputError(f"agent {agent}: expected X with {old.dimension} columns, got {new.dimension}")
    labels = _labels(names, old.dimension)
    before = Inspection.of(old.inputs, old.values) if inspected is None else inspected
    after, known = before.plus(Inspection.of(new.inputs, new.values)), before.describe(labels)
    for suspicion in after.describe(labels):
        if suspicion not in known:
            warn(f"agent {agent}: {suspicion}")
    if noise_model.known:
        new = replace(new, noise_std=check_deviations(s, new.values, agent))
    return noise_model.observed(new, group), after
