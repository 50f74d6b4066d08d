"""Partitions keep every point once."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fleetgp as fg
from fleetgp.data import partition
from fleetgp.errors import InputError


@settings(max_examples=40)
@given(st.integers(1, 60), st.integers(1, 12), st.integers(1, 3), st.sampled_from(["stripes", "random"]))
def test_partition_keeps_every_point_once(n: int, agents: int, dimension: int, by: str) -> None:
    agents = min(agents, n)
    rng = np.random.default_rng(n)
    X, y = rng.standard_normal((n, dimension)), np.arange(float(n))
    along = {"axis": dimension - 1} if by == "stripes" else {}
    shards = fg.partition(X, y, agents=agents, by=by, **along)  # type: ignore[call-overload]
    assert sorted(np.concatenate([part for _, part in shards]).tolist()) == y.tolist()
    assert np.ptp([len(part) for _, part in shards]) <= 1
    for inputs, rows in shards:
        assert np.array_equal(inputs, X[rows.astype(int)])
    if by == "stripes":
        edges = [(x[:, -1].min(), x[:, -1].max()) for x, _ in shards]
        assert all(left[1] <= right[0] for left, right in pairwise(edges))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"agents": 0}, "between 1 and the 4 points"),
        ({"agents": 5}, "between 1 and the 4 points"),
        ({"agents": 2, "axis": 2}, "one of the 2 input dimensions"),
        ({"agents": 2, "by": "magic"}, "choose one of stripes, grid, kmeans, random"),
    ],
)
def test_bad_partitions(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fg.partition(np.zeros((4, 2)), np.zeros(4), **arguments)  # type: ignore[call-overload]


@pytest.mark.parametrize("by", ["stripes", "grid", "kmeans", "random"])
@pytest.mark.parametrize("agents", [1, 2, 5, 7, 12])
def test_partitions_keep_every_point_once(by: str, agents: int) -> None:
    rng = np.random.default_rng(agents)
    x = rng.uniform(0, 1, (97, 2))
    shards = partition(x, np.arange(97.0), agents=agents, by=by)  # type: ignore[call-overload]
    assert len(shards) == agents
    assert sorted(np.concatenate([y for _, y in shards]).tolist()) == list(range(97))
    sizes = [len(y) for _, y in shards]
    assert min(sizes) >= 1
    if by != "kmeans":
        assert max(sizes) - min(sizes) <= 1 + (by == "grid")
    if by in ("grid", "kmeans") and agents == 12:
        spread = np.mean([x_i.std(axis=0).prod() for x_i, _ in shards])
        assert spread < 0.25 * x.std(axis=0).prod()


def test_kmeans_gives_every_agent_a_point_even_of_repeated_places() -> None:
    shards = partition(np.zeros((6, 2)), np.arange(6.0), agents=4, by="kmeans")
    assert all(len(y) for _, y in shards)
