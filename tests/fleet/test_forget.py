"""Rows that are taken back or forgotten: the fleet is as if it had never had them; what is kept of them helps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.fleet.forgetting import forgotten
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.prediction import prediction_method
from fleetgp.prediction.groups import split
from tests.conftest import paper_shards

THETA = (0.5, 0.4, 1.3, 0.2)
POINTS = np.random.default_rng(3).uniform(0.1, 1.9, (6, 2))
MODEL: dict[str, Any] = {"theta": THETA, "kernel": "se", "normalize": False}
DAYS = {"day": "days since 1970-01-01"}


def same(one: fg.Prediction, other: fg.Prediction, rtol: float = 1e-7, atol: float = 1e-9) -> None:
    np.testing.assert_allclose(one.means, other.means, rtol, atol)
    np.testing.assert_allclose(one.variances, other.variances, rtol, atol)


def fresh(fleet: fg.Fleet, **model: Any) -> fg.Fleet:
    """A fleet that only ever had the rows that there are, and holds the same groups."""
    result = fg.Fleet(fleet.shards, **(MODEL | model))
    result.sent_groups, result.kept_groups = dict(fleet.sent_groups), fleet.kept_groups
    return result


def check_groups(fleet: fg.Fleet) -> None:
    """The groups that were sent are of rows that there are, each in one at most."""
    for agent, groups in fleet.sent_groups.items():
        rows = np.concatenate([*groups, np.zeros(0, dtype=int)])
        assert len(np.unique(rows)) == len(rows)
        assert not len(rows) or 0 <= rows.min() <= rows.max() < fleet.data.counts[agent]


def stream(seed: int, rows: int = 60, agents: int = 3) -> list[tuple[Array, Array]]:
    """Rows at (x, day) of a field that changes with the days."""
    rng, result = np.random.default_rng(seed), []
    for agent in range(agents):
        x = np.column_stack([rng.uniform(agent, agent + 1.2, rows), np.sort(rng.uniform(0.0, 6.0, rows))])
        result.append((x, np.sin(2.0 * x[:, 0]) * np.cos(0.4 * x[:, 1]) + 0.1 * rng.normal(size=rows)))
    return result


def fleet_of_days(shards: list[tuple[Array, Array]], **options: Any) -> fg.Fleet:
    model: dict[str, Any] = {
        "theta": (0.6, 2.0, 1.0, 0.1),
        "kernel": "se",
        "normalize": False,
        "inputs": ["x", "day"],
    } | options
    return fg.Fleet(shards, **model).set_metadata(["a", "b", "c"][: len(shards)], "t", DAYS)


# ---- as if the rows had never been there -----------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::fleetgp.errors.FleetGPWarning")  # of rows that come twice
@pytest.mark.parametrize(
    ("engine", "kernel", "asked"),
    [
        ("dense", "matern32", ["dec-rbcm", "dec-nn-grbcm", "npae", "dec-nearest", "full-gp", "dec-summary"]),
        ("moments", "se", ["dec-rbcm", "grbcm"]),
        ("vecchia", "matern12", ["dec-rbcm", "dec-grbcm", "dec-summary"]),
        ("auto", "se", ["dec-full-gp", "dec-summary", "dec-npae"]),
    ],
)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_any_schedule_leaves_the_fleet_of_the_rows_that_remain(
    engine: str, kernel: str, asked: list[str], data: Any
) -> None:
    """Agents observe, forget and take back in any order, between which the fleet is asked or not."""
    shards, more = stream(data.draw(st.integers(0, 9))), stream(77, 40)
    fleet = fleet_of_days(shards, kernel=kernel)
    method = data.draw(st.sampled_from(asked))
    how, points = prediction_method(method).those_of(engine=engine), stream(5, 2, 3)[1][0]
    steps = ["observe", "remove", "forget", "where", "keep"]
    for step in ["ask", *data.draw(st.lists(st.sampled_from([*steps, "ask"]), min_size=2, max_size=6)), "ask"]:
        agent = data.draw(st.integers(0, 2))
        count = fleet.data.counts[agent]
        if step == "observe":
            first = data.draw(st.integers(0, 30))
            fleet.observe(agent, *(column[first : first + 8] for column in more[agent]))
        elif step == "remove":
            fleet.remove(agent, sorted(data.draw(st.sets(st.integers(0, count - 1), max_size=count // 3))))
        elif step == "where":
            fleet.remove(agent, where=f"t > {data.draw(st.floats(0.6, 1.0))} and x < {agent + 0.9}")
        elif step in ("forget", "keep"):
            fleet.forget(data.draw(st.floats(0.0, 4.0)), keep="summary" if step == "keep" else "nothing")
        else:
            found, expected = fleet.predict(points, method, **how), fleet_of_days(list(fleet.shards), kernel=kernel)
            expected.sent_groups, expected.kept_groups = dict(fleet.sent_groups), fleet.kept_groups
            same(found, expected.predict(points, method, **how), 1e-6, 1e-8)
        check_groups(fleet)


@pytest.mark.parametrize("method", fg.PREDICTION_METHODS)
def test_every_method_at_once(method: str) -> None:
    fleet = fg.Fleet(paper_shards(150, 3), **MODEL)
    how = prediction_method(method).those_of(min_rows=1, budget=1e12)  # groups of one row: no history
    declared = set(prediction_method(method).kinds(fleet.kernel, "auto", "tree"))
    for change in (
        lambda: None,
        lambda: fleet.observe(0, [[0.5, 0.5]], [1.0]),
        lambda: fleet.remove(1, [0, 7, 8]),
        lambda: fleet.remove(0, np.arange(51) % 10 == 3),
    ):
        change()
        answer = fleet.predict(POINTS, method, **how)
        assert {*answer.ledger.kinds} <= declared
    same(answer, fg.Fleet(fleet.shards, **MODEL).predict(POINTS, method, **how), 1e-6)


def test_only_the_agent_that_has_lost_rows_is_conditioned_again(conditionings: list[int]) -> None:
    fleet = fg.Fleet(paper_shards(90, 3), **MODEL)
    fleet.predict(POINTS, "dec-rbcm")
    conditionings.clear()
    fleet.remove(1, [4])
    fleet.predict(POINTS, "dec-rbcm")
    assert conditionings == [29]


def test_the_next_training_is_that_of_the_rows_that_remain() -> None:
    fleet = fg.Fleet(paper_shards(120, 3), kernel="se")
    fleet.train()
    fleet.observe(0, [[0.5, 0.5]], [30.0], request="wrong")
    fleet.remove(0, request="wrong")
    fleet.remove(2, [1, 2, 3])
    other = fg.Fleet(fleet.shards, kernel="se")
    np.testing.assert_allclose(fleet.train().theta, other.train().theta, rtol=1e-12)


def test_moments_are_those_of_the_rows_that_remain() -> None:
    """Rows that came after the training leave its moments valid; with others they are added up again."""
    fleet = fg.Fleet(paper_shards(120, 3), kernel="se")
    fleet.train("dec-full-gp")
    trained = fleet.moments
    fleet.observe(0, [[0.5, 0.5], [0.6, 0.6]], [3.0, 2.0])
    for rows in ([40], [40], [3]):
        fleet.predict(POINTS, "dec-full-gp")
        fleet.remove(0, rows)
        assert (fleet.snapshot().moments is trained) == (rows == [40])
        exact = fleet.predict(POINTS, "full-gp")
        same(fleet.predict(POINTS, "dec-full-gp"), exact, 1e-6, 1e-8)
    assert fleet.moments is None
    assert fleet.earlier_moments is None


def test_a_calibration_ends_and_an_earlier_fleet_stays() -> None:
    fleet = fg.Fleet(paper_shards(120, 3), **MODEL)
    fleet.calibrate("dec-rbcm", holdout="rows")
    conditioned, before = fleet.condition(), fleet.predict(POINTS, "dec-rbcm")
    assert "calibration" in fleet.remove(0, [3]).ended
    assert fleet.calibration is None
    assert np.array_equal(conditioned.predict(POINTS, "dec-rbcm").means, before.means)
    assert fleet.remove(0, []).rows == 0


def test_robust_weights_are_those_of_the_rows_that_remain() -> None:
    shards = [(x, y.copy()) for x, y in paper_shards(120, 3)]
    shards[1][1][:3] += 20.0
    fleet = fg.Fleet(shards, **MODEL, robust=True)
    for method in ("dec-rbcm", "dec-grbcm", "dec-nearest"):
        fleet.predict(POINTS, method)
    fleet.remove(1, [0, 9])
    for method in ("dec-rbcm", "dec-grbcm", "dec-nearest"):
        same(fleet.predict(POINTS, method), fg.Fleet(fleet.shards, **MODEL, robust=True).predict(POINTS, method), 1e-6)


@pytest.mark.filterwarnings("ignore::fleetgp.errors.FleetGPWarning")  # of a floor, and of places without rows
@pytest.mark.parametrize("trained", [True, False])
def test_with_a_scaling_of_the_training_or_of_the_rows(trained: bool) -> None:
    """A training's scaling and mean stay; with a theta that was given they follow from the rows that remain."""
    fleet = fg.Fleet(paper_shards(120, 3), kernel="se", mean="constant", theta=None if trained else THETA)
    if trained:
        fleet.train(theta0=THETA)
    fleet.predict(POINTS)
    fleet.remove(1, np.arange(40) % 4 == 0)
    other = fg.Fleet(fleet.shards, kernel="se", mean="constant", theta=THETA)
    other.sent_groups = dict(fleet.sent_groups)
    if trained:
        assert fleet.last_fit is not None
        other.adopt(fleet.last_fit)
    for method in ("dec-summary", "dec-rbcm", "grbcm", "npae"):
        same(fleet.predict(POINTS, method), other.predict(POINTS, method), 1e-6)


def test_a_suspicion_goes_with_the_row() -> None:
    fleet = fg.Fleet(paper_shards(90, 3), **MODEL)
    with pytest.warns(fg.FleetGPWarning, match="-9999"):
        fleet.observe(1, [[0.5, 0.5]], [-9999.0])
    fleet.remove(1, [30])
    with pytest.warns(fg.FleetGPWarning, match="-9999"):
        fleet.observe(1, [[0.5, 0.6]], [-9999.0])


# ---- which rows ------------------------------------------------------------------------------------------------------


def test_rows_by_every_selector() -> None:
    fleet = fleet_of_days(stream(1))
    fleet.observe("b", [[1.5, 7.0], [1.6, 8.0]], [41.0, 42.0], request="dive-7")
    fleet.observe("b", [[1.5, 9.0]], [43.0])
    with pytest.raises(fg.InputError, match="no rows that were observed as the request 'dive-6'"):
        fleet.remove("b", request="dive-6")
    assert str(fleet.remove("b", request="dive-7")) == "agent b: 2 rows removed, 61 remain"
    assert fleet.remove("b", where="t > 40 and day >= 1970-01-10").rows == 1
    day = fleet.shards[1][0][:, 1]
    expected = int(((day >= 1.0) & (day <= 2.5)).sum())
    assert fleet.remove("b", between=("1970-01-02", "1970-01-03T12:00")).rows == expected
    assert fleet.remove("b", np.arange(60 - expected) < 5).remaining == 55 - expected


@pytest.mark.parametrize("method", ["dec-summary", "dec-rbcm", "dec-nearest", "dec-full-gp", "dec-nn-grbcm"])
def test_an_agent_may_lose_all_rows_and_have_some_again(method: str) -> None:
    """It stays in the fleet, as one that never had any."""
    shards = paper_shards(90, 3)
    fleet = fg.Fleet(shards, kernel="se", normalize=False, theta=THETA)
    fleet.predict(POINTS, method)
    assert fleet.remove(1, range(30)).remaining == 0
    nothing = (np.zeros((0, 2)), np.zeros(0))
    other = fg.Fleet([shards[0], nothing, shards[2]], kernel="se", normalize=False, theta=THETA)
    other.sent_groups = dict(fleet.sent_groups)
    same(fleet.predict(POINTS, method), other.predict(POINTS, method), 1e-6)
    fleet.observe(1, *shards[1])
    whole = fg.Fleet(shards, kernel="se", normalize=False, theta=THETA)
    same(fleet.predict(POINTS, method), whole.predict(POINTS, method), 1e-6)


def test_few_private_rows_do_not_remain() -> None:
    fleet = fg.Fleet(paper_shards(90, 3), **MODEL, private="rows")
    with pytest.raises(fg.InputError, match="at least 5 rows of an agent that has any, and 2 of agent 1 would remain"):
        fleet.remove(1, range(28))
    assert fleet.remove(1, range(30)).remaining == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"where": "t > 3 and"}, "t: expected a number, got '3 and'"),
        ({}, "expected one of rows, where, between, request, got none of them"),
        ({"rows": [1], "request": "x"}, "got rows and request"),
        ({"rows": [60]}, "expected the numbers of rows from 0 to 59, got 60"),
        ({"rows": [-1]}, "got -1"),
        ({"rows": [True]}, "or a mask of 60"),
        ({"rows": [0.5]}, "or a mask of 60"),
        ({"where": "depth > 3"}, "expected one of the columns x, day, t, got 'depth'"),
        ({"where": "t > 3 or x > 2"}, "expected comparisons such as"),
        ({"where": "t > "}, "expected comparisons such as"),
        ({"where": "t >> 3"}, "expected comparisons such as"),
        ({"where": "t > nan"}, "expected a finite number"),
        ({"where": "x > 2021-01-01"}, "x: expected a number, got '2021-01-01'"),
        ({"where": "day > yesterday"}, "expected a date like 2021-01-31"),
        ({"where": "__import__('os') > 1"}, "expected one of the columns"),
        ({"where": 3}, "expected comparisons such as"),
        ({"between": 3}, "expected two points in time"),
        ({"between": ("1970-01-03", "1970-01-02")}, "expected the earlier point in time first"),
        ({"request": ""}, "expected the name that observe"),
    ],
)
def test_what_is_no_selection_is_refused_and_changes_nothing(given: dict[str, Any], said: str) -> None:
    fleet = fleet_of_days(stream(1))
    before = fleet.data
    with pytest.raises(fg.InputError, match=said):
        fleet.remove("a", **given)
    assert fleet.data is before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"window": "3 moons"}, "window: expected a duration such as"),
        ({"window": 0.0}, "window must be"),
        ({"max_rows": 4}, "max_rows must be"),
        ({"keep": "all"}, "unknown keep 'all'"),
    ],
)
def test_what_is_no_policy_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(fg.InputError, match=said.replace("must be", "").strip()):
        fg.Fleet(stream(1), **MODEL, **options)


def test_a_window_needs_a_time_before_anything_changes() -> None:
    fleet = fg.Fleet(stream(1), **MODEL, window="2 days")
    before = fleet.data
    with pytest.raises(fg.InputError, match="window: expected one input that is the time"):
        fleet.observe(0, [[0.5, 7.0]], [1.0])
    assert fleet.data is before
    with pytest.raises(fg.InputError, match="before: expected one input that is the time"):
        fleet.forget("1970-01-03")


# ---- the policy ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", ["summary", "nothing"])
def test_rows_and_groups_stay_bounded(keep: str) -> None:
    """A window of two days over a stream of six: without kept groups exactly; with them some more."""
    days, fleet = stream(2, 240), fleet_of_days([(x[:8], y[:8]) for x, y in stream(2, 240)], window="2 days", keep=keep)
    for start in range(8, 240, 8):
        for agent, (x, y) in enumerate(days):
            fleet.observe(agent, x[start : start + 8], y[start : start + 8])
        if start % 32 == 0:
            fleet.predict(fleet.shards[0][0][-3:], "dec-rbcm" if keep == "nothing" else "dec-summary")
        now = max(x[:, 1].max() for x, _ in fleet.shards)
        for x, _ in fleet.shards:
            inside = max(5, int((x[:, 1] >= now - 2.0).sum()))
            assert inside <= len(x) <= inside + (0 if keep == "nothing" else 2.0 * max(20, 0.1 * len(x)) + 8)
        check_groups(fleet)
    assert (max(fleet.kept_rows) > 100) == (keep == "summary")
    assert max(map(len, fleet.kept_groups)) <= 12


def test_agents_without_rows_do_not_matter_to_a_window() -> None:
    _, *others = stream(1)
    fleet = fleet_of_days([(np.zeros((0, 2)), np.zeros(0)), *others], window="2 days", keep="nothing")
    fleet.observe("b", [[1.5, 7.0]], [0.3])
    assert fleet.now == 7.0
    assert fleet.data.counts[0] == 0


def test_some_row_of_a_fleet_remains() -> None:
    """A fleet without rows has no model, and its folder could not be read."""
    fleet = fleet_of_days(stream(1, agents=2))
    fleet.remove("a", where="x > -9")
    with pytest.raises(fg.InputError, match="these are all rows of the fleet: observe others before"):
        fleet.remove("b", where="x > -9")
    assert fleet.data.counts == [0, 60]


def test_rows_in_files_stay_there(tmp_path: Path) -> None:
    """What others hold of them stays too."""
    for agent, (x, y) in enumerate(stream(1)):
        text = "\n".join(f"{a},{b},{c}" for (a, b), c in zip(x.tolist(), y.tolist(), strict=True))
        (tmp_path / f"{agent}.csv").write_text(f"x,day,t\n{text}\n", encoding="utf-8")
    options: dict[str, Any] = {"inputs": ["x", "day"], "target": "t", "time": "day", "theta": (0.6, 2.0, 1.0, 0.1)}
    fleet = fg.Fleet.from_files(f"{tmp_path}/*.csv", **options)
    fleet.predict([[1.0, 5.0]])
    before = {agent: len(groups) for agent, groups in fleet.sent_groups.items()}
    for change in (lambda: fleet.remove(0, [1]), lambda: fleet.forget(3.0)):
        with pytest.raises(fg.InputError, match="got one from files: change the files, and read again"):
            change()
    assert {agent: len(groups) for agent, groups in fleet.sent_groups.items()} == before


def test_the_newest_five_rows_stay_and_the_oldest_leave_first() -> None:
    fleet = fleet_of_days(stream(1), keep="nothing")
    newest = [x[-5:] for x, _ in fleet.shards]
    assert [receipt.rows for receipt in fleet.forget("1971-01-01")] == [55, 55, 55]
    assert all(np.array_equal(x, last) for (x, _), last in zip(fleet.shards, newest, strict=True))
    by_arrival = fg.Fleet(paper_shards(90, 3), **MODEL, max_rows=20, keep="nothing")
    last = by_arrival.shards[1][0][-20:]
    by_arrival.forget()
    assert np.array_equal(by_arrival.shards[1][0], last)
    assert by_arrival.forget() == ()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    least=st.integers(1, 7),
    share=st.floats(0.05, 0.95),
    keep=st.sampled_from(["summary", "nothing"]),
    patient=st.booleans(),
    mixed=st.booleans(),
)
def test_no_difference_of_groups_describes_fewer_rows_than_a_group(
    seed: int, least: int, share: float, keep: Any, patient: bool, mixed: bool
) -> None:
    """Of a group that stays or is kept, subtract any of the groups that were sent: no row is left, or a group's."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(30, 150))
    places = rng.uniform(0.0, 1.0, (count, 2))
    sent = tuple(rows for rows in split(places[: count - 12], least) if len(rows) >= least)
    old = np.zeros(count, dtype=bool)
    old[rng.choice(count, int(share * count), replace=False) if mixed else places[:, 0] < share] = True
    departure = forgotten(old, sent, keep, places, patient=patient)
    assert not (departure.rows & ~old).any()
    smallest = min(map(len, sent), default=0)
    for some in (*departure.sent, *departure.groups):
        inside = [np.isin(group, some).sum() for group in sent]
        left = sum(min(n, len(group) - n) for n, group in zip(inside, sent, strict=True)) + len(some) - sum(inside)
        assert left == 0 or left >= smallest
    kept = np.concatenate([*departure.groups, np.zeros(0, dtype=int)]).astype(int)
    assert len(np.unique(kept)) == len(kept)
    assert departure.rows[kept].all()
    there = np.concatenate([*departure.sent, np.zeros(0, dtype=int)]).astype(int)
    assert not departure.rows[there].any()
    assert set(there) | set(np.flatnonzero(departure.rows)) >= set(np.concatenate([*sent, [0]]).astype(int)) - {0}


# ---- what is kept ----------------------------------------------------------------------------------------------------


def smooth(seed: int, noise: float = 0.1) -> tuple[list[tuple[Array, Array]], Array, Array]:
    rng, shards = np.random.default_rng(seed), []

    def field(x: Array) -> Array:
        return np.asarray(np.sin(3.0 * x[:, 0]) * np.cos(2.0 * x[:, 1]))

    for agent in range(3):
        x = np.column_stack([rng.uniform(0.7 * agent, 0.7 * agent + 0.7, 160), rng.uniform(0.0, 2.0, 160)])
        shards.append((x, field(x) + noise * rng.normal(size=160)))
    points = rng.uniform([0.0, 0.0], [2.1, 2.0], (200, 2))
    return shards, points, field(points)


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("method", ["dec-summary", "local", "alone"])
def test_kept_groups_help(asked: bool, method: str) -> None:
    """On a field that stands still, most of what 120 of 160 rows said stays."""
    shards, points, truth = smooth(1)
    if method == "alone":
        shards = [tuple(np.concatenate(parts) for parts in zip(*shards, strict=True))]  # type: ignore[list-item]
    errors = {}
    for keep in ("summary", "nothing"):
        fleet = fg.Fleet(shards, theta=(0.7, 0.7, 1.0, 0.1), normalize=False, kernel="matern52", keep=keep, max_rows=40)
        if asked:
            fleet.predict(points[:3])
        fleet.forget()
        assert max(fleet.data.counts) < 40 + 20
        answer = fleet.predict(points, local=method == "local")
        errors[keep] = float(np.sqrt(np.mean((answer.mean - truth) ** 2)))
        assert np.mean(np.abs(answer.mean - truth) <= 2.0 * answer.std) > 0.85
    assert errors["summary"] < 0.75 * errors["nothing"]


def test_an_answer_from_kept_groups_is_that_of_dense_algebra() -> None:
    """An agent alone: f | own rows, own kept groups, and the groups of the others, by plain linear algebra."""
    shards, points, _ = smooth(2)
    theta = np.array([0.7, 0.6, 1.0, 0.1])
    fleet = fg.Fleet(shards, theta=theta, normalize=False, kernel="matern52")
    fleet.remove(0, np.arange(160) >= 60)
    fleet.forget(keep="summary")
    by_hand = fg.Fleet(shards, theta=theta, normalize=False, kernel="matern52", max_rows=40)
    by_hand.forget()
    found = by_hand.predict(points[:5], local=True, agent=1)
    (groups,) = [entry.value.groups for entry in by_hand._cache.shared.values() if getattr(entry.value, "groups", ())]
    kernel, h = by_hand.kernel, Hyperparameters.from_theta(theta)
    x, y = by_hand.shards[1]
    places, weights, values, noise = list(x), list(np.eye(40)), list(y), [0.1**2] * 40
    for agent, own in enumerate(groups):
        for g in range(len(own)):
            if agent == 1 and len(own.members[g]):
                continue
            start, end = own.observations.points.starts[g : g + 2]
            some = own.observations.points.places[start:end]
            places += list(some)
            values.append(own.values[g])
            noise.append(own.variances[g])
            weights.append(np.concatenate([np.zeros(len(places) - len(some)), np.full(len(some), 1.0 / len(some))]))
    matrix = np.array([np.pad(row, (0, len(places) - len(row))) for row in weights])
    every = np.array(places)
    covariance = matrix @ kernel(every, None, h) @ matrix.T + np.diag(noise)
    cross = matrix @ kernel(every, points[:5], h)
    np.testing.assert_allclose(found.mean, cross.T @ np.linalg.solve(covariance, values), rtol=1e-6)
    explained = np.einsum("nt,nt->t", cross, np.linalg.solve(covariance, cross))
    np.testing.assert_allclose(found.variance, 1.0 - explained, rtol=1e-5)


@pytest.mark.parametrize("noise", [None, "agents"])
def test_kept_groups_of_an_agent_without_rows(noise: Any) -> None:
    """They still count, as the others' groups do; and other agents may have no rows."""
    shards, points, truth = smooth(1)
    theta = (0.7, 0.7, 1.0, 0.1) if noise is None else (0.7, 0.7, 1.0, 0.1, 0.1, 0.1, 0.1)
    options: dict[str, Any] = {"theta": theta, "noise": noise, "normalize": False, "kernel": "matern52"}
    fleet = fg.Fleet([*shards, (np.zeros((0, 2)), np.zeros(0))], **options, max_rows=40)
    fleet.forget()
    kept = fleet.predict(points).mean
    fleet.remove(0, np.ones(fleet.data.counts[0], dtype=bool))
    assert fleet.kept_rows[0] >= 100
    found = fleet.predict(points).mean
    assert np.isfinite(found).all()
    near = points[:, 0] < 0.6
    assert np.abs(found - truth)[near].mean() < 0.15
    np.testing.assert_allclose(found[points[:, 0] > 1.5], kept[points[:, 0] > 1.5], atol=0.05)


def test_a_map_shows_what_kept_groups_know() -> None:
    """The field stands still, and the agent went from west to east."""
    rng = np.random.default_rng(0)
    x = np.column_stack([np.linspace(0.0, 4.0, 200), rng.uniform(0.0, 0.5, 200)])
    fleet = fg.Fleet([(x, np.sin(x[:, 0]))], theta=(0.5, 0.5, 1.0, 0.1), normalize=False, max_rows=40)
    fleet.forget()
    assert fleet.shards[0][0][:, 0].min() > 3.0
    status = fleet.map((8, 2), box=(0.0, 0.0, 4.0, 0.5), within=1.0)["cell_status"]
    assert (status == 0).all()


@pytest.mark.parametrize(("coordinates", "kernel"), [("kilometres", "matern52"), ("sphere", "iso-matern52(lon, lat)")])
def test_kept_groups_are_the_same_across_the_seam(coordinates: str, kernel: str) -> None:
    """Longitudes from -180 to 180, across 180, and from 0 to 360: in coordinates that have no seam."""
    rng, shards = np.random.default_rng(0), []
    for west in (176.0, 179.0):
        lon, lat = rng.uniform(west, west + 4.0, 150), rng.uniform(-2.0, 2.0, 150)
        shards.append((np.column_stack([lon, lat]), 15.0 + np.sin(lon) * np.cos(lat) + 0.1 * rng.normal(size=150)))
    points, lengths = rng.uniform([176.5, -2.0], [182.5, 2.0], (50, 2)), (80.0, 80.0)[: 2 - (coordinates == "sphere")]
    model: dict[str, Any] = {"coordinates": coordinates, "kernel": kernel, "inputs": ["lon", "lat"], "max_rows": 30}
    answers = []
    for end in (360.0, 180.0):
        turned = [(np.column_stack([_up_to(x[:, 0], end), x[:, 1]]), y) for x, y in shards]
        fleet = fg.Fleet(turned, theta=(*lengths, 1.0, 0.1), **model)
        fleet.forget()
        fleet.observe(0, [[_up_to(np.array([180.5]), end)[0], 0.5]], [15.0])
        answers.append(fleet.predict(np.column_stack([_up_to(points[:, 0], end), points[:, 1]])))
        assert min(fleet.kept_rows) >= 120
    same(answers[0], answers[1], 1e-6)
    truth = 15.0 + np.sin(points[:, 0]) * np.cos(points[:, 1])
    assert np.abs(answers[0].mean - truth).mean() < 0.2


def _up_to(longitudes: Array, end: float) -> Array:
    return np.where(longitudes > end, longitudes - 360.0, longitudes)


def test_kept_groups_that_may_contain_a_row_are_removed_whole() -> None:
    fleet = fleet_of_days(stream(1))
    fleet.observe(
        "a", np.column_stack([np.linspace(0.3, 0.4, 8), np.full(8, 6.0)]), np.linspace(4, 5, 8), request="dive-7"
    )
    fleet.observe("a", stream(8, 60)[0][0] + [0.0, 8.5], stream(8, 60)[0][1])
    fleet.forget("1970-01-08")
    groups, rows = len(fleet.kept_groups[0]), fleet.kept_rows[0]
    receipt = fleet.remove("a", where="t > 4.9")
    assert (receipt.rows, receipt.kept_groups) == (0, 1)
    assert receipt.kept_rows >= 20
    assert "1 kept group removed whole" in str(receipt)
    assert (len(fleet.kept_groups[0]), fleet.kept_rows[0]) == (groups - 1, rows - receipt.kept_rows)
    with pytest.raises(fg.InputError, match="no rows that were observed as the request 'dive-7'"):
        fleet.remove("a", request="dive-7")  # its rows were in this group
    assert fleet.remove("a", between=("1970-01-01", "1970-01-02")).kept_groups > 0


def test_a_folder_has_the_policy_the_requests_and_the_kept_groups(tmp_path: Path) -> None:
    fleet = fleet_of_days(stream(1), window="3 days", max_rows=50)
    fleet.predict([[1.0, 5.0]])
    fleet.observe("a", [[0.1 * k, 6.5] for k in range(6)], np.linspace(0, 1, 6), request="dive-7")
    assert fleet.kept_rows[1] > 0
    loaded = fg.load_model(fg.save_model(fleet, tmp_path / "model")).fleet
    assert loaded.memory == fleet.memory
    assert loaded.settings == fleet.settings
    assert loaded.kept_rows == fleet.kept_rows
    assert np.array_equal(loaded.predict([[1.0, 5.0]]).means, fleet.predict([[1.0, 5.0]]).means)
    for one in (loaded, fleet):
        one.observe("b", [[1.5, 7.0]], [1.0])
        assert str(one.remove("a", request="dive-7")).startswith("agent a: 6 rows removed")
    same(loaded.predict([[1.0, 5.0]]), fleet.predict([[1.0, 5.0]]))


def test_a_folder_of_an_agent_that_has_lost_all_rows_can_be_read(tmp_path: Path) -> None:
    fleet = fleet_of_days(stream(1))
    fleet.observe("a", [[0.5, 6.5]], [1.0], request="dive-7")
    fleet.remove("a", where="x > -9")
    loaded = fg.load_model(fg.save_model(fleet, tmp_path / "model")).fleet
    assert loaded.data.counts == [0, 60, 60]
    same(loaded.predict([[1.0, 5.0]]), fleet.predict([[1.0, 5.0]]))


def test_a_folder_knows_the_rows_of_the_training(tmp_path: Path) -> None:
    """So `needs_training` scores the same rows."""
    fleet = fleet_of_days(stream(1), theta=None)
    fleet.train()
    fleet.remove("a", [3, 4])
    fleet.observe("a", *(column[:9] for column in stream(8)[0]))
    loaded = fg.load_model(fg.save_model(fleet, tmp_path / "model")).fleet
    assert loaded.trained_rows == fleet.trained_rows == (58, 60, 60)
    assert loaded.needs_training() == fleet.needs_training()
    assert loaded.needs_training().new_rows == 9


def test_a_calibration_uses_kept_groups() -> None:
    shards, points, _ = smooth(3)
    fleet = fg.Fleet(shards, theta=(0.7, 0.7, 1.0, 0.1), normalize=False, kernel="matern52", max_rows=60)
    fleet.forget()
    calibration = fleet.calibrate(holdout="rows")
    assert 0.5 < calibration.knots[0].factor < 2.0
    assert fleet.predict(points[:3]).factor.shape == (3,)
