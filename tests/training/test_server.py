"""ADMM with a central node against the paper's equations, written out."""

from __future__ import annotations

import numpy as np
import pytest

import fleetgp as fg
from tests.conftest import paper_shards
from tests.training.problems import (
    RHO,
    STIFF,
    THETA0,
    X0,
    experts,
    fleet,
)

#: Most trainings here are cut short on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning")


def test_apx_gp_is_the_papers_iteration() -> None:
    local = experts(4)
    theta, psi = np.tile(X0, (4, 1)), np.zeros((4, 4))
    for _ in range(15):
        z = (theta + psi / RHO).mean(axis=0)
        gradients = np.array([e.evaluate(z).gradient for e in local])
        theta = z - (gradients + psi) / (RHO + STIFF)
        psi = psi + RHO * (theta - z)
    fleet = fg.Fleet(paper_shards(90, 4), kernel="se", normalize=False)
    fit = fleet.train("apx-gp", theta0=fg.PAPER_THETA0, rounds=15, tol=0, rho=RHO, lipschitz=STIFF)
    assert np.allclose(fit.thetas, np.exp(theta), rtol=1e-10)
    assert fit.residual == pytest.approx(np.sqrt(((theta - z) ** 2).sum(axis=1)).max(), rel=1e-8)


def test_c_gp_with_the_papers_gradient_descent() -> None:
    local, step = experts(4), 1e-4
    theta, psi = np.tile(X0, (4, 1)), np.zeros((4, 4))
    for _ in range(6):
        z = (theta + psi / RHO).mean(axis=0)
        for i in range(4):
            for _ in range(5):
                gradient = local[i].evaluate(theta[i]).gradient + psi[i] + RHO * (theta[i] - z)
                theta[i] = theta[i] - step * gradient
        psi = psi + RHO * (theta - z)
    fit = fg.Fleet(paper_shards(90, 4), kernel="se", normalize=False).train(
        "c-gp",
        theta0=fg.PAPER_THETA0,
        rounds=6,
        tol=0,
        rho=RHO,
        nested="gradient-descent",
        step=step,
        nested_iterations=5,
    )
    assert np.allclose(fit.thetas, np.exp(theta), rtol=1e-9)


def test_an_unsolved_nested_problem_does_not_pass_for_convergence() -> None:
    """Ten gradient steps of 1e-5 stay close to z without solving anything."""
    options = {"rho": 500.0, "tol": 1e-3, "nested": "gradient-descent"}
    assert fleet(300, 3).train("c-gp", theta0=THETA0, rounds=30, **options).status == "round limit"  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["apx-gp", "gapx-gp", "c-gp", "fact-gp", "full-gp", "g-fact-gp"])
def test_centralized_methods_use_no_edges_of_the_graph(method: str) -> None:
    fit = fleet(90, 4).train(method, theta0=THETA0, rounds=5)
    assert all(fg.network.SERVER in edge for edge in fit.ledger.by_edge())
