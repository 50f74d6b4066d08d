"""The driver: single recursions and batches of them stop alike, and return what was judged."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
import pytest
from hypothesis import assume, given, settings
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
from fleetgp.consensus.batch import CellLinks
from fleetgp.graph import Topology
from fleetgp.network import Incoming, Network
from fleetgp.network.wire import HEADER_BYTES
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


def openings(length: int, rounds: int) -> Iterator[int]:
    """After how many rounds windows open: the first sends 3 L - 2 words beside each number, the others 2 (L - 1)."""
    opening = 3 * (3 * length - 2)
    while opening + length <= rounds:
        yield opening
        opening += length + 3 * 2 * (length - 1)


def averages(topology: Topology, x: Array, rounds: int) -> list[Array]:
    """x (M, 1) after 0, 1, .. rounds of Metropolis averaging, by dense matrices."""
    found = [x]
    for t in range(rounds):
        graph = topology.at(t)
        matrix = np.zeros((graph.agents, graph.agents))
        for i, j in graph.directed:
            matrix[i, j] = 1.0 / (1.0 + max(graph.degrees[i], graph.degrees[j]))
        matrix += np.diag(1.0 - matrix.sum(axis=1))
        found.append(matrix @ found[-1])
    return found


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.sampled_from(ALL), st.sampled_from([1e-2, 1e-5]), st.sampled_from([30, 60, 1000]))
def test_an_item_ends_at_the_first_window_that_opened_in_agreement(
    seed: int, name: str, tol: float, rounds: int
) -> None:
    """The rounds, the state, the status and the residual that dense matrices and the schedule of windows say."""
    x = np.random.default_rng(seed).standard_normal((AGENTS, 1))
    topology = every_graph(AGENTS)[name]
    states = averages(topology, x, rounds)
    status, after, state, residual = "round limit", rounds, states[rounds], np.inf
    for opening in openings(topology.diameter, rounds):
        judged = states[opening]
        residual = float(np.ptp(judged) / (np.abs(judged).max() + 1e-6 * np.abs(x).max()))
        assume(not 0.999 < residual / tol < 1.001)
        if residual <= tol:
            status, after, state = "converged", opening + topology.diameter, judged
            break
    found = average_items(fg.InProcess(topology), x[:, None, :], kind="statistics", tol=tol, rounds=rounds)
    assert (found.status, set(found.rounds.ravel().tolist())) == (status, {after})
    np.testing.assert_allclose(found.state[:, 0], state, rtol=0.0, atol=1e-12)
    np.testing.assert_allclose(found.residual[:, 0], residual, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ALL)
def test_without_a_tolerance_a_batch_is_so_many_rounds_and_no_word(name: str, rng: np.random.Generator) -> None:
    topology, x = every_graph(AGENTS)[name], rng.standard_normal((AGENTS, 1))
    one, many = fg.InProcess(topology), fg.InProcess(topology)
    single = iterate(Averaging(), x, one, rounds=50)
    batch = average_items(many, x[:, None, :], kind="statistics", tol=0.0, rounds=50)
    # The two add up a cell's links in other orders of operations: they differ by rounding, which shrinks with the sums.
    np.testing.assert_allclose(batch.state[:, 0], single.state, rtol=0.0, atol=1e-13)
    assert (batch.rounds == 50).all()
    assert (batch.status, batch.residual.min()) == (single.status, np.inf)
    assert one.ledger.total(kind="statistics").scalars == many.ledger.total(kind="statistics").scalars
    assert many.ledger.kinds == ("statistics",)


@pytest.mark.parametrize("name", ["path", "complete", "alternating"])
def test_what_was_judged_is_returned(name: str) -> None:
    """The verdict at the end of a window is about its start, and so is what both drivers return."""
    topology = every_graph(AGENTS)[name]
    single = iterate(
        Climbing(), np.zeros((AGENTS, 1)), fg.InProcess(topology), rounds=50, stopping=Maximin(topology.diameter, 1e-3)
    )
    batch = iterate_batch(BatchClimbing(), np.zeros((AGENTS, 2, 1)), fg.InProcess(topology), rounds=500, tol=1e-3)
    assert single.status == batch.status == "converged"
    assert (single.state == 0.0).all()
    assert single.rounds == topology.diameter
    first = next(openings(topology.diameter, 500))
    assert (batch.state == first).all()
    assert (batch.rounds == first + topology.diameter).all()


def test_items_end_one_by_one() -> None:
    """Those that agree at once, those that take longer, and one that diverges: each has its own rounds."""
    network = fg.InProcess(fg.Graph.path(AGENTS))
    x = np.zeros((AGENTS, 3, 1))
    x[0, 1], x[0, 2] = 1.0, np.nan
    found = average_items(network, x, kind="statistics", tol=1e-3, rounds=500)
    assert found.status == "diverged"
    assert found.converged.tolist() == [[True, True, False]] * AGENTS
    assert found.diverged.tolist() == [[False, False, True]] * AGENTS
    assert (found.rounds[:, [0, 2]] == next(openings(network.diameter, 500)) + network.diameter).all()
    assert (found.rounds[:, 1] > found.rounds[:, 0]).all()
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


def words(network: Network, content: str) -> float:
    """The share of all bytes that are not of the content, or of the headers of the messages that carry it."""
    carried = network.ledger.total(kind=content)
    return 1.0 - (carried.bytes + HEADER_BYTES * carried.messages) / network.ledger.bytes


@pytest.mark.parametrize("name", [*ALL, "two"])
@pytest.mark.parametrize(("items", "width"), [(1, 1), (40, 1), (9, 3)])
def test_words_about_stopping_are_less_than_a_quarter_at_any_time(
    name: str, items: int, width: int, rng: np.random.Generator
) -> None:
    topology = fg.Graph.path(2) if name == "two" else every_graph(AGENTS)[name]
    x = rng.standard_normal((topology.agents, items, width))
    x[:, 0] = 1.0  # agreed from the start on, so that it ends at the first verdict
    first, second = islice(openings(topology.diameter, 10_000), 2)
    limits = [first + age for age in (1, topology.diameter)] + [second + topology.diameter, 10_000]
    for limit in limits:
        network = fg.InProcess(topology)
        found = average_items(network, x, kind="predictions", tol=1e-8, rounds=limit)
        assert words(network, "predictions") < 0.25
        assert "stopping" in network.ledger.kinds
    assert found.status == "converged"


class Standing(BatchRule):
    """Nobody moves, and so nobody ever agrees."""

    kind = "predictions"

    def update(self, state: Array, received: Array, near: CellLinks) -> Array:
        return state


@pytest.mark.parametrize("name", ALL)
def test_a_limit_within_a_rest_is_a_round_limit_with_the_last_residual(name: str, rng: np.random.Generator) -> None:
    topology, x = every_graph(AGENTS)[name], rng.standard_normal((AGENTS, 2, 1))
    first, second = islice(openings(topology.diameter, 10_000), 2)
    early, later = fg.InProcess(topology), fg.InProcess(topology)
    found = iterate_batch(Standing(), x, early, rounds=first, tol=1e-3)
    assert (found.status, early.round, early.ledger.kinds) == ("round limit", first, ("predictions",))
    assert np.isinf(found.residual).all()
    found = iterate_batch(Standing(), x, later, rounds=second, tol=1e-3)
    assert (found.status, later.round) == ("round limit", second)
    largest = np.abs(x).max(axis=0) * (1.0 + 1e-6)
    np.testing.assert_allclose(found.residual, np.tile(np.ptp(x, axis=0) / largest, (1, AGENTS)).T, rtol=1e-12)
    per_cell = 3 * topology.diameter - 2  # numbers beside each number of content, in the one window there was
    if topology.period == 1:
        edges = len(topology.union.directed)
        assert later.ledger.total(kind="stopping").scalars == per_cell * edges * x[0].size


def test_items_of_single_agents_need_no_word() -> None:
    """Each ends at the first verdict, and all agents know that it does."""
    network, x = fg.InProcess(fg.Graph.path(AGENTS)), np.arange(2.0 * AGENTS).reshape(AGENTS, 2, 1)
    x[3, 1] = np.nan
    alone = np.zeros((AGENTS, 2), dtype=bool)
    alone[1, 0] = alone[3, 1] = True
    found = average_items(
        network, x, kind="predictions", tol=1e-6, rounds=500, scope=Selection(network.topology, alone)
    )
    assert (network.round, network.ledger.bytes) == (4, 0)
    assert found.converged[1, 0]
    assert found.diverged[3, 1]
    np.testing.assert_array_equal(found.state, x)


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
