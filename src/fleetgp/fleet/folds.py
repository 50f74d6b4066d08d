"""Which rows a cross-validation hides together, and the fleet as if they were not there."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.data.holdout import FOLDS, block_pieces, row_pieces
from fleetgp.data.longitudes import rows_along_arc
from fleetgp.data.streamed import Streamed, summaries_of
from fleetgp.data.summary import corners
from fleetgp.errors import FleetGPWarning, InputError, check_name
from fleetgp.fleet.noises import own_groups
from fleetgp.given import check_whole
from fleetgp.gp.places import order_by_place
from fleetgp.graph.relaying import relayed
from fleetgp.model.observations import Observations
from fleetgp.prediction import Holding

if TYPE_CHECKING:
    from fleetgp.fleet.fleet import Fleet

By = Literal["random", "agent", "block"]


@dataclass(frozen=True)
class Rest:
    """A fleet as if the rows of a fold were not there. members: the numbers that its agents have in the whole fleet.

    judges: for every agent of the whole fleet, the member that answers for it: itself, or one with the same noise.
    """

    fleet: Fleet
    members: tuple[int, ...]
    judges: tuple[int, ...]


def dealt(fleet: Fleet, by: By, folds: int | None, cells: int | None, seed: int) -> list[IntArray]:
    """(N_i,) of each agent's rows the fold in which they are hidden; or one clear error."""
    check_name("by", by, get_args(By))
    if cells is not None and by != "block":
        raise InputError(f'cells are of by="block", got by="{by}": leave them out')
    shards = rows_of(fleet)
    count = (fleet.agents if by == "agent" else FOLDS) if folds is None else folds
    check_whole("folds", count, least=2)
    rows = sum(map(len, shards))
    if count > rows:
        raise InputError(f"folds: expected at most {rows:,}, one for each row, got {count:,}")
    if by == "agent" and count > fleet.agents:
        raise InputError(f'by="agent": expected at most {fleet.agents} folds, one for each agent, got {count}')
    if by == "agent":
        turns = _turns(shards, seed) if count < fleet.agents else range(count)
        return [np.full(len(own), turn % count) for own, turn in zip(shards, turns, strict=True)]
    if by == "random":
        return [row_pieces(own.inputs, own.values, seed, count) % count for own in shards]
    pieces = rows_along_arc(shards, fleet.coordinates)
    low, high = corners(summaries_of(pieces))
    many = Holding(cells=cells).cells_for(fleet.agents)
    return [block_pieces(own.inputs, low, high, many, seed) % count for own in pieces]


def _turns(shards: Sequence[Observations], seed: int) -> IntArray:
    """(M,) a number for each agent that looks random, and depends on where its rows are alone."""
    centres = np.stack([own.inputs.mean(axis=0) for own in shards])
    means = np.array([own.values.mean() for own in shards])
    found = np.empty(len(shards), dtype=np.int64)
    found[order_by_place(centres, means, seed)] = np.arange(len(shards))
    return found


def rows_of(fleet: Fleet) -> Sequence[Observations]:
    """Every agent's rows, loaded if they are in files: all, or the sample that is drawn."""
    return fleet.data.load() if isinstance(fleet.data, Streamed) else fleet.data


def without(fleet: Fleet, fold_of: Sequence[IntArray], fold: int, *, kernel: Any) -> Rest:
    """The same fleet, untrained, without the rows of a fold. Agents with no others only relay.

    kernel: in the place of the fleet's own.
    """
    members = tuple(agent for agent, own in enumerate(fold_of) if (own != fold).any())
    if not members:
        raise InputError("cross-validation: expected rows that stay when a fold is hidden, got none: give more cells")
    rows = rows_of(fleet)
    shards = [rows[agent].rows(fold_of[agent] != fold).as_given for agent in members]
    groups = own_groups(fleet.noise, fleet.agents, fleet.noise_model)
    names = [fleet.noise_model.groups[group] for group in groups] if fleet.noise_model.groups else None
    settings = fleet.settings | {"kernel": kernel, "noise": names and [names[agent] for agent in members]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FleetGPWarning)  # of the data: it was said when the fleet was made
        rest = type(fleet)(shards, relayed(fleet.graph, members), **settings)
    return Rest(rest, members, tuple(_judge(agent, members, groups, names) for agent in range(fleet.agents)))


def _judge(agent: int, members: Sequence[int], groups: Sequence[int], names: Sequence[str] | None) -> int:
    if agent in members:
        return members.index(agent)
    for place, other in enumerate(members):
        if groups[other] == groups[agent]:
            return place
    assert names is not None, "without groups all are of one"
    raise InputError(
        f"cross-validation: agent {agent} has no rows left in a fold, and nobody else has the noise {names[agent]!r}: "
        'its observations cannot be judged. Give by="random", or a noise that several agents share'
    )


def by_name(theta: Array, names: Sequence[str], wanted: Sequence[str]) -> list[float]:
    """A theta in the order of other names: groups of noise may be in another order without some agents."""
    values = dict(zip(names, theta.tolist(), strict=True))
    return [values[name] for name in wanted]
