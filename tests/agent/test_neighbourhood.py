"""Who is fit for work: penalties that grow, falls that are remembered, and words that are old."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetgp.agent.membership import Hello, Membership, Record
from fleetgp.agent.presence import HEARTBEAT, LONGEST_PENALTY, STEADY_SECONDS, Neighbourhood
from fleetgp.graph import Graph


def one_that_is_up(now: float = 0.0) -> Neighbourhood:
    found = Neighbourhood([1], deadline=10.0)
    found.link(1, True, now)
    found[1].greeted = True
    assert found.up == [1]
    return found


@pytest.mark.parametrize(("nonsense", "first"), [(False, [0, 10, 30, 70]), (True, [10, 30, 70, 150])])
def test_every_failure_in_a_row_costs_more(nonsense: bool, first: list[float]) -> None:
    """Missing one deadline is forgiven at once, nonsense is not; real work in between makes it forgotten."""
    near = one_that_is_up()
    penalties = [near.suspend(1, None, "slow", 0.0, nonsense=nonsense) for _ in range(2000)]
    assert penalties[:4] == first
    assert penalties[-1] == LONGEST_PENALTY * 10.0
    assert near[1].standing == "suspended: slow"
    near.well_done([0, 1, 2])
    assert near.suspend(1, None, "slow", 0.0, nonsense=nonsense) == first[0]


def test_whoever_was_left_out_comes_back_when_it_says_so_and_not_before_its_time() -> None:
    near, fleet = one_that_is_up(), Membership(0, Graph.path(2), incarnation=1)
    fleet.merge([Record(1, 5, 3, (0,), 0, 7)])
    near.suspend(1, fleet.of(1), "slow", 100.0, nonsense=True)
    assert near.readmit(fleet, 200.0) == []  # it has said nothing since
    fleet.merge([Record(1, 5, 4, (0,), 1, 0)])
    assert near.readmit(fleet, 200.0) == []  # it is not ready for anything
    fleet.merge([Record(1, 5, 5, (), 1, 9)])
    assert near.readmit(fleet, 109.9) == []  # it is too early
    assert near.readmit(fleet, 110.0) == [1]
    assert near.up == [1]


def test_a_neighbour_is_up_when_it_listens_and_was_heard() -> None:
    near = Neighbourhood([1, 2], deadline=10.0)
    assert (near[1].standing, near.linked, near.up) == ("down", [], [])
    near.link(1, True, 0.0)
    assert (near[1].standing, near.linked, near.up) == ("silent", [1], [])
    near[1].greeted = True
    assert (near[1].standing, near.up) == ("up", [1])
    near[1].refused = "another digest"
    assert near[1].standing.startswith("refused: it holds another fleet description")
    near.link(1, False, 1.0)
    assert (near[1].standing, near.linked, near.up) == ("down", [], [])


@pytest.mark.parametrize("started", [0.0, 1e6])
def test_an_agent_that_keeps_falling_waits_longer_and_longer(started: float) -> None:
    near, waits = one_that_is_up(started), []
    for fall in range(1, 9):
        near.link(1, False, started + fall)
        near.link(1, True, started + fall)
        waits.append(near[1].until - started - fall if near[1].suspended is not None else 0.0)
    assert waits == [0.0, 0.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    near[1].suspended = None
    near.link(1, False, started + 9.0 + STEADY_SECONDS)
    near.link(1, True, started + 9.0 + STEADY_SECONDS)
    assert near[1].suspended is None  # what was a minute ago is forgotten


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=20))
def test_hellos_count_in_the_order_in_which_they_were_sent(ages: list[tuple[int, int]]) -> None:
    near = one_that_is_up()
    taken: list[tuple[int, int]] = []
    for started, number in ages:
        hello = Hello(started=started, number=number)
        if not near.replayed(1, hello, 1.0):
            near[1].hello, near[1].hello_at = hello, 1.0
            taken.append(hello.age)
    assert taken == sorted(set(taken))
    last = Hello(started=0, number=0)
    assert near.replayed(1, last, 1.0)
    assert not near.replayed(1, last, 1.0 + 4 * HEARTBEAT)  # nothing came for a while: a clock that went back, say


def test_what_a_neighbour_said_of_its_waiting_holds_for_a_moment() -> None:
    near = one_that_is_up()
    near[1].hello, near[1].hello_at = Hello(epoch=7, round=3, waiting=frozenset({0}), theta=(0.5, 1.0)), 10.0
    assert near.waiting_of(1, 10.5) == (7, 3, frozenset({0}))
    assert near.waiting_of(1, 10.0 + 4 * HEARTBEAT) is None
    assert near.begun(7)
    assert not near.begun(8)
    assert near.disagreement((0.25, 1.5)) == 0.5
    assert near.disagreement((0.25,)) is None
