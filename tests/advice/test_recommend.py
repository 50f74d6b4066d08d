"""What is recommended follows from the facts, is said in words, and costs what it says."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.advice.recommend import ACCURACIES
from fleetgp.network.counting import Link
from tests.conftest import paper_shards

#: Most trainings here are cut short on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning")

SLOW = "9600 bit/s, 2 s"


@pytest.mark.parametrize(
    ("given", "trainer", "predictor"),
    [
        ({}, "dec-fact-gp", "dec-summary"),
        ({"kernel": "auto"}, "dec-fact-gp", "dec-summary"),
        ({"kernel": "se"}, "dec-full-gp", "dec-full-gp"),
        ({"kernel": "se", "accuracy": "cheap"}, "dec-fact-gp", "dec-nn-rbcm"),
        ({"kernel": "se", "link": SLOW}, "dec-fact-gp", "dec-summary"),
        ({"kernel": "se", "link": SLOW, "accuracy": "best"}, "dec-full-gp", "dec-full-gp"),
        ({"kernel": "se", "dimension": 3}, "dec-fact-gp", "dec-summary"),
        ({"kernel": "se", "private": "rows"}, "dec-fact-gp", "dec-summary"),
        ({"kernel": "se", "private": "sums"}, "dec-fact-gp", "dec-nn-rbcm"),
        ({"private": "rows"}, "dec-fact-gp", "dec-summary"),
        ({"private": "likelihoods"}, "dec-apx-gp", "dec-nn-rbcm"),
        ({"kernel": "matern12", "accuracy": "best"}, "dec-fact-gp", "dec-nearest"),
        ({"kernel": "matern12", "accuracy": "best", "private": "rows"}, "dec-fact-gp", "dec-summary"),
        ({"kernel": "matern12"}, "dec-fact-gp", "dec-summary"),
        ({"kernel": "matern52", "accuracy": "best"}, "dec-fact-gp", "dec-summary"),
    ],
)
def test_the_rules(given: dict[str, Any], trainer: str, predictor: str) -> None:
    found = fg.recommend([300] * 6, "path", **{"dimension": 2, **given})
    assert (found.trainer, found.predictor) == (trainer, predictor)
    assert not found.training.refused
    assert not found.prediction.refused
    assert found.why


@pytest.mark.parametrize(
    ("private", "kernel"),
    [
        pytest.param(private, kernel, marks=[] if kernel in often else [pytest.mark.long])
        for private, often in (("rows", ("se", None)), ("sums", ("se", "matern32")), ("likelihoods", ("se",)))
        for kernel in (None, "se", "matern32")
    ],
)
def test_nothing_private_is_ever_told(private: Any, kernel: str | None) -> None:
    """By the ledgers of the methods that are recommended, not by what is said of them."""
    shards = paper_shards(60, 3)
    advised = [fg.recommend(shards, "path", private=private, kernel=kernel, accuracy=each) for each in ACCURACIES]
    for trainer, predictor in {(advice.trainer, advice.predictor) for advice in advised}:
        fleet = fg.Fleet(shards, "path", kernel=kernel or "matern32", normalize=False)
        fit = fleet.train(trainer, rounds=2, tol=1e-2)
        sent = set(fit.ledger.kinds) | set(fleet.predict([[0.5, 0.5]], predictor).ledger.kinds)
        assert not sent & {"inputs", "observations"}
        if private != "rows":
            assert "moments" not in sent
        if private == "likelihoods":
            assert "hyperparameters" in fit.ledger.kinds


def test_it_costs_what_it_says() -> None:
    """The bytes of an answer of a method whose cost does not hang on the data."""
    fleet = fg.Fleet(paper_shards(120, 4), "cycle", kernel="matern32", normalize=True)
    advice = fg.recommend(fleet, queries=25, agent=2)
    fleet.train("dec-fact-gp", rounds=2, tol=1e-2)
    points = np.random.default_rng(0).uniform(0, 2, (25, 2))
    for method in ("dec-rbcm", "dec-grbcm"):
        found = fg.Fleet(fleet.shards, "cycle", kernel="matern32", normalize=True)
        found.adopt(fleet.last_fit)  # type: ignore[arg-type]
        answer = found.predict(points, method, agent=2)
        assert advice.candidate(method).usual.bytes == answer.ledger.bytes


def test_seconds_are_those_of_the_link() -> None:
    advice = fg.recommend([100] * 5, "star", dimension=1, link=SLOW)
    for one in advice.candidates:
        assert one.seconds is not None
        assert one.seconds[0] == Link(SLOW).seconds(one.usual)
        assert one.seconds[1] <= one.seconds[0] <= one.seconds[2]
    assert fg.recommend([100] * 5, "star", dimension=1).training.seconds is None


def test_it_can_be_printed_and_written() -> None:
    advice = fg.recommend([100] * 5, "path", dimension=2, link=SLOW, private="rows")
    text = str(advice)
    assert text.startswith('Use fg.Fleet(.., kernel="auto"), train("dec-fact-gp"), predict(.., "dec-summary").')
    assert "\n*  dec-fact-gp" in text
    assert "Not for you: training by dec-full-gp" in text
    assert all(sentence in text for sentence in advice.why)
    facts = json.loads(json.dumps(advice.facts))
    rows = {(row["task"], row["method"]): row for row in facts["candidates"]}
    assert rows["training", "dec-apx-gp"]["usual"]["bytes"] == advice.candidate("dec-apx-gp").usual.bytes
    assert rows["prediction", "dec-nearest"]["refused"]


@pytest.mark.parametrize("private", [None, "rows"])
def test_what_methods_that_send_rows_would_gain_is_said(private: Any) -> None:
    why = " ".join(fg.recommend([100] * 5, "path", dimension=2, private=private).why)
    assert "Methods that send rows gain something where the agents' areas overlap: dec-nearest" in why
    assert "dec-nn-grbcm" in why


def test_many_rows_and_one_agent_are_spoken_of() -> None:
    assert "vecchia" in str(fg.recommend([100_000] * 3, dimension=4))
    alone = fg.recommend([100], dimension=1)
    assert any("one agent" in sentence for sentence in alone.why)
    assert alone.prediction.usual.bytes == 0
    assert "take about" in str(fg.recommend([100] * 40, dimension=2, link="300 bit/s, 20 s"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"link": "quick"}, "link: expected a rate"),
        ({"private": "all"}, "unknown private 'all': choose one of rows, sums, likelihoods"),
        ({"accuracy": "high"}, "unknown accuracy 'high'"),
        ({"kernel": "cubic"}, "cubic"),
        ({"queries": 0}, "queries must be a whole number of at least 1"),
        ({"agent": 5}, "agent must lie between 0 and 1"),
        ({"graph": "ring"}, "unknown graph 'ring'"),
    ],
)
def test_bad_questions(given: dict[str, Any], message: str) -> None:
    with pytest.raises(fg.InputError, match=message):
        fg.recommend([10, 10], **{"dimension": 1, **given})


def test_a_fleet_has_its_own_graph() -> None:
    shards = paper_shards(40, 2)
    with pytest.raises(fg.InputError, match="a Fleet has its graph"):
        fg.recommend(fg.Fleet(shards, kernel="se", normalize=False), "star")
    with pytest.raises(fg.InputError, match="unknown candidate 'full-gp'"):
        fg.recommend(fg.Fleet(shards, kernel="se", normalize=False)).candidate("full-gp")


@pytest.mark.parametrize("given", [{}, {"mean": "linear", "coordinates": "kilometres"}, {"robust": True}])
@pytest.mark.parametrize("kernel", ["se", "matern32"])
def test_candidates_send_what_they_tell(given: dict[str, Any], kernel: str) -> None:
    """Also of models that are counted with all that they agree on."""
    fleet = fg.Fleet(paper_shards(60, 3), "path", kernel=kernel, inputs=["lon", "lat"], **given)
    for one in fg.recommend(fleet, link=SLOW).candidates:
        if one.refused:
            continue
        for bill in (one.usual, one.least, one.most or one.usual):
            assert set(bill.sent) <= set(one.tells)
        assert one.least.bytes <= one.usual.bytes <= (one.most or one.usual).bytes
        assert one.seconds is not None
        assert one.seconds[1] <= one.seconds[0] <= one.seconds[2]
