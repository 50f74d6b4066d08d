"""ADMM over the edges of the graph: the paper's iteration, its optimum on any graph, and what it sends."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from scipy.optimize import minimize

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.gp.dense.engine import DenseExpert
from fleetgp.gp.kernels import KERNELS
from fleetgp.training import TrainingOptions, train, training_method
from fleetgp.training.edges import best_pace
from tests.conftest import alternating_path, paper_shards
from tests.training.problems import (
    RHO,
    STIFF,
    THETA0,
    X0,
    destination,
    experts,
    fleet,
    paper_options,
    relative_error,
)


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


GRAPHS = ("path", "cycle", "geometric", "complete", "star", "grid")


@pytest.mark.parametrize(
    ("method", "graph"),
    [("dec-apx-gp", graph) for graph in GRAPHS]
    + [("dec-c-gp", "path"), ("dec-gapx-gp", "geometric")]
    + [pytest.param("dec-c-gp", graph, marks=pytest.mark.long) for graph in GRAPHS if graph != "path"]
    + [pytest.param("dec-gapx-gp", graph, marks=pytest.mark.long) for graph in GRAPHS if graph != "geometric"],
)
def test_decentralized_methods_reach_the_centralized_optimum(method: str, graph: str) -> None:
    f = fleet(500, 8, graph)
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
@pytest.mark.parametrize("method", ["dec-apx-gp", "dec-c-gp"])
def test_a_stiff_penalty_does_not_pass_for_convergence(method: str, rho: float) -> None:
    """With a large rho every step is tiny wherever the agents stand."""
    f = fleet(120, 3)
    fit = f.train(method, theta0=THETA0, rounds=40, tol=1e-3, rho=rho)
    error = relative_error(fit.thetas, f.train("fact-gp", theta0=THETA0).theta)
    assert fit.status == "round limit" or error < 1e-2


@pytest.mark.parametrize("method", ["dec-c-gp", "dec-apx-gp"])
@pytest.mark.parametrize("theta0", [THETA0, None])
def test_no_data_leave_an_agent(method: str, theta0: object) -> None:
    fit = fleet(90, 3).train(method, theta0=theta0)  # type: ignore[arg-type]
    assert not {"inputs", "observations"} & set(fit.ledger.kinds)
    for agent in range(3):
        assert not {"inputs", "observations"} & set(fit.ledger.sent_by(agent))


@pytest.mark.parametrize("method", ["dec-c-gp", "dec-apx-gp"])
def test_no_number_of_the_data_is_in_any_message(method: str) -> None:
    """Not by its label: by looking at every scalar that is sent. The hardest case is one point per agent."""
    seen: list[Array] = []

    class Spy(fg.InProcess):
        def exchange_parts(self, parts, carries=None):  # type: ignore[no-untyped-def]
            seen.extend(np.abs(x).ravel() for x in parts.values())
            return super().exchange_parts(parts, carries)

        def flood_parts(self, parts):  # type: ignore[no-untyped-def]
            seen.extend(np.abs(np.concatenate([np.ravel(v) for v in x])) for x in parts.values())
            return super().flood_parts(parts)

    field = fg.synthetic_field(5, seed=7)
    shards = [(field.inputs[i : i + 1], field.observations[i : i + 1]) for i in range(5)]
    options = TrainingOptions(rounds=5)
    train(training_method(method), shards, Spy(fg.Graph.path(5)), KERNELS["se"], options)
    sent = np.concatenate(seen)
    private = np.concatenate([field.inputs.ravel(), field.observations])
    for value in np.concatenate([private, private**2, np.exp(private)]):
        assert not np.isclose(sent, abs(value), rtol=1e-9).any()


@pytest.mark.parametrize("method", ["dec-apx-gp", "dec-c-gp"])
def test_paper_faithful_traffic_is_the_complexity_table(method: str) -> None:
    """O(s_end (D + 2)) per agent and neighbour, and nothing else."""
    fit = fleet(90, 4).train(method, theta0=THETA0, rounds=10, tol=0, noise_floor=0, **paper_options(method))
    directed_edges = 2 * 3
    assert fit.ledger.scalars == 10 * directed_edges * 4
    assert fit.ledger.messages == 10 * directed_edges
    assert fit.ledger.rounds == 10
