"""The communication data set of the generalized (g-) methods: D_+i = D_i U D_c.

A row is drawn for where it lies (`gp/places.py`): the same data have the same sample in whatever order rows and
agents come, whatever the agents are called, and with fewer digits. A few more rows hardly change it, so that what was
sent before need not be sent again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array, BoolArray, Keys, row_hashes
from fleetgp.consensus.pool import pooled
from fleetgp.data.partition import Shard
from fleetgp.data.sketch import scrambled
from fleetgp.gp.noise import SAME, Noise
from fleetgp.gp.places import occurrences, order_by_place
from fleetgp.network import Network
from fleetgp.network.peer_checks import check_from_peers


def sample(shard: Shard, agents: int, seed: int, noises: Noise = SAME) -> Shard:
    """An agent's share of D_c: N_i / M rows, at least one, drawn without replacement.

    They are the first ones in the order of `order_by_place`. noises: what the inputs have behind them does not count.

    >>> X, y = np.arange(12.0).reshape(6, 2), np.arange(6.0)
    >>> sample((X, y), agents=3, seed=0)[0].shape
    (2, 2)
    >>> drawn, turned = (sample((X[order], y[order]), 3, 0)[1] for order in (slice(None), slice(None, None, -1)))
    >>> sorted(drawn.tolist()) == sorted(turned.tolist())
    True
    """
    inputs, observations = shard
    count = max(1, len(observations) // agents)
    rows = np.sort(order_by_place(noises.visible(inputs), observations, seed)[:count])
    return inputs[rows], observations[rows]


@dataclass(frozen=True)
class Drawn:
    """Everyone's samples, by agent id. rows: (A,) of how many rows of each hosted agent."""

    samples: Sequence[Shard]
    rows: Sequence[int]


def communication_data(
    network: Network,
    shards: Sequence[Shard],
    seed: int,
    *,
    central: bool,
    noises: Noise = SAME,
    before: Drawn | None = None,
) -> list[Shard]:
    """Every agent's sample, by agent id, at every agent: along the tree, or over the central node.

    before: what everyone holds of the first rows: only what differs from it is sent.
    """
    width = shards[0][0].shape[1]
    nothing = np.zeros((0, width)), np.zeros(0)
    old = [nothing] * network.agents if before is None else list(before.samples)
    changes = []
    for k, (shard, i) in enumerate(zip(shards, network.hosted, strict=True)):
        grown = before is None or len(shard[1]) > before.rows[k]
        changes.append(_change(old[i], sample(shard, network.agents, seed, noises) if grown else old[i]))
    parts = {"inputs": [x for x, _, _ in changes], "observations": [y for _, y, _ in changes]}
    if before is not None:
        parts["statistics"] = [gone for _, _, gone in changes]  # rows of the old samples, by their places there
    everyone = _everyones(network, parts, central=central)
    told = zip(everyone["inputs"], everyone["observations"], strict=True)
    new = [(x.reshape(-1, width), y) for x, y in told]
    if before is None:
        return new
    gone = everyone["statistics"]
    check_from_peers(gone, lambda i, rows: bool(np.isin(rows, np.arange(len(old[i][1]))).all()), "rows of its sample")
    stay = [np.isin(np.arange(len(y)), rows, invert=True) for (_, y), rows in zip(old, gone, strict=True)]
    return [
        pooled([(x[kept], y[kept]), more]) if len(more[1]) or not kept.all() else (x, y)
        for (x, y), kept, more in zip(old, stay, new, strict=True)
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


def _change(old: Shard, new: Shard) -> tuple[Array, Array, Array]:
    """What makes a sample of another: the inputs and observations that are new, and the places of those that go."""
    if new is old:
        return old[0][:0], old[1][:0], np.zeros(0)
    more, gone = ~_among(new, old), ~_among(old, new)
    return new[0][more], new[1][more], np.flatnonzero(gone).astype(float)


def augmented(shard: Shard, agent: int, communication: Sequence[Shard]) -> Shard:
    """The samples of the others and an agent's own data, at the end of which more may come; its own sample is not
    repeated.
    """
    return pooled([*(communication[j] for j in range(len(communication)) if j != agent), shard])


def without(shard: Shard, sample: Shard) -> Shard:
    """An agent's data without the rows of its sample.

    >>> X, y = np.arange(8.0).reshape(4, 2), np.arange(4.0)
    >>> without((X, y), (X[[3, 1]], y[[3, 1]]))[1].tolist()
    [0.0, 2.0]
    """
    kept = ~_among(shard, sample)
    return shard[0][kept], shard[1][kept]


def _among(some: Shard, others: Shard) -> BoolArray:
    """(N,) which rows are among others; of rows that are alike as many as there are there.

    >>> X, y = np.zeros((3, 1)), np.array([1.0, 2.0, 1.0])
    >>> _among((X, y), (X[:2], y[:2])).tolist()
    [True, True, False]
    """
    return np.isin(_names(some), _names(others))


def _names(shard: Shard) -> Keys:
    """(N,) a number for each row that is the same for the same row, and another one for each that repeats it."""
    hashes = row_hashes(np.column_stack(shard))
    repeats: Keys = scrambled(occurrences(hashes, np.zeros(len(hashes))))
    return np.asarray(np.add(scrambled(hashes), repeats))
