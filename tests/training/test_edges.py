"""ADMM over the edges of the graph: the paper's iteration, and its optimum on any graph."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from scipy.optimize import minimize

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.engines.dense.engine import DenseEngine
from fleetgp.training.admm import EdgeAdmm, LinearizedStep, NestedStep, Primal, best_pace
from fleetgp.training.constraints import Bounds
from tests.conftest import alternating_path, mostly_long, paper_shards
from tests.training.problems import (
    RHO,
    STIFF,
    THETA0,
    X0,
    destination,
    experts,
    fleet,
    floor_at,
    follow,
    relative_error,
)
from tests.training.quadratics import Quadratics, quadratics

#: Most trainings here are cut short on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning")


def paper_edges(local: list[DenseEngine], graph: nx.Graph, rounds: int, *, exact: bool) -> Array:
    """Eqs. (dec_c_admm) and (dec_apx_admm), on log theta."""
    agents = len(local)
    theta, p = dict.fromkeys(range(agents), X0), {i: np.zeros(4) for i in range(agents)}
    for _ in range(rounds):
        p = {i: p[i] + RHO * sum(theta[i] - theta[j] for j in graph.neighbors(i)) for i in range(agents)}
        step = _exact if exact else _linearized
        theta = {i: step(local[i], p[i], theta[i], [theta[j] for j in graph.neighbors(i)]) for i in range(agents)}
    return np.exp([theta[i] for i in range(agents)])


def _linearized(expert: DenseEngine, p: Array, own: Array, others: list[Array]) -> Array:
    card = len(others)
    right = RHO * sum(others) - expert.evaluate(own).gradient + (STIFF + card * RHO) * own - p
    return np.asarray(right / (STIFF + 2 * card * RHO))


def _exact(expert: DenseEngine, p: Array, own: Array, others: list[Array]) -> Array:
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
    fleet = fg.Fleet(paper_shards(90, 5), graph=graph, kernel="se", normalize=False)
    fit = fleet.train("dec-apx-gp", theta0=fg.PAPER_THETA0, rounds=12, tol=0, rho=RHO, kappa=STIFF)
    assert np.allclose(fit.thetas, paper_edges(experts(5), graph, 12, exact=False), rtol=1e-10)
    assert fit.history.shape == (13, 5, 4)


def test_dec_c_gp_is_the_papers_iteration() -> None:
    fleet = fg.Fleet(paper_shards(60, 3), graph="path", kernel="se", normalize=False)
    fit = fleet.train("dec-c-gp", theta0=fg.PAPER_THETA0, rounds=2, tol=0, rho=RHO)
    expected = paper_edges(experts(3, 60), nx.path_graph(3), 2, exact=True)
    assert np.allclose(fit.thetas, expected, rtol=2e-4)


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

    best = min(rounds(pace) for pace in np.geomspace(0.005, 50, 100))
    assert rounds(best_pace(graph)) < 1.4 * best


GRAPHS = ("path", "cycle", "geometric", "complete", "star", "grid")


@pytest.mark.parametrize(
    ("method", "graph"),
    [("dec-apx-gp", graph) for graph in GRAPHS]
    + [("dec-c-gp", "path"), ("dec-gapx-gp", "geometric")]
    + [pytest.param("dec-c-gp", graph, marks=pytest.mark.long) for graph in GRAPHS if graph != "path"]
    + [pytest.param("dec-gapx-gp", graph, marks=pytest.mark.long) for graph in GRAPHS if graph != "geometric"],
)
def test_decentralized_methods_reach_the_centralized_optimum(method: str, graph: str) -> None:
    f = fleet(240, 6, graph)
    fit = f.train(method, theta0=THETA0)
    assert fit.status == "converged"
    assert relative_error(fit.thetas, destination(f, method)) < 1e-3


@pytest.mark.parametrize("method", ["dec-c-gp", "dec-apx-gp", "dec-gapx-gp"])
def test_time_varying_graph_that_is_never_connected(method: str) -> None:
    f = fleet(240, 4, alternating_path(4))
    fit = f.train(method, theta0=THETA0)
    assert fit.status == "converged"
    assert relative_error(fit.thetas, destination(f, method)) < 1e-3


@pytest.mark.parametrize("rho", [500.0, 1e5, 1e7])
@pytest.mark.parametrize("method", mostly_long(["dec-apx-gp", "dec-c-gp"], "dec-apx-gp"))
def test_a_stiff_penalty_does_not_pass_for_convergence(method: str, rho: float) -> None:
    """With a large rho every step is tiny wherever the agents stand."""
    f = fleet(120, 3)
    fit = f.train(method, theta0=THETA0, rounds=40, tol=1e-3, rho=rho)
    error = relative_error(fit.thetas, f.train("fact-gp", theta0=THETA0).theta)
    assert fit.status == "round limit" or error < 1e-2


# ---- on quadratics, where every number is known ---------------------------------------------------------


def admm(
    objective: Quadratics, rho: float | None, *, kappa: float | None = None, floor: Bounds | None = None
) -> EdgeAdmm:
    graph = fg.Graph.path(len(objective.centre))
    return EdgeAdmm(fg.InProcess(graph), LinearizedStep(objective, Bounds() if floor is None else floor, kappa), rho)


def saddles() -> Quadratics:
    """Agent 0 is concave along the first axis."""
    objective = quadratics(3)
    objective.matrix[0] = np.diag([-9.0, 4.0, 2.0])
    return objective


@pytest.mark.parametrize(
    ("primal", "outweighed"), [(LinearizedStep(saddles(), Bounds(), None), 3.0), (NestedStep(saddles(), Bounds()), 6.0)]
)
def test_an_automatic_rho_is_the_fleets_largest_wish(primal: Primal, outweighed: float) -> None:
    """The pace times the curvature, or three times the concavity over twice the links; six times for exact steps."""
    objective = saddles()
    trainer = EdgeAdmm(fg.InProcess(fg.Graph.path(3)), primal, None)
    state = trainer.begin(np.zeros((3, 3)))
    stiffness = np.abs(np.diagonal(objective.matrix, axis1=1, axis2=2))
    pace = best_pace(fg.Graph.path(3))
    wanted = pace * stiffness.max(axis=0)
    wanted[0] = max(wanted[0], outweighed * 9.0 / 2.0)
    np.testing.assert_allclose(state.stiffness, stiffness.max(axis=0), rtol=1e-6)
    np.testing.assert_allclose(state.rho, wanted, rtol=1e-6)
    assert wanted[0] == outweighed * 4.5, "the concavity must decide somewhere"
    assert trainer.network.round == trainer.network.diameter, "agreed by max-consensus"


def test_a_given_rho_is_kept_and_the_curvature_comes_with_the_first_verdict() -> None:
    objective = quadratics(3)
    trainer = admm(objective, 40.0)
    state = trainer.begin(np.zeros((3, 3)))
    assert (state.rho.tolist(), trainer.network.round) == ([40.0] * 3, 0)
    assert np.isnan(state.stiffness).all()
    rounds = trainer.rounds(1e-9)
    running = rounds.start(state)
    for _ in range(2):
        running, verdict = rounds.step(running)
    assert verdict is not None
    largest = np.diagonal(objective.matrix, axis1=1, axis2=2).max(axis=0)
    np.testing.assert_allclose(running.state.stiffness, largest, rtol=1e-6)
    assert running.state.rho.tolist() == [40.0] * 3


def test_rho_is_renewed_where_it_is_off_by_more_than_a_factor_of_two() -> None:
    trainer = admm(quadratics(3), None)
    state = replace(trainer.begin(np.zeros((3, 3))), rho=np.array([1.0, 1.0, 1.0]))

    def renewed(*wanted: float) -> list[float]:
        found: list[float] = trainer.learn(state, {"stiffness": np.ones(3), "rho": np.array(wanted)}).rho.tolist()
        return found

    assert renewed(2.0, 0.5, 1.3) == [1.0, 1.0, 1.0]
    assert renewed(2.01, 0.49, 1.3) == [2.01, 0.49, 1.0]
    assert renewed(np.nan, np.inf, 3.0) == [1.0, 1.0, 3.0], "who diverges is judged, not followed"
    assert trainer.learn(state, {"other": np.ones(1)}) is state


def test_what_is_watched() -> None:
    """x, and the gradient that is left over the fleet's curvature, once that is known; NaN where somebody is lost."""
    objective = quadratics(3)
    trainer = admm(objective, 40.0)
    state = trainer.begin(np.zeros((3, 3)))
    state = replace(state, dual=np.arange(9.0).reshape(3, 3))
    slope = np.abs(objective(np.zeros((3, 3))).gradient + state.dual)
    watch = trainer.watch(state)
    assert watch.small is not None
    np.testing.assert_allclose(watch.small[:, 0], slope.max(axis=1))
    known = replace(state, stiffness=np.array([2.0, 4.0, 8.0]))
    watch = trainer.watch(known)
    assert watch.small is not None
    np.testing.assert_allclose(watch.small[:, 0], (slope / [2.0, 4.0, 8.0]).max(axis=1))
    assert np.array_equal(watch.agree, state.local.x)
    lost = replace(state.local.values, nll=np.array([1.0, np.inf, 1.0]))
    watch = trainer.watch(replace(known, local=replace(state.local, values=lost)))
    assert watch.small is not None
    assert np.isnan(watch.small[:, 0]).tolist() == [False, True, False]


def test_what_pushes_against_the_floor_is_not_left_to_do() -> None:
    trainer = admm(quadratics(3), 40.0, floor=floor_at(-0.5, 3))
    state = trainer.begin(np.tile([0.0, 0.0, -0.5], (3, 1)))
    gradient = np.tile([1e-9, 0.0, 6.0], (3, 1))
    pushed = replace(state, local=replace(state.local, values=replace(state.local.values, gradient=gradient)))
    watch = trainer.watch(pushed)
    assert watch.small is not None
    assert watch.small[:, 0] == pytest.approx([1e-9] * 3)


def test_on_quadratics_the_fleet_ends_at_the_weighted_mean() -> None:
    objective = quadratics(4)
    trainer = admm(objective, None)
    outcome = follow(trainer, np.zeros((4, 3)), rounds=500, tol=1e-8)
    right = (objective.matrix @ objective.centre[..., None]).sum(axis=0)[:, 0]
    expected = np.linalg.solve(objective.matrix.sum(axis=0), right)
    assert outcome.status == "converged"
    np.testing.assert_allclose(outcome.state.local.x, np.tile(expected, (4, 1)), atol=1e-7)
    np.testing.assert_allclose(outcome.state.dual.sum(axis=0), 0.0, atol=1e-9)


def test_agents_without_a_link_wait_and_remember() -> None:
    """On a path whose edges take turns, only the ends of the round's edges move."""
    objective = quadratics(3)
    network = fg.InProcess(alternating_path(3))
    trainer = EdgeAdmm(network, LinearizedStep(objective, Bounds(), 100.0), 40.0)
    state = trainer.begin(0.1 * np.arange(9.0).reshape(3, 3))
    rounds = trainer.rounds(0.0)
    running = rounds.start(state)
    after, _ = rounds.step(running)  # the edge 0 - 1
    assert np.array_equal(after.state.local.x[2], state.local.x[2])
    moved = (after.state.local.x != state.local.x).any(axis=1)
    assert moved.tolist() == [True, True, False]
    x = state.local.x
    dual = 40.0 * np.stack([x[0] - x[1], x[1] - x[0], 0.0 * x[2]])
    np.testing.assert_allclose(after.state.dual, dual)
    # Agent 1 is pulled by both of its edges: the midpoint of 0 - 1, and the start's of 1 - 2, which is where it stood.
    pulls = 40.0 * 2 * ((x[1] - 0.5 * (x[0] + x[1])) + (x[1] - x[1]))
    expected = x[1] - (objective(x).gradient[1] + dual[1] + pulls) / (100.0 + 4 * 40.0)
    np.testing.assert_allclose(after.state.local.x[1], expected, rtol=1e-12)


def test_who_leaves_the_range_of_hyperparameters_stays_and_has_diverged() -> None:
    objective = quadratics(3)
    objective.centre[1] = 1e6
    trainer = admm(objective, 1e-3, kappa=1e-3)
    outcome = follow(trainer, np.zeros((3, 3)), rounds=1, tol=0.0)
    assert outcome.status == "diverged"
    assert np.array_equal(outcome.state.local.x[1], np.zeros(3))
    assert np.isinf(outcome.state.local.values.nll[1])
    assert np.isnan(outcome.state.local.values.gradient[1]).all()


def test_stopping_costs_nothing_where_nobody_asks_for_it() -> None:
    for rho, tol, watched in ((40.0, 0.0, False), (40.0, 1e-3, True), (None, 0.0, True)):
        trainer = admm(quadratics(3), rho)
        rounds = trainer.rounds(tol)
        rounds.step(rounds.start(trainer.begin(np.zeros((3, 3)))))
        assert (trainer.network.ledger.total(kind="stopping").scalars > 0) == watched
