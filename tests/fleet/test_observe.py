"""New observations of a fleet that predicts: nothing is refitted, and it answers as one that had them all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fleetgp as fg
from fleetgp.data import Shard
from fleetgp.prediction import prediction_method
from tests.conftest import paper_shards

THETA = (0.5, 0.4, 1.3, 0.2)
POINTS = np.random.default_rng(3).uniform(0.1, 1.9, (6, 2))
CASES = [("dense", "se"), ("dense", "matern32"), ("moments", "se"), ("vecchia", "matern12"), ("auto", "se")]


def parts(shard: Shard, cuts: list[int]) -> list[Shard]:
    return list(zip(*(np.split(array, cuts) for array in shard), strict=True))


def same(one: fg.Prediction, other: fg.Prediction, exactly: bool = False) -> None:
    rtol, atol = (0.0, 0.0) if exactly else (1e-7, 1e-9)
    assert one.engine == other.engine
    np.testing.assert_allclose(one.means, other.means, rtol, atol)
    np.testing.assert_allclose(one.variances, other.variances, rtol, atol)


@pytest.mark.parametrize(("engine", "kernel"), CASES)
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_in_any_batches_and_any_order_it_is_as_if_all_had_been_there(engine: str, kernel: str, data: Any) -> None:
    """The rows of three agents come in batches, between which the fleet is asked or not, in an order of its own."""
    whole, rows = paper_shards(900, 3), st.integers(260, 299)
    batches = [parts(shard, sorted({data.draw(rows), data.draw(rows)})) for shard in whole]
    options = {"theta": THETA, "kernel": kernel}
    fleet = fg.Fleet([own.pop(0) for own in batches], **{"kernel": "se", "normalize": False, **options})  # type: ignore[arg-type]
    turns = data.draw(st.permutations([agent for agent, own in enumerate(batches) for _ in own]))
    asked = data.draw(st.sampled_from(["dec-rbcm", "dec-nn-grbcm", "npae", "dec-nearest"]))
    how = prediction_method(asked).those_of(engine=engine)
    fleet.predict(POINTS, asked, **how)
    for agent in turns:
        turn = data.draw(st.integers(0, len(batches[agent]) - 1))  # its batches, in any order
        fleet.observe(agent, *batches[agent].pop(turn))
        if data.draw(st.booleans()):
            fleet.predict(POINTS, asked, **how)
    found = fleet.predict(POINTS, asked, **how)
    model: dict[str, Any] = {"kernel": "se", "normalize": False, **options}
    same(
        found,
        fg.Fleet(fleet.shards, **model).predict(POINTS, asked, **how),
        exactly=engine == "vecchia",
    )
    if asked != "dec-nn-grbcm":  # whose samples are drawn by the number of a row
        same(found, fg.Fleet(whole, **{"kernel": "se", "normalize": False, **options}).predict(POINTS, asked, **how))  # type: ignore[arg-type]


@pytest.mark.parametrize("method", fg.PREDICTION_METHODS)
def test_every_method_sees_new_observations_at_once(method: str) -> None:
    whole = paper_shards(150, 3)
    fleet = fg.Fleet([(x[:40], y[:40]) for x, y in whole], theta=THETA, kernel="se", normalize=False)
    at_once = prediction_method(method).those_of(min_rows=1, budget=1e12)  # with more, new rows may have to wait
    fleet.predict(POINTS, method, **at_once)
    for agent, (x, y) in enumerate(whole):
        fleet.observe(agent, x[40:], y[40:])
    same(
        fleet.predict(POINTS, method, **at_once),
        fg.Fleet(whole, theta=THETA, kernel="se", normalize=False).predict(POINTS, method, **at_once),
    )


def test_no_posterior_of_another_agent_is_computed_again(conditionings: list[int]) -> None:
    whole = paper_shards(90, 3)
    fleet = fg.Fleet(whole, theta=THETA, kernel="se", normalize=False)
    fleet.predict(POINTS, "dec-rbcm")
    conditionings.clear()
    fleet.observe(1, [[0.5, 0.5]], [1.0])
    fleet.predict(POINTS, "dec-rbcm")
    assert conditionings == [31]


def test_a_conditioned_fleet_and_the_fit_stay_as_they_were() -> None:
    fleet = fg.Fleet(paper_shards(90, 3), normalize=True, kernel="se")
    fit = fleet.train("dec-fact-gp", theta0=THETA)
    conditioned, before = fleet.condition(), fleet.predict(POINTS, "dec-rbcm")
    fleet.observe(0, [[0.5, 0.5]], [3.0])
    assert np.array_equal(conditioned.predict(POINTS, "dec-rbcm").means, before.means)
    assert not np.array_equal(fleet.predict(POINTS, "dec-rbcm").means, before.means)
    assert fleet.last_fit is fit
    assert np.array_equal(fleet.theta, fit.theta)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("agent", "x", "y", "said"),
    [
        (3, [[0.0, 0.0]], [1.0], "agent must lie between 0 and 2"),
        (1, [[0.0]], [1.0], "agent 1: expected X with 2 columns, got 1"),
        (1, [[0.0, np.nan]], [1.0], "agent 1: X"),
        (1, [[0.0, 0.0]], [1.0, 2.0], "agent 1: X must be"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(agent: int, x: Any, y: Any, said: str) -> None:
    fleet = fg.Fleet(paper_shards(90, 3), theta=THETA, kernel="se", normalize=False)
    with pytest.raises(fg.InputError, match=said):
        fleet.observe(agent, x, y)
    assert [len(rows) for _, rows in fleet.shards] == [30, 30, 30]


def test_data_frames_are_taken_by_name() -> None:
    fleet = fg.Fleet(paper_shards(90, 3), theta=THETA, inputs=["lon", "lat"], kernel="se", normalize=False)
    fleet.observe(2, pd.DataFrame({"lat": [0.5], "lon": [0.25]}), [1.0])
    assert fleet.shards[2][0][-1].tolist() == [0.25, 0.5]
    assert not fleet.shards[2][0].flags.writeable


def test_a_fill_value_among_new_rows_is_warned_of() -> None:
    fleet = fg.Fleet(paper_shards(90, 3), theta=THETA, kernel="se", normalize=False)
    with pytest.warns(fg.FleetGPWarning, match="agent 1: y has the value -9999 once") as said:
        fleet.observe(1, [[0.5, 0.5]], [-9999.0])
    assert said[0].filename == __file__
