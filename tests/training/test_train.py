"""One battery for all eleven training methods: a new method is one row in the registry and is tested here."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.training import training_method
from tests.conftest import mostly_long
from tests.training.problems import (
    THETA0,
    destination,
    fleet,
    optimum,
    paper_options,
    relative_error,
)

#: Most trainings here are cut short on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning")

#: All but the nested solvers, which are slow.
MOST = mostly_long(fg.TRAINING_METHODS, *(method for method in fg.TRAINING_METHODS if "c-gp" not in method))
STEPWISE = [method for method in fg.TRAINING_METHODS if training_method(method).stepwise]


@pytest.mark.parametrize("method", MOST)
def test_result_is_complete_and_honest(method: str) -> None:
    f = fleet()
    fit = f.train(method, theta0=THETA0)
    assert fit.status == "converged"
    assert fit.thetas.shape == (6, 4)
    assert fit.history.shape == (fit.rounds + 1, 6, 4)
    assert np.allclose(fit.history[0], THETA0)
    assert np.array_equal(fit.history[-1], fit.thetas)
    assert fit.disagreement <= (1e-5 if training_method(method).decentralized else 1e-4)
    assert fit.jitter.tolist() == [0.0] * 6
    assert np.isfinite(fit.nll)
    assert f.theta is not None
    assert np.array_equal(f.theta, fit.theta)
    assert fit.method in repr(fit)


@pytest.mark.parametrize("method", fg.TRAINING_METHODS)
def test_reaches_the_optimum_of_its_likelihood(method: str) -> None:
    f = fleet(200, 4)
    reference = destination(f, method)
    assert relative_error(f.train(method, theta0=THETA0).thetas, reference) < 1e-3


@pytest.mark.parametrize("method", fg.TRAINING_METHODS)
def test_one_agent_is_the_full_gp(method: str) -> None:
    assert relative_error(fleet(120, 1).train(method, theta0=THETA0).thetas, optimum_of_one_agent()) < 1e-4


@cache
def optimum_of_one_agent() -> Array:
    return optimum(fleet(120, 1).shards, "full-gp", THETA0)


@pytest.mark.parametrize("method", mostly_long(fg.TRAINING_METHODS, "fact-gp", "gapx-gp", "dec-apx-gp"))
def test_two_agents(method: str) -> None:
    f = fleet(100, 2)
    reference = destination(f, method)
    assert relative_error(f.train(method, theta0=THETA0).thetas, reference) < 1e-3


@pytest.mark.parametrize("method", MOST)
def test_unequal_and_tiny_shards(method: str) -> None:
    field = fg.synthetic_field(200, seed=2)
    cuts = np.split(np.argsort(field.inputs[:, 0]), [1, 3, 20, 90])
    f = fg.Fleet([(field.inputs[c], field.observations[c]) for c in cuts], graph="cycle", kernel="se", normalize=False)
    fit = f.train(method, theta0=THETA0)
    assert fit.status == "converged"
    assert relative_error(fit.thetas, destination(f, method)) < 2e-3


@pytest.mark.parametrize(
    ("method", "dimension"),
    [
        pytest.param(
            method,
            dimension,
            marks=[] if (method, dimension) in (("full-gp", 3), ("dec-gapx-gp", 1)) else [pytest.mark.long],
        )
        for method in ("full-gp", "g-fact-gp", "apx-gp", "dec-c-gp", "dec-gapx-gp")
        for dimension in (1, 3)
    ],
)
def test_any_dimension(method: str, dimension: int) -> None:
    theta = [*[1.0, 0.7, 0.5][:dimension], 1.2, 0.2]
    field = fg.synthetic_field(200, theta, seed=4)
    f = fg.Fleet(fg.partition(field.inputs, field.observations, agents=3), kernel="se", normalize=False)
    start = [1.5] * dimension + [1.0, 0.5]
    fit = f.train(method, theta0=start)
    assert fit.thetas.shape == (3, dimension + 2)
    assert relative_error(fit.thetas, destination(f, method, start)) < 1e-3


@pytest.mark.filterwarnings("ignore:sigma_eps stands at its floor")  # of a field that is smoother than the kernel
@pytest.mark.parametrize("kernel", ["matern12", "matern32", "matern52"])
def test_other_kernels(kernel: str) -> None:
    f = fleet(240, 4, kernel=kernel)
    reference = f.train("fact-gp", theta0=THETA0, tol=1e-6).theta
    assert relative_error(f.train("dec-apx-gp", theta0=THETA0).thetas, reference) < 1e-3


@pytest.mark.parametrize("method", fg.TRAINING_METHODS)
def test_a_round_limit_is_not_called_converged(method: str) -> None:
    fit = fleet(120, 3).train(method, theta0=THETA0, rounds=3)
    assert fit.status == "round limit"
    assert fit.rounds == 3


@pytest.mark.parametrize(
    "method", ["c-gp", "apx-gp", "gapx-gp", "dec-fact-gp", "dec-c-gp", "dec-apx-gp", "dec-gapx-gp"]
)
def test_fixed_rounds_are_exact(method: str) -> None:
    fit = fleet(90, 3).train(method, theta0=THETA0, rounds=7, tol=0, **paper_options(method))
    assert (fit.rounds, fit.status) == (7, "round limit")
    assert fit.history.shape[0] == 8
    assert fit.ledger.total(kind="stopping").scalars == 0 or not training_method(method).decentralized


@pytest.mark.filterwarnings("ignore:.*exact copies:fleetgp.errors.FleetGPWarning")
def test_jitter_is_reported() -> None:
    x = np.linspace(0, 1, 8)[:, None]
    shards = [(np.concatenate([x, x]), np.zeros(16) + i) for i in range(2)]
    fit = fg.Fleet(shards, kernel="se", normalize=False).train(
        "dec-apx-gp", theta0=[1.0, 1.0, 1e-11], rounds=1, tol=0, rho=1e6, kappa=1e14, noise_floor=0
    )
    assert (fit.jitter > 0).all()


@pytest.mark.parametrize("method", ["apx-gp", "dec-apx-gp"])
@pytest.mark.parametrize("tol", [0.0, 1e-3])
def test_divergence_is_said(method: str, tol: float) -> None:
    """Steps that are far too long throw theta out of any range."""
    weak: dict[str, Any] = dict.fromkeys(paper_options(method), 0.01)
    with pytest.warns(fg.FleetGPWarning, match=f"{method} diverged: .*Leave out {' and '.join(weak)}"):
        fit = fleet(200, 4).train(method, theta0=THETA0, rounds=400, tol=tol, **weak)
    assert fit.status == "diverged"


def test_a_diverged_training_leaves_the_fleet_its_theta() -> None:
    f = fleet(200, 4, theta=fg.PAPER_THETA)
    with pytest.warns(fg.FleetGPWarning, match="diverged"):
        fit = f.train("dec-apx-gp", theta0=THETA0, rounds=60, rho=0.01, kappa=0.01)
    assert fit.status == "diverged"
    assert f.theta is not None
    assert f.theta.tolist() == list(fg.PAPER_THETA)
    assert np.isfinite(fit.jitter).all()


def test_zero_tolerance_never_says_converged() -> None:
    fit = fg.Fleet([([[0.5]], [1.0])], kernel="se", normalize=False).train(
        "dec-apx-gp", theta0=[1.0, 1.0, 1.0], rounds=50, tol=0
    )
    assert (fit.rounds, fit.status) == (50, "round limit")


def test_same_seed_same_bits() -> None:
    one, two = (fleet(120, 4).train("dec-gapx-gp", theta0=THETA0, seed=3) for _ in range(2))
    assert np.array_equal(one.history, two.history)
    other = fleet(120, 4).train("dec-gapx-gp", theta0=THETA0, seed=4)
    assert not np.array_equal(one.thetas, other.thetas)
