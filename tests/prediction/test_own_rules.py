"""A rule of another package, through the public names alone."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.prediction import AggregationRule, Beliefs, JointRule, Pieces, prediction_method
from tests.cli.commands import run
from tests.conftest import paper_shards

THETA = np.array([1.2, 0.3, 1.3, 0.1])
QUERIES = np.array([[0.4, 0.7], [1.1, 0.3], [1.8, 1.6]])


class TemperedExperts(JointRule):
    """gPoE with variances that are larger by a factor."""

    name = "tempered"
    sends, use = "2 numbers", "where gpoe is too sure of itself"
    with_prior = False

    def __init__(self, temperature: float) -> None:
        self.temperature = temperature

    def summands(self, beliefs: Beliefs) -> Array:
        precision = 1.0 / beliefs.variance
        return np.stack([precision * beliefs.mean, precision], axis=-1)

    def finish(self, totals: Array, participants: Array, beliefs: Beliefs) -> tuple[Array, Array]:
        return totals[..., 0] / totals[..., 1], self.temperature * participants / totals[..., 1]

    def own_covariance(self, covariance: Array, count: Array) -> Array:
        return np.asarray(self.temperature * covariance * np.minimum(count[:, None], count))

    def evidence(self, pieces: Pieces, norm: Array | None) -> tuple[Array, Array]:
        return pieces.weighed(1.0 / pieces.variance, 1.0 / pieces.variance)


class Loudest(AggregationRule):
    """Means weighed by the square of their precision; nothing is said of many queries, and samples are shared."""

    name = "loudest"
    augmented = True
    options = ("seed",)

    def summands(self, beliefs: Beliefs) -> Array:
        weight = beliefs.variance**-2.0
        return np.stack([weight * beliefs.mean, weight], axis=-1)

    def finish(self, totals: Array, participants: Array, beliefs: Beliefs) -> tuple[Array, Array]:
        return totals[..., 0] / totals[..., 1], (participants / totals[..., 1]) ** 0.5


def fleet(**settings: object) -> fg.Fleet:
    return fg.Fleet(paper_shards(120, 4), theta=THETA, kernel="se", normalize=False, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("prefix", ["", "dec-", "dec-nn-"])
def test_a_rule_that_says_what_gpoe_says_answers_the_same(prefix: str) -> None:
    fg.register_rule(TemperedExperts(1.0))
    f = fleet()
    mine, ours = (f.predict(QUERIES, prefix + name) for name in ("tempered", "gpoe"))
    np.testing.assert_array_equal(mine.means, ours.means)
    np.testing.assert_array_equal(mine.variances, ours.variances)
    assert mine.ledger.bytes == ours.ledger.bytes
    one, other = (f.joint(QUERIES, prefix + name) for name in ("tempered", "gpoe"))
    np.testing.assert_array_equal(one.covariance, other.covariance)
    assert f.sample(QUERIES, 2, prefix + "tempered").shape == (2, 3)
    slopes, others = (f.gradient(QUERIES, prefix + name) for name in ("tempered", "gpoe"))
    np.testing.assert_array_equal(slopes.gradient, others.gradient)


def test_a_temperature_is_in_variances_and_in_no_mean() -> None:
    fg.register_rule(TemperedExperts(4.0))
    f = fleet()
    hot, gpoe = (f.predict(QUERIES, name) for name in ("dec-tempered", "dec-gpoe"))
    np.testing.assert_array_equal(hot.mean, gpoe.mean)
    np.testing.assert_allclose(hot.std, np.minimum(2.0 * gpoe.std, THETA[2]))
    single, all_ = f.joint(QUERIES[:1], "dec-tempered"), f.predict(QUERIES[:1], "dec-tempered")
    np.testing.assert_allclose(single.std, all_.std, rtol=1e-9)


def test_averages_are_taken_of_it_too() -> None:
    fg.register_rule(TemperedExperts(2.0))
    exact, averaged = (fleet().predict(QUERIES, "dec-tempered", consensus=how) for how in ("tree", "average"))
    np.testing.assert_allclose(averaged.mean, exact.mean, rtol=1e-4)
    np.testing.assert_allclose(averaged.std, exact.std, rtol=1e-4)


def test_what_a_rule_lacks_is_refused_and_what_it_sends_is_known() -> None:
    fg.register_rule(Loudest())
    f = fleet()
    assert f.predict(QUERIES, "dec-nn-loudest", seed=3).ledger.total(kind="inputs").scalars > 0
    assert f.gradient(QUERIES, "loudest").gradient.shape == (3, 2)
    for ask in (f.joint, f.sample):
        with pytest.raises(fg.InputError, match="dec-loudest has no joint covariance, since its rule says nothing of"):
            ask(QUERIES, method="dec-loudest")
    with pytest.raises(fg.InputError, match=r"dec-loudest has no option beta: expected one of engine, .*seed"):
        f.predict(QUERIES, "dec-loudest", beta="paper")
    with pytest.raises(fg.InputError, match='dec-loudest is refused by private="rows": it sends inputs and obs'):
        fleet(private="rows").predict(QUERIES, "dec-loudest")


def test_everything_that_knows_methods_knows_those_of_the_rule() -> None:
    fg.register_rule(TemperedExperts(2.0))
    assert [name for name in fg.PREDICTION_METHODS if "tempered" in name] == [
        "tempered",
        "dec-tempered",
        "dec-nn-tempered",
    ]
    assert "dec-tempered" in fg.PREDICTION_METHODS
    assert prediction_method("dec-nn-tempered").nearest
    advice = fg.recommend([50] * 5, "path", dimension=2)
    assert advice.candidate("dec-tempered").usual.bytes == advice.candidate("dec-gpoe").usual.bytes
    assert "where gpoe is too sure of itself" in {
        row["use"] for row in json.loads(run("methods", "--json").stdout)["prediction"]
    }
    assert fleet().calibrate("dec-tempered", holdout="rows").method == "dec-tempered"


def test_names_and_rules_are_checked() -> None:
    with pytest.raises(fg.InputError, match="expected an instance of a subclass of AggregationRule, got <class"):
        fg.register_rule(TemperedExperts)  # type: ignore[arg-type]
    rule = TemperedExperts(1.0)
    for name, message in (("poe", "itself: choose another"), ("dec-x", "without dec-"), ("two words", "expected a na")):
        rule.name = name
        with pytest.raises(fg.InputError, match=message):
            fg.register_rule(rule)
    with pytest.raises(TypeError, match="abstract"):
        type("Half", (AggregationRule,), {"name": "half", "summands": None})()
