"""Noise that differs, as a caller gives it: deviations with the data, one noise per agent, weights for outliers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fleetgp.arrays import Array
from fleetgp.data.streamed import Shards, Streamed
from fleetgp.data.watched import Watched
from fleetgp.errors import InputError, shortened
from fleetgp.fleet.shards import checked_rows
from fleetgp.given import as_numbers, check_aligned, check_finite
from fleetgp.model.noise import NoiseModel
from fleetgp.model.observations import Observations

#: One noise per agent.
AGENTS = "agents"

#: As a caller gives it: one for all, AGENTS, or a name for the noise of each agent.
NoiseName = str | Sequence[str] | None


def parted(shards: Any) -> tuple[Any, list[Any] | None]:
    """(X, y) of each agent, and the known deviations, if the data have any: all agents', or nobody's."""
    if isinstance(shards, Streamed) or not isinstance(shards, Sequence):
        return shards, None
    with_known = [isinstance(shard, list | tuple) and len(shard) == 3 for shard in shards]
    if not any(with_known):
        return shards, None
    if not all(with_known):
        raise InputError(
            f"agent {with_known.index(False)}: expected (X, y, s) with known deviations s, as other agents have: give "
            "them for all agents or for none (0 where there is no known part)"
        )
    return [shard[:2] for shard in shards], [shard[2] for shard in shards]


def noise_model_of(shards: Shards, *, deviations: bool, noise: NoiseName, robust: bool) -> NoiseModel:
    """What was asked for, or one clear error."""
    groups = tuple(dict.fromkeys(_groups(noise, len(shards))))
    found = NoiseModel(known=deviations, robust=robust, groups=groups)
    if found.differs and isinstance(shards, Streamed):
        raise InputError(
            "noise that differs, and robust, need data in memory, got files: read them, or leave these settings out"
        )
    return found


def own_groups(noise: NoiseName, agents: int, noise_model: NoiseModel) -> list[int]:
    """Of each agent the number of its noise."""
    return [noise_model.groups.index(name) for name in _groups(noise, agents)] or [0] * agents


def _groups(noise: NoiseName, agents: int) -> list[str]:
    """The name of each agent's noise; none for one for all."""
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
    """The known deviations of an agent's observations, (N,)."""
    what = f"agent {agent}: s"
    check_aligned(given, y, f"agent {agent}: ", ("s", "y"), stacklevel=4)
    values = as_numbers(given, what)
    if values.shape != y.shape:
        raise InputError(f"{what}: expected a standard deviation for each of {len(y)} rows, got {values.shape}")
    check_finite(values, what)
    if (values < 0.0).any():
        row = int(np.flatnonzero(values < 0.0)[0])
        raise InputError(f"{what}: expected standard deviations of at least 0, got {values[row]:g} (first: row {row})")
    return values


def observed(shards: Shards, noise_model: NoiseModel, groups: Sequence[int], known: Sequence[Any] | None) -> Shards:
    """All agents' observations with what is known about their noise. known: as it was given."""
    if not noise_model.differs or isinstance(shards, Streamed):
        return shards
    found = []
    for agent, (own, group) in enumerate(zip(shards, groups, strict=True)):
        deviations = None if known is None else check_deviations(known[agent], own.values, agent)
        found.append(noise_model.observed(replace(own, noise_std=deviations), group).locked())
    return found


def observed_more(
    old: Observations,
    agent: int,
    more: tuple[Any, Any, Any],
    noise_model: NoiseModel,
    names: Sequence[str] | None,
    watched: Watched | None,
) -> tuple[Observations, Watched]:
    """An agent's data with new rows (X, y, s) after the old ones; s is None where there are no known deviations.

    watched: see `checked_rows`.
    """
    x, y, s = more
    if (s is None) == noise_model.known:
        expected, got = (
            ("known deviations s, as before", "none") if noise_model.known else ("no known deviations s", "some")
        )
        raise InputError(f"agent {agent}: expected {expected}, got {got}")
    new, seen = checked_rows(old, agent, (x, y), names, watched)
    if noise_model.known:
        new = replace(new, noise_std=check_deviations(s, new.values, agent))
    group = int(noise_model.group(old.rows(slice(1)))[0])
    return Observations.joined([old, noise_model.observed(new, group)]).locked(), seen
