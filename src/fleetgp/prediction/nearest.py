"""dec-nearest: the GP of the m observations of the whole fleet that are nearest to each query.

Each agent tells a few of the distances to its own nearest observations. Such lists, merged along the tree, give a
distance within which the fleet has m. What is no farther goes to the root, once for all queries of a block; the root
makes mean and variance of the nearest, and tells with them whose they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.model.observations import Observations
from fleetgp.network import Merge, Network
from fleetgp.network.wire import check_from_peers
from fleetgp.prediction.conditioned import Conditioned
from fleetgp.prediction.local import local_answers
from fleetgp.prediction.task import Answer, Task

#: Distances that an agent tells for each query. With more of them fewer observations come to the root in vain, which
#: are few already (1 in 100 where agents hold different places), and cost less than the distances.
STEPS = 5
#: Agents that are named in one number, by its bits.
BITS = 48


class Pool(NamedTuple):
    """What the root has been sent. owners: (n,) whose each observation is."""

    data: Observations
    owners: IntArray


def predict_from_nearest(task: Task, conditioned: Conditioned) -> Answer:
    """Mean and variance at each query given its nearest observations; whose they are takes part."""
    network, before, queries = task.network, task.network.round, task.queries
    count, own = nearest_rows(task, conditioned)
    pool = at_root(network, conditioned.shards, own)

    def finish(_: Array, everyone: BoolArray | None) -> Array:
        assert pool is not None, "the root was told"
        root = network.tree.root
        theta = task.thetas[network.hosted.index(root)]
        found, near = local_answers(pool.data, queries, count, conditioned.kernel, theta, root)
        return np.concatenate([found, as_numbers(whose(task, pool, near))], axis=1)

    with network.phase("aggregate"):
        silent = np.zeros((len(network.hosted), len(queries), 0))
        width = 3 + numbers_for(network.agents)
        told = network.reduce(silent, "predictions", finish=finish, result_shape=(width,), recipient=task.to)
    rounds, engine = np.full(len(queries), network.round - before), ("dense",) * len(network.hosted)
    if told is None:
        return Answer.told(task, None, np.zeros_like(task.everyone), rounds, engine=engine)
    who = from_numbers(told[:, 3:], network.agents)
    return Answer.told(task, told[:, :2], who, rounds, engine=engine, jitter=float(told[:, 2].max()))


def nearest_rows(task: Task, conditioned: Conditioned) -> tuple[int, list[IntArray]]:
    """How many observations answer a query, and of each hosted agent the rows that may be among them."""
    count = min(task.options.n_neighbours, task.agreed.size)
    distances, rows = conditioned.reach.nearest(task.queries, count)
    with task.network.phase("select"):
        enough = _enough(task.network, distances)
    needed = np.isfinite(distances) & (distances <= enough[:, None])
    return count, [np.unique(found[wanted]) for found, wanted in zip(rows, needed, strict=True)]


def whose(task: Task, pool: Pool, near: IntArray) -> BoolArray:
    """(M, T) whose observations are among the nearest to each query, rows (T, m) of the pool."""
    who = np.zeros_like(task.everyone)
    who[pool.owners[near].T, np.arange(len(task.queries))] = True
    return who


def _nearest(one: Array, other: Array) -> Array:
    """The smallest of two lists, as many as one has."""
    return np.sort(np.concatenate([one, other], axis=-1), axis=-1)[..., : one.shape[-1]]


NEAREST = Merge(_nearest, np.inf)


def _enough(network: Network, distances: Array) -> Array:
    """(T,) a distance within which the fleet has m observations, from each agent's m nearest, (A, T, m).

    An agent tells the distance of every s-th: as many more are within it. The smallest of all agents' such distances
    say where there are m. Infinite where this is not sure: there are hardly more then.
    """
    count = distances.shape[2]
    step = -(-count // STEPS)
    ends = np.minimum(step * np.arange(1, -(-count // step) + 1), count) - 1
    found = network.reduce(
        distances[..., ends], "statistics", NEAREST, finish=lambda merged, _: merged[:, -1:], result_shape=(1,)
    )
    assert found is not None, "all agents are told"
    return np.asarray(found[:, 0])


def at_root(network: Network, shards: Sequence[Observations], rows: Sequence[IntArray]) -> Pool | None:
    """These rows of the agents, in the order of their ids, where the root of the tree is hosted; None elsewhere."""
    parts = [own.rows(some) for own, some in zip(shards, rows, strict=True)]
    packed, root = [part.packed for part in parts], network.tree.root
    width = packed[0].shape[1]
    with network.phase("pool"):
        sent = network.collect({"inputs": packed, "observations": [part.values for part in parts]}, recipient=root)
    if sent is None:
        return None
    inputs, observations = sent["inputs"], sent["observations"]
    check_from_peers(inputs, lambda _, x: x.size == 0 or x.shape[1:] == (width,), f"(n, {width}) inputs")
    check_from_peers(observations, lambda i, y: y.shape == inputs[i].shape[:1], "one observation per input")
    data = [parts[0].unpacked(x, y) for x, y in zip(inputs, observations, strict=True)]
    return Pool(Observations.joined(data), np.repeat(np.arange(network.agents), list(map(len, data))))


def numbers_for(agents: int) -> int:
    """How many numbers have a bit for each agent."""
    return -(-agents // BITS)


def as_numbers(who: BoolArray) -> Array:
    """Who takes part, (M, T), as the bits of a few numbers a query, (T, W).

    >>> as_numbers(np.array([[True, False], [False, True], [True, True]])).tolist()
    [[5.0], [6.0]]
    """
    starts = range(0, len(who), BITS)
    return np.stack([2.0 ** np.arange(len(part)) @ part for part in (who[s : s + BITS] for s in starts)], axis=1)


def from_numbers(numbers: Array, agents: int) -> BoolArray:
    """The reverse.

    >>> from_numbers(np.array([[5.0], [6.0]]), 3).tolist()
    [[True, False], [False, True], [True, True]]
    """
    bits = numbers.T.astype(np.int64)[:, None, :] >> np.arange(BITS)[:, None] & 1
    return np.asarray(bits.reshape(-1, len(numbers))[:agents] > 0)
