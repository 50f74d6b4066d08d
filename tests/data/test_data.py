"""Synthetic fields are draws of the stated GP; partitions keep every point once."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fleetgp as fg
from fleetgp.errors import InputError
from fleetgp.gp.hyperparameters import Hyperparameters
from fleetgp.gp.kernels import KERNELS


def test_draws_have_the_kernels_covariance() -> None:
    """Over many seeds the empirical covariance of f and of y at fixed places is k, and k + noise."""
    places = np.random.default_rng(5).uniform(0, 2, (6, 2))
    theta = (0.9, 0.4, 1.3, 0.5)
    fields = [fg.synthetic_field(theta=theta, seed=s, inputs=places) for s in range(4000)]
    k = KERNELS["se"](places, places, Hyperparameters.from_theta(theta))
    assert np.allclose(np.cov(np.array([f.truth for f in fields]).T), k, atol=0.15)
    noisy = np.cov(np.array([f.observations for f in fields]).T)
    assert np.allclose(noisy, k + 0.25 * np.eye(6), atol=0.17)


def test_features_reproduce_the_kernel_to_rounding() -> None:
    from fleetgp.data.synthetic import _feature_count, _square_root
    from fleetgp.gp.chebyshev import polynomials

    x = np.linspace(-1, 1, 200)
    for ratio in (0.3, 2.0, 7.0, 40.0):
        root = _square_root(ratio, _feature_count(ratio))
        features = polynomials(x, len(root)).T @ root
        exact = np.exp(-(((x[:, None] - x) * ratio / 2) ** 2))
        assert np.abs(features @ features.T - exact).max() < 1e-13


def test_the_same_field_at_other_places() -> None:
    grid = fg.synthetic_field(100, seed=3, inputs="grid")
    again = fg.synthetic_field(seed=3, inputs=grid.inputs[::-1].copy())
    assert np.allclose(grid.truth[::-1], again.truth, atol=1e-12)
    assert not np.allclose(grid.truth, fg.synthetic_field(100, seed=4, inputs="grid").truth)


@pytest.mark.parametrize("dimension", [1, 3])
def test_other_dimensions(dimension: int) -> None:
    field = fg.synthetic_field(50, [1.0] * dimension + [1.0, 0.1], seed=1)
    assert field.inputs.shape == (50, dimension)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"theta": (1.0, 1.0, 1.0, -1.0)}, "sigma_eps is -1"),
        ({"theta": (1e-5, 1e-5, 1.0, 0.1)}, "use longer length-scales"),
        ({"n": 50, "inputs": "grid"}, "use 49"),
        ({"inputs": "spiral"}, "choose one of uniform, grid"),
        ({"inputs": np.full((3, 2), 9.0)}, "give a larger box"),
        ({"inputs": np.zeros((3, 1))}, r"shape \(N, 2\)"),
    ],
)
def test_bad_requests(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fg.synthetic_field(**arguments)  # type: ignore[arg-type]


@settings(max_examples=40)
@given(st.integers(1, 60), st.integers(1, 12), st.integers(1, 3), st.sampled_from(["stripes", "random"]))
def test_partition_keeps_every_point_once(n: int, agents: int, dimension: int, by: str) -> None:
    agents = min(agents, n)
    rng = np.random.default_rng(n)
    X, y = rng.standard_normal((n, dimension)), np.arange(float(n))
    along = {"axis": dimension - 1} if by == "stripes" else {}
    shards = fg.partition(X, y, agents=agents, by=by, **along)  # type: ignore[arg-type]
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
        fg.partition(np.zeros((4, 2)), np.zeros(4), **arguments)  # type: ignore[arg-type]
