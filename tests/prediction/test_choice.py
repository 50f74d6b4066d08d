"""eta="auto": who takes part beside the best, against each agent's exact posterior."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.arrays import Array, BoolArray
from fleetgp.kernels.stationary import KERNELS
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.network import Network
from fleetgp.options import Consensus
from fleetgp.prediction import Conditioned, PredictionOptions, Question, predict, prediction_method
from fleetgp.prediction.reach import Reach
from tests.shared import observed

THETA = (1.2, 0.3, 1.3, 0.1)
AGENTS = 8
METHODS = ["dec-nn-rbcm", "dec-nn-grbcm", "dec-nn-npae"]


@cache
def shards() -> tuple[tuple[Array, Array], ...]:
    field = fg.synthetic_field(240, THETA, seed=0)
    return tuple(fg.partition(field.inputs, field.observations, agents=AGENTS, by="stripes", axis=1))


def queries(count: int = 9) -> Array:
    return np.random.default_rng(3).uniform(0.1, 1.9, (count, 2))


def fleet(kernel: str = "se") -> fg.Fleet:
    return fg.Fleet(shards(), "path", theta=THETA, kernel=kernel, normalize=False)


def expected(points: Array, kernel: str = "se") -> BoolArray:
    """Whose variance is at most the geometric mean of the prior's and the smallest."""
    h, k, rows = Hyperparameters.from_theta(THETA), KERNELS[kernel], []
    for x, _ in shards():
        inverse, cross = np.linalg.inv(k(x, x, h) + h.noise**2 * np.eye(len(x))), k(x, points, h)
        rows.append(h.signal**2 - np.einsum("nt,nm,mt->t", cross, inverse, cross))
    variance = np.stack(rows)
    return np.asarray(variance <= np.sqrt(THETA[2] ** 2 * variance.min(axis=0)))


@pytest.mark.parametrize("kernel", ["se", "matern12"])
@pytest.mark.parametrize("method", METHODS)
def test_who_tells_half_as_much_as_the_best_takes_part(method: str, kernel: str) -> None:
    out = fleet(kernel).predict(queries(), method, eta="auto")
    assert np.array_equal(out.participants, expected(queries(), kernel))
    assert 0 < out.participants.sum() < 0.7 * out.participants.size


def test_the_answer_is_that_of_the_fleet_of_those_alone() -> None:
    """And of one so far away that its weight is 0, since a fleet of one agent answers with its posterior."""
    out, far = fleet().predict(queries(), "dec-nn-rbcm", eta="auto"), (np.full((1, 2), 1e3), np.zeros(1))
    for t, point in enumerate(queries()):
        some = fg.Fleet(
            [*(shards()[i] for i in np.flatnonzero(out.participants[:, t])), far],
            "complete",
            theta=THETA,
            kernel="se",
            normalize=False,
        )
        reference = some.predict(point[None], "rbcm")
        assert np.abs(out.means[:, t] - reference.mean).max() < 1e-9
        assert np.abs(out.variances[:, t] - reference.variance).max() < 1e-9


@pytest.mark.parametrize("method", ["dec-nn-rbcm", "dec-nn-grbcm"])
def test_bounds_spare_work_and_change_nothing(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    parts = [(rng.uniform(3 * i, 3 * i + 1, (30, 1)), rng.standard_normal(30)) for i in range(6)]
    points = np.array([[0.5], [0.9], [1.3], [3.4]])
    f = fg.Fleet(parts, theta=(0.4, 1.0, 0.1), kernel="se", normalize=False)
    quick = f.condition().predict(points, method, eta="auto")

    def useless(self: Reach, points: Array) -> tuple[Array, Array]:
        return np.zeros((6, len(points))), np.ones((6, len(points)))

    monkeypatch.setattr(Reach, "bounds", useless)
    exact = f.condition().predict(points, method, eta="auto")
    assert np.array_equal(quick.participants, exact.participants)
    assert np.abs(quick.means - exact.means).max() < 1e-10
    assert quick.engine[-1] == "unused"


def test_long_length_scales_do_not_keep_everyone_in() -> None:
    field = fg.synthetic_field(1200, (3.0, 1.0, 1.3, 0.1), seed=2)
    parts = fg.partition(field.inputs, field.observations, agents=40, by="grid")
    f = fg.Fleet(parts, "grid", theta=(3.0, 1.0, 1.3, 0.1), kernel="se", normalize=False)
    everyone, few = (f.predict(queries(), "dec-nn-rbcm", eta=eta) for eta in (1e-3, "auto"))
    assert everyone.participants.all()
    assert few.participants.mean() < 0.5


def test_it_costs_two_maxima_more() -> None:
    out = fleet().predict(queries(), "dec-nn-rbcm", eta="auto")
    assert out.rounds == 3 * AGENTS
    assert out.ledger.total(kind="statistics").scalars == 2 * 2 * (AGENTS - 1) * len(queries())


@pytest.mark.filterwarnings("ignore:.*no better known than the prior:fleetgp.errors.FleetGPWarning")
@pytest.mark.parametrize("consensus", ["tree", "average"])
def test_far_from_everybody_one_answers(consensus: Consensus) -> None:
    out = fleet().predict([[1.0, 1.0], [400.0, 400.0]], "dec-nn-rbcm", eta="auto", consensus=consensus)
    assert out.participants.sum(axis=0)[1] == 1
    assert out.variance[1] == pytest.approx(THETA[2] ** 2)


@pytest.mark.parametrize("consensus", ["tree", "average"])
@pytest.mark.parametrize("method", METHODS)
def test_same_choice_and_answers_in_every_hosting(method: str, consensus: Consensus) -> None:
    graph, options = fg.Graph.cycle(AGENTS), PredictionOptions(consensus=consensus, rounds=60, eta="auto")

    def work(network: Network) -> fg.Prediction:
        mine, thetas = [shards()[i] for i in network.hosted], np.tile(THETA, (len(network.hosted), 1))
        return predict(
            Conditioned(observed(mine), KERNELS["se"], thetas),
            network,
            Question(prediction_method(method), queries(4), options),
        )

    whole = work(fg.InProcess(graph))
    assert np.array_equal(whole.participants, expected(queries(4)))
    for hosting in ([[0, 1, 2, 6], [3, 4, 5, 7]], [[i] for i in range(AGENTS)]):
        loopback = fg.Loopback(graph, hosting)
        for group, out in zip(hosting, loopback.run(work), strict=True):
            assert np.array_equal(out.means, whole.means[group])
            assert np.array_equal(out.variances, whole.variances[group])
            assert np.array_equal(out.participants, whole.participants)
        assert loopback.ledger.as_dict() == whole.ledger.as_dict()
