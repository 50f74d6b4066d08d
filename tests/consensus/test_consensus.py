"""Consensus algorithms against closed forms, on fixed and time-varying graphs."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse.csgraph import shortest_path

import fleetgp as fg
from fleetgp.consensus import (
    average,
    dale,
    jor,
    maximum,
    minimum,
    optimal_relaxation,
    power_method,
    total,
)
from fleetgp.errors import InputError
from tests.conftest import alternating_path, every_graph, positive_definite

AGENTS = 6
ALL = list(every_graph(AGENTS))


def network(name: str, agents: int = AGENTS) -> fg.InProcess:
    return fg.InProcess(every_graph(agents)[name])


@pytest.mark.parametrize("weights", ["metropolis", "perron"])
@pytest.mark.parametrize("name", ALL)
def test_average_is_the_mean(name: str, weights: str, rng: np.random.Generator) -> None:
    x = rng.standard_normal((AGENTS, 4, 3)) * 10.0 ** rng.integers(-3, 4, (4, 3))
    outcome = average(network(name), x, weights=weights, tol=1e-9)  # type: ignore[arg-type]
    assert outcome.status == "converged"
    assert np.allclose(outcome.state, x.mean(axis=0), rtol=1e-7, atol=1e-8 * np.abs(x).max(axis=0))
    assert (outcome.residual <= 1e-9).all()


def test_integers_are_averaged_too() -> None:
    assert np.allclose(average(network("path", 3), np.array([1, 2, 6])).state, 3.0)


def test_a_disconnected_graph_is_refused() -> None:
    with pytest.raises(fg.GraphError, match=r"\{0, 1\}; \{2, 3\}"):
        fg.InProcess(fg.Graph(4, [(0, 1), (2, 3)], connected=False))


@pytest.mark.parametrize("name", ["path", "star", "complete"])
def test_average_near_zero_still_ends(name: str, rng: np.random.Generator) -> None:
    """Also where nothing but rounding is left long before the first verdict."""
    x = rng.standard_normal(AGENTS)
    outcome = average(network(name), x - x.mean())
    assert outcome.status == "converged"
    assert np.abs(outcome.state).max() < 1e-9


def test_the_even_cycle_converges_where_the_papers_epsilon_never_does() -> None:
    x = np.array([1.0, -1.0] * 3)
    assert average(network("cycle"), x, weights="perron").status == "converged"
    with pytest.raises(InputError, match="strictly between"):
        average(network("cycle"), x, weights="perron", epsilon=0.5)


@pytest.mark.parametrize("name", ALL)
def test_extrema_are_exact_after_twice_the_radius(name: str, rng: np.random.Generator) -> None:
    x = rng.standard_normal((AGENTS, 3))
    net = network(name)
    assert np.array_equal(maximum(net, x), x.max(axis=0))
    if net.topology.period == 1:
        hops = shortest_path(net.topology.union.sparse_adjacency, unweighted=True)
        assert net.round == 2 * hops.max(axis=1).min()
    assert np.array_equal(minimum(net, x), x.min(axis=0))


@pytest.mark.parametrize("name", ALL)
def test_totals_are_exact_and_alike(name: str, rng: np.random.Generator) -> None:
    x = rng.standard_normal((AGENTS, 2))
    hostings = fg.Loopback(every_graph(AGENTS)[name], [[0, 5], [1], [2, 3, 4]])
    answers = hostings.run(lambda net: total(net, x[list(net.hosted)]))
    for answer in answers:
        assert np.array_equal(answer, answers[0])
        assert np.allclose(answer, x.sum(axis=0))


@pytest.mark.parametrize(
    ("name", "agents"),
    [
        pytest.param(name, agents, marks=[] if name in often else [pytest.mark.long])
        for agents, often in ((1, ("path",)), (2, ("path", "alternating")), (6, ("star", "grid", "alternating")))
        for name in ALL
    ],
)
def test_linear_systems(name: str, agents: int, rng: np.random.Generator) -> None:
    if name == "alternating" and agents == 1:
        name = "path"
    systems = positive_definite(rng, 3, agents)
    right = rng.standard_normal((agents, 3, 2))
    solution = np.linalg.solve(systems, np.moveaxis(right, 0, 1))
    rows = np.moveaxis(systems, 1, 0).copy()

    net = network(name, agents)
    entries = jor(net, rows, right, tol=1e-9)
    assert entries.status == "converged"
    assert np.allclose(np.moveaxis(entries.state, 0, 1), solution, atol=1e-8)
    assert net.ledger.rounds == entries.rounds.max() * net.diameter

    whole = dale(network(name, agents), rows, right, tol=1e-8)
    assert whole.status == "converged"
    assert np.allclose(whole.state, solution, atol=1e-6)

    relaxation = optimal_relaxation(network(name, agents), rows)
    faster = jor(network(name, agents), rows, right, omega=relaxation.omega, tol=1e-9)
    assert faster.status == "converged"
    assert np.allclose(np.moveaxis(faster.state, 0, 1), solution, atol=1e-8)
    assert (faster.rounds <= entries.rounds).all()


@pytest.mark.parametrize("name", ["complete", "path", "alternating"])
def test_power_method_finds_both_ends_of_the_spectrum(name: str, rng: np.random.Generator) -> None:
    systems = positive_definite(rng, 4, AGENTS)
    rows = np.moveaxis(systems, 1, 0).copy()
    scaled = systems / np.einsum("tii->ti", systems)[..., None]
    spectrum = np.sort(np.linalg.eigvals(scaled).real, axis=1)
    relaxation = optimal_relaxation(network(name), rows, tol=1e-8)
    assert np.allclose(relaxation.largest.value, spectrum[:, -1], rtol=1e-6)
    assert np.allclose(relaxation.smallest.value, spectrum[:, 0], rtol=1e-5)
    best = 2.0 / (spectrum[:, 0] + spectrum[:, -1])
    assert np.allclose(relaxation.omega, best, rtol=0.011)
    assert (relaxation.omega < best).all()


def test_power_method_finds_an_antisymmetric_eigenvector() -> None:
    """The paper's constant start is orthogonal to it for ever."""
    matrix = np.array([[2.0, -1.0], [-1.0, 2.0]])
    found = power_method(network("path", 2), matrix[:, None, :], tol=1e-10)
    assert found.value == pytest.approx(3.0)


def test_optimal_relaxation_is_optimal(rng: np.random.Generator) -> None:
    rows = np.moveaxis(positive_definite(rng, 1, AGENTS), 1, 0).copy()
    right = rng.standard_normal((AGENTS, 1, 1))
    best = optimal_relaxation(network("complete"), rows, tol=1e-8).omega
    rounds = [jor(network("complete"), rows, right, omega=best * f, tol=1e-8).rounds.max() for f in (0.7, 1.0, 1.2)]
    assert rounds[1] <= min(rounds[0], rounds[2])


def test_optimal_relaxation_converges_on_a_stiff_system() -> None:
    places = np.linspace(0, 1, 4)
    system = (np.exp(-((places[:, None] - places) ** 2)) + 1e-3 * np.eye(4))[:, None, :]
    omega = optimal_relaxation(network("complete", 4), system).omega
    spectrum = np.linalg.eigvals(np.eye(4) - omega * system[:, 0] / np.diagonal(system[:, 0])[:, None])
    assert np.abs(spectrum).max() < 1.0


def test_ill_conditioned_dale_says_that_it_did_not_converge(rng: np.random.Generator) -> None:
    places = np.linspace(0, 1, AGENTS)
    system = np.exp(-((places[:, None] - places) ** 2)) + 1e-4 * np.eye(AGENTS)
    outcome = dale(network("path"), system[:, None, :], rng.standard_normal((AGENTS, 1, 1)), rounds=300)
    assert outcome.status == "round limit"
    assert (outcome.rounds == 300).all()
    assert (outcome.residual > 1e-6).all()


def test_diverging_jor_is_not_converged(rng: np.random.Generator) -> None:
    system = np.full((AGENTS, AGENTS), 0.9) + 0.1 * np.eye(AGENTS)
    right = rng.standard_normal((AGENTS, 1, 1))
    outcome = jor(network("complete"), system[:, None, :], right, omega=1.9, rounds=400)
    assert outcome.status != "converged"


def test_one_diverging_agent_is_heard_by_all() -> None:
    x = np.array([1.0, 2.0, np.nan, 3.0, 4.0, 5.0])
    assert average(network("path"), x).status == "diverged"


def test_fixed_rounds_are_exact_and_claim_nothing(rng: np.random.Generator) -> None:
    net = network("path")
    outcome = average(net, rng.standard_normal(AGENTS), tol=0, rounds=7)
    assert (outcome.rounds, net.round, outcome.status) == (7, 7, "round limit")
    assert net.ledger.kinds == ("statistics",)


def test_averaging_on_a_sequence_that_is_never_connected(rng: np.random.Generator) -> None:
    sequence = alternating_path(9)
    assert all(len(sequence.at(t).components) > 1 for t in range(3))
    x = rng.standard_normal(9)
    outcome = average(fg.InProcess(sequence), x, tol=1e-8)
    assert outcome.status == "converged"
    assert np.allclose(outcome.state, x.mean(), atol=1e-6)
