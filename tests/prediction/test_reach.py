"""Bounds on what an agent explains, against the exact value by plain inverses."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.kernels.stationary import KERNELS, SquaredExponential, Stationary
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.prediction.reach import Reach


@settings(max_examples=40, deadline=None)
@given(
    kernel=st.sampled_from(sorted(KERNELS)),
    seed=st.integers(0, 10_000),
    count=st.integers(1, 12),
    noise=st.floats(0.05, 2.0),
    scale=st.floats(0.1, 3.0),
)
def test_the_exact_value_lies_between_the_bounds(
    kernel: str, seed: int, count: int, noise: float, scale: float
) -> None:
    rng = np.random.default_rng(seed)
    theta = np.array([scale, 0.7 * scale, 1.3, noise])
    x, points = rng.uniform(0, 2, (count, 2)), rng.uniform(-4, 6, (15, 2))
    h = Hyperparameters.from_theta(theta)
    cross = KERNELS[kernel](x, points, h)
    inverse = np.linalg.inv(KERNELS[kernel](x, x, h) + noise**2 * np.eye(count))
    exact = np.einsum("nt,nm,mt->t", cross, inverse, cross)
    least, most = Reach([x], theta[None], KERNELS[kernel]).bounds(points)
    assert (least[0] <= exact + 1e-14).all()
    assert (exact <= most[0] + 1e-14).all()
    assert (most <= h.signal**2).all()


@pytest.mark.parametrize("kernel", sorted(KERNELS))
def test_every_kernel_falls_with_the_distance(kernel: str) -> None:
    """What the upper bound rests on."""
    profile, _ = KERNELS[kernel].profile_and_slope(np.linspace(0.0, 400.0, 4001))
    assert (np.diff(profile) <= 0.0).all()


def test_a_kernel_of_ones_own_is_not_taken_to_fall() -> None:
    class Own(Stationary):
        name = "own"
        profile_and_slope = SquaredExponential.profile_and_slope

    _, most = Reach([np.zeros((1, 1))], np.array([[1.0, 2.0, 0.1]]), Own()).bounds(np.array([[50.0]]))
    assert most.item() == 4.0


@pytest.mark.parametrize("rule", ["rbcm", "grbcm"])
def test_bounds_decide_as_the_exact_values_do(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without them the same agents answer, far from all data too; only the work differs."""
    rng = np.random.default_rng(1)
    shards = [(rng.uniform(3 * i, 3 * i + 1, (30, 1)), rng.standard_normal(30)) for i in range(6)]
    points = np.append(rng.uniform(0, 16, 40), 60.0)[:, None]
    fleet = fg.Fleet(shards, theta=[0.8, 1.0, 0.1], kernel="matern32", normalize=False)
    with pytest.warns(fg.FleetGPWarning, match="no better known"):
        quick = fleet.condition().predict(points, f"dec-nn-{rule}", eta=0.01)

    def unsure(_: Reach, queries: Array) -> tuple[Array, Array]:
        return np.zeros((6, len(queries))), np.full((6, len(queries)), 1.0)  # the prior's variance

    monkeypatch.setattr(Reach, "bounds", unsure)
    with pytest.warns(fg.FleetGPWarning, match="no better known"):
        exact = fleet.condition().predict(points, f"dec-nn-{rule}", eta=0.01)
    assert 1 < quick.participants.sum(axis=0).max() < 6
    assert np.array_equal(quick.participants, exact.participants)
    np.testing.assert_allclose(quick.mean, exact.mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(quick.variance, exact.variance, rtol=1e-9)


@pytest.mark.parametrize("kernel", sorted(KERNELS))
def test_a_kernel_that_was_sent_to_another_process_falls_too(kernel: str) -> None:
    rng = np.random.default_rng(0)
    x, points, theta = rng.uniform(0, 2, (5, 2)), rng.uniform(3, 9, (4, 2)), np.array([[0.4, 0.4, 1.3, 0.5]])
    sent = pickle.loads(pickle.dumps(KERNELS[kernel]))
    here, there = (Reach([x], theta, each).bounds(points) for each in (KERNELS[kernel], sent))
    assert np.array_equal(here, there)
    assert (here[1] < 1.3**2).any(), "far away, less than everything can be explained"
