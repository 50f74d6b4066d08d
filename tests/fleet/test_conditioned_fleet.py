"""fleet.condition() and what a fleet keeps between predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.data.dataset import InMemory
from fleetgp.errors import InputError
from fleetgp.kernels.stationary import KERNELS
from fleetgp.model.observations import Observations
from fleetgp.prediction import prediction_method
from tests.conftest import alternating_path, paper_shards

THETA = (0.5, 0.4, 1.3, 0.2)
POINTS = np.random.default_rng(3).uniform(0.1, 1.9, (5, 2))


def fresh(**options: Any) -> fg.Fleet:
    return fg.Fleet(paper_shards(90, 3), **{"kernel": "se", "normalize": False, "theta": THETA, **options})


@pytest.mark.parametrize("method", fg.PREDICTION_METHODS)
@pytest.mark.parametrize("graph", ["path", "alternating"])
def test_the_same_question_has_the_same_answer_and_sends_no_more(
    method: str, graph: str, conditionings: list[int]
) -> None:
    """The first answer is that of a new fleet; a later one has the same bits, without the messages of the setup."""
    topology: Any = alternating_path(3) if graph == "alternating" else graph
    fleet = fresh(graph=topology, normalize=True)
    options = prediction_method(method).those_of(consensus="average", rounds=60)
    first = fleet.predict(POINTS, method, **options)
    conditionings.clear()
    second = fleet.predict(POINTS, method, **options)
    assert not conditionings
    assert np.array_equal(first.means, second.means)
    assert np.array_equal(first.variances, second.variances)
    assert np.array_equal(first.query_rounds, second.query_rounds)
    once = {"normalize", "augment", "box", "moments", "size", "groups"}
    rounds = {phase: n for phase, n in first.ledger.rounds_by_phase.items() if phase not in once}
    assert second.ledger.rounds_by_phase == ({} if method == "full-gp" else rounds), (
        "of full-gp only the answer is sent"
    )
    assert second.ledger.bytes < first.ledger.bytes
    assert fresh(graph=topology, normalize=True).predict(POINTS, method, **options).ledger.as_dict() == (
        first.ledger.as_dict()
    )


def test_methods_share_the_agents_posteriors(conditionings: list[int]) -> None:
    fleet = fresh()
    for method in ("poe", "dec-rbcm", "dec-nn-bcm", "gpoe"):
        fleet.predict(POINTS, method)
    assert conditionings == [30] * 3


def test_what_changes_the_posterior_changes_the_answer() -> None:
    """After each change the fleet answers as a new one does."""
    other, data = (0.5, 0.4, 1.3, 0.3), paper_shards(90, 3)
    turned = [(data[0][0], -data[0][1]), *data[1:]]
    fleet = fresh()
    seen = [fleet.predict(POINTS, "rbcm").mean]

    def check(found: fg.Prediction, expected: fg.Prediction) -> None:
        assert np.array_equal(found.mean, expected.mean)
        assert not any(np.array_equal(found.mean, before) for before in seen)
        seen.append(found.mean)

    check(fleet.predict(POINTS, "rbcm", theta=other), fresh(theta=other).predict(POINTS, "rbcm"))
    seen.pop()
    fleet.theta = np.array(other)
    check(fleet.predict(POINTS, "rbcm"), fresh(theta=other).predict(POINTS, "rbcm"))
    fleet.data = InMemory([Observations(*turned[0]).locked(), *fleet.data[1:]])
    check(
        fleet.predict(POINTS, "rbcm"),
        fg.Fleet(turned, theta=other, kernel="se", normalize=False).predict(POINTS, "rbcm"),
    )
    fleet.kernel = KERNELS["matern32"]
    expected = fg.Fleet(turned, theta=other, kernel="matern32", normalize=False)
    check(fleet.predict(POINTS, "rbcm"), expected.predict(POINTS, "rbcm"))


def test_another_engine_is_another_posterior() -> None:
    fleet = fg.Fleet(paper_shards(600, 3), theta=(1.2, 0.3, 1.3, 0.3), kernel="se", normalize=False)
    for engine in ("moments", "dense", "moments"):
        assert set(fleet.predict(POINTS, "rbcm", engine=engine).engine) == {engine}


def test_a_conditioned_fleet_stays_as_it_was() -> None:
    fleet = fresh()
    conditioned = fleet.condition()
    before = conditioned.predict(POINTS, "dec-nn-grbcm").mean
    fleet.theta = np.array((0.9, 0.4, 1.3, 0.3))
    assert np.array_equal(conditioned.predict(POINTS, "dec-nn-grbcm").mean, before)
    assert not np.array_equal(fleet.predict(POINTS, "dec-nn-grbcm").mean, before)


def test_nobody_writes_to_the_data_of_a_fleet() -> None:
    fleet = fresh()
    for array in fleet.shards[0]:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0.0


@pytest.mark.parametrize("method", fg.PREDICTION_METHODS)
def test_options_of_other_methods_are_refused(method: str) -> None:
    row = prediction_method(method)
    given = {"consensus": "average", "rounds": 300, "tol": 1e-3, "eta": 0.1, "seed": 1}
    fleet = fresh(graph="complete")
    for name, value in given.items():
        if name not in row.options:
            with pytest.raises(
                InputError,
                match=rf"^{method} has no option {name}: expected one of .*(neighbours|n_nearest).*; methods",
            ):
                fleet.predict(POINTS, method, **{name: value})  # type: ignore[arg-type]
    assert fleet.predict(POINTS, method, **row.those_of(**given)).status in ("converged", "round limit")


def test_who_has_which_option() -> None:
    having = {
        name: {m for m in fg.PREDICTION_METHODS if name in prediction_method(m).options}
        for name in ("engine", "consensus", "rounds", "tol", "eta", "seed")
    }
    assert having["engine"] == set(fg.PREDICTION_METHODS) - {"dec-nearest"}
    exact = ("dec-full-gp", "dec-nearest", "dec-summary")
    assert (
        having["consensus"]
        == having["rounds"]
        == having["tol"]
        == {m for m in fg.PREDICTION_METHODS if m.startswith("dec-") and m not in exact}
    )
    assert having["eta"] == {m for m in fg.PREDICTION_METHODS if m.startswith("dec-nn-")}
    assert having["seed"] == {"grbcm", "dec-grbcm", "dec-nn-grbcm", "dec-npae-star"}
