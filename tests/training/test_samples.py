"""Large agents begin with samples: the optimum is that of all data, and the result says what was done."""

from __future__ import annotations

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.engines.expert import Expert
from fleetgp.kernels.stationary import KERNELS
from fleetgp.model.observations import Observations
from fleetgp.network import Network
from fleetgp.progress import Progress
from fleetgp.training import TrainingOptions, problem, train, training_method
from fleetgp.training.reporting import about_sample
from tests.conftest import paper_shards
from tests.shared import observed

#: Most trainings here are cut short on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning")

MINIMIZERS = ("full-gp", "fact-gp", "g-fact-gp", "dec-fact-gp", "dec-g-fact-gp")
#: Agents with more than 60 observations are large here; of more than 160 there are two samples, of 40 and 80.
LARGE = {"MOST_DENSE": 60, "SMALLEST": 40, "TIMES": 2, "WORTH": 2}


@pytest.fixture(autouse=True)
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in LARGE.items():
        monkeypatch.setattr(problem, name, value)


@pytest.mark.parametrize("method", MINIMIZERS)
def test_the_end_is_the_optimum_of_all_data(method: str) -> None:
    fleet = fg.Fleet(list(paper_shards(360, 2)), normalize=True, kernel="se")
    fit = fleet.train(method)
    assert fit.status == "converged"
    assert fit.sample.tolist() == [40, 40]
    assert (fit.used >= 180).all()
    again = fleet.train(method, theta0=fit.theta)
    assert not len(again.sample), "a given start is followed on all data"
    assert again.nll == pytest.approx(fit.nll, abs=1e-5)
    np.testing.assert_allclose(np.log(again.theta), np.log(fit.theta), atol=2e-3)


def test_trainers_over_edges_begin_with_samples_too() -> None:
    fleet = fg.Fleet(list(paper_shards(240, 3)), normalize=True, kernel="se")
    fit = fleet.train("dec-apx-gp", tol=1e-4)
    assert fit.status == "converged"
    assert fit.sample.tolist() == [40, 40, 40]
    assert fit.used.tolist() == [80, 80, 80]
    best = fleet.train("fact-gp", theta0=fit.theta)
    np.testing.assert_allclose(np.log(fit.theta), np.log(best.theta), atol=5e-3)


def test_one_large_agent_is_enough_and_the_others_take_all_they_have() -> None:
    x, y = (np.concatenate(parts) for parts in zip(*paper_shards(200, 2), strict=True))
    fleet = fg.Fleet([(x[:30], y[:30]), (x[30:], y[30:])], kernel="se", normalize=False)
    fit = fleet.train("dec-fact-gp")
    assert fit.sample.tolist() == [30, 40]
    assert fit.used.tolist() == [30, 170]
    assert about_sample(fit) == "Trained first on a random sample of 70 observations, then on all."


@pytest.mark.parametrize("given", [{"tol": 0, "rounds": 3}, {"theta0": fg.PAPER_THETA0}])
def test_no_sample_where_rounds_or_starts_are_given(given: dict[str, object]) -> None:
    fit = fg.Fleet(list(paper_shards(200, 2)), kernel="se", normalize=False).train("dec-fact-gp", **given)  # type: ignore[arg-type]
    assert not len(fit.sample)
    assert fit.used.tolist() == [100, 100]
    assert about_sample(fit) == ""


def test_time_up_on_a_sample_says_so() -> None:
    fit = fg.Fleet(list(paper_shards(360, 2)), kernel="se", normalize=False).train("dec-fact-gp", seconds=1e-9)
    assert fit.used.tolist() == [40, 40]
    assert about_sample(fit).endswith("and had come to 80 when the time was up.")


@pytest.mark.parametrize("method", ["dec-fact-gp", "dec-apx-gp"])
def test_the_same_however_agents_are_hosted(method: str) -> None:
    shards = paper_shards(360, 3)
    options = TrainingOptions(rounds=60, tol=1e-3)

    def work(network: Network) -> fg.Fit:
        mine = [shards[i] for i in network.hosted]
        return train(training_method(method), observed(mine), network, KERNELS["matern32"], options)

    whole = work(fg.InProcess(fg.Graph.path(3)))
    loopback = fg.Loopback(fg.Graph.path(3), [[0], [1, 2]])
    for group, fit in zip([[0], [1, 2]], loopback.run(work), strict=True):
        assert np.array_equal(fit.history, whole.history[:, group])
        assert fit.sample.tolist() == whole.sample[group].tolist()
    assert loopback.ledger.as_dict() == whole.ledger.as_dict()


def test_an_agent_settles_on_one_engine() -> None:
    """Else the likelihood has a step where the moments lose their certificate, at which Newton stood still."""
    field = fg.synthetic_field(2000, seed=3)
    smooth, rough = np.log([2.0, 2.0, 1.0, 0.3]), np.log([0.02, 0.02, 1.0, 0.3])
    for log_theta, name in ((smooth, "moments"), (rough, "vecchia")):
        expert = Expert(Observations(field.inputs, field.observations), KERNELS["se"], 0)
        assert {expert.evaluate(smooth).engine, expert.evaluate(rough).engine} == {"moments", "vecchia"}
        expert.settle(log_theta)
        assert expert.evaluate(log_theta).engine == name
    assert expert.evaluate(smooth).engine == "vecchia"


def test_the_last_word_on_the_chosen_start_is_how_the_training_ended() -> None:
    heard: dict[str, Progress] = {}
    fit = fg.Fleet(list(paper_shards(360, 2)), kernel="se", normalize=False).train(
        "dec-fact-gp", rounds=14, tol=1e-12, progress=lambda p: heard.update({p.task: p})
    )
    assert fit.status == "round limit"
    assert (14, "round limit") in [(p.round, p.detail) for p in heard.values()]
