"""The ADMM steps against the paper's equations, written out agent by agent with dictionaries and loops."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from scipy.optimize import minimize

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.gp.dense.engine import DenseExpert
from fleetgp.gp.expert import Expert
from fleetgp.gp.kernels import KERNELS
from fleetgp.training.curvature import Curvature
from fleetgp.training.edges import best_pace
from fleetgp.training.floor import Floor
from fleetgp.training.objective import Objective
from fleetgp.training.primal import Linearized, Local, Pull
from tests.conftest import paper_shards

X0 = np.log(fg.PAPER_THETA0)
RHO, STIFF = 40.0, 300.0


def experts(agents: int, n: int = 90) -> list[DenseExpert]:
    return [DenseExpert(x, y, KERNELS["se"], i) for i, (x, y) in enumerate(paper_shards(n, agents))]


def paper_edges(local: list[DenseExpert], graph: nx.Graph, rounds: int, *, exact: bool) -> Array:
    """Eqs. (dec_c_admm) and (dec_apx_admm), on log theta."""
    agents = len(local)
    theta, p = dict.fromkeys(range(agents), X0), {i: np.zeros(4) for i in range(agents)}
    for _ in range(rounds):
        p = {i: p[i] + RHO * sum(theta[i] - theta[j] for j in graph.neighbors(i)) for i in range(agents)}
        step = _exact if exact else _linearized
        theta = {i: step(local[i], p[i], theta[i], [theta[j] for j in graph.neighbors(i)]) for i in range(agents)}
    return np.exp([theta[i] for i in range(agents)])


def _linearized(expert: DenseExpert, p: Array, own: Array, others: list[Array]) -> Array:
    card = len(others)
    right = RHO * sum(others) - expert.evaluate(own).gradient + (STIFF + card * RHO) * own - p
    return np.asarray(right / (STIFF + 2 * card * RHO))


def _exact(expert: DenseExpert, p: Array, own: Array, others: list[Array]) -> Array:
    """By the simplex method, which knows nothing of gradients."""

    def objective(x: Array) -> float:
        pull = sum(((x - (own + other) / 2) ** 2).sum() for other in others)
        return expert.evaluate(x).nll + float(x @ p + RHO * pull)

    options = {"xatol": 1e-10, "fatol": 1e-13, "maxiter": 20_000, "maxfev": 20_000}
    return np.asarray(minimize(objective, own, method="Nelder-Mead", options=options).x)


@pytest.mark.parametrize("name", ["path", "star", "complete", "cycle"])
def test_dec_apx_gp_is_the_papers_iteration(name: str) -> None:
    graph = {"path": nx.path_graph(5), "star": nx.star_graph(4), "complete": nx.complete_graph(5)}.get(
        name, nx.cycle_graph(5)
    )
    fleet = fg.Fleet(paper_shards(90, 5), graph=graph)
    fit = fleet.train("dec-apx-gp", theta0=fg.PAPER_THETA0, rounds=12, tol=0, rho=RHO, kappa=STIFF)
    assert np.allclose(fit.thetas, paper_edges(experts(5), graph, 12, exact=False), rtol=1e-10)
    assert fit.history.shape == (13, 5, 4)


def test_dec_c_gp_is_the_papers_iteration() -> None:
    fleet = fg.Fleet(paper_shards(60, 3), graph="path")
    fit = fleet.train("dec-c-gp", theta0=fg.PAPER_THETA0, rounds=2, tol=0, rho=RHO)
    expected = paper_edges(experts(3, 60), nx.path_graph(3), 2, exact=True)
    assert np.allclose(fit.thetas, expected, rtol=2e-4)


def test_apx_gp_is_the_papers_iteration() -> None:
    local = experts(4)
    theta, psi = np.tile(X0, (4, 1)), np.zeros((4, 4))
    for _ in range(15):
        z = (theta + psi / RHO).mean(axis=0)
        gradients = np.array([e.evaluate(z).gradient for e in local])
        theta = z - (gradients + psi) / (RHO + STIFF)
        psi = psi + RHO * (theta - z)
    fleet = fg.Fleet(paper_shards(90, 4))
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
    fit = fg.Fleet(paper_shards(90, 4)).train(
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


@pytest.mark.parametrize(
    "graph",
    [
        fg.Graph.path(2),
        fg.Graph.path(6),
        fg.Graph.cycle(10),
        fg.Graph.complete(8),
        fg.Graph.path(25),
        fg.Graph.star(9),
        fg.Graph.grid(16),
        fg.Graph.geometric(40),
    ],
)
def test_best_pace_is_close_to_the_best(graph: fg.Graph) -> None:
    """The spectral radius of the ADMM map on quadratics, over a scan of rho: ours needs at most 1.4 x the rounds."""

    def rounds(pace: float) -> float:
        degree, adjacency = np.diag(graph.degrees.astype(float)), graph.adjacency
        scale = np.linalg.inv(np.eye(graph.agents) + 2 * pace * degree)
        laplacian = degree - adjacency
        block = np.block(
            [
                [scale @ (pace * (degree + adjacency) - pace * laplacian), -scale],
                [pace * laplacian, np.eye(graph.agents)],
            ]
        )
        # The duals sum to zero for ever: that direction never moves and does not count.
        magnitudes = np.sort(np.abs(np.linalg.eigvals(block)))[:-1]
        return float(-1.0 / np.log(magnitudes[-1]))

    best = min(rounds(pace) for pace in np.geomspace(0.005, 50, 300))
    assert rounds(best_pace(graph)) < 1.4 * best


@pytest.mark.parametrize("softness", [1.0, 10.0])
def test_a_step_that_does_not_come_down_enough_is_taken_back(softness: float) -> None:
    """The model is far softer than the likelihood: it overshoots, and each agent ends a good deal lower, or stays."""
    objective = Objective([Expert(x, y, KERNELS["se"], i, "dense") for i, (x, y) in enumerate(paper_shards(300, 3))])
    x = np.tile(np.log(fg.PAPER_THETA), (3, 1)) + 0.02
    values = objective(x)
    curvature = Curvature(np.tile(softness * np.eye(4), (3, 1, 1)), np.zeros((3, 4)), x)
    pull = Pull(np.full((3, 4), 0.3), x - 0.01, np.full((3, 4), 2.0))
    gradient, before = values.gradient + pull.gradient(x), values.nll + pull.value(x)
    move = -gradient / (softness + 2.0)
    overshot = x + move * np.minimum(1.0, 1.0 / np.abs(move).max(axis=1, keepdims=True))
    rise = objective(overshot).nll + pull.value(overshot) - before
    assert (rise > 1e-6 * np.abs(before)).all(), "the example must overshoot"
    local = Local(x, values, curvature)
    after = Linearized(objective, Floor(), None).step(local, local, pull, np.ones(3, dtype=bool))
    promised = 0.1 * (gradient * (after.x - x)).sum(axis=1)
    assert (promised < 0.0).all()
    assert (objective(after.x).nll + pull.value(after.x) - before <= promised + 1e-9 * np.abs(before)).all()
