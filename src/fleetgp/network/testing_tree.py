"""The conformance suite of reductions and collections along the tree; a part of `testing.check_network`."""

from __future__ import annotations

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.graph import Topology, Tree
from fleetgp.network.base import Network
from fleetgp.network.reduction import MAXIMUM, MINIMUM, PIECE, SUM, Merge

#: Rows of a value that goes in three pieces, and in more than one row a piece.
LONG, WIDE = 3, PIECE // 2 + 1
ROWS = 5


def _nearest(one: Array, other: Array) -> Array:
    """The two smallest of two lists, row by row: a merger that is none of NumPy's."""
    return np.sort(np.concatenate([one, other], axis=-1), axis=-1)[..., :2]


NEAREST = Merge(_nearest, np.inf)


def _values(agent: int, *shape: int) -> Array:
    return np.random.default_rng([11, agent]).standard_normal(shape)


def _present(agent: int) -> BoolArray:
    """Nobody in row 4, agent 0 alone in row 3."""
    return np.array([agent % 2 == 0, agent % 3 == 1, True, agent == 0, False])


def tree_transcript(network: Network) -> dict[str, Array]:
    """What the hosted agents see; axis 0 is the hosted agents."""
    x = np.stack([_values(agent, ROWS, 2) for agent in network.hosted])
    present = np.stack([_present(agent) for agent in network.hosted])
    last = network.agents - 1
    seen: dict[str, Array] = {}

    def same(name: str, value: Array | BoolArray | None) -> None:
        """The same at all hosted agents; NaN where nobody here was told."""
        found = np.full(1, np.nan) if value is None else np.asarray(value, dtype=float).ravel()
        seen[name] = np.tile(found, (len(network.hosted), 1))

    with network.phase("reduce"):
        for name, merge in (("sum", SUM), ("max", MAXIMUM), ("min", MINIMUM), ("nearest", NEAREST)):
            same(f"tree {name}", network.reduce(x, "statistics", merge))
        same("tree vector", network.reduce(x[:, :, 0], "statistics"))
        wide = np.stack([_values(agent, LONG, WIDE) for agent in network.hosted])
        same("tree pieces", network.reduce(wide, "moments"))
        same("tree finish", network.reduce(x, "statistics", finish=lambda total, _: total[:, :1] ** 2, told=(1,)))
    with network.phase("reduce to one"):
        told = network.reduce(x, "statistics", to=last)
        assert (told is None) == (last not in network.hosted)
        seen["tree to one"] = _where_told(network, last, told, ROWS * 2)
    with network.phase("present"):
        found = network.reduce_present(x, present, "predictions")
        assert found.value is not None
        assert found.who is not None
        same("present sum", np.where(found.absent[:, None], 0.0, found.value))
        same("present who", found.who)
        same("present absent", found.absent)
        ordered = network.reduce_present(x, present, "predictions", NEAREST, finish=_counted, told=(1,), to=last)
        same("present absent to one", ordered.absent)
        value = None if ordered.value is None else np.where(ordered.absent[:, None], 0.0, ordered.value)
        seen["present to one"] = _where_told(network, last, value, ROWS)
    with network.phase("collect"):
        rows = [np.full((agent % 3, 2), float(agent)) for agent in network.hosted]
        found_all = network.collect({"inputs": rows, "observations": [row[:, 0] for row in rows]})
        assert found_all is not None
        same("collect", np.concatenate([v.ravel() for kind in found_all for v in found_all[kind]]))
        found_one = network.collect({"statistics": rows}, to=last)
        assert (found_one is None) == (last not in network.hosted)
        value = None if found_one is None else np.concatenate([v.ravel() for v in found_one["statistics"]])
        length = sum(2 * (agent % 3) for agent in range(network.agents))
        seen["collect to one"] = _where_told(network, last, value, length)
    return seen


def _counted(total: Array, who: BoolArray | None) -> Array:
    assert who is not None
    count = who.sum(axis=0)[:, None]
    return np.asarray(np.where(count > 0, total[:, :1], 0.0) * count)


def _where_told(network: Network, told: int, value: Array | None, size: int) -> Array:
    seen = np.full((len(network.hosted), size), np.nan)
    if value is not None:
        seen[network.hosted.index(told)] = value.ravel()
    return np.asarray(np.nan_to_num(seen, nan=-7.0))


def check_tree_against_definition(seen: dict[str, Array], topology: Topology) -> None:
    """The reference itself, against sums, extremes and lists over all agents."""
    agents = range(topology.agents)
    x = np.stack([_values(agent, ROWS, 2) for agent in agents])
    present = np.stack([_present(agent) for agent in agents])
    wide = np.stack([_values(agent, LONG, WIDE) for agent in agents])
    spoken = [np.full((agent % 3, 2), float(agent)) for agent in agents]
    everyone = np.concatenate([row.ravel() for row in spoken] + [row[:, 0] for row in spoken])
    smallest = np.sort(x.transpose(1, 0, 2).reshape(ROWS, -1), axis=1)[:, :2]
    expected = {
        "tree sum": x.sum(axis=0),
        "tree max": x.max(axis=0),
        "tree min": x.min(axis=0),
        "tree nearest": smallest if topology.agents > 1 else x[0],
        "tree vector": x[:, :, 0].sum(axis=0),
        "tree pieces": wide.sum(axis=0),
        "tree finish": x.sum(axis=0)[:, :1] ** 2,
        "present sum": np.where(present[..., None], x, 0.0).sum(axis=0),
        "present who": present,
        "present absent": ~present.any(axis=0),
        "collect": everyone,
    }
    for name, value in expected.items():
        assert np.allclose(seen[name], np.asarray(value, dtype=float).ravel(), rtol=1e-12, atol=1e-12), name
    last = topology.agents - 1
    assert np.allclose(seen["tree to one"][last], x.sum(axis=0).ravel(), rtol=1e-12, atol=1e-12)
    assert (seen["tree to one"][:last] == -7.0).all()
    if topology.period == 1:
        tree = Tree.of(topology.union)
        assert tree.height <= topology.diameter <= 2 * tree.height, "the root is no centre"
