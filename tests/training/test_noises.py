"""Noise that differs: the optimum by other means, with every trainer; outliers; a cheap sensor beside a good one."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy.linalg import block_diag
from scipy.optimize import minimize

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.data.dataset import InMemory
from fleetgp.engines.expert import Expert
from fleetgp.errors import InputError
from fleetgp.kernels.composite import with_noise
from fleetgp.kernels.stationary import KERNELS
from fleetgp.model.noise import NoiseModel
from fleetgp.model.observations import Observations
from fleetgp.network import Network
from fleetgp.training import TRAINING_METHODS, TrainingOptions, train, training_method
from fleetgp.training.constraints import Prior
from fleetgp.training.objective import STEP, Objective, measure_hessian

#: Most trainings here are cut short on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning")

SIGMAS = np.array([0.05, 0.15, 0.5])
START = [0.8, 1.0, 0.2, 0.2, 0.2]


def matern32(x: Array, other: Array, theta: Array) -> Array:
    r = np.sqrt(3.0) * np.abs(x[:, None, 0] - other[:, 0]) / theta[0]
    return np.asarray(theta[1] ** 2 * (1.0 + r) * np.exp(-r))


def sample(size: int = 30, seed: int = 3) -> list[Any]:
    """Three agents on one draw of a GP, each with its own noise, and known deviations besides."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, 3.0, (3 * size, 1))
    f = np.linalg.cholesky(matern32(x, x, np.array([0.8, 1.0])) + 1e-10 * np.eye(len(x))) @ rng.standard_normal(len(x))
    s = rng.choice([0.0, 0.3], len(x), p=[0.7, 0.3])
    group = np.arange(len(x)) % 3
    y = f + np.sqrt(SIGMAS[group] ** 2 + s**2) * rng.standard_normal(len(x))
    return [(x[group == i], y[group == i], s[group == i]) for i in range(3)]


SHARDS = sample()


def nll(log_theta: Array, shards: list[Any], joint: bool) -> float:
    """By NumPy, with C block-diagonal or of all data."""
    theta = np.exp(log_theta)
    x, y, s = (np.concatenate(parts) for parts in zip(*shards, strict=True))
    sigma = np.repeat(theta[2:], [len(own) for _, own, _ in shards])
    c = matern32(x, x, theta) if joint else block_diag(*(matern32(own, own, theta) for own, _, _ in shards))
    c = c + np.diag(sigma**2 + s**2)
    return float(0.5 * (y @ np.linalg.solve(c, y) + np.linalg.slogdet(c).logabsdet))


@pytest.mark.parametrize(("method", "joint"), [("fact-gp", False), ("full-gp", True)])
@pytest.mark.parametrize("normalize", [False, True])
def test_it_is_the_optimum_of_scipy(method: str, joint: bool, normalize: bool) -> None:
    """With normalize the model is of y - mean, over the deviation, and so are the known deviations."""
    y = np.concatenate([own for _, own, _ in SHARDS])
    shards = [(x, own - normalize * y.mean(), s) for x, own, s in SHARDS]
    expected = minimize(nll, np.log(START), (shards, joint), method="L-BFGS-B", options={"ftol": 1e-14, "gtol": 1e-8})
    fit = fg.Fleet(SHARDS, kernel="matern32", noise="agents", normalize=normalize).train(method, theta0=START, tol=1e-8)
    assert fit.status == "converged"
    np.testing.assert_allclose(np.log(fit.theta), expected.x, atol=2e-4)
    unit = len(y) * np.log(y.std()) if normalize else 0.0
    assert fit.nll + unit == pytest.approx(expected.fun, abs=1e-6)


def by_optimum(name: str) -> str:
    row = training_method(name)
    return "pooled" if row.meet in ("pool", "moments") else "augmented" if row.augmented else "own"


@pytest.mark.parametrize("data", ["own", "augmented"])
def test_every_trainer_finds_the_same_optimum(data: str) -> None:
    """An agent's likelihood says nothing of the noises of others, whom it trusts."""
    names = [name for name in TRAINING_METHODS if by_optimum(name) == data]
    assert len(names) == {"own": 6, "augmented": 4}[data]
    fleet = fg.Fleet(SHARDS, "complete", kernel="matern32", noise="agents", normalize=False)
    found = {}
    for name in names:
        fit = fleet.train(name, theta0=START, tol=1e-5)
        assert fit.status == "converged", name
        found[name] = np.log(fit.theta)
    best = found["fact-gp" if data == "own" else "g-fact-gp"]
    for name, theta in found.items():
        np.testing.assert_allclose(theta, best, atol=1e-3, err_msg=name)


def test_moments_know_of_one_noise_only() -> None:
    for how in ({"noise": "agents"}, {"robust": True}):
        model: dict[str, Any] = {"kernel": "se", "normalize": False, **how}
        fleet = fg.Fleet([shard[:2] for shard in SHARDS], **model)
        with pytest.raises(InputError, match="dec-full-gp needs one noise for all observations, and here it differs"):
            fleet.train("dec-full-gp")
        with pytest.raises(InputError, match="the moments engine needs one noise for all observations"):
            fleet.train("dec-fact-gp", engine="moments")


# ---- noises that most agents know nothing of --------------------------------------------------------------------


class Counted(Objective):
    """How often an agent's likelihood is evaluated."""

    count = 0

    def __call__(self, log_thetas: Array, agents: Any = None) -> Any:
        self.count += len(log_thetas)
        return super().__call__(log_thetas, agents)


def test_a_hessian_asks_only_for_what_the_data_depend_on() -> None:
    noise = NoiseModel(known=True, groups=("0", "1", "2"))
    kernel = with_noise(KERNELS["matern32"], noise)
    data = [noise.observed(Observations(*shard), i) for i, shard in enumerate(SHARDS)]
    experts = [Expert(own, kernel, i) for i, own in enumerate(data)]
    prior = Prior(np.zeros(5), np.array([0.0, 0.0, 4.0, 0.0, 9.0]))
    objective, x = Counted(experts, prior, 0.5), np.tile(np.log(START), (3, 1))
    values = objective(x)
    before, everyone = objective.count, np.ones(3, dtype=bool)
    found = measure_hessian(objective, x, values, everyone)
    assert objective.count - before == 3 * 3  # of 5 hyperparameters each agent knows three
    slow = np.stack([(objective(x + STEP * e).gradient - values.gradient) / STEP for e in np.eye(5)], axis=2)
    np.testing.assert_allclose(found, 0.5 * (slow + slow.swapaxes(1, 2)), atol=1e-9)


@pytest.mark.parametrize("method", ["dec-fact-gp", "dec-apx-gp", "fact-gp"])
def test_the_noise_of_somebody_who_is_away_stays_as_it_was(method: str) -> None:
    """Agents may leave a fleet of processes: nobody's data tell of their noise then."""
    noise = NoiseModel(groups=("0", "1", "away"))
    kernel = with_noise(KERNELS["matern32"], noise)
    shards = [noise.observed(Observations(x, y), i) for i, (x, y, _) in enumerate(SHARDS[:2])]
    options = TrainingOptions(starts=np.log([START]))
    fit = train(training_method(method), InMemory(shards), fg.InProcess(fg.Graph.path(2)), kernel, options)
    assert fit.status == "converged"
    assert fit.theta[-1] == pytest.approx(START[-1], rel=1e-6)
    alone = fg.Fleet([shard[:2] for shard in SHARDS[:2]], kernel="matern32", noise="agents", normalize=False)
    np.testing.assert_allclose(fit.theta[:4], alone.train("fact-gp", theta0=START[:4], tol=1e-7).theta, rtol=2e-3)


def test_the_floor_is_under_all_noises_but_those_with_a_bound() -> None:
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0.0, 3.0, (60, 1)), axis=0)
    y = np.sin(2.0 * x[:, 0])  # no noise at all
    shards = [(x[k::3], y[k::3]) for k in range(3)]
    fleet = fg.Fleet(shards, kernel="se", noise=["a", "b", "c"], normalize=False)
    with pytest.warns(fg.FleetGPWarning, match="sigma_eps_a, sigma_eps_b stands at its floor"):
        fit = fleet.train("fact-gp", theta0=[1, 1, 0.1, 0.1, 0.1], bounds={"sigma_eps_c": (1e-2, None)})
    assert fit.floored == ("sigma_eps_a", "sigma_eps_b")
    assert set(fit.at_bounds) == {"sigma_eps_a", "sigma_eps_b", "sigma_eps_c"}
    np.testing.assert_allclose(fit.theta[-3:], [fit.noise_floor, fit.noise_floor, 1e-2], rtol=1e-3)
    assert fit.at_floor.all()


# ---- outliers ---------------------------------------------------------------------------------------------------


def field(size: int = 300, seed: int = 0) -> tuple[Array, Array, Any]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, 1.0, (size, 2))
    return x, np.sin(5.0 * x[:, 0]) + np.cos(4.0 * x[:, 1]), rng


def test_a_few_outliers_do_not_spoil_the_noise() -> None:
    """5 % that are 20 deviations off."""
    x, f, rng = field()
    y = f + 0.1 * rng.standard_normal(len(f))
    bad = rng.permutation(len(f))[:15]
    y[bad] += 2.0 * rng.choice([-1.0, 1.0], 15)
    shards = fg.partition(x, y, agents=3)
    found = {}
    for robust in (False, True):
        fleet = fg.Fleet(shards, kernel="matern32", robust=robust, normalize=False)
        fit = fleet.train()
        assert fit.status == "converged"
        error = np.sqrt(np.mean((fleet.predict(x, "dec-rbcm").mean - f) ** 2))
        found[robust] = fit.theta[-1], error
        assert fit.outliers.shape == ((3,) if robust else (0,))
        if robust:
            assert 15 <= fit.outliers.sum() <= 15 + 8
    assert found[False][0] > 0.3
    assert found[True][0] == pytest.approx(0.1, rel=0.25)
    assert found[True][1] < 0.5 * found[False][1]


def test_without_outliers_next_to_nothing_changes() -> None:
    x, f, rng = field(seed=1)
    shards = fg.partition(x, f + 0.1 * rng.standard_normal(len(f)), agents=3)
    plain, robust = (fg.Fleet(shards, kernel="matern32", robust=how, normalize=False).train() for how in (False, True))
    assert robust.theta[-1] == pytest.approx(plain.theta[-1], rel=0.05)
    np.testing.assert_allclose(robust.theta, plain.theta, rtol=0.1)


@pytest.mark.parametrize(("method", "mean"), [("full-gp", "zero"), ("dec-g-fact-gp", "zero"), ("fact-gp", "linear")])
def test_one_stuck_sensor_is_no_matter_for_other_trainers(method: str, mean: Any) -> None:
    x, f, rng = field(150, seed=2)
    y = f + 0.1 * rng.standard_normal(len(f))
    shards = fg.partition(x, y, agents=3, by="random")
    shards[1][1][::10] = 6.0  # stuck, now and then
    plain, robust = (
        fg.Fleet(shards, kernel="matern32", robust=how, mean=mean, normalize=False) for how in (False, True)
    )
    fit = robust.train(method)
    assert fit.status == "converged"
    assert fit.outliers[1] >= 5
    assert plain.train(method).theta[-1] > 3.0 * fit.theta[-1]
    assert fit.theta[-1] == pytest.approx(0.1, rel=0.35)


def test_a_training_that_did_not_converge_has_no_turns() -> None:
    x, f, rng = field(60)
    shards = fg.partition(x, f + 0.1 * rng.standard_normal(60), agents=2)
    start = [1.0, 1.0, 1.0, 0.1]
    plain, robust = (
        fg.Fleet(shards, robust=how, kernel="se", normalize=False).train("dec-apx-gp", theta0=start, rounds=3, tol=0.0)
        for how in (False, True)
    )
    assert (robust.status, robust.rounds) == ("round limit", 3)
    np.testing.assert_allclose(robust.theta, plain.theta, rtol=1e-9)


# ---- what it is good for ----------------------------------------------------------------------------------------


def test_a_cheap_sensor_beside_a_good_one() -> None:
    """Both noises are found, and what is predicted of new observations is better than with one noise."""
    x, f, rng = field(400, seed=5)
    sigmas = np.array([0.05, 0.5])
    group = np.arange(len(f)) % 2
    y = f + sigmas[group] * rng.standard_normal(len(f))
    seen = np.arange(len(f)) < 240
    shards = [(x[seen & (group == i)], y[seen & (group == i)]) for i in range(2)]
    scores = {}
    for noise in (None, "agents"):
        fleet = fg.Fleet(shards, kernel="matern32", noise=noise, normalize=False)
        fit = fleet.train()
        scores[noise] = 0.0
        for i in range(2):
            new = ~seen & (group == i)
            told = fleet.predict(x[new], "dec-rbcm", observed=True, agent=i)
            scores[noise] += 0.5 * float(np.sum(np.log(told.variance) + (y[new] - told.mean) ** 2 / told.variance))
    np.testing.assert_allclose(fit.theta[-2:], sigmas, rtol=0.25)
    assert scores["agents"] < scores[None] - 50.0


# ---- decentralized ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["dec-fact-gp", pytest.param("dec-gapx-gp", marks=pytest.mark.long)])
def test_it_is_the_same_however_the_agents_are_hosted(method: str) -> None:
    """With everything at once; weights are an agent's own."""
    noise = NoiseModel(known=True, robust=True, groups=("0", "1", "2"))
    kernel, graph = with_noise(KERNELS["matern32"], noise), fg.Graph.path(3)
    shards = [noise.observed(Observations(x, y.copy(), s), i) for i, (x, y, s) in enumerate(SHARDS)]
    shards[0].values[3] += 5.0
    options = TrainingOptions(starts=np.log([START]), normalize=True, tol=1e-3)

    def work(network: Network) -> fg.Fit:
        return train(training_method(method), InMemory(shards[i] for i in network.hosted), network, kernel, options)

    whole = work(fg.InProcess(graph))
    assert whole.status == "converged"
    assert whole.outliers[0] >= 1
    for hosting in ([[0], [1, 2]], [[0], [1], [2]]):
        fits = fg.Loopback(graph, hosting).run(work)
        for group, fit in zip(hosting, fits, strict=True):
            assert np.array_equal(fit.history, whole.history[:, group])
            assert np.array_equal(fit.outliers, whole.outliers[group])
        assert list(itertools.chain(*hosting)) == [0, 1, 2]
