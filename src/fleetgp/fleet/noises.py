"""Noise that differs, as a caller gives it: deviations with the data, one noise per agent, weights for outliers.

Behind the inputs of a fleet's data stand columns that tell of the noise (`gp.noise`). They are put there here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fleetgp.arrays import Array
from fleetgp.data.partition import Shard
from fleetgp.data.streamed import Shards, Streamed, dimension_of
from fleetgp.data.watched import Watched
from fleetgp.errors import InputError, shortened
from fleetgp.fleet.shards import grown
from fleetgp.given import as_numbers, check_aligned, check_finite
from fleetgp.gp.noise import Noise

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


def noises_of(shards: Shards, *, deviations: bool, noise: NoiseName, robust: bool) -> Noise:
    """What was asked for, or one clear error."""
    groups = tuple(dict.fromkeys(_groups(noise, len(shards))))
    found = Noise.of(dimension_of(shards), known=deviations, robust=robust, groups=groups)
    if found.given and isinstance(shards, Streamed):
        raise InputError(
            "noise that differs, and robust, need data in memory, got files: read them, or leave these settings out"
        )
    return found


def own_groups(noise: NoiseName, agents: int, noises: Noise) -> list[int]:
    """Of each agent the number of its noise."""
    return [noises.groups.index(name) for name in _groups(noise, agents)] or [0] * agents


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


def check_deviations(given: Any, shard: Shard, agent: int) -> Array:
    """The known deviations of an agent's observations, (N,)."""
    what = f"agent {agent}: s"
    check_aligned(given, shard[1], f"agent {agent}: ", ("s", "y"), stacklevel=4)
    values = as_numbers(given, what)
    if values.shape != shard[1].shape:
        raise InputError(f"{what}: expected a standard deviation for each of {len(shard[1])} rows, got {values.shape}")
    check_finite(values, what)
    if (values < 0.0).any():
        row = int(np.flatnonzero(values < 0.0)[0])
        raise InputError(f"{what}: expected standard deviations of at least 0, got {values[row]:g} (first: row {row})")
    return values


def hidden(shard: Shard, noises: Noise, group: int, known: Array | None) -> Shard:
    """An agent's data with what tells of their noise behind the inputs."""
    if not noises.given:
        return shard
    inputs = noises.padded(shard[0], group, known)
    inputs.setflags(write=False)  # posteriors are kept for as long as the arrays are the same
    return inputs, shard[1]


def all_hidden(shards: Shards, noises: Noise, groups: Sequence[int], known: Sequence[Any] | None) -> Shards:
    """The same of all agents. known: as it was given."""
    if not noises.given or isinstance(shards, Streamed):
        return shards
    found = []
    for agent, (shard, group) in enumerate(zip(shards, groups, strict=True)):
        deviations = None if known is None else check_deviations(known[agent], shard, agent)
        found.append(hidden(shard, noises, group, deviations))
    return found


def grown_hidden(
    old: Shard,
    agent: int,
    more: tuple[Any, Any, Any],
    noises: Noise,
    names: Sequence[str] | None,
    watched: Watched | None,
) -> tuple[Shard, Watched]:
    """An agent's data with new rows (X, y, s) after the old ones; s is None where there are no known deviations.

    watched: see `grown`.
    """
    inputs, observations, known = shown(old, noises)
    x, y, s = more
    if (s is None) != (known is None):
        expected, got = (
            ("no known deviations s", "some") if known is None else ("known deviations s, as before", "none")
        )
        raise InputError(f"agent {agent}: expected {expected}, got {got}")
    whole, seen = grown((inputs, observations), agent, (x, y), names, watched)
    if known is not None:
        start = len(observations)
        new = check_deviations(s, (whole[0][start:], whole[1][start:]), agent)
        known = np.concatenate([known, new])
    return hidden(whole, noises, int(noises.group(old[0][:1])[0]), known), seen


def shown(shard: Shard, noises: Noise) -> tuple[Array, Array, Array | None]:
    """The converse: X, y and the known deviations, None where there are none."""
    inputs, observations = shard
    return noises.visible(inputs), observations, noises.known(inputs) if noises.holds_known else None
