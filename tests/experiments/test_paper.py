"""The paper's training setting: N = 8,100 uniform points in [0, 2]^2, stripes along x, its constants."""

from __future__ import annotations

import numpy as np
import pytest

import fleetgp as fg
from tests.conftest import paper_shards


@pytest.mark.parametrize("agents", [4, *[pytest.param(agents, marks=pytest.mark.long) for agents in (10, 20)], 40])
def test_apx_gp_stops_after_as_many_rounds_as_in_the_paper(agents: int) -> None:
    """The paper's table has 43.6, 47.8, 56.2 and 56.4 rounds."""
    fleet = fg.Fleet(paper_shards(8100, agents))
    fit = fleet.train("apx-gp", theta0=fg.PAPER_THETA0, tol=1e-3, rho=500, lipschitz=5000)
    assert fit.status == "converged"
    assert 35 <= fit.rounds <= 70


@pytest.mark.parametrize("agents", [pytest.param(4, marks=pytest.mark.long), 10])
def test_dec_apx_gp_agrees_after_a_hundred_rounds(agents: int) -> None:
    fleet = fg.Fleet(paper_shards(8100, agents), graph="path")
    fit = fleet.train("dec-apx-gp", theta0=fg.PAPER_THETA0, rounds=100, tol=0, rho=500, kappa=5000)
    assert fit.rounds == 100
    assert fit.disagreement < 0.1
    assert np.allclose(fit.thetas[:, -1], 0.1, rtol=0.05), "the noise has been found, so they did not just stand still"


def test_raw_theta_would_diverge() -> None:
    """Erratum 1: with the paper's constants the same iteration on theta itself leaves the positive numbers."""
    from fleetgp.gp.dense.engine import DenseExpert
    from fleetgp.gp.kernels import KERNELS

    local = [DenseExpert(x, y, KERNELS["se"], i) for i, (x, y) in enumerate(paper_shards(8100, 40))]
    theta, psi = np.tile(fg.PAPER_THETA0, (40, 1)), np.zeros((40, 4))
    lowest = np.inf
    for _ in range(10):
        z = (theta + psi / 500).mean(axis=0)
        lowest = min(lowest, z.min())
        if lowest <= 0:
            break
        gradients = np.array([e.evaluate(np.log(z)).gradient / z for e in local])
        theta = z - (gradients + psi) / 5500
        psi = psi + 500 * (theta - z)
    assert lowest <= 0
