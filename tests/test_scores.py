"""The scores of the benchmarks, against integrals and a simulation."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.scores import crps, interval_score, scores
from scipy.integrate import quad
from scipy.special import ndtr, ndtri


@pytest.mark.parametrize(("mean", "deviation", "seen"), [(0.0, 1.0, 0.3), (2.0, 0.1, 1.5), (-1.0, 3.0, 6.0)])
def test_crps_is_its_integral(mean: float, deviation: float, seen: float) -> None:
    def below(t: float) -> float:
        return float(ndtr((t - mean) / deviation) ** 2)

    def above(t: float) -> float:
        return float(ndtr((mean - t) / deviation) ** 2)

    far = 12.0 * deviation
    integral = quad(below, min(mean, seen) - far, seen, limit=200)[0] + quad(above, seen, max(mean, seen) + far)[0]
    assert crps(np.array([mean]), np.array([deviation]), np.array([seen])) == pytest.approx(integral, rel=1e-7)


def test_interval_score_is_its_width_and_forty_times_what_is_missed() -> None:
    half = ndtri(0.975)
    seen = np.array([0.5, half + 0.25, -half - 1.0])
    expected = 2.0 * half + 40.0 * np.array([0.0, 0.25, 1.0])
    assert interval_score(np.zeros(3), np.ones(3), seen) == pytest.approx(expected.mean(), rel=1e-12)


def test_the_true_distribution_has_the_best_scores() -> None:
    """Both are proper: any other mean or deviation is worse on average."""
    seen = 1.0 + 2.0 * np.random.default_rng(0).standard_normal(20_000)

    def found(mean: float, deviation: float) -> dict[str, float]:
        return scores(np.full(seen.shape, mean), np.full(seen.shape, deviation), seen)

    true = found(1.0, 2.0)
    for other in (found(1.5, 2.0), found(1.0, 1.5), found(1.0, 2.7)):
        assert other["crps"] > true["crps"]
        assert other["interval"] > true["interval"]
    assert true["coverage"] == pytest.approx(0.95, abs=0.01)
    assert true["rmse"] == pytest.approx(2.0, rel=0.02)
    assert true["mae"] == pytest.approx(2.0 * np.sqrt(2.0 / np.pi), rel=0.02)
