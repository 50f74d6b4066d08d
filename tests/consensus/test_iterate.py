"""The driver: single recursions and batches of them stop alike, and return what was judged."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fleetgp as fg
from fleetgp.arrays import Array, BoolArray
from fleetgp.consensus import (
    BatchRule,
    Maximin,
    NeighbourRule,
    WithInterludes,
    average_items,
    iterate,
    iterate_batch,
)
from fleetgp.consensus.cell_links import CellLinks
from fleetgp.network import Incoming, Network
from fleetgp.prediction.selection import Selection
from tests.conftest import every_graph

AGENTS = 6
ALL = list(every_graph(AGENTS))


class Averaging(NeighbourRule[Array]):
    """Metropolis averaging, written for single recursions."""

    kind = "statistics"

    def message(self, state: Array) -> Array:
        return state

    def update(self, state: Array, received: Array, incoming: Incoming) -> Array:
        weights = 1.0 / (1.0 + np.maximum(incoming.degrees[incoming.receivers], incoming.sender_degrees))
        change = weights[:, None] * (received - state[incoming.receivers])
        return np.asarray(state + incoming.reduce(np.add, change, 0.0))


class Climbing(NeighbourRule[Array]):
    """Everybody agrees, and moves on in every round."""

    kind = "statistics"

    def message(self, state: Array) -> Array:
        return state

    def update(self, state: Array, received: Array, incoming: Incoming) -> Array:
        return state + 1.0


class BatchClimbing(BatchRule):
    kind = "statistics"

    def update(self, state: Array, received: Array, near: CellLinks) -> Array:
        return state + 1.0


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.sampled_from(ALL), st.sampled_from([0.0, 1e-2, 1e-5]), st.sampled_from([5, 300]))
def test_one_item_of_a_batch_is_a_single_recursion(seed: int, name: str, tol: float, rounds: int) -> None:
    x = np.random.default_rng(seed).standard_normal((AGENTS, 1))
    topology = every_graph(AGENTS)[name]
    stopping = {} if tol == 0.0 else {"stopping": Maximin(topology.diameter, tol)}
    one, many = fg.InProcess(topology), fg.InProcess(topology)
    single = iterate(Averaging(), x, one, rounds=rounds, **stopping)
    batch = average_items(many, x[:, None, :], kind="statistics", tol=tol, rounds=rounds)
    # The two add up a cell's links in other orders of operations: they differ by rounding, which shrinks with the sums.
    assert np.allclose(batch.state[:, 0], single.state, rtol=0.0, atol=1e-13)
    assert (batch.rounds == single.rounds).all()
    assert batch.status == single.status
    assert np.allclose(batch.residual[:, 0], single.residual, rtol=1e-6, atol=1e-12)
    assert one.ledger.total(kind="stopping").scalars == many.ledger.total(kind="stopping").scalars


@pytest.mark.parametrize("name", ["path", "complete", "alternating"])
def test_what_was_judged_is_returned(name: str) -> None:
    """The verdict at the end of a window is about its start, and so is what both drivers return."""
    topology = every_graph(AGENTS)[name]
    single = iterate(
        Climbing(), np.zeros((AGENTS, 1)), fg.InProcess(topology), rounds=50, stopping=Maximin(topology.diameter, 1e-3)
    )
    batch = iterate_batch(BatchClimbing(), np.zeros((AGENTS, 2, 1)), fg.InProcess(topology), rounds=50, tol=1e-3)
    for outcome in (single, batch):
        assert outcome.status == "converged"
        assert (outcome.state == 0.0).all()
    assert single.rounds == topology.diameter
    assert (batch.rounds == topology.diameter).all()


def test_items_end_one_by_one() -> None:
    """Those that agree at once, those that take longer, and one that diverges: each has its own rounds."""
    network = fg.InProcess(fg.Graph.path(AGENTS))
    x = np.zeros((AGENTS, 3, 1))
    x[0, 1], x[0, 2] = 1.0, np.nan
    found = average_items(network, x, kind="statistics", tol=1e-3, rounds=500)
    assert found.status == "diverged"
    assert found.converged.tolist() == [[True, True, False]] * AGENTS
    assert found.diverged.tolist() == [[False, False, True]] * AGENTS
    assert (found.rounds[:, [0, 2]] == network.diameter).all()
    assert (found.rounds[:, 1] == network.round).all()
    np.testing.assert_allclose(found.state[:, 1], 1.0 / AGENTS, rtol=1e-3)


@pytest.mark.parametrize("name", ALL)
def test_a_scope_of_everybody_is_the_whole_fleet(name: str, rng: np.random.Generator) -> None:
    topology, x = every_graph(AGENTS)[name], rng.standard_normal((AGENTS, 4, 2))
    everybody = Selection(topology, np.ones((AGENTS, 4), dtype=bool))
    whole = average_items(fg.InProcess(topology), x, kind="statistics", tol=1e-4, rounds=500)
    scoped = average_items(fg.InProcess(topology), x, kind="predictions", tol=1e-4, rounds=500, scope=everybody)
    assert np.array_equal(whole.state, scoped.state)
    assert np.array_equal(whole.rounds, scoped.rounds)
    assert np.array_equal(whole.residual, scoped.residual)


def some(rng: np.random.Generator, topology: fg.Graph) -> Selection:
    participants: BoolArray = rng.random((topology.agents, 5)) < 0.4
    participants[0] |= ~participants.any(axis=0)
    return Selection(topology, participants)


def test_items_of_some_agents_average_among_them_and_leave_the_others_alone(rng: np.random.Generator) -> None:
    topology, x = fg.Graph.cycle(AGENTS), rng.standard_normal((AGENTS, 5, 2))
    scope, network = some(rng, topology), fg.InProcess(topology)
    found = average_items(network, x, kind="predictions", tol=1e-9, rounds=2000, scope=scope)
    assert found.status == "converged"
    for item in range(5):
        inside = scope.active[:, item]
        mean = x[inside, item].mean(axis=0)
        np.testing.assert_allclose(found.state[inside, item], np.tile(mean, (inside.sum(), 1)), atol=1e-6)
        assert np.array_equal(found.state[~inside, item], x[~inside, item])
        assert (found.rounds[~inside, item] == 0).all()
    assert network.round < 2000, "agents without work end with the others"


def test_no_items_take_no_rounds() -> None:
    network = fg.InProcess(fg.Graph.path(AGENTS))
    found = average_items(network, np.zeros((AGENTS, 0, 2)), kind="statistics", tol=1e-6, rounds=50)
    assert (network.round, found.status, found.state.shape) == (0, "converged", (AGENTS, 0, 2))


class Counting:
    """An interlude that one agent wants, at one moment."""

    def __init__(self, network: Network, eager: int) -> None:
        self.network, self.eager = network, eager
        self.played: list[int] = []

    def wanted(self) -> bool:
        return self.eager in self.network.hosted and self.network.round == 4

    def play(self) -> None:
        self.played.append(self.network.round)


def test_all_agents_pause_in_the_same_round_and_go_on_where_they_were(rng: np.random.Generator) -> None:
    topology, x = fg.Graph.path(5), rng.standard_normal((5, 1))

    def work(network: Network) -> tuple[list[int], Array, int]:
        interlude = Counting(network, eager=3)
        mine = x[list(network.hosted)]
        rule = WithInterludes(Averaging(), interlude)
        outcome = iterate(rule, mine, network, rounds=200, stopping=Maximin(topology.diameter, 1e-4))
        return interlude.played, outcome.state, outcome.rounds

    found = fg.Loopback(topology, [[i] for i in range(5)]).run(work)
    assert [played for played, _, _ in found] == [[8]] * 5, "wanted at the start of the window from round 4 to 8"
    plain = iterate(Averaging(), x, fg.InProcess(topology), rounds=200, stopping=Maximin(topology.diameter, 1e-4))
    assert np.array_equal(np.concatenate([state for _, state, _ in found]), plain.state)
    assert {rounds for _, _, rounds in found} == {plain.rounds}
