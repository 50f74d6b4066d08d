"""dec-fact-gp and dec-g-fact-gp: the optimum of fact-gp and g-fact-gp, by sums over the spanning tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.arrays import Array, IntArray
from fleetgp.engines.expert import Expert
from fleetgp.kernels.stationary import KERNELS
from fleetgp.model.observations import Observations
from fleetgp.network import InProcess, Network
from fleetgp.training import TrainingOptions, newton, train, training_method
from fleetgp.training.constraints import Bounds
from fleetgp.training.newton import TreeNewton, TreeState
from fleetgp.training.objective import Objective, Values, measure_hessian
from tests.conftest import paper_shards
from tests.shared import observed
from tests.training.problems import THETA0, X0, fleet, floor_at, follow

#: Most trainings here are cut short on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning")

METHODS = {"dec-fact-gp": "fact-gp", "dec-g-fact-gp": "g-fact-gp"}


def experts(network: Network, n: int = 90) -> list[Expert]:
    shards = paper_shards(n, network.agents)
    return [Expert(Observations(*shards[i]), KERNELS["se"], i) for i in network.hosted]


def followed(trainer: TreeNewton, x: Array, rounds: int = 40) -> tuple[TreeState, str, list[Array]]:
    history: list[Array] = []
    start = np.tile(x, (len(trainer.network.hosted), 1))
    outcome = follow(trainer, start, rounds=rounds, tol=1e-5, history=history)
    return outcome.state, outcome.status, history


@pytest.mark.parametrize("starts", ["one", "several"])
@pytest.mark.parametrize("method", METHODS)
def test_it_ends_where_the_servers_minimizer_does(method: str, starts: str) -> None:
    f = fleet(400, 5, "geometric")
    fit = f.train(method, theta0=THETA0 if starts == "one" else None)
    assert fit.status == "converged"
    assert all(start.rounds <= 20 for start in fit.starts)
    # From close by, so that L-BFGS has no reason to end early.
    server = f.train(METHODS[method], theta0=1.001 * fit.theta, tol=1e-7)
    assert server.status == "converged"
    np.testing.assert_allclose(np.log(fit.theta), np.log(server.theta), atol=1e-6)
    assert fit.nll == pytest.approx(server.nll, abs=1e-6)
    assert fit.disagreement == 0.0


@pytest.mark.filterwarnings("ignore:sigma_eps stands at its floor")  # of a field that is smoother than the kernel
@pytest.mark.parametrize("kernel", ["matern12", "matern32", "matern52"])
def test_other_kernels(kernel: str) -> None:
    f = fleet(240, 4, kernel=kernel)
    fit = f.train("dec-fact-gp", theta0=THETA0)
    assert fit.status == "converged"
    server = f.train("fact-gp", theta0=1.001 * fit.theta, tol=1e-7)
    np.testing.assert_allclose(np.log(fit.theta), np.log(server.theta), atol=1e-6)


def test_it_sends_a_fraction_of_dec_apx_gp_and_statistics_alone() -> None:
    f = fleet(300, 10)
    new, old = (f.train(method, theta0=THETA0) for method in ("dec-fact-gp", "dec-apx-gp"))
    assert new.status == old.status == "converged"
    assert 5 * new.ledger.bytes < old.ledger.bytes
    assert new.ledger.kinds == ("statistics",)


def test_an_evaluation_is_one_reduction_and_nothing_else_is_sent() -> None:
    fit = fleet(200, 5).train("dec-fact-gp", theta0=THETA0, noise_floor=0)
    # Two numbers of l_i, 4 of its gradient, 10 of its Hessian and three counts go up each of the four edges; the next
    # and the best x with its likelihood and derivatives, four numbers and two counts come down.
    assert fit.ledger.total(kind="statistics").scalars == fit.rounds * 4 * (19 + 29)
    assert fit.ledger.rounds_by_phase == {"training": fit.rounds * 2 * 2}


def test_a_start_that_was_followed_far_enough_is_not_followed_again() -> None:
    f = fleet(200, 3)
    fit = f.train("dec-fact-gp", tol=1e-3)
    evaluations = sum(start.rounds for start in fit.starts)
    assert fit.ledger.rounds_by_phase == {"starts": 2, "training": 2 * evaluations, "choice": 2}


class Fragile(Objective):
    """One agent, by its id, has no likelihood where log sigma_eps is below a limit."""

    def __init__(self, experts: Sequence[Expert], agent: int, limit: float) -> None:
        super().__init__(experts)
        self.weak = np.array([expert.agent == agent for expert in experts])
        self.limit, self.failures = limit, 0

    def __call__(self, log_thetas: Array, agents: IntArray | None = None) -> Values:
        values = super().__call__(log_thetas, agents)
        weak = self.weak if agents is None else self.weak[agents]
        failed = weak & (log_thetas[:, -1] < self.limit)
        self.failures += int(failed.sum())
        values.nll[failed], values.gradient[failed] = np.inf, np.nan
        return values


def test_a_likelihood_that_fails_at_one_agent_is_survived() -> None:
    network = fg.InProcess(fg.Graph.path(3))
    whole, status, _ = followed(TreeNewton(network, Objective(experts(network)), Bounds()), X0)
    assert status == "converged"
    best = float(whole.local.x[0, -1])
    fragile = Fragile(experts(network), 1, best - 0.05)
    start = np.append(X0[:-1], 1.5)  # far above, so that a first step overshoots
    found, status, _ = followed(TreeNewton(network, fragile, Bounds()), start)
    assert fragile.failures > 0, "the example must fail somewhere"
    assert status == "converged"
    np.testing.assert_allclose(found.local.x, whole.local.x, atol=1e-6)
    nowhere = Fragile(experts(network), 1, 100.0)
    found, status, history = followed(TreeNewton(network, nowhere, Bounds()), X0)
    assert (status, len(history)) == ("diverged", 1)


class Batches(Objective):
    """How many evaluations were asked for at once."""

    def __init__(self, experts: Sequence[Expert]) -> None:
        super().__init__(experts)
        self.sizes_asked: list[int] = []

    def __call__(self, log_thetas: Array, agents: IntArray | None = None) -> Values:
        self.sizes_asked.append(len(log_thetas))
        return super().__call__(log_thetas, agents)


def test_an_agent_alone_asks_for_a_whole_round_at_once() -> None:
    """So it uses all cores without threads inside BLAS, which wait for each other beside other work."""
    network = fg.InProcess(fg.Graph.path(1))
    asked = Batches(experts(network))
    _, status, history = followed(TreeNewton(network, asked, Bounds()), X0)
    assert status == "converged"
    assert asked.sizes_asked == [*[1 + len(X0)] * len(history), 1]  # the last step is evaluated, too
    x = np.full((1, len(X0)), 0.1) + X0
    hessian = measure_hessian(asked, x, asked(x), np.ones(1, dtype=bool))
    ahead, behind = (np.stack([asked(x + step * e).gradient[0] for e in np.eye(len(X0))]) for step in (1e-5, -1e-5))
    np.testing.assert_allclose(hessian[0], (ahead - behind) / 2e-5, rtol=1e-2, atol=2e-2)


class Eager:
    """An interlude that one agent wants before its second evaluation."""

    def __init__(self, network: Network) -> None:
        self.network, self.asked = network, 0
        self.played: list[int] = []

    def wanted(self) -> bool:
        self.asked += 1
        return self.asked == 2 and 2 in self.network.hosted

    def play(self) -> None:
        self.played.append(self.network.round)
        self.network.neighbour_sum(np.ones(len(self.network.hosted)), "statistics")


@pytest.mark.parametrize("hosting", [[[0, 1, 2]], [[0], [1], [2]]])
def test_all_agents_pause_after_the_same_evaluation(hosting: list[list[int]]) -> None:
    shards, options = paper_shards(60, 3), TrainingOptions(starts=X0[None], noise_floor=0.0)

    def work(network: Network) -> tuple[fg.Fit, list[int]]:
        eager = Eager(network)
        mine = [shards[i] for i in network.hosted]
        fit = train(training_method("dec-fact-gp"), observed(mine), network, KERNELS["se"], options, interlude=eager)
        return fit, eager.played

    found = fg.Loopback(fg.Graph.path(3), hosting).run(work)
    plain = fg.Fleet(shards, kernel="se", normalize=False).train("dec-fact-gp", theta0=THETA0, noise_floor=0.0)
    for group, (fit, played) in zip(hosting, found, strict=True):
        assert played == [4], "after two evaluations of two rounds each"
        assert np.array_equal(fit.history, plain.history[:, group])


def test_agents_whose_processors_round_differently_hold_the_same_bits() -> None:
    """Each knows the start as its own logarithm of it."""

    def work(network: Network) -> tuple[TreeState, str, list[Array]]:
        own = X0 + 1e-15 * np.arange(4) * network.hosted[0]
        return followed(TreeNewton(network, Objective(experts(network)), floor_at(-6.0, 4)), own)

    found = fg.Loopback(fg.Graph.path(3), [[0], [1], [2]]).run(work)
    for state, status, history in found:
        assert status == "converged"
        assert np.array_equal(history, found[0][2])
        assert np.array_equal(state.search.row, found[0][0].search.row)
        assert np.isfinite(state.local.values.nll).all()


def many_inputs(rows: int, inputs: int) -> fg.Fleet:
    """One agent; of its inputs the first half matter, the more the earlier they come."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, inputs))
    z = x[:, : inputs // 2] * np.linspace(2.0, 0.5, inputs // 2)
    y = np.sin(z[:, 0]) + np.cos(z[:, 0] * z[:, 1]) + np.tanh(z[:, 2:]).sum(axis=1) + 0.2 * rng.normal(size=rows)
    return fg.Fleet([(x, y)])


def counted(monkeypatch: pytest.MonkeyPatch, f: fg.Fleet, **options: Any) -> tuple[fg.Fit, int]:
    """A training, and how many likelihoods it took."""
    count, real = [0], Objective.__call__

    def evaluate(self: Objective, log_thetas: Array, agents: IntArray | None = None) -> Values:
        count[0] += len(log_thetas)
        return real(self, log_thetas, agents)

    with monkeypatch.context() as patch:
        patch.setattr(Objective, "__call__", evaluate)
        return f.train(**options), count[0]


@pytest.mark.filterwarnings("ignore:the likelihood does not depend:fleetgp.FleetGPWarning")
def test_an_agent_alone_with_many_inputs_measures_its_hessian_where_it_has_to(monkeypatch: pytest.MonkeyPatch) -> None:
    f = many_inputs(100, 16)
    fit, few = counted(monkeypatch, f)
    monkeypatch.setattr(newton, "MANY", 19)
    every, many = counted(monkeypatch, f)
    assert (fit.status, every.status) == ("converged", "converged")
    assert fit.nll == pytest.approx(every.nll, abs=1e-6)
    assert fit.flat == every.flat
    kept = [k for k in range(18) if k not in fit.flat_numbers]
    np.testing.assert_allclose(np.log(fit.theta)[kept], np.log(every.theta)[kept], atol=1e-4)
    # A Newton step by differences takes 19 likelihoods; by what the gradients tell, one.
    assert few < 0.7 * many


def test_the_minimum_is_judged_by_a_hessian_that_was_measured_there() -> None:
    """A start that has all but converged is not taken for a minimum by what gradients say of its neighbourhood."""
    f = many_inputs(150, 8)
    objective = Objective([Expert(f.data[0], KERNELS["matern32"], 0)])
    trainer = TreeNewton(InProcess(f.graph), objective, Bounds())
    state, status, _ = followed(trainer, np.log([*[3.0] * 8, 1.0, 0.3]), rounds=100)
    assert status == "converged"
    assert state.measured_at is not None
    assert np.abs(state.search.best - state.measured_at).max() <= newton.CLOSE
