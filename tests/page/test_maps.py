"""Where and how often the fleet is asked for a map: against plain grids, and on a simulated clock."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fleetgp.page import maps
from fleetgp.page.maps import (
    EARN,
    EARNED,
    FINE,
    LEAST,
    MOST,
    MapAxes,
    MapBudget,
    MapField,
    Mapper,
    axes_of,
    field_of,
    point_facts,
    values_at,
)
from tests.page.fakes import FakeFleet


def test_the_points_of_a_map_are_a_grid() -> None:
    axes = MapAxes((0.0, 10.0, 5.0), (1.0, 20.0, 9.0))
    points = axes.points((3, 4), (7.0,))
    x, y = np.meshgrid(np.linspace(0.0, 1.0, 3), np.linspace(10.0, 20.0, 4))
    np.testing.assert_array_equal(points, np.column_stack([x.ravel(), y.ravel(), np.full(12, 7.0)]))
    np.testing.assert_array_equal(MapAxes((1.0,), (2.0,)).points((2,), ()), [[1.0], [2.0]])


@given(st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=2))
def test_a_coarse_map_has_two_points_a_length(lengths: list[float]) -> None:
    axes = MapAxes((0.0, 0.0), (1.0, 3.0), tuple(lengths))
    for count, extent, length in zip(axes.coarse, (1.0, 3.0), lengths, strict=True):
        assert LEAST <= count <= MOST
        assert count in (LEAST, MOST) or extent / (count - 1) <= 0.5 * length * (1 + 1e-9)
    assert axes.fine == (FINE, FINE)


def test_the_box_is_that_of_all_and_never_flat() -> None:
    places = [{"low": [0.0, 1.0], "high": [1.0, 1.0]}, {"low": [-1.0, 1.0], "high": [0.5, 1.0]}]
    axes = axes_of(places)
    assert axes == MapAxes((-1.0, 0.5), (1.0, 1.5))
    assert axes_of([]) is None


@given(
    st.floats(0.01, 0.5),
    st.floats(10.0, 1e5),
    st.lists(st.tuples(st.integers(50, 10_000), st.floats(1e-5, 1e-2), st.floats(10.0, 1e4)), min_size=2, max_size=8),
)
def test_maps_cost_no_more_than_their_share(share: float, rate: float, maps: list[tuple[int, float, float]]) -> None:
    """A clock that jumps to when the next map may be: after the second one what was spent is within the share, if each
    costs what the last one let expect.
    """
    budget, now = MapBudget(share), 0.0
    points, seconds, size = maps[0]
    for count, _, _ in maps:
        total = rate * now + budget.bytes
        wait = budget.wait(count, now, total, rate)
        assert wait < np.inf
        now += wait
        first = budget.maps == 0
        budget.spend(count, seconds * count, size * count)
        shares = budget.shares(now, rate * now + budget.bytes)
        assert first or max(shares.values()) <= share * (1 + 1e-9)
    assert points


def test_a_fleet_that_sends_nothing_is_left_alone() -> None:
    budget = MapBudget()
    assert budget.wait(100, 0.0, 0.0, 0.0) == 0.0, "but for the first map"
    budget.spend(100, 0.1, 1e5)
    assert budget.wait(100, 1e9, 1e5, 0.0) == np.inf


def drawn(
    budget: MapBudget, axes: MapAxes, now: float, rate: float, *, moved: bool
) -> tuple[tuple[int, ...], float, bool]:
    """What the budget plans when the map is old; if it may be drawn now, it is, at 400 bytes and 0.1 ms per point."""
    shape, wait, earned = budget.plan(axes, now, rate * now + budget.bytes, rate, news=True, moved=moved)
    if wait == 0.0:
        points = int(np.prod(shape))
        budget.spend(points, 1e-4 * points, 400.0 * points)
        if earned:
            budget.take_earned(now)
    return shape, wait, earned


def test_a_change_of_members_and_its_new_model_are_mapped_at_once() -> None:
    """Five idle boats of 1 kB/s per link that have just paid for nothing; new rows alone wait for minutes."""
    axes, budget, rate = MapAxes((0.0, 0.0), (10.0, 10.0), (0.7, 0.7)), MapBudget(), 5_000.0
    assert drawn(budget, axes, 5.0, rate, moved=False) == (axes.coarse, 0.0, False)
    _, wait, earned = drawn(budget, axes, 20.0, rate, moved=False)
    assert (wait > 240.0, earned) == (True, False)
    for now in (20.0, 25.0):
        shape, wait, earned = drawn(budget, axes, now, rate, moved=True)
        assert (shape, wait, earned) == ((16, 16), 0.0, True)
    _, wait, earned = drawn(budget, axes, 25.0, rate, moved=True)
    assert earned
    assert wait == pytest.approx(EARN - 5.0)
    later = 25.0 + drawn(budget, axes, 25.0, rate, moved=False)[1]
    assert drawn(budget, axes, later + 1.0, rate, moved=True) == (axes.coarse, 0.0, False), "paid, not earned"


@given(st.lists(st.floats(0.0, 30.0), min_size=1, max_size=60), st.floats(10.0, 1e6))
def test_agents_that_come_and_go_earn_few_maps(pauses: list[float], rate: float) -> None:
    """In any stretch of time at most two, and one a minute; all of them are in what was spent."""
    axes, budget, now = MapAxes((0.0, 0.0), (10.0, 10.0), (0.7, 0.7)), MapBudget(), 0.0
    drawn(budget, axes, now, rate, moved=False)
    times, points = [], np.prod(axes.coarse)
    for pause in pauses:
        now += pause
        shape, wait, earned = drawn(budget, axes, now, rate, moved=True)
        if wait == 0.0:
            points += np.prod(shape)
            times += [now] * earned
    for k, first in enumerate(times):
        for count, last in enumerate(times[k:], 1):
            assert count <= EARNED + (last - first) / EARN + 1e-9
    assert budget.bytes == pytest.approx(400.0 * points)


def test_who_has_gone_is_missing_from_the_map_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mapper that checks when the test says so."""
    monkeypatch.setattr(maps, "SETTLE", 0.0)
    monkeypatch.setattr(maps, "CHECK", 0.0)
    fleet = FakeFleet(4)
    fleet.collector.take(fleet.contacts, fleet.now)
    drawn_maps: list[dict[str, Any]] = []

    def question(points: list[list[float]]) -> dict[str, Any]:
        names = [name for name, one in fleet.contacts.items() if not one.trouble]
        numbers = dict.fromkeys(("mean", "variance", "prior_only"), [1.0] * len(points))
        said = {"agent": names[0], "members": names, "said": dict.fromkeys(names, 1), "missing": []}
        return {**numbers, **said, "method": "dec-rbcm", "theta": [1.0], "bytes_sent": 400 * len(points)}

    contacts = {name: replace(one, at=np.inf) for name, one in fleet.contacts.items()}
    running: Any = SimpleNamespace(
        facts=fleet.facts,
        chosen=fleet.chosen,
        collector=fleet.collector,
        contacts=lambda: contacts,
        question=question,
        post_map=lambda _, about: drawn_maps.append(about),
    )
    mapper = Mapper(running, share=0.05)
    mapper.check()
    mapper.check()
    assert [one["took_part"] for one in drawn_maps] == [["boat0", "boat1", "boat2", "boat3"]], (
        "a finer one costs too much"
    )
    contacts["boat2"] = fleet.contacts["boat2"] = replace(contacts["boat2"], trouble="gone")
    mapper.check()
    assert [one["took_part"] for one in drawn_maps[1:]] == [["boat0", "boat1", "boat3"]]


def test_an_interval_holds_95_percent() -> None:
    answer = {
        "mean": [2.0],
        "variance": [0.25],
        "prior_only": [False],
        "said": {"a": 1, "b": 0},
        "missing": ["c"],
        "method": "m",
        "status": "converged",
    }
    told = point_facts((1.0,), answer)
    assert (told["low"], told["high"]) == pytest.approx(stats.norm.interval(0.95, 2.0, 0.5), rel=1e-12)
    assert (told["took_part"], told["missing"]) == (["a"], ["c"])
    newer = point_facts((1.0,), {**answer, "variance": [0.01], "std_observed": [0.4], "prior_only": [True]})
    assert (newer["low"], newer["high"]) == pytest.approx(stats.norm.interval(0.95, 2.0, 0.1), rel=1e-12)
    assert (newer["observed_low"], newer["observed_high"]) == pytest.approx(
        stats.norm.interval(0.95, 2.0, 0.4), rel=1e-12
    )
    assert newer["unknown"]


def test_a_map_goes_over_the_wire_as_plain_numbers() -> None:
    field = field_of(
        MapAxes((0.0,), (1.0,)), (3,), {"mean": [1, 2, 3], "variance": [4, 9, 16], "prior_only": [0, 1, 0]}
    )
    assert isinstance(field, MapField)
    np.testing.assert_array_equal(np.frombuffer(field.data[:12], "<f4"), [1, 2, 3])
    np.testing.assert_array_equal(np.frombuffer(field.data[12:24], "<f4"), [2, 3, 4])
    assert field.data[24:] == bytes([0, 1, 0])
    assert field.as_dict() == {"shape": [3], "low": [0.0], "high": [1.0]}


TIME = {"input": "day", "units": "days since 1970-01-01", "now": 18632.5}


@pytest.mark.parametrize(
    ("chosen", "times", "expected"),
    [
        ((), [{**TIME, "now": 18631.0}, TIME], ((5.0, 18632.5), "2021-01-05 12:00 UTC")),
        ((2.0, 18630.0), [TIME], ((2.0, 18630.0), "2021-01-03 00:00 UTC")),
        ((), [{**TIME, "units": "", "now": 7.5}], ((5.0, 7.5), "7.5")),
        ((), [{**TIME, "input": "lon"}], ((5.0, 18630.0), "")),
        ((), [], ((5.0, 18630.0), "")),
    ],
)
def test_a_map_is_of_now_unless_viewers_chose_another_time(chosen: Any, times: Any, expected: Any) -> None:
    axes = MapAxes((0.0, 40.0, 0.0, 18628.0), (2.0, 42.0, 10.0, 18632.0))
    assert values_at(axes, ("lon", "lat", "depth", "day"), chosen, times) == expected
