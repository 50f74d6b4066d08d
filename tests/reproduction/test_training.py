"""The paper's training setting: N = 8,100 uniform points in [0, 2]^2, stripes along x, its constants."""

from __future__ import annotations

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.model.observations import Observations
from reproduction import training
from tests.conftest import paper_shards


@pytest.mark.parametrize("agents", [4, *[pytest.param(agents, marks=pytest.mark.long) for agents in (10, 20, 40)]])
def test_apx_gp_stops_after_as_many_rounds_as_in_the_paper(agents: int) -> None:
    """The paper's table has 43.6, 47.8, 56.2 and 56.4 rounds."""
    fleet = fg.Fleet(paper_shards(8100, agents), kernel="se", normalize=False)
    fit = fleet.train("apx-gp", theta0=fg.PAPER_THETA0, tol=1e-3, rho=500, lipschitz=5000)
    assert fit.status == "converged"
    assert 35 <= fit.rounds <= 70


@pytest.mark.parametrize("agents", [pytest.param(4, marks=pytest.mark.long), 10])
def test_dec_apx_gp_agrees_after_a_hundred_rounds(agents: int) -> None:
    fleet = fg.Fleet(paper_shards(8100, agents), graph="path", kernel="se", normalize=False)
    fit = fleet.train("dec-apx-gp", theta0=fg.PAPER_THETA0, rounds=100, tol=0, rho=500, kappa=5000)
    assert fit.rounds == 100
    assert fit.disagreement < 0.1
    assert np.allclose(fit.thetas[:, -1], 0.1, rtol=0.05), "the noise has been found, so they did not just stand still"


def test_raw_theta_would_diverge() -> None:
    """Erratum 1: with the paper's constants the same iteration on theta itself leaves the positive numbers."""
    from fleetgp.engines.dense.engine import DenseEngine
    from fleetgp.kernels.stationary import KERNELS

    shards = paper_shards(2000, 10, seed=3)
    local = [DenseEngine(Observations(x, y), KERNELS["se"], i) for i, (x, y) in enumerate(shards)]
    theta, psi = np.tile(fg.PAPER_THETA0, (10, 1)), np.zeros((10, 4))
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


def test_the_papers_exclusions_and_what_is_scaled() -> None:
    names = {cell.name for cell in training.cells(training.Plan(replications=1, default_replications=1))}
    paper_cells = {name.removesuffix("-0") for name in names if name.startswith("paper")}
    assert "paper-8100-4-c-gp" in paper_cells
    for left_out in ("paper-32400-10-c-gp", "paper-32400-40-dec-c-gp", "paper-32400-4-dec-gapx-gp"):
        assert left_out not in paper_cells
    assert training.faithful("dec-apx-gp", 8_100, 10)["kappa"] == 5000.0
    assert training.faithful("dec-apx-gp", 8_100, 10)["rounds"] == 100
    assert training.faithful("apx-gp", 32_400, 4)["lipschitz"] == 20_000.0


def test_the_papers_constants_are_unstable_for_large_agents() -> None:
    """The reason for scaling: at the optimum the curvature in log sigma_eps is 2 N_i, and 2 (L + rho) is 11,000."""
    from fleetgp.engines.expert import Expert
    from fleetgp.kernels.expression import as_kernel

    field = fg.synthetic_field(8_100, seed=0)
    expert = Expert(Observations(field.inputs, field.observations), as_kernel("se"), 0)
    at, step = np.log(fg.PAPER_THETA), np.array([0.0, 0.0, 0.0, 1e-4])
    slope = expert.evaluate(at + step).gradient - expert.evaluate(at - step).gradient
    assert slope[3] / 2e-4 == pytest.approx(2 * 8_100, rel=0.05)
    assert slope[3] / 2e-4 > 2 * (training.STIFFNESS + training.RHO)
