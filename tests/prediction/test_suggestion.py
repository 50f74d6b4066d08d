"""Where to measure next: against conditioning written out, against all subsets, and that nobody shares a place."""

from __future__ import annotations

from functools import cache
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.prediction.suggestion import Gains, assigned
from tests.conftest import positive_definite

THETA = (0.6, 0.5, 1.3, 0.2)
AGENTS = 4


@cache
def shards() -> tuple[tuple[Array, Array], ...]:
    field = fg.synthetic_field(60, THETA, seed=0)
    return tuple(fg.partition(field.inputs, field.observations, agents=AGENTS))


def fleet(graph: object = "path") -> fg.Fleet:
    return fg.Fleet(shards(), graph, theta=THETA, kernel="matern32", normalize=False)


def grid(side: int = 5, low: float = 0.0, high: float = 2.0) -> Array:
    return np.array(list(product(np.linspace(low, high, side), repeat=2)))


def conditional(covariance: Array, one: int, given: list[int], noise: float) -> float:
    """The variance of f at one candidate given observations at others, by a plain inverse."""
    if not given:
        return float(covariance[one, one])
    cross = covariance[one, given]
    return float(
        covariance[one, one]
        - cross @ np.linalg.inv(covariance[np.ix_(given, given)] + noise * np.eye(len(given))) @ cross
    )


def by_hand(covariance: Array, noise: float, by: str, n: int) -> tuple[list[int], list[float]]:
    """The greedy choice, from the definitions."""
    chosen: list[int] = []
    gains = []
    for _ in range(n):
        left = [y for y in range(len(covariance)) if y not in chosen]
        told = {}
        for y in left:
            variance = conditional(covariance, y, chosen, noise)
            rest = conditional(covariance, y, [z for z in left if z != y], noise)
            told[y] = variance if by == "variance" else 0.5 * np.log((variance + noise) / (rest + noise))
        best = max(told, key=lambda y: told[y])
        chosen.append(best)
        gains.append(told[best])
    return chosen, gains


@pytest.mark.parametrize("method", ["full-gp", "dec-nn-grbcm", "dec-nearest"])
@pytest.mark.parametrize("by", ["variance", "mutual-information"])
def test_choices_are_those_of_the_definition(by: str, method: str) -> None:
    places = np.random.default_rng(4).uniform(-0.3, 2.3, (12, 2))
    found = fleet().suggest(1, places, n=5, criterion=by, method=method)
    joint = fleet().joint(places, method)
    chosen, gains = by_hand(joint.covariance, 0.2**2, by, 5)
    assert found.indices.tolist() == chosen
    np.testing.assert_allclose(found.gains, gains, rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(found.places, places[chosen])
    assert found.agents.tolist() == [1] * 5


def information(covariance: Array, some: tuple[int, ...], noise: float) -> float:
    """What observations there tell of f, in nats."""
    part = covariance[np.ix_(some, some)]
    return float(0.5 * np.linalg.slogdet(np.eye(len(some)) + part / noise)[1])


def mutual(covariance: Array, some: tuple[int, ...], noise: float) -> float:
    """Between the observations there and those at all other candidates."""
    rest = tuple(y for y in range(len(covariance)) if y not in some)
    everything = tuple(range(len(covariance)))
    whole = information(covariance, everything, noise)
    return information(covariance, some, noise) + information(covariance, rest, noise) - whole


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.integers(1, 4), st.floats(0.05, 5.0))
def test_greedy_choices_are_nearly_as_good_as_the_best_of_all(seed: int, n: int, noise: float) -> None:
    """By variance, 1 - 1/e of the most information that n observations can have (Nemhauser, Wolsey, Fisher 1978)."""
    covariance = positive_definite(np.random.default_rng(seed), 8) / 8.0
    enough = 1.0 - np.exp(-1.0)
    chosen, _, _ = assigned(Gains(covariance, noise, "variance"), np.ones((1, 8), dtype=bool), n)
    best = max(information(covariance, some, noise) for some in combinations(range(8), n))
    assert information(covariance, tuple(chosen), noise) >= enough * best * (1.0 - 1e-9)
    chosen, _, gains = assigned(Gains(covariance, noise, "mutual-information"), np.ones((1, 8), dtype=bool), n)
    assert sum(gains) == pytest.approx(mutual(covariance, tuple(chosen), noise), rel=1e-6, abs=1e-9)
    best = max(mutual(covariance, some, noise) for some in combinations(range(8), n))
    if (gains > 0.0).all():  # then it grew with every choice
        assert sum(gains) >= enough * best * (1.0 - 1e-9)


def test_mutual_information_keeps_away_from_the_edge() -> None:
    """Without data near: variance is the same everywhere but in the corners of what is chosen, which it likes."""
    f = fg.Fleet(
        [(np.array([[50.0, 50.0]]), np.array([0.0]))], theta=(1.0, 1.0, 1.0, 0.3), kernel="matern32", normalize=False
    )
    places = grid(7, 0.0, 3.0)
    (first,) = f.suggest(0, places, criterion="mutual-information", method="full-gp").places
    np.testing.assert_allclose(first, [1.5, 1.5])
    far = f.suggest(0, places, 4, criterion="variance", method="full-gp").places
    edge = ((far == 0.0) | (far == 3.0)).any(axis=1)
    assert edge.sum() >= 3


def test_suggestions_avoid_measured_places_and_spread() -> None:
    measured = np.concatenate([x for x, _ in shards()])
    new = np.array([[2.8, 2.8], [2.9, 2.8], [-0.8, 2.8], [2.8, -0.8]])
    for by in ("variance", "mutual-information"):
        unknown = np.concatenate([measured, grid(4, 3.0, 3.9)])  # places that tell of each other
        found = fleet().suggest(0, unknown, n=2, criterion=by, method="full-gp")
        assert (found.indices >= len(measured)).all()
    found = fleet().suggest(0, new, n=3)
    assert set(found.indices.tolist()) in ({0, 2, 3}, {1, 2, 3}), "of two that are close together, one"


@pytest.mark.parametrize("by", ["variance", "mutual-information"])
def test_for_all_no_two_go_to_the_same_place(by: str) -> None:
    found = fleet("cycle").suggest(None, grid(), n=3, criterion=by)
    assert len({tuple(place) for place in found.places.tolist()}) == 3 * AGENTS
    assert np.bincount(found.agents).tolist() == [3] * AGENTS
    np.testing.assert_array_equal(grid()[found.indices], found.places)
    assert found.of(2).shape == (3, 2)
    one = fleet("cycle").suggest(0, grid(), n=3 * AGENTS, criterion=by)
    np.testing.assert_array_equal(one.places, found.places)  # the same greedy choice, shared out
    assert len({found.agents[turn * AGENTS] for turn in range(3)}) == 3, "another one comes first in each turn"
    joint = fleet("cycle").joint(grid(), "dec-summary")
    assert found.ledger.as_dict() == joint.ledger.as_dict(), "nothing more is sent"


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.integers(2, 5), st.integers(1, 3))
def test_agents_with_candidates_of_their_own_get_what_they_can(seed: int, agents: int, n: int) -> None:
    """Wherever an assignment exists there is one; an agent with few candidates does not lose them to others."""
    rng = np.random.default_rng(seed)
    count = agents * n + 2
    covariance = positive_definite(rng, count) / count
    hidden = rng.permutation(count)[: agents * n].reshape(agents, n)
    allowed = rng.uniform(size=(agents, count)) < 0.3
    allowed[np.arange(agents)[:, None], hidden] = True  # an assignment exists
    chosen, whose, _ = assigned(Gains(covariance, 0.1, "variance"), allowed, n)
    assert len(set(chosen.tolist())) == agents * n
    assert np.bincount(whose, minlength=agents).tolist() == [n] * agents
    assert allowed[whose, chosen].all()


def test_lists_of_candidates_are_each_agents_own() -> None:
    lists = [grid(3, 0.1 * i, 2.0 - 0.1 * i) for i in range(AGENTS)]
    found = fleet().suggest(None, lists, n=2)
    for agent, index, place in zip(found.agents, found.indices, found.places, strict=True):
        np.testing.assert_array_equal(lists[agent][index], place)
    assert len({tuple(place) for place in found.places.tolist()}) == 2 * AGENTS, "all have the middle one"


def test_of_equals_the_first_is_taken_and_copies_count_once() -> None:
    f = fg.Fleet([(np.array([[0.0]]), np.array([0.0]))], theta=(1.0, 1.0, 0.1), kernel="se", normalize=False)
    places = np.array([[-2.0], [2.0], [2.0], [0.5], [-2.0]])
    found = f.suggest(0, places, n=3, method="full-gp")
    assert found.indices.tolist() == [0, 1, 3]
    with pytest.raises(fg.InputError, match="at least 4 different candidates for each agent"):
        f.suggest(0, places, n=4, method="full-gp")


def test_bad_calls_have_one_clear_error() -> None:
    f = fleet()
    with pytest.raises(fg.InputError, match="n must be a whole number of at least 1, got 0"):
        f.suggest(0, grid(), 0)
    with pytest.raises(fg.InputError, match=r"criterion.*entropy.*variance, mutual-information"):
        f.suggest(0, grid(), criterion="entropy")
    with pytest.raises(fg.InputError, match="agent must lie between 0 and 3, got 4"):
        f.suggest(4, grid())
    with pytest.raises(fg.InputError, match="an array for each of the 4 agents, got 2"):
        f.suggest(None, [grid(), grid()])
    with pytest.raises(fg.InputError, match=r"agent 1: expected its candidates as one array \(C, D\), got a list of 4"):
        f.suggest(1, [grid()] * 4)
    with pytest.raises(fg.InputError, match=r"expected shape \(T, 2\), got"):
        f.suggest(1, [[1.0]])
    with pytest.raises(fg.InputError, match="at most 500 queries at once, got 529"):
        f.suggest(1, grid(23))
