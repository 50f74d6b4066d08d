"""The posterior by moments against the dense one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.engines.basis import Box
from fleetgp.engines.dense.engine import DenseEngine
from fleetgp.engines.expert import Expert, FleetExpert
from fleetgp.engines.moments.engine import EPS, MEAN_ULPS, MomentsEngine
from fleetgp.engines.moments.fleet import FleetMoments
from fleetgp.engines.moments.sums import ChebyshevSums
from fleetgp.model.observations import Observations
from tests.engines.moments.problems import SE, exact_mean, places


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 3), st.sampled_from(["uniform", "line", "clusters"]))
def test_posterior_inside_and_outside_the_box(seed: int, dimension: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    n = 400 if dimension == 3 else 80
    x = places(kind, n, dimension, rng)
    y = rng.standard_normal(n)
    theta = np.array([*rng.uniform(0.8, 2.0, dimension) * (1 + (dimension == 3)), 1.3, 10.0 ** rng.uniform(-1, 0)])
    queries = rng.uniform(-3, 5, (40, dimension))
    ours, reference = (
        MomentsEngine(Observations(x, y), 0).condition(theta),
        DenseEngine(Observations(x, y), SE, 0).condition(theta),
    )
    assert ours is not None
    for a, b in zip(ours.mean_and_variance(queries), reference.mean_and_variance(queries), strict=True):
        assert np.allclose(a, b, atol=1e-7)
    assert np.allclose(ours.explained_variance(queries), reference.explained_variance(queries), atol=1e-7)
    mean, variance = ours.mean_and_variance(np.full((2, dimension), 1e5))
    assert np.allclose(mean, 0.0, atol=1e-12)
    assert np.allclose(variance, 1.3**2)
    assert ours.mean_and_variance(queries[:0])[0].shape == (0,)


def test_what_the_posterior_cannot_resolve_is_left_to_the_dense_engine() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 2, (600, 1))
    y = 1e5 + np.sin(x[:, 0]) + 0.002 * rng.standard_normal(600)
    theta = np.array([0.3, 1.0, 0.002])
    assert Expert(Observations(x, y), SE, 0).condition(theta).engine == "dense"
    assert Expert(Observations(x, y - 1e5), SE, 0).condition(theta).engine == "moments"
    for extreme in ([1.0, 1.0, 1e-160], [1.0, 1e-200, 1.0], [1e-200, 1.0, 1.0]):
        assert MomentsEngine(Observations(x, y), 0).condition(np.array(extreme)) is None


@pytest.mark.skipif(bool(np.finfo(np.longdouble).eps >= np.finfo(float).eps), reason="no extended precision here")
def test_rounding_of_the_mean_of_a_billion_rows_is_far_below_its_deviation() -> None:
    """The mean of every row 2^22 times is that of all rows once with a noise smaller by 2^-11: the dense one has it."""
    rng = np.random.default_rng(0)
    times, scales, box = 2**22, np.array([1.2, 0.5]), Box(np.ones(2), np.full(2, 1.1))
    x, queries = rng.uniform(0.0, 2.0, (240, 2)), rng.uniform(0.0, 2.0, (50, 2))
    y = np.cos(x @ [2.0, 3.0]) + 0.1 * rng.standard_normal(len(x))
    once = FleetMoments.of(ChebyshevSums(x, y, box), (121, 161))
    many = FleetMoments(box, times * once.sums, times * once.responses, times * once.squares)
    posterior = FleetExpert(many).condition(np.array([*scales, 1.3, 0.1]))
    mean, variance = posterior.mean_and_variance(queries)
    exact = exact_mean(x, y, queries, np.array([*scales, 1.3, 0.1 / np.sqrt(times)]))
    assert many.count > 10**9
    wrong = np.abs(mean - exact) / np.sqrt(variance)
    assert wrong.max() < 0.02


@pytest.mark.skipif(bool(np.finfo(np.longdouble).eps >= np.finfo(float).eps), reason="no extended precision here")
@pytest.mark.parametrize("noise", [1e-2, 1e-3])
def test_rounding_of_the_mean_is_below_what_is_told(noise: float) -> None:
    rng = np.random.default_rng(0)
    x, queries, scales = rng.uniform(0.0, 2.0, (240, 2)), rng.uniform(0.0, 2.0, (50, 2)), np.array([1.2, 0.5])
    y = np.cos(x @ [2.0, 3.0]) + noise * rng.standard_normal(len(x))
    posterior = MomentsEngine(Observations(x, y), 0).condition(np.array([*scales, 1.3, noise]))
    assert posterior is not None
    exact = exact_mean(x, y, queries, np.array([*scales, 1.3, noise]))
    told = MEAN_ULPS * EPS * len(x) * (1.3 / noise) ** 2 * 1.3
    assert np.abs(posterior.mean_and_variance(queries)[0] - exact).max() <= told
