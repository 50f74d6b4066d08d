"""dec-full-gp: the exact GP of all data at every agent, in three reductions, and no row is sent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.data import Shard
from fleetgp.data.dataset import InMemory
from fleetgp.data.transforms import View
from fleetgp.kernels.stationary import KERNELS
from fleetgp.network import Network
from fleetgp.network.wire import is_sound
from fleetgp.prediction import Conditioned, PredictionOptions, Question, predict, prediction_method
from fleetgp.prediction.methods import SharedState
from fleetgp.training import TrainingOptions, train, training_method
from fleetgp.training.moments import Ending
from tests.conftest import alternating_path, paper_shards
from tests.shared import observed
from tests.training.problems import THETA0, fleet

#: Most trainings here are cut short on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning")

METHOD = training_method("dec-full-gp")
QUERIES = np.random.default_rng(5).uniform(-0.1, 2.1, (30, 2))


def apart(one: fg.Fit, other: fg.Fit) -> float:
    """In log theta."""
    return float(np.abs(np.log(one.theta / other.theta)).max())


@pytest.mark.parametrize(("theta0", "normalize"), [(None, False), (THETA0, True)])
def test_it_is_full_gp_in_three_reductions_and_sends_no_row(theta0: Any, normalize: bool) -> None:
    shards = [(x, 5.0 + 2.0 * y if normalize else y) for x, y in paper_shards(300, 5)]
    central, f = (fg.Fleet(shards, "path", normalize=normalize, kernel="se") for _ in range(2))
    full, fit = central.train("full-gp", theta0=theta0), f.train("dec-full-gp", theta0=theta0)
    assert (fit.status, fit.engine) == ("converged", ("moments",) * 5)
    assert apart(fit, full) < 1e-5
    assert fit.nll == pytest.approx(full.nll, abs=1e-5)
    assert fit.disagreement == 0.0
    assert fit.ledger.rounds_by_phase == {"box": 4, "moments": 4, "model": 4}, "twice the radius each"
    assert set(fit.ledger.kinds) == {"statistics", "moments", "hyperparameters"}
    expected, found = central.predict(QUERIES, "full-gp"), f.predict(QUERIES, "dec-full-gp")
    np.testing.assert_allclose(found.means, expected.means, atol=1e-6)
    np.testing.assert_allclose(found.variances, expected.variances, atol=1e-6)
    assert (found.status, found.ledger.rounds, found.ledger.bytes) == ("converged", 0, 0)
    assert found.participants.all()


@pytest.mark.parametrize("sizes", [(0, 0), (361, 0), (20001, 3)])
def test_what_is_agreed_on_travels_as_hyperparameters_that_make_sense(sizes: tuple[int, int]) -> None:
    after = None if 0 in sizes else sizes
    sent = Ending(np.array(sizes), True, "round limit", np.array([0.1, -3.0, 0.5, -2.0]), after)
    assert is_sound("hyperparameters", sent.row)
    got = Ending.read(sent.row, 2)
    assert (got.sizes.tolist(), got.refused, got.status) == (list(sizes), True, "round limit")
    assert (got.x.tolist(), got.next) == (sent.x.tolist(), after)


def test_predictions_are_those_of_the_dense_engine_on_pooled_data() -> None:
    f = fleet(300, 4)
    f.train("dec-full-gp", theta0=THETA0)
    found = f.predict(QUERIES, "dec-full-gp", observed=True)
    expected = f.predict(QUERIES, "full-gp", theta=f.theta, engine="dense", observed=True)
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-6)
    np.testing.assert_allclose(found.variance, expected.variance, atol=1e-6)


def test_with_a_given_theta_the_moments_are_agreed_once() -> None:
    f = fg.Fleet(paper_shards(300, 4), "path", theta=fg.PAPER_THETA, kernel="se", normalize=False)
    first, second = (f.predict(QUERIES, "dec-full-gp") for _ in range(2))
    assert first.ledger.rounds_by_phase == {"box": 4, "moments": 4}
    assert second.ledger.rounds == 0
    np.testing.assert_allclose(second.mean, f.predict(QUERIES, "full-gp", engine="dense").mean, atol=1e-6)
    # A theta that needs a finer grid than that of the training has one of its own.
    f.train("dec-full-gp", theta0=THETA0)
    fine = (0.1, 0.8, 1.0, 0.3)
    found = f.predict(QUERIES, "dec-full-gp", theta=fine)
    assert found.ledger.rounds_by_phase == {"box": 4, "moments": 4}
    np.testing.assert_allclose(found.mean, f.predict(QUERIES, "full-gp", theta=fine, engine="dense").mean, atol=1e-6)


def test_moments_of_other_data_are_not_used() -> None:
    f = fleet(120, 3)
    f.train("dec-full-gp", theta0=THETA0)
    f.data = InMemory([f.data[0].with_values(f.data[0].values + 1.0).locked(), *f.data[1:]])
    found = f.predict(QUERIES, "dec-full-gp")
    assert found.ledger.rounds_by_phase == {"box": 2, "moments": 2}
    np.testing.assert_allclose(found.mean, f.predict(QUERIES, "full-gp", engine="dense").mean, atol=1e-6)


class Silent(fg.InProcess):
    """A network on which nothing can be sent."""

    def _check_open(self) -> None:
        raise fg.NetworkError("nobody is there")


def test_an_agent_that_is_cut_off_answers_with_the_model_of_all() -> None:
    f = fleet(200, 4)
    fit = f.train("dec-full-gp", theta0=THETA0)
    alone = Conditioned(InMemory([f.data[2]]), f.kernel, fit.thetas[2:3], View(fit.scaling))
    network, row = Silent(fg.Graph(1, [])), prediction_method("dec-full-gp")
    question = Question(row, QUERIES, PredictionOptions())
    found = predict(alone, network, question, SharedState(moments=fit.moments))
    assert np.array_equal(found.means[0], f.predict(QUERIES, "dec-full-gp").means[2])
    with pytest.raises(fg.NetworkError, match="nobody is there"):
        predict(alone, network, question)


@pytest.mark.parametrize("graph", [fg.Graph.geometric(6, seed=2), alternating_path(6)])
def test_the_same_bits_in_every_hosting(graph: Any) -> None:
    shards: tuple[Shard, ...] = paper_shards(90, 6)
    options = TrainingOptions(starts=np.log([THETA0]), normalize=True)

    def work(network: Network) -> tuple[fg.Fit, Array]:
        mine = [shards[i] for i in network.hosted]
        fit = train(METHOD, observed(mine), network, KERNELS["se"], options)
        conditioned = Conditioned(observed(mine), KERNELS["se"], fit.thetas, View(fit.scaling))
        row = prediction_method("dec-full-gp")
        question = Question(row, QUERIES, PredictionOptions())
        return fit, predict(conditioned, network, question, SharedState(moments=fit.moments)).means

    whole, means = work(fg.InProcess(graph))
    for hosting in ([[0, 1, 2], [3, 4, 5]], [[i] for i in range(6)]):
        loopback = fg.Loopback(graph, hosting)
        for group, (fit, answers) in zip(hosting, loopback.run(work), strict=True):
            assert np.array_equal(fit.history, whole.history[:, group])
            assert np.array_equal(answers, means[group])
            assert (fit.status, fit.rounds, fit.nll) == (whole.status, whole.rounds, whole.nll)
        assert loopback.ledger.as_dict() == whole.ledger.as_dict()


def wave(length: float = 0.02, rows: int = 150) -> list[Shard]:
    """Along one axis, rougher than the first grid has it."""
    field = fg.synthetic_field(rows, [length, 1.0, 0.2], seed=0)
    return fg.partition(field.inputs, field.observations, agents=3)


def test_a_finer_grid_is_agreed_where_somebody_needs_it() -> None:
    """Two more reductions, and the end is that of full-gp."""
    f = fg.Fleet(wave(), "path", kernel="se", normalize=False)
    fit, full = (f.train(method, theta0=[0.03, 1.0, 0.3]) for method in ("dec-full-gp", "full-gp"))
    assert fit.ledger.rounds_by_phase == {"box": 2, "moments": 4, "model": 4}
    assert fit.status == "converged"
    assert apart(fit, full) < 1e-5
    assert fit.history.shape[0] == fit.rounds + 1


def test_agents_that_differ_in_their_last_bits_end_with_the_same_theta(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on other processors: each sees the likelihood a little off, and all take the root's word."""
    from fleetgp.training.moments import MomentsTraining

    real = MomentsTraining._set

    def other_bits(self: MomentsTraining) -> Any:
        setting = real(self)
        setting.starts[...] += 1e-3 * self._network.hosted[0]
        return setting

    monkeypatch.setattr(MomentsTraining, "_set", other_bits)
    shards = paper_shards(90, 3)
    options = TrainingOptions(starts=np.log([THETA0]))
    fits = fg.Loopback(fg.Graph.path(3), [[0], [1], [2]]).run(
        lambda network: train(METHOD, observed(shards[i] for i in network.hosted), network, KERNELS["se"], options)
    )
    assert len({fit.history[0].tobytes() for fit in fits}) == 3
    assert len({fit.thetas.tobytes() for fit in fits}) == 1


def many_dimensions() -> fg.Fleet:
    rng = np.random.default_rng(0)
    return fg.Fleet(
        [(rng.uniform(0, 1, (40, 6)), rng.standard_normal(40)) for _ in range(2)], kernel="se", normalize=False
    )


@pytest.mark.parametrize(
    ("make", "options", "error", "said"),
    [
        (lambda: fleet(90, 3, kernel="matern32"), {}, fg.InputError, "needs the squared exponential"),
        (lambda: fleet(90, 3), {"engine": "dense"}, fg.InputError, "by their moments alone"),
        (many_dimensions, {}, fg.NumericalError, "data on a box of 1.* x .* have more moments than can be sent"),
        (lambda: fleet(90, 3), {"theta0": [1e-3, 1e-3, 1, 0.1]}, fg.NumericalError, "more moments than can be sent"),
        (
            lambda: fleet(90, 3),
            {"theta0": [1.2, 0.3, 1.0, 1e-9], "noise_floor": 0.0},
            fg.NumericalError,
            "no moments that can be sent are precise enough",
        ),
    ],
)
def test_what_has_no_moments_is_refused_with_what_to_use_instead(
    make: Any, options: dict[str, Any], error: type[Exception], said: str
) -> None:
    f = make()
    with pytest.raises(error, match=f"^dec-full-gp.*{said}.*train with dec-fact-gp and predict with dec-summary$"):
        f.train("dec-full-gp", **options)
    assert f.theta is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"theta": (1e-3, 1e-3, 1, 0.1)}, "more moments than can be sent"),
        ({"theta": (1.2, 0.3, 1, 1e-9)}, "not precise enough"),
        ({"theta": fg.PAPER_THETA, "engine": "dense"}, "by their moments alone"),
    ],
)
def test_predictions_without_a_certificate_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(fg.FleetGPError, match=f"^dec-full-gp.*{said}.*dec-summary"):
        fleet(90, 3).predict(QUERIES, "dec-full-gp", **options)


def test_a_round_limit_is_told_and_nothing_is_refined() -> None:
    fit = fg.Fleet(wave(), "path", kernel="se", normalize=False).train("dec-full-gp", rounds=4)
    assert (fit.status, fit.rounds) == ("round limit", 4)
    assert fit.ledger.rounds_by_phase == {"box": 2, "moments": 2, "model": 2}
