"""The communication data set of the generalized (g-) methods: D_+i = D_i U D_c."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fleetgp.data.partition import Shard
from fleetgp.network import Network
from fleetgp.network.peer_checks import check_from_peers


def sample(shard: Shard, agent: int, agents: int, seed: int) -> Shard:
    """An agent's share of D_c: N_i / M rows, at least one, drawn without replacement from (seed, agent).

    >>> X, y = np.arange(12.0).reshape(6, 2), np.arange(6.0)
    >>> sample((X, y), agent=0, agents=3, seed=0)[0].shape
    (2, 2)
    """
    inputs, observations = shard
    count = max(1, len(observations) // agents)
    rows = np.sort(np.random.default_rng([seed, agent]).choice(len(observations), count, replace=False))
    return inputs[rows], observations[rows]


def communication_data(network: Network, shards: Sequence[Shard], seed: int, *, central: bool) -> list[Shard]:
    """Every agent's sample, by agent id, at every agent: along the tree, or over the central node."""
    samples = [sample(s, i, network.agents, seed) for s, i in zip(shards, network.hosted, strict=True)]
    parts = {"inputs": [x for x, _ in samples], "observations": [y for _, y in samples]}
    if not central:
        everyone = network.collect(parts)
        assert everyone is not None, "all agents are told"
        width, inputs = shards[0][0].shape[1], everyone["inputs"]
        check_from_peers(
            inputs, lambda _, x: x.ndim == 2 and x.shape[1] == width and len(x) > 0, f"(n, {width}) inputs"
        )
        check_from_peers(
            everyone["observations"], lambda i, y: y.shape == (len(inputs[i]),), "one observation per input"
        )
    else:
        everyone = network.gather(parts)
        network.scatter(np.concatenate(everyone["inputs"]), "inputs")
        network.scatter(np.concatenate(everyone["observations"]), "observations")
    return list(zip(everyone["inputs"], everyone["observations"], strict=True))


def augmented(shard: Shard, agent: int, communication: Sequence[Shard]) -> Shard:
    """An agent's own data and the samples of the others; its own sample is not repeated."""
    others = [communication[j] for j in range(len(communication)) if j != agent]
    return (
        np.concatenate([shard[0], *(x for x, _ in others)]),
        np.concatenate([shard[1], *(y for _, y in others)]),
    )


def without(shard: Shard, sample: Shard) -> Shard:
    """An agent's data without the rows of its sample, which are in their order in both.

    >>> X, y = np.arange(8.0).reshape(4, 2), np.arange(4.0)
    >>> without((X, y), (X[[1, 3]], y[[1, 3]]))[1].tolist()
    [0.0, 2.0]
    """
    rows, drawn = (np.column_stack(part) for part in (shard, sample))
    kept, start = np.ones(len(rows), dtype=bool), 0
    for row in drawn:
        start += int(
            np.flatnonzero((rows[start:] == row).all(axis=1))[0]
        )  # an IndexError, were it not drawn from these
        kept[start] = False
        start += 1
    return shard[0][kept], shard[1][kept]
