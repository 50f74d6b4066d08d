"""Points that the data say nothing about are told of, by every method and in every unit."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.errors import FleetGPWarning
from fleetgp.kernels.stationary import KERNELS
from fleetgp.network import Network
from fleetgp.prediction import Conditioned, PredictionOptions, Question, predict, prediction_method
from tests.conftest import paper_shards
from tests.shared import observed

THETA = fg.PAPER_THETA
INSIDE, OUTSIDE = [1.0, 1.0], [40.0, -7.0]


@pytest.mark.parametrize("method", fg.PREDICTION_METHODS)
@pytest.mark.parametrize(
    "options", [{}, {"observed": True}, {"normalize": True}, {"normalize": True, "observed": True, "agent": 2}]
)
def test_every_method_knows_which_points_it_knows_nothing_about(method: str, options: dict[str, Any]) -> None:
    scale = 100.0 if options.get("normalize") else 1.0
    shards = [(x, 290.0 * (scale > 1) + scale * y) for x, y in paper_shards(90, 3)]
    theta = (*THETA[:2], scale * THETA[2], scale * THETA[3])
    fleet = fg.Fleet(shards, "complete", theta=theta, normalize=bool(options.get("normalize")), kernel="se")
    asked = {key: value for key, value in options.items() if key != "normalize"}
    few = prediction_method(method).those_of(consensus="average", rounds=400)
    with pytest.warns(
        FleetGPWarning,
        match=r"1 of 2 points are no better known than the prior.*first: number 2, at input 1 40, input 2 -7",
    ):
        out = fleet.predict([INSIDE, OUTSIDE], method, **few, **asked)
    assert out.prior_only.tolist() == [False, True]
    assert out.explained.shape == (3, 2)
    told = out.explained[~np.isnan(out.explained).all(axis=1)]  # along the tree only the agent that asks
    assert (told[:, 0] > 0.3).all()
    assert np.abs(told[:, 1]).max() < 1e-6


def test_the_warning_says_where_the_data_are_and_knows_both_kinds_of_longitude() -> None:
    x, y = (np.concatenate(parts) for parts in zip(*paper_shards(60, 2), strict=True))
    west = np.column_stack([x[:, 0] - 74.0, x[:, 1] + 36.0])
    fleet = fg.Fleet([(west, y)], theta=THETA, inputs=["lon", "lat"], kernel="se", normalize=False)
    with pytest.warns(
        FleetGPWarning, match=r"the data cover lon -7\S* to -72\S*, lat 36\S* to 37\S*\. Are these"
    ) as told:
        fleet.predict(west + np.array([360.0, 0.0]))
    assert "longitudes from 0 to 360? Then subtract 360 from lon" in str(told[0].message)
    assert told[0].filename == __file__, "the caller's line, not one of ours"
    east = fg.Fleet([(west + np.array([360.0, 0.0]), y)], theta=THETA, kernel="se", normalize=False)
    with pytest.warns(FleetGPWarning, match=r"longitudes from -180 to 180\? Then add 360 to input 1"):
        east.predict(west)
    with pytest.warns(FleetGPWarning) as told:
        fleet.predict([[-74.0, 80.0]])
    assert "longitudes" not in str(told[0].message)


def test_an_answer_that_did_not_converge_is_not_blamed_on_the_points() -> None:
    """Capped NPAE falls back to the prior among the data too."""
    fleet = fg.Fleet(paper_shards(200, 10), theta=THETA, kernel="se", normalize=False)
    points = np.random.default_rng(0).uniform(0, 2, (10, 2))
    with pytest.warns(FleetGPWarning, match=r"dec-npae ended by round limit: that may be why"):
        out = fleet.predict(points, "dec-npae", consensus="average", rounds=2)
    assert out.status == "round limit"
    assert out.prior_only.any()


def test_nothing_is_said_of_points_among_the_data() -> None:
    fleet = fg.Fleet(paper_shards(90, 3), theta=THETA, kernel="se", normalize=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not fleet.predict(np.random.default_rng(0).uniform(0, 2, (40, 2))).prior_only.any()
        assert fleet.predict(np.empty((0, 2))).prior_only.shape == (0,)


@pytest.mark.parametrize(
    "method", ["dec-poe", "dec-nn-poe", "dec-grbcm", "dec-nn-grbcm", "dec-npae-star", "dec-summary"]
)
def test_every_agent_alone_in_its_process_knows_the_same(method: str) -> None:
    shards, graph = paper_shards(60, 3), fg.Graph.path(3)
    queries = np.array([INSIDE, OUTSIDE])

    def work(network: Network) -> fg.Prediction:
        mine = [shards[i] for i in network.hosted]
        thetas = np.tile(THETA, (len(mine), 1))
        options = PredictionOptions(consensus="average", rounds=300)
        conditioned = Conditioned(observed(mine), KERNELS["se"], thetas)
        return predict(conditioned, network, Question(prediction_method(method), queries, options, observed=True))

    whole = work(fg.InProcess(graph))
    alone = fg.Loopback(graph, [[0], [1], [2]], timeout=120).run(work)
    for agent, own in enumerate(alone):
        assert np.array_equal(own.explained[0], whole.explained[agent])
        assert own.prior_only.tolist() == [False, True]
