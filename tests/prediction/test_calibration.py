"""Calibration, against a computation of its own: hidden rows, predictions by another fleet, NumPy's quantiles."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

import fleetgp as fg
from fleetgp.consensus.agreements import Scaling, outer_corners
from fleetgp.data.partition import FOLDS, block_pieces, hidden, row_pieces
from fleetgp.errors import FleetGPWarning, InputError
from fleetgp.kernels.stationary import KERNELS
from fleetgp.network import Network
from fleetgp.prediction import Calibration, Holding, PredictionOptions, prediction_method
from fleetgp.prediction.calibrate import Fleetwide, calibrate
from fleetgp.prediction.calibration import BINS, EDGES, Outcomes, interpolated, places_of, quantile

#: Most trainings here are cut short on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning")

THETA = [0.6, 0.5, 1.0, 0.15]
#: Shorter, and with less noise: what many agents know together is much more than each of them.
ROUGH = [0.3, 0.3, 1.0, 0.05]
DEVIATIONS = norm.ppf(0.975)


@cache
def field(n: int, *theta: float) -> tuple[Any, Any]:
    """A draw of the model itself."""
    rng = np.random.default_rng(5)
    inputs = rng.uniform(0.0, 2.0, (n, 2))
    scaled = inputs / theta[:2]
    covariance = np.exp(-((scaled[:, None] - scaled) ** 2).sum(axis=-1))
    draw = np.linalg.cholesky(covariance + 1e-8 * np.eye(n)) @ rng.standard_normal(n)
    return inputs, draw + theta[-1] * rng.standard_normal(n)


def fleet_of(rows: int, agents: int) -> fg.Fleet:
    inputs, observations = field(300, *THETA)
    return fg.Fleet(
        fg.partition(inputs[:rows], observations[:rows], agents=agents),
        "path",
        theta=THETA,
        kernel="se",
        normalize=False,
    )


def by_hand(fleet: fg.Fleet, method: str, hold: str, cells: int = 100) -> tuple[Any, Any]:
    """(n,) the factor that each held-out row needs, and the deviation that it was predicted with."""
    corners = np.max([outer_corners(x.min(axis=0), x.max(axis=0)) for x, _ in fleet.shards], axis=0)
    pieces = [
        row_pieces(x, y, 0) if hold == "rows" else block_pieces(x, -corners[2:], corners[:2], cells, 0)
        for x, y in fleet.shards
    ]
    needed, deviations = [], []
    for fold in range(FOLDS):
        masks = [hidden(own, fold) for own in pieces]
        rest = [(x[~mask], y[~mask]) for (x, y), mask in zip(fleet.shards, masks, strict=True)]
        found = fg.Fleet(rest, fleet.graph, theta=THETA, kernel="se", normalize=False)
        for (x, y), mask in zip(fleet.shards, masks, strict=True):
            answer = found.predict(x[mask], method, observed=True)
            needed.append(np.abs(y[mask] - answer.mean) / np.sqrt(answer.variance) / DEVIATIONS)
            deviations.append(np.sqrt(answer.variance))
    return np.concatenate(needed), np.concatenate(deviations)


# ---- the pure parts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
def test_the_quantile_of_counts_is_that_of_all_values(rng: np.random.Generator, level: float) -> None:
    needed = np.exp(rng.standard_normal(4000))
    counts = Outcomes(needed, np.ones(4000), np.zeros(4000, dtype=bool)).counted()[0]
    assert counts[: BINS + 2].sum() == counts[-2] == 4000
    assert quantile(counts[:-2], level) == pytest.approx(np.quantile(needed, level), rel=EDGES[1] / EDGES[0] - 1.0)


def test_rows_beyond_the_edges_and_those_without_a_number_are_counted() -> None:
    needed = np.array([0.0, 1e-9, 1.0, 1e9, np.inf, np.nan])
    counts = Outcomes(needed, np.ones(6), np.array([False] * 6)).counted()[0]
    assert (counts[0], counts[BINS + 1], counts[:-2].sum()) == (2, 3, 6)
    assert counts[768] == 1, "1 belongs to the bin below the edge at 1"
    assert EDGES[768] == 1.0
    assert quantile(counts[:-2], 0.95) == EDGES[-1]
    assert quantile(counts[:-2], 0.05) == EDGES[0]


def test_kinds_of_rows_with_the_same_deviation_have_one_factor(rng: np.random.Generator) -> None:
    first, second = (
        Outcomes(size * np.abs(rng.standard_normal(500)), np.full(500, 4.0), np.zeros(500, dtype=bool)).counted()[0]
        for size in (1.0, 3.0)
    )
    places = places_of(np.array([first, second]), 0.9)
    assert places[0, 1] == places[1, 1] == np.log(quantile(first[:-2] + second[:-2], 0.9))
    second[-1] += 500.0  # e times as far apart
    places = places_of(np.array([first, second]), 0.9)
    assert places[:, 1] == pytest.approx(np.log([quantile(row[:-2], 0.9) for row in (first, second)]))


# ---- over the network -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "hold"), [("dec-rbcm", "rows"), ("dec-nn-grbcm", "blocks"), ("rbcm", "blocks")])
def test_factors_are_those_of_a_computation_by_hand(method: str, hold: str) -> None:
    fleet = fleet_of(300, 3)
    (knot,) = fleet.calibrate(method, holdout=hold).knots
    needed, deviations = by_hand(fleet, method, hold)
    assert knot.rows == len(needed) == 300
    assert knot.before == pytest.approx(np.mean(needed <= 1.0), abs=0.5 / 300)
    assert knot.deviation == pytest.approx(np.exp(np.log(deviations).mean()), rel=1e-9)
    # Between the order statistics around the rank, and a bin.
    around = np.sort(needed)[[283, 287]] * [0.99, 1.01]
    assert around[0] <= knot.factor <= around[1]


def test_an_overconfident_method_covers_what_it_promises() -> None:
    """PoE of many agents in the same place, on rows that nobody has seen; two factors, and one between them."""
    inputs, observations = field(900, *ROUGH)
    parts = fg.partition(inputs[:500], observations[:500], agents=10, by="random")
    fleet = fg.Fleet(parts, "path", theta=ROUGH, kernel="se", normalize=False)
    queries, seen = inputs[500:], observations[500:]

    def covered() -> float:
        found = fleet.predict(queries, "dec-poe", observed=True)
        return float(np.mean(np.abs(seen - found.mean) <= DEVIATIONS * np.sqrt(found.variance)))

    before = covered()
    assert before < 0.9
    found = fleet.calibrate("dec-poe")
    assert [knot.holdout for knot in found.knots] == ["rows", "blocks"]
    # 400 rows at 95 %: a standard error of 1.1 %, and as much for the factor.
    assert abs(covered() - 0.95) < 0.05
    assert all(knot.before < 0.9 for knot in found.knots)
    assert all(abs(knot.after - 0.95) < 0.03 for knot in found.knots)
    answer = fleet.predict(queries, "dec-poe", observed=True)
    places = np.log([[knot.deviation, knot.factor] for knot in found.knots])
    assert answer.factor == pytest.approx(interpolated(places, answer.variance / answer.factor**2), rel=1e-9)


def test_the_deviation_of_the_field_has_the_same_factor() -> None:
    fleet = fleet_of(200, 2)
    plain = [fleet.predict([[0.5, 0.5], [1.5, 1.0]], "dec-rbcm", observed=noisy) for noisy in (False, True)]
    fleet.calibrate("dec-rbcm", holdout="rows")
    scaled = [fleet.predict([[0.5, 0.5], [1.5, 1.0]], "dec-rbcm", observed=noisy) for noisy in (False, True)]
    for one, other in zip(plain, scaled, strict=True):
        assert np.array_equal(one.means, other.means)
        assert other.variances == pytest.approx(one.variances * other.factors**2, rel=1e-12)
        assert np.array_equal(one.factors, np.ones((2, 2)))
        assert np.array_equal(one.explained, other.explained)


def test_a_calibration_is_of_its_method_its_theta_and_its_data() -> None:
    fleet = fleet_of(200, 2)
    found = fleet.calibrate("dec-nn-rbcm", holdout="rows", eta=0.1)
    query = [[0.5, 0.5]]
    assert fleet.predict(query, "dec-nn-rbcm", eta=0.1).factor[0] == found.knots[0].factor
    for method, how in (("dec-rbcm", {}), ("dec-nn-rbcm", {"eta": 0.2})):
        with pytest.warns(FleetGPWarning, match=r"calibrated for dec-nn-rbcm with eta 0.1.*is not calibrated"):
            assert fleet.predict(query, method, **how).factor[0] == 1.0  # type: ignore[arg-type]
    assert fleet.predict(query, "dec-rbcm", theta=THETA).factor[0] == 1.0
    conditioned = fleet.condition()
    assert conditioned.predict(query, "dec-nn-rbcm", eta=0.1).factor[0] == found.knots[0].factor
    fleet.observe(0, [[0.1, 0.1]], [0.0])
    assert fleet.calibration is None
    assert fleet.predict(query, "dec-nn-rbcm", eta=0.1).factor[0] == 1.0
    fleet.calibrate("dec-rbcm", holdout="rows")
    fleet.theta = np.array([0.7, 0.5, 1.0, 0.15])
    assert fleet.predict(query, "dec-rbcm").factor[0] == 1.0
    fleet.calibrate("dec-rbcm", holdout="rows")
    fleet.train("dec-fact-gp", theta0=THETA, rounds=1)
    assert fleet.calibration is None


def test_the_ledger_holds_what_was_sent() -> None:
    """Of 240 rows on a path of three, each input crosses both edges; no observation does."""
    fleet = fleet_of(240, 3)
    found = fleet.calibrate("dec-rbcm", holdout="blocks")
    assert found.ledger is not None
    kinds = found.ledger.by_kind()
    assert set(kinds) == {"inputs", "predictions", "statistics", "framing"}
    assert kinds["inputs"].scalars == 240 * 2 * 2
    few = fleet.calibrate("dec-rbcm", holdout="blocks", max_rows=50)
    assert few.ledger is not None
    assert few.knots[0].rows <= 3 * 50 < 240
    assert few.ledger.by_kind()["inputs"].scalars == few.knots[0].rows * 2 * 2


@pytest.mark.parametrize("method", ["dec-nn-grbcm", "dec-nearest"])
def test_the_same_bits_and_messages_however_the_agents_are_hosted(method: str) -> None:
    fleet = fleet_of(150, 3)
    options, row = PredictionOptions(), prediction_method(method)

    def work(network: Network) -> Calibration:
        own = Fleetwide([fleet.data[i] for i in network.hosted], KERNELS["se"], np.array(THETA), Scaling())
        return calibrate(own, network, row, options, Holding(level=0.9))

    whole = work(fg.InProcess(fg.Graph.path(3)))
    for hosting in ([[0, 1], [2]], [[0], [1], [2]]):
        loopback = fg.Loopback(fg.Graph.path(3), hosting)
        for found in loopback.run(work):
            assert replace(found, theta=whole.theta) == replace(whole, theta=whole.theta)
        assert whole.ledger is not None
        assert loopback.ledger.as_dict() == whole.ledger.as_dict()


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"holdout": "cells"}, "unknown holdout 'cells'"),
        ({"level": 1.0}, "level must lie between 0 and 1"),
        ({"level": 0.0}, "level"),
        ({"cells": 3}, "cells"),
        ({"max_rows": 2}, "max_rows"),
        ({"eta": 0.1}, "dec-rbcm has no option eta"),
        ({"level": 0.999}, "expected at least 2000 held-out rows .rows. for intervals of 99.9 %, got 60"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        fleet_of(60, 2).calibrate("dec-rbcm", **given)
