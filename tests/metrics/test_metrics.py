"""Scores, against integrals, other libraries and what is known of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.metrics import mean_absolute_error, mean_pinball_loss, mean_squared_error

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.errors import InputError
from fleetgp.metrics import Scores, Trivial, coverage, crps, half_width, interval_score, mae, msll, nlpd, rmse, score

numbers = st.floats(-5.0, 5.0)
rows = st.lists(st.tuples(numbers, st.floats(0.05, 5.0), numbers), min_size=1, max_size=8)


def arrays(given_rows: list[tuple[float, float, float]]) -> tuple[Array, Array, Array]:
    mean, deviation, truth = np.array(given_rows).T
    return mean, deviation**2, truth


@pytest.mark.parametrize(("mean", "deviation", "seen"), [(0.0, 1.0, 0.3), (2.0, 0.1, 1.5), (-1.0, 3.0, 6.0)])
def test_crps_is_its_integral(mean: float, deviation: float, seen: float) -> None:
    def below(t: float) -> float:
        return float(norm.cdf(t, mean, deviation) ** 2)

    def above(t: float) -> float:
        return float(norm.sf(t, mean, deviation) ** 2)

    far = 12.0 * deviation
    integral = quad(below, min(mean, seen) - far, seen, limit=200)[0] + quad(above, seen, max(mean, seen) + far)[0]
    found = crps(np.array([mean]), np.array([deviation**2]), np.array([seen]))
    assert found == pytest.approx(integral, rel=1e-7)


@given(rows)
def test_errors_and_densities_are_those_of_other_libraries(given_rows: list[tuple[float, float, float]]) -> None:
    mean, variance, truth = arrays(given_rows)
    assert rmse(mean, truth) == pytest.approx(mean_squared_error(truth, mean) ** 0.5, rel=1e-12, abs=1e-150)
    assert mae(mean, truth) == pytest.approx(mean_absolute_error(truth, mean), rel=1e-12)
    density = -norm.logpdf(truth, mean, np.sqrt(variance)).mean()
    assert nlpd(mean, variance, truth) == pytest.approx(density, rel=1e-12, abs=1e-12)


@given(rows, st.floats(0.02, 0.98))
def test_an_interval_score_is_two_pinball_losses(given_rows: list[tuple[float, float, float]], level: float) -> None:
    """Of the two ends, as quantiles, over half of what lies outside (Gneiting and Raftery, 2007)."""
    mean, variance, truth = arrays(given_rows)
    tail = 0.5 * (1.0 - level)
    low, high = (norm.ppf(q, mean, np.sqrt(variance)) for q in (tail, 1.0 - tail))
    losses = mean_pinball_loss(truth, low, alpha=tail) + mean_pinball_loss(truth, high, alpha=1.0 - tail)
    assert interval_score(mean, variance, truth, level) == pytest.approx(losses / tail, rel=1e-9)


@given(rows)
def test_the_crps_is_the_mean_of_pinball_losses(given_rows: list[tuple[float, float, float]]) -> None:
    """Twice their integral over all quantiles, by the midpoint rule."""
    mean, variance, truth = arrays(given_rows)
    quantiles = (np.arange(4000) + 0.5) / 4000
    ends = norm.ppf(quantiles[:, None], mean, np.sqrt(variance))
    losses = np.maximum(quantiles[:, None] * (truth - ends), (quantiles[:, None] - 1.0) * (truth - ends))
    assert crps(mean, variance, truth) == pytest.approx(2.0 * losses.mean(), rel=2e-3)


@given(rows, st.floats(0.1, 10.0), st.floats(-100.0, 100.0))
def test_other_units_change_scores_as_they_should(
    given_rows: list[tuple[float, float, float]], unit: float, zero: float
) -> None:
    mean, variance, truth = arrays(given_rows)
    trained = np.array([-1.0, 0.5, 2.0])
    plain = score((mean, variance), truth, trained=trained)
    other = score((unit * mean + zero, unit**2 * variance), unit * truth + zero, trained=unit * trained + zero)
    for name in ("rmse", "mae", "crps", "interval_score"):
        assert getattr(other, name) == pytest.approx(unit * getattr(plain, name), rel=1e-6, abs=1e-10), name
    assert other.nlpd == pytest.approx(plain.nlpd + np.log(unit), rel=1e-6, abs=1e-9)
    assert other.msll == pytest.approx(plain.msll, rel=1e-6, abs=1e-9)


def test_a_model_that_says_what_the_trivial_one_says_has_no_msll(rng: np.random.Generator) -> None:
    trained, truth = rng.normal(3.0, 2.0, 50), rng.normal(3.0, 2.0, 20)
    same = np.full(20, trained.mean()), np.full(20, trained.var())
    assert msll(*same, truth, trained) == pytest.approx(0.0, abs=1e-12)
    better = msll(truth, same[1] / 4.0, truth, trained)
    assert better == pytest.approx(-np.log(2.0) - np.mean((truth - same[0]) ** 2) / (2.0 * same[1][0]), rel=1e-12)


def test_the_true_distribution_has_the_best_scores() -> None:
    """They are proper: any other mean or deviation is worse on average."""
    seen = 1.0 + 2.0 * np.random.default_rng(0).standard_normal(20_000)

    def found(mean: float, deviation: float) -> Scores:
        return score((np.full(seen.shape, mean), np.full(seen.shape, deviation**2)), seen)

    true = found(1.0, 2.0)
    for other in (found(1.5, 2.0), found(1.0, 1.5), found(1.0, 2.7)):
        assert other.crps > true.crps
        assert other.interval_score > true.interval_score
        assert other.nlpd > true.nlpd
    assert true.coverage == pytest.approx(0.95, abs=0.01)
    assert true.rmse == pytest.approx(2.0, rel=0.02)
    assert true.mae == pytest.approx(2.0 * np.sqrt(2.0 / np.pi), rel=0.02)
    assert true.crps == pytest.approx(2.0 / np.sqrt(np.pi), rel=0.02)  # E|X - X'| / 2


@given(st.lists(rows, min_size=1, max_size=4))
def test_pooled_scores_are_those_of_all_rows(parts: list[list[tuple[float, float, float]]]) -> None:
    trained = np.array([-1.0, 0.5, 2.0])

    def scored(part: list[tuple[float, float, float]]) -> Scores:
        mean, variance, truth = arrays(part)
        return score((mean, variance), truth, trained=trained, level=0.8)

    pooled, whole = Scores.pooled([scored(part) for part in parts]), scored([row for part in parts for row in part])
    assert pooled.numbers == pytest.approx(whole.numbers, rel=1e-9, abs=1e-12)


def test_an_interval_that_ends_at_the_truth_holds_it() -> None:
    edge = half_width(0.95)
    assert coverage(np.zeros(2), np.ones(2), np.array([edge, -edge])) == 1.0
    assert coverage(np.zeros(2), np.ones(2), np.array([edge, -edge]) * 1.001) == 0.0


def test_scores_as_a_frame_and_as_words() -> None:
    one = score((np.zeros(2), np.ones(2)), [0.0, 1.0])
    whole = Scores.pooled([one, one], answers=(one, one), rows_of=(one, None))
    frame = whole.to_frame(["Ada", "Bo"])
    assert frame.index.tolist() == ["all", "rows of Ada", "answer of Ada", "answer of Bo"]
    assert frame.loc["all", "rows"] == 4
    assert frame["msll"].isna().all()
    assert "coverage=100.0% of 0.95" in repr(whole)


ONES = np.ones(3)
BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "nan": (lambda: score((ONES, ONES), [0.0, np.nan, 1.0]), "truth has NaN or infinite values in 1 of 3 rows"),
    "mask": (
        lambda: rmse(np.ma.masked_array(ONES, [False, True, False]), ONES),
        "mean has masked values in 1 of 3 rows",
    ),
    "length": (lambda: mae(ONES, np.ones(2)), "expected a truth for each of 3 predictions, got 2"),
    "variances": (lambda: crps(ONES, np.ones(2), ONES), "expected a variance for each of 3 truths, got 2"),
    "shape": (lambda: score((np.ones((3, 1)), ONES), ONES), r"mean: expected an array \(N,\)"),
    "nothing": (lambda: score(([], []), []), "with at least one number"),
    "zero": (lambda: nlpd(ONES, [1.0, 0.0, 1.0], ONES), r"expected positive numbers, got 0 \(first: row 1\).*observed"),
    "level": (lambda: coverage(ONES, ONES, ONES, 95), "level must lie between 0 and 1, got 95"),
    "no level": (lambda: score((ONES, ONES), ONES, level=0.0), "level must be a number above 0"),
    "kind": (lambda: score(ONES, ONES), r"expected a Prediction or a pair \(mean, variance\), got ndarray"),
    "constant": (lambda: score((ONES, ONES), ONES, trained=ONES), "expected training observations that differ"),
    "text": (lambda: score((ONES, ONES), ["a", "b", "c"]), "truth: expected a numeric array, got text"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_clear_error(name: str) -> None:
    call, told = BAD[name]
    with pytest.raises(InputError, match=told):
        call()


def test_a_prediction_is_scored_as_it_is() -> None:
    field = fg.synthetic_field(60, seed=1)
    fleet = fg.Fleet(
        fg.partition(field.inputs, field.observations, agents=2), theta=fg.PAPER_THETA, kernel="se", normalize=False
    )
    found, trivial = fleet.predict(field.inputs[:5], "dec-rbcm"), Trivial(0.0, 1.0)
    noise = fg.PAPER_THETA[-1] ** 2
    observed = score((found.mean, found.variance + noise), field.truth[:5], trained=trivial)
    assert fg.score(found, field.truth[:5], trained=trivial).numbers == pytest.approx(observed.numbers, rel=1e-9)
    of_field = fg.score(found, field.truth[:5], observed=False)
    assert of_field.nlpd == pytest.approx(nlpd(found.mean, found.variance, field.truth[:5]), rel=1e-9)
