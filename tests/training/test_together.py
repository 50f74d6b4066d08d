"""Several outputs trained together: against dense likelihoods written out, differences, and other hostings."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from scipy.optimize import minimize

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.data import Shard
from fleetgp.engines.expert import Expert
from fleetgp.kernels.composite import with_noise
from fleetgp.kernels.expression import as_kernel
from fleetgp.kernels.stationary import KERNELS
from fleetgp.model.noise import NoiseModel
from fleetgp.model.observations import Observations
from fleetgp.network import Network
from fleetgp.training import TrainingOptions, problem, train, train_together, training_method
from fleetgp.training.constraints import Prior
from fleetgp.training.multi_output import SharedObjective, Sharing
from fleetgp.training.objective import Objective
from tests.conftest import mostly_long, paper_shards
from tests.shared import observed

#: Most trainings here are cut short on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning")

AGENTS = 3
PATH = fg.Graph.path(AGENTS)
#: (l_1, l_2), and sigma_f and sigma_eps of two outputs.
LENGTHS, OWN = (1.2, 0.5), ((1.3, 0.1), (20.0, 3.0))


def drawn(n: int, own: tuple[float, float], seed: int) -> Shard:
    """A draw of the model, with the squared exponential."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, 2.0, (n, 2))
    covariance = own[0] ** 2 * correlation(x, np.array(LENGTHS)) + own[1] ** 2 * np.eye(n)
    return x, np.linalg.cholesky(covariance) @ rng.normal(size=n)


def correlation(x: Array, lengths: Array) -> Array:
    return np.asarray(np.exp(-(((x[:, None] - x) / lengths) ** 2).sum(axis=-1)))


@cache
def outputs() -> tuple[tuple[Shard, ...], ...]:
    """Two outputs of three agents, at different places."""
    found = []
    for number, (n, own) in enumerate(zip((60, 36), OWN, strict=True)):
        found.append(tuple(fg.partition(*drawn(n, own, number), agents=AGENTS)))
    return tuple(found)


def dense_sum(x: Array, pooled: bool) -> float:
    """The sum over outputs and agents, as it is written."""
    total = 0.0
    for k, shards in enumerate(outputs()):
        lengths, (signal, noise) = np.exp(x[:2]), np.exp(x[2 + 2 * k : 4 + 2 * k])
        both = [(np.concatenate([s[0] for s in shards]), np.concatenate([s[1] for s in shards]))]
        for inputs, y in both if pooled else shards:
            covariance = signal**2 * correlation(inputs, lengths) + noise**2 * np.eye(len(y))
            total += 0.5 * float(y @ np.linalg.solve(covariance, y) + np.linalg.slogdet(covariance)[1])
    return total


@cache
def optimum(pooled: bool) -> Array:
    start = np.log([*LENGTHS, *OWN[0], *OWN[1]])
    found = minimize(dense_sum, start, args=(pooled,), method="BFGS", options={"gtol": 1e-6})
    return np.asarray(found.x)


@pytest.mark.parametrize(
    "method",
    mostly_long(
        ["fact-gp", "dec-fact-gp", "full-gp", "dec-apx-gp", "apx-gp", "dec-c-gp"],
        *("fact-gp", "dec-fact-gp", "full-gp", "dec-apx-gp"),
    ),
)
def test_the_optimum_of_the_written_sum(method: str) -> None:
    options = TrainingOptions(starts=np.log([[1.0, 1.0, 1.0, 0.3, 10.0, 3.0]]), tol=1e-6, noise_floor=0.0)
    fits = train_together(
        training_method(method), [observed(one) for one in outputs()], fg.InProcess(PATH), KERNELS["se"], options
    )
    best = optimum(method == "full-gp")
    sharing = Sharing(2, 2, 2)
    assert len(fits) == 2
    for k, fit in enumerate(fits):
        assert fit.status == "converged"
        assert np.log(fit.theta) == pytest.approx(best[sharing.places(k)], abs=2e-4)
        assert fit.thetas.shape == (AGENTS, 4)
        assert fit.history.shape[2] == 4
    assert np.array_equal(fits[0].history[..., :2], fits[1].history[..., :2]), "what is shared"
    assert sum(fit.nll for fit in fits) == pytest.approx(dense_sum(best, method == "full-gp"), rel=1e-6)


def joint_objective() -> SharedObjective:
    """With a rational quadratic over one input and a Matern over both, a prior, and a floor of nothing."""
    kernel = as_kernel("matern32(1, 2) + rq(1)", 2)
    sharing = Sharing.of(kernel, 2, 2)
    objectives = [
        Objective([Expert(Observations(x, y), kernel, i) for i, (x, y) in enumerate(shards)]) for shards in outputs()
    ]
    precision = np.linspace(0.0, 2.0, sharing.width)
    return SharedObjective(objectives, sharing, Prior(np.ones(sharing.width), precision), 0.5)


def test_gradients_by_differences() -> None:
    objective = joint_objective()
    width = objective.sharing.width
    assert width == 4 + 2 * 3, "two length-scales, another and alpha; two sigma_f and one sigma_eps each"
    x = np.random.default_rng(1).normal(scale=0.3, size=(AGENTS, width))
    values, step = objective(x), 1e-5
    for place, move in enumerate(step * np.eye(width)):
        slope = (objective(x + move).nll - objective(x - move).nll) / (2.0 * step)
        assert values.gradient[:, place] == pytest.approx(slope, rel=1e-5, abs=1e-5)
    one = objective(x[1:2], np.array([1]))
    assert one.nll == values.nll[1]
    assert np.array_equal(one.gradient[0], values.gradient[1])
    other = objective(x + 1.0)
    only = objective.renewed(other, x, np.array([False, True, False]))
    assert only.nll.tolist() == [other.nll[0], values.nll[1], other.nll[2]]


def test_a_failure_of_one_output_is_one_of_the_agent() -> None:
    objective = joint_objective()
    x = np.zeros((AGENTS, objective.sharing.width))
    x[1, -1] = -1000.0
    x[1, 0] = 1000.0
    found = objective(x)
    assert np.isfinite(found.nll).tolist() == [True, False, True]


@pytest.mark.parametrize(("method", "robust"), [("dec-fact-gp", False), ("dec-apx-gp", False), ("dec-fact-gp", True)])
def test_the_same_bits_however_the_agents_are_hosted(method: str, robust: bool) -> None:
    options = TrainingOptions(rounds=25, tol=1e-3, normalize=True, mean="constant")
    noise = NoiseModel(robust=robust)
    kernel = with_noise(KERNELS["matern32"], noise)

    def work(network: Network) -> tuple[fg.Fit, ...]:
        mine = [observed(shards[i] for i in network.hosted) for shards in outputs()]
        seen = [one.observed(noise, [0] * len(one)) for one in mine]
        return train_together(training_method(method), seen, network, kernel, options)

    whole = work(fg.InProcess(PATH))
    for hosting in ([[0, 2], [1]], [[0], [1], [2]]):
        loopback = fg.Loopback(PATH, hosting)
        found = loopback.run(work)
        for group, fits in zip(hosting, found, strict=True):
            for fit, same in zip(fits, whole, strict=True):
                assert np.array_equal(fit.history, same.history[:, group])
                assert (fit.rounds, fit.status, fit.residual) == (same.rounds, same.status, same.residual)
                assert (fit.mean, fit.scaling) == (same.mean, same.scaling)
                assert np.array_equal(fit.nlls, same.nlls[group])
        assert loopback.ledger.as_dict() == whole[0].ledger.as_dict()


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("dec-fact-gp", TrainingOptions(normalize=True, mean="linear")),
        ("full-gp", TrainingOptions(mean="constant", rounds=60)),
        ("dec-gapx-gp", TrainingOptions(rounds=20, tol=0)),
    ],
)
def test_one_output_is_an_ordinary_training(method: str, options: TrainingOptions) -> None:
    shards, row, kernel = paper_shards(60, AGENTS), training_method(method), KERNELS["matern32"]
    alone = train(row, observed(shards), fg.InProcess(PATH), kernel, options)
    (fit,) = train_together(row, [observed(shards)], fg.InProcess(PATH), kernel, options)
    assert np.array_equal(fit.history, alone.history)
    assert (fit.nll, fit.status, fit.rounds, fit.scaling) == (alone.nll, alone.status, alone.rounds, alone.scaling)
    assert (fit.mean, fit.noise_floor, fit.engine) == (alone.mean, alone.noise_floor, alone.engine)
    assert fit.ledger.as_dict() == alone.ledger.as_dict()


def test_samples_come_first_and_do_not_change_the_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    row, options = training_method("dec-fact-gp"), TrainingOptions(tol=1e-6, normalize=True, noise_floor=0.0)

    def trained() -> tuple[fg.Fit, ...]:
        return train_together(row, [observed(one) for one in outputs()], fg.InProcess(PATH), KERNELS["se"], options)

    plain = trained()
    assert not len(plain[0].sample)
    monkeypatch.setattr(problem, "MOST_DENSE", 15)
    monkeypatch.setattr(problem, "SMALLEST", 14)
    first = trained()
    assert [fit.sample.tolist() for fit in first] == [[14] * 3, [12] * 3]
    assert [fit.used.tolist() for fit in first] == [[20] * 3, [12] * 3]
    for one, other in zip(first, plain, strict=True):
        assert np.log(one.theta) == pytest.approx(np.log(other.theta), abs=1e-4)


def test_sharing_helps_an_output_that_is_observed_sparsely() -> None:
    """Length-scales of 18 observations alone, and with 90 of another output."""
    true, alone, shared = np.log(LENGTHS), [], []
    row, kernel, options = training_method("full-gp"), KERNELS["se"], TrainingOptions(normalize=True)
    one = fg.Graph.path(1)
    for seed in range(4):
        many, few = [drawn(90, OWN[0], 10 + seed)], [drawn(18, OWN[1], 20 + seed)]
        (_, together) = train_together(row, [observed(many), observed(few)], fg.InProcess(one), kernel, options)
        apart = train(row, observed(few), fg.InProcess(one), kernel, options)
        alone.append(np.abs(np.log(apart.theta[:2]) - true).max())
        shared.append(np.abs(np.log(together.theta[:2]) - true).max())
    assert np.mean(shared) < 0.5 * np.mean(alone)
