"""Agents without rows: they take part, and change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.agent.description import PREDICTORS, TRAINERS
from fleetgp.graph import Graph
from tests.conftest import paper_shards

THETA = [0.6, 0.5, 1.2, 0.3]
QUERIES = np.array([[0.3, 0.4], [1.2, 1.7], [0.9, 0.1]])
NOTHING = (np.zeros((0, 2)), np.zeros(0))
#: An expert without rows answers with the prior, as one far away does, and these count every answer.
PRIORS = ("dec-poe", "dec-gpoe")
#: How many rows of an agent are in a sample depends on how many agents there are.
SAMPLED = ("dec-grbcm", "dec-nn-grbcm", "dec-g-fact-gp", "dec-gapx-gp")


def fleet(shards: Sequence[Any], **options: Any) -> fg.Fleet:
    return fg.Fleet(shards, Graph.path(len(shards)), **{"kernel": "se", "normalize": True, **options})


def with_one(shards: Sequence[Any], place: int) -> list[Any]:
    return [*shards[:place], NOTHING, *shards[place:]]


@pytest.mark.parametrize(("method", "place"), [*((name, 1) for name in PREDICTORS), ("dec-summary", 0)])
def test_an_answer_is_that_of_the_others(method: str, place: int) -> None:
    shards = paper_shards(90, 3)
    others, whole = fleet(shards, theta=THETA), fleet(with_one(shards, place), theta=THETA)
    answer, expected = whole.predict(QUERIES, method), others.predict(QUERIES, method)
    assert np.isfinite(answer.mean).all()
    if method not in (*PRIORS, *SAMPLED):
        np.testing.assert_allclose(answer.mean, expected.mean, rtol=1e-9)
        np.testing.assert_allclose(answer.variance, expected.variance, rtol=1e-9)


@pytest.mark.parametrize("method", TRAINERS)
def test_a_training_is_that_of_the_others(method: str) -> None:
    shards = paper_shards(90, 3)
    others, whole = fleet(shards), fleet(with_one(shards, 1))
    fits = [one.train(method, theta0=[2.0, 0.5, 1.0, 1.0], rounds=400) for one in (others, whole)]
    assert [fit.status for fit in fits] == ["converged", "converged"]
    if method not in SAMPLED:
        assert others.theta is not None
        assert whole.theta is not None
        np.testing.assert_allclose(whole.theta, others.theta, rtol=1e-4)  # a training ends within 1e-5 of log theta


@pytest.mark.parametrize(
    "options",
    [
        {"kernel": "matern32"},
        {"mean": "linear"},
        {"mean": "constant", "normalize": False},
        {"coordinates": "scaled"},
        {"coordinates": "kilometres", "inputs": ["lon", "lat"]},
        {"coordinates": "sphere", "inputs": ["lon", "lat"], "kernel": "iso-matern32(lon, lat)"},
        {"robust": True, "kernel": "matern32"},
        {"private": "rows"},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
@pytest.mark.parametrize("place", [0, 3])
def test_models_of_every_kind(options: dict[str, Any], place: int) -> None:
    shards = paper_shards(60, 3)
    others, whole = fleet(shards, **options), fleet(with_one(shards, place), **options)
    for one in (others, whole):
        assert one.train("dec-fact-gp").status == "converged"
    assert others.theta is not None
    assert whole.theta is not None
    np.testing.assert_allclose(whole.theta, others.theta, rtol=1e-3)  # starts depend on how many agents there are
    np.testing.assert_allclose(whole.predict(QUERIES).mean, others.predict(QUERIES).mean, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("noise", [None, "agents"])
def test_its_first_rows_count_at_once(noise: Any) -> None:
    *shards, more = paper_shards(120, 4)
    theta = THETA if noise is None else [*THETA[:3], 0.3, 0.2, 0.4, 0.25]
    options: dict[str, Any] = {"noise": noise, "theta": theta, "normalize": False}
    grown, begun = fleet(with_one(shards, 1), **options), with_one(shards, 1)
    begun[1] = more
    expected = fleet(begun, **options)
    grown.predict(QUERIES)
    grown.observe(1, *more)
    for method in ("dec-summary", "dec-rbcm", "dec-nn-rbcm", "dec-grbcm", "dec-npae"):
        found, begun_with = (one.predict(QUERIES, method, observed=True) for one in (grown, expected))
        np.testing.assert_allclose(found.mean, begun_with.mean, rtol=1e-9)
        np.testing.assert_allclose(found.variances, begun_with.variances, rtol=1e-9)


def test_what_else_a_fleet_can_do() -> None:
    whole = fleet(with_one(paper_shards(90, 3), 0), theta=THETA)
    assert whole.calibrate().knots
    assert whole.sample(QUERIES, 2).shape == (2, 3)
    assert np.isfinite(whole.gradient(QUERIES).gradient).all()
    assert whole.cross_validate(folds=3).scores.rows_of[0] is None
    assert whole.map((4, 4))["y"].notnull().all()
