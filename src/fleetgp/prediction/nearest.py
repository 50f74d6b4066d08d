"""dec-nearest: the GP of the m observations of the whole fleet that are nearest to each query.

No observation travels that is not needed, and none twice over an edge. The smallest of the agents' own m-th distances
bounds the fleet's; lists of the distances within that bound, merged along the tree, give the fleet's. What is no
farther goes to the root, once for all queries of a block, and the root makes mean and variance of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.consensus.pool import pooled
from fleetgp.data.partition import Shard
from fleetgp.network import MINIMUM, Merge, Network
from fleetgp.network.peer_checks import check_from_peers
from fleetgp.prediction.conditioned import Conditioned
from fleetgp.prediction.local import local_answers
from fleetgp.prediction.task import Answer, Task


def predict_from_nearest(task: Task, conditioned: Conditioned) -> Answer:
    """Mean and variance at each query given its nearest observations; who has one of them takes part."""
    network, before, queries = task.network, task.network.round, task.queries
    count = min(task.options.neighbours, task.agreed.size)
    distances, rows = conditioned.reach.nearest(queries, count)
    with network.phase("select"):
        farthest = _farthest(network, distances)
    needed = np.isfinite(distances) & (distances <= farthest[:, None])
    own = [np.unique(found[wanted]) for found, wanted in zip(rows, needed, strict=True)]
    with network.phase("pool"):
        pool = _at_root(network, [(x[some], y[some]) for (x, y), some in zip(conditioned.shards, own, strict=True)])

    def finish(_: Array, who: BoolArray | None) -> Array:
        root = network.tree.root
        theta = task.thetas[network.hosted.index(root)]
        assert pool is not None, "the root was told"
        return local_answers(pool, queries, count, conditioned.kernel, theta, root)

    with network.phase("aggregate"):
        found = network.reduce_present(
            np.zeros((*needed.shape[:2], 0)),
            np.asarray(needed.any(axis=2)),
            "predictions",
            finish=finish,
            told=(3,),
            to=task.to,
        )
    assert not found.absent.any(), "some observation is the nearest"
    rounds = np.full(len(queries), network.round - before)
    who = np.zeros_like(task.everyone) if found.who is None else found.who
    answers, jitter = (None, 0.0) if found.value is None else (found.value[:, :2], float(found.value[:, 2].max()))
    return Answer.told(task, answers, who, rounds, engine=("dense",) * len(network.hosted), jitter=jitter)


def _nearest(one: Array, other: Array) -> Array:
    """The smallest of two sorted lists, as many as one has."""
    return np.sort(np.concatenate([one, other], axis=-1), axis=-1)[..., : one.shape[-1]]


NEAREST = Merge(_nearest, np.inf)


def _farthest(network: Network, distances: Array) -> Array:
    """(T,) the distance of the fleet's m-th nearest, from each agent's m nearest, (A, T, m), at every agent.

    Infinite if there are fewer.
    """
    bound = network.reduce(distances[..., -1], "statistics", MINIMUM)
    assert bound is not None, "all agents are told"
    lists, present = np.where(distances <= bound[:, None], distances, np.inf), distances[..., 0] <= bound
    found = network.reduce_present(
        lists, present, "statistics", NEAREST, finish=lambda merged, _: merged[:, -1:], told=(1,)
    )
    assert found.value is not None, "all agents are told"
    return np.asarray(found.value[:, 0])


def _at_root(network: Network, parts: Sequence[Shard]) -> Shard | None:
    """What the agents send, in the order of their ids, where the root of the tree is hosted; None elsewhere."""
    width, root = parts[0][0].shape[1], network.tree.root
    sent = network.collect({"inputs": [x for x, _ in parts], "observations": [y for _, y in parts]}, to=root)
    if sent is None:
        return None
    inputs, observations = sent["inputs"], sent["observations"]
    check_from_peers(inputs, lambda _, x: x.size == 0 or x.shape[1:] == (width,), f"(n, {width}) inputs")
    check_from_peers(observations, lambda i, y: y.shape == inputs[i].shape[:1], "one observation per input")
    return pooled([(x.reshape(-1, width), y) for x, y in zip(inputs, observations, strict=True)])
