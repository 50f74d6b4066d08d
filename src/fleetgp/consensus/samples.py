"""The communication data set of the generalized (g-) methods: D_+i = D_i U D_c.

A row is drawn for where it lies (`arrays.py`): the same data have the same sample in whatever order rows and
agents come, whatever the agents are called, and with fewer digits. A few more rows hardly change it, so that what was
sent before need not be sent again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array, BoolArray, Keys, occurrences, row_hashes
from fleetgp.data.suspicions import scrambled
from fleetgp.model.observations import Observations
from fleetgp.network import Network
from fleetgp.network.wire import check_from_peers


def sample(data: Observations, agents: int, seed: int) -> Observations:
    """An agent's share of D_c: N_i / M rows, at least one, drawn without replacement.

    They are the first ones in the order of `order_by_place`.

    >>> data = Observations(np.arange(12.0).reshape(6, 2), np.arange(6.0))
    >>> sample(data, agents=3, seed=0).inputs.shape
    (2, 2)
    >>> drawn, turned = (sample(data.rows(slice(None, None, step)), 3, 0).values.tolist() for step in (1, -1))
    >>> sorted(drawn) == sorted(turned)
    True
    """
    count = max(1, len(data) // agents)
    return data.rows(data.drawn(count, seed))


@dataclass(frozen=True)
class Drawn:
    """Everyone's samples, by agent id. rows: (A,) of how many rows of each hosted agent."""

    samples: Sequence[Observations]
    rows: Sequence[int]


def communication_data(
    network: Network,
    shards: Sequence[Observations],
    seed: int,
    *,
    central: bool,
    before: Drawn | None = None,
) -> list[Observations]:
    """Every agent's sample, by agent id, at every agent: along the tree, or over the central node.

    before: what everyone holds of the first rows: only what differs from it is sent.
    """
    nothing = shards[0].rows(slice(0))
    old = [nothing] * network.agents if before is None else list(before.samples)
    changes = []
    for k, (shard, i) in enumerate(zip(shards, network.hosted, strict=True)):
        grown = before is None or len(shard) > before.rows[k]
        changes.append(_change(old[i], sample(shard, network.agents, seed) if grown else old[i]))
    parts = {"inputs": [more.packed for more, _ in changes], "observations": [more.values for more, _ in changes]}
    if before is not None:
        parts["statistics"] = [gone for _, gone in changes]  # rows of the old samples, by their places there
    everyone = _everyones(network, parts, central=central)
    told = zip(everyone["inputs"], everyone["observations"], strict=True)
    new = [nothing.unpacked(packed, values) for packed, values in told]
    if before is None:
        return new
    gone = everyone["statistics"]
    check_from_peers(gone, lambda i, rows: bool(np.isin(rows, np.arange(len(old[i]))).all()), "rows of its sample")
    stay = [np.isin(np.arange(len(one)), rows, invert=True) for one, rows in zip(old, gone, strict=True)]
    return [
        Observations.joined([one.rows(kept), more]) if len(more) or not kept.all() else one
        for one, kept, more in zip(old, stay, new, strict=True)
    ]


def _everyones(network: Network, parts: dict[str, list[Array]], *, central: bool) -> dict[str, list[Array]]:
    """What all agents tell, at every agent."""
    if central:
        everyone = network.gather(parts)
        for kind, values in everyone.items():
            network.scatter(np.concatenate(values), kind)
        return everyone
    found = network.collect(parts)
    assert found is not None, "all agents are told"
    width, inputs = parts["inputs"][0].shape[1], found["inputs"]
    first = "statistics" not in parts  # later an agent may have nothing to say
    check_from_peers(
        inputs,
        lambda _, x: (x.ndim == 2 and x.shape[1] == width and len(x) > 0) or not (first or x.size),
        f"(n, {width}) inputs",
    )
    check_from_peers(found["observations"], lambda i, y: y.shape == (len(inputs[i]),), "one observation per input")
    return found


def _change(old: Observations, new: Observations) -> tuple[Observations, Array]:
    """What makes a sample of another: the observations that are new, and the places of those that go."""
    if new is old:
        return old.rows(slice(0)), np.zeros(0)
    more, gone = ~_among(new, old), ~_among(old, new)
    return new.rows(more), np.flatnonzero(gone).astype(float)


def augmented(shard: Observations, agent: int, communication: Sequence[Observations]) -> Observations:
    """The samples of the others and an agent's own data, at the end of which more may come; its own sample is not
    repeated.
    """
    return Observations.joined([*(communication[j] for j in range(len(communication)) if j != agent), shard])


def without(shard: Observations, sample: Observations) -> Observations:
    """An agent's data without the rows of its sample.

    >>> data = Observations(np.arange(8.0).reshape(4, 2), np.arange(4.0))
    >>> without(data, data.rows([3, 1])).values.tolist()
    [0.0, 2.0]
    """
    return shard.rows(~_among(shard, sample))


def _among(some: Observations, others: Observations) -> BoolArray:
    """(N,) which rows are among others; of rows that are alike as many as there are there.

    >>> data = Observations(np.zeros((3, 1)), np.array([1.0, 2.0, 1.0]))
    >>> _among(data, data.rows(slice(2))).tolist()
    [True, True, False]
    """
    return np.isin(_names(some), _names(others))


def _names(shard: Observations) -> Keys:
    """(N,) a number for each row that is the same for the same row, and another one for each that repeats it."""
    hashes = row_hashes(np.column_stack([shard.packed, shard.values]))
    repeats: Keys = scrambled(occurrences(hashes, np.zeros(len(hashes))))
    return np.asarray(np.add(scrambled(hashes), repeats))
