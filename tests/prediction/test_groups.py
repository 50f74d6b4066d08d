"""dec-summary: groups of rows, what is sent of them, who answers, and how good the answers are."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.kernels.stationary import KERNELS
from fleetgp.metrics import score
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations
from fleetgp.prediction import committee, groups
from fleetgp.prediction.groups import Groups, agree_on_groups, nearness, regrouped, roundest, split, summarize
from fleetgp.storage.folder import load_model, save_model
from fleetgp.storage.model import Model
from tests.conftest import paper_shards

THETA = (0.5, 0.4, 1.3, 0.2)
H = Hyperparameters.from_theta(THETA)
#: All groups are single rows: every agent holds all data.
ALL_ROWS: dict[str, Any] = {"min_rows": 1, "budget": 1e12}


def rows(count: int, dimension: int = 2, seed: int = 0) -> Observations:
    rng = np.random.default_rng(seed)
    return Observations(rng.uniform(0.0, 2.0, (count, dimension)), rng.standard_normal(count))


# ---- which rows ------------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 120), st.integers(1, 9), st.integers(1, 4))
def test_every_row_is_in_one_group_and_groups_are_large_enough(seed: int, count: int, least: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    places = np.round(rng.uniform(-3.0, 3.0, (count, width)), rng.integers(0, 4))  # with ties
    result = split(places, least)
    assert sorted(np.concatenate(result).tolist()) == list(range(count))
    assert all(len(some) >= min(least, count) for some in result)
    order = rng.permutation(count)
    turned = split(places[order], least)
    assert {frozenset(map(tuple, places[some])) for some in result} == {
        frozenset(map(tuple, places[order][some])) for some in turned
    }, "a function of the set of rows"


def test_groups_are_about_as_small_as_they_may_be_and_one_row_more_changes_few() -> None:
    places = rows(2000).inputs
    result = split(places, 5)
    assert 5.0 <= 2000 / len(result) <= 8.5
    before = {frozenset(some.tolist()) for some in result}
    after = {frozenset(some.tolist()) for some in split(np.vstack([places, [[0.7, 1.1]]]), 5)}
    assert len(before - after) <= 3


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_the_roundest_number_lies_between_and_no_rounder_one_does(one: float, other: float) -> None:
    low, high = min(one, other), max(one, other)
    if low == high or high - low < 1e-9 * max(1.0, abs(low)):
        return
    found = roundest(low, high)
    assert low < found <= high
    if found != 0.0:
        step = 2.0 ** np.floor(np.log2(abs(found)))
        while found % step:
            step /= 2.0
        assert np.floor(high / (2 * step)) * 2 * step <= low


# ---- new rows wait ---------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 60), st.lists(st.integers(1, 12), min_size=1, max_size=8), st.data())
def test_rows_never_leave_their_group(seed: int, first: int, batches: list[int], data: st.DataObject) -> None:
    """So no difference of summaries describes fewer rows than a group does: groups come, or are joined."""
    places = rows(first + sum(batches), seed=seed).inputs
    end, size, old = first, 5, regrouped(places[:first], 5, 5, [])
    for batch in batches:
        end += batch
        size = data.draw(st.sampled_from([size, size, 2 * size]))
        new = regrouped(places[:end], size, 5, old)
        sent, before = [set(some.tolist()) for some in new], [set(some.tolist()) for some in old]
        assert all(len(some) >= 5 for some in sent)
        assert sum(map(len, sent)) == len(set().union(*sent))
        for some in sent:
            parts = [part for part in before if part & some]
            assert all(part <= some for part in parts), "whole groups"
            fresh = some - set().union(*parts)
            assert not fresh or len(fresh) >= 5
        assert end - sum(map(len, sent)) < 5, "fewer wait"
        old = new


def test_an_agent_with_too_few_rows_sends_nothing_and_is_answered_by_the_others() -> None:
    shards = list(paper_shards(60, 3))
    few = fg.Fleet([*shards, (shards[0][0][:4] + 0.01, shards[0][1][:4])], "path", theta=THETA, normalize=False)
    out = few.predict(shards[0][0][:5], "dec-summary")
    assert not out.participants[3].any()
    assert out.participants.any(axis=0).all()
    assert np.ptp(out.means, axis=0).max() == 0.0


# ---- what is said of a group -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dimension", [1, 2, 3, 5])
@pytest.mark.parametrize("kernel", ["se", "matern12", "matern32"])
def test_a_group_is_the_mean_of_its_rows_and_the_variance_is_that_of_what_its_points_miss(
    kernel: str, dimension: int
) -> None:
    data, h = rows(23, dimension), Hyperparameters.from_theta([0.5] * dimension + [1.3, 0.2])
    members = split(data.inputs, 5)
    found = summarize(data, members, KERNELS[kernel], h)
    assert len(found) == len(members)
    known = {tuple(np.round(data.inputs[some].mean(axis=0), 9)): some for some in members}
    for g, observed in enumerate(range(len(found))):
        some = known[tuple(np.round(found.places[g], 9))]
        assert found.counts[g] == len(some)
        assert found.values[g] == pytest.approx(data.values[some].mean())
        points = found.observations.rows([observed]).places
        assert len(points) == (2 * dimension if dimension <= 3 else 1)
        np.testing.assert_allclose(points.mean(axis=0), data.inputs[some].mean(axis=0))
        if dimension <= 3:
            scatter = np.cov(data.inputs[some].T, bias=True).reshape(dimension, dimension)
            np.testing.assert_allclose(np.cov(points.T, bias=True).reshape(dimension, dimension), scatter, atol=1e-12)
        covariance = KERNELS[kernel](np.vstack([data.inputs[some], points]), None, h)
        a = np.append(np.full(len(some), 1 / len(some)), np.full(len(points), -1 / len(points)))
        assert found.variances[g] == pytest.approx(0.04 / len(some) + a @ covariance @ a, rel=1e-6)


def test_rows_of_known_noise_are_weighted() -> None:
    data = rows(6)
    noisy = Observations(data.inputs, data.values, noise_std=np.array([0.1, 1.0, 2.0, 0.5, 0.1, 0.3]))
    kernel = fg.Fleet([noisy.as_given], theta=THETA, kernel="se", normalize=False).kernel
    found = summarize(noisy, [np.arange(6)], kernel, H)
    assert noisy.noise_std is not None
    noise = noisy.noise_std**2 + 0.04
    weights = 1.0 / np.maximum(noise, 0.5 * np.median(noise))
    np.testing.assert_allclose(found.values[0], np.average(noisy.values, weights=weights))
    np.testing.assert_allclose(found.places[0], np.average(noisy.inputs, axis=0, weights=weights))
    assert weights.max() / weights.sum() < 0.4, "no row is nearly the whole group"


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, 5))
def test_groups_travel_and_only_what_changes(seed: int, dimension: int) -> None:
    data = rows(60, dimension, seed)
    h = Hyperparameters.from_theta([0.5] * dimension + [1.3, 0.2])
    before = summarize(data.rows(slice(40)), split(data.inputs[:40], 5), KERNELS["se"], h)
    after = summarize(data, split(data.inputs, 5), KERNELS["se"], h)
    np.testing.assert_array_equal(Groups.unpacked(after.packed, dimension).packed, after.packed)
    gone, new = after.change(before)
    np.testing.assert_array_equal(before.changed(gone, new).packed, after.packed)
    assert after.change(after)[1].size == 0


# ---- bytes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [500.0, 3000.0, 1e5])
def test_each_group_crosses_each_edge_once_within_the_budget(budget: float) -> None:
    fleet = fg.Fleet(paper_shards(400, 5), "path", theta=THETA, normalize=False)
    ledger = fleet.predict([[1.0, 1.0]], "dec-summary", budget=budget).ledger
    assert set(ledger.kinds) == {"predictions", "statistics", "groups", "participants"}
    over = [
        ledger.total(kind="groups", sender=i, receiver=i + 1).scalars
        + ledger.total(kind="groups", sender=i + 1, receiver=i).scalars
        for i in range(4)
    ]
    assert len(set(over)) == 1, "all groups, once over each edge"
    assert 0.5 * min(budget, 8 * 8 * 400 / 8.5) <= 8 * over[0] <= budget
    again = fleet.predict([[1.1, 1.0]], "dec-summary", budget=budget).ledger
    assert "groups" not in again.kinds


# ---- who answers -----------------------------------------------------------------------------------------------------


def described(shards: Any, kernel: str = "se") -> list[Groups]:
    data = [Observations(x, y) for x, y in shards]
    return [summarize(own, split(own.inputs, 5), KERNELS[kernel], H) for own in data]


def test_where_areas_meet_few_agents_take_part_and_where_they_overlap_all() -> None:
    field = fg.synthetic_field(1200, seed=1)
    queries = np.random.default_rng(0).uniform(0.0, 2.0, (300, 2))
    taking = []
    for by in ("stripes", "random"):
        shards = fg.partition(field.inputs, field.observations, agents=6, by=by)
        weight, _ = nearness(described(shards), queries, KERNELS["se"], H)
        assert weight.min() == 0.0
        assert (weight.max(axis=0) == 1.0).all(), "the owner of the nearest group counts in full"
        taking.append((weight > 0.0).sum(axis=0).mean())
    assert taking[0] < 2.0 < 5.0 < taking[1]


@pytest.mark.parametrize("count", [20, 60, 400])
def test_the_weight_of_an_agent_changes_as_its_derivative_says(count: int) -> None:
    field = fg.synthetic_field(count, seed=1)
    known = described(fg.partition(field.inputs, field.observations, agents=4, by="kmeans"))
    queries, step = np.random.default_rng(2).uniform(0.0, 2.0, (200, 2)), 1e-7
    weight, slope = nearness(known, queries, KERNELS["se"], H)
    for d in range(2):
        apart = step * np.eye(2)[d]
        above, below = (nearness(known, queries + sign * apart, KERNELS["se"], H)[0] for sign in (1.0, -1.0))
        wrong = np.abs((above - below) / (2 * step) - slope[..., d]) > 1e-4 * (1.0 + np.abs(slope[..., d]))
        assert wrong.mean() < 0.01, "but for kinks, where another group is the nearest"
    assert ((weight >= 0.0) & (weight <= 1.0)).all()


# ---- answers ---------------------------------------------------------------------------------------------------------

MODELS: list[dict[str, Any]] = [
    {"kernel": "se", "theta": (0.5, 0.4, 1.3, 0.2)},
    {"kernel": "matern12", "theta": (0.5, 0.4, 1.3, 0.2), "normalize": True},
    {"kernel": "matern32(1) * matern12(2) + linear(1)", "theta": None},
    {"kernel": "matern32", "theta": (0.5, 0.4, 1.3, 0.2), "mean": "linear", "normalize": True},
    {"kernel": "matern32", "theta": (0.5, 0.4, 1.3, 0.2, 0.3, 0.4), "noise": "agents"},
    {"kernel": "matern32", "theta": (0.5, 0.4, 1.3, 0.2), "coordinates": "scaled"},
]


@pytest.mark.parametrize("engine", ["dense", "vecchia"])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: "-".join([model["kernel"], *list(model)[2:]]))
def test_with_groups_of_single_rows_it_is_the_gp_of_all_data(model: dict[str, Any], engine: str) -> None:
    model = {"normalize": False, **model}
    fleet = fg.Fleet(paper_shards(240, 3), "path", **model)
    if model["theta"] is None:
        fleet.theta = np.full(len(fleet.names), 0.7)
    queries = np.random.default_rng(1).uniform(0.2, 1.8, (20, 2))
    one = fleet.predict(queries, "dec-summary", engine=engine, **ALL_ROWS)
    pooled = fleet.predict(queries, "full-gp", engine=engine)
    np.testing.assert_allclose(one.mean, pooled.mean, rtol=0, atol=1e-8)
    np.testing.assert_allclose(one.variance, pooled.variance, rtol=1e-6, atol=1e-9)


def test_known_noise_and_the_sphere_too() -> None:
    rng = np.random.default_rng(0)
    x = np.column_stack([(rng.uniform(170.0, 190.0, 120) + 180.0) % 360.0 - 180.0, rng.uniform(-10.0, 10.0, 120)])
    y = np.sin(x[:, 1] / 4.0) + 0.1 * rng.standard_normal(120)
    shards = [(x[k::3], y[k::3], np.full(40, 0.05 + 0.1 * k)) for k in range(3)]
    fleet = fg.Fleet(
        shards, inputs=["lon", "lat"], kernel="iso-matern32(lon, lat)", coordinates="sphere", theta=(500.0, 1.0, 0.1)
    )
    queries = [[179.0, 1.0], [-175.0, 5.0]]
    one, pooled = fleet.predict(queries, "dec-summary", **ALL_ROWS), fleet.predict(queries, "full-gp")
    np.testing.assert_allclose(one.mean, pooled.mean, rtol=0, atol=1e-8)
    np.testing.assert_allclose(one.std, pooled.std, rtol=1e-6)


def test_outliers_keep_their_small_weight() -> None:
    shards = [(x, y.copy()) for x, y in paper_shards(150, 3)]
    shards[1][1][7] += 30.0
    queries = shards[1][0][5:12]
    answers = [
        fg.Fleet(shards, theta=THETA, kernel="matern32", normalize=False, robust=robust).predict(queries, "dec-summary")
        for robust in (True, False)
    ]
    clean = fg.Fleet(paper_shards(150, 3), theta=THETA, kernel="matern32", normalize=False)
    wanted = clean.predict(queries, "dec-summary").mean
    off = [float(np.abs(answer.mean - wanted).max()) for answer in answers]
    assert off[0] < 0.2 * off[1]


def test_one_agent_answers_with_its_posterior() -> None:
    shards = paper_shards(80, 1)
    fleet = fg.Fleet(shards, theta=THETA, kernel="matern32", normalize=False)
    one, whole = fleet.predict([[1.0, 1.0]], "dec-summary"), fleet.predict([[1.0, 1.0]], "full-gp")
    assert one.mean == pytest.approx(whole.mean)
    assert one.ledger.bytes == 0


@pytest.mark.parametrize("by", ["stripes", "random"])
def test_it_is_nearly_as_good_as_one_agent_with_all_data_and_knows_it(by: str) -> None:
    field = fg.synthetic_field(1500, seed=3)
    x, y, queries, seen = field.inputs[500:], field.observations[500:], field.inputs[:500], field.observations[:500]
    theta = [*field.theta[:3], field.theta[3]]
    model: dict[str, Any] = {"theta": theta, "kernel": "se", "normalize": False}
    fleet = fg.Fleet(fg.partition(x, y, agents=5, by=by), **model)  # type: ignore[call-overload]
    pooled = fg.Fleet([(x, y)], **model).predict(queries)
    scores = {
        name: score((out.mean, out.std_observed**2), seen)
        for name, out in {
            "pooled": pooled,
            "fleet": fleet.predict(queries, "dec-summary"),
            "alone": fleet.predict(queries, "dec-summary", local=True),
        }.items()
    }
    assert scores["fleet"].crps < 1.03 * scores["pooled"].crps
    assert abs(scores["fleet"].coverage - scores["pooled"].coverage) < 0.02
    assert scores["alone"].crps < 1.10 * scores["pooled"].crps


def test_alone_an_agent_sends_nothing_once_it_holds_the_groups() -> None:
    fleet = fg.Fleet(paper_shards(150, 3), theta=THETA, kernel="matern32", normalize=False)
    fleet.predict([[1.0, 1.0]], "dec-summary")
    out = fleet.predict([[0.3, 0.3], [1.7, 1.7]], "dec-summary", local=True)
    assert out.ledger.bytes == 0
    assert len(set(out.means[:, 0].tolist())) == 3, "each has its own answer"


def test_a_peer_that_sends_nonsense_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def nonsense(data: Observations, *_: Any) -> Groups:
        result = summarize(data, split(data.inputs, 5), KERNELS["matern32"], H)
        return Groups(result.counts, result.places, result.scatters, result.values, -result.variances)

    fleet = fg.Fleet(paper_shards(150, 3), theta=THETA, kernel="matern32", normalize=False)
    monkeypatch.setattr(groups, "summarize", nonsense)
    with pytest.raises(fg.FleetGPError, match="groups of at least 5 rows"):
        fleet.predict([[1.0, 1.0]], "dec-summary")


def test_a_map_has_no_seam() -> None:
    """Along a line through all stripes neither mean nor std jumps: by no more than one agent with all data has it."""
    field = fg.synthetic_field(600, seed=1)
    line = np.column_stack([np.linspace(0.05, 1.95, 2000), np.full(2000, 1.01)])
    model: dict[str, Any] = {"theta": (0.5, 0.4, 1.3, 0.2), "kernel": "matern32", "normalize": False}
    shards = fg.partition(field.inputs, field.observations, agents=5)
    outs = [fg.Fleet(own, **model).predict(line) for own in (shards, [(field.inputs, field.observations)])]

    def jump(values: Array) -> float:
        return float(np.abs(np.diff(values, n=2)).max())

    assert jump(outs[0].mean) < 3.0 * jump(outs[1].mean)
    assert jump(outs[0].std) < 6.0 * jump(outs[1].std)


#: What a fleet may do between questions; see below.
EVENTS = ("observe", "theta", "min_rows", "budget", "calibrate", "save", "condition", "before")


@pytest.mark.parametrize("seed", range(4))
def test_whatever_a_fleet_does_no_two_groups_that_were_sent_differ_by_few_rows(
    seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else their difference describes these rows. No group is ever split either: groups are joined, or stay."""
    sent: list[set[frozenset[int]]] = [set() for _ in range(4)]
    real = agree_on_groups

    def watched(*arguments: Any) -> tuple[Groups, ...]:
        result = real(*arguments)
        for known, one in zip(sent, result, strict=True):
            new = {frozenset(some.tolist()) for some in one.members}
            assert all(len(rows) >= arguments[4].min_rows for rows in new)
            assert not any(rows < earlier for rows in new - known for earlier in known), "a group is split"
            known |= new
        return result

    monkeypatch.setattr(committee, "agree_on_groups", watched)
    rng, private = np.random.default_rng(seed), ("rows" if seed % 2 else None)
    how: dict[str, Any] = {"theta": THETA, "kernel": "matern32", "normalize": False, "private": private}
    fleet = fg.Fleet(paper_shards(200, 4), "path", inputs=["a", "b"], **how)
    options: dict[str, Any] = {}
    fleet.predict([[1.0, 1.0]])
    earlier = fleet.condition()
    for turn, event in enumerate([*rng.permutation(EVENTS), *rng.choice(EVENTS, 8)]):
        fleet.observe(int(rng.integers(4)), *rows(int(rng.integers(1, 9)), seed=turn).as_given)
        asked: Any = fleet
        match event:
            case "observe":
                fleet.observe(int(rng.integers(4)), *rows(30, seed=100 + turn).as_given)
            case "theta":
                fleet.theta = np.array([*rng.uniform(0.2, 1.0, 2), 1.3, 0.2])
            case "min_rows":
                options["min_rows"] = int(rng.choice([5, 6, 7, 9]))
            case "budget":
                options["budget"] = float(rng.choice([2000.0, 2500.0, 1e5]))
            case "calibrate":
                with suppress(fg.InputError):  # of a few large groups hardly any are hidden
                    fleet.calibrate(holdout="rows", max_rows=40, **options)
            case "save":
                fleet = load_model(save_model(Model(fleet, list("abcd"), target="y"), tmp_path / str(turn))).fleet
                asked = fleet
            case "condition":
                asked = earlier = fleet.condition()
            case "before":
                asked = earlier
        asked.predict([[1.0, 1.0]], **options)
    for known in sent:
        assert known
        assert min(len(one ^ other) for one in known for other in known if one != other) >= 5


def test_an_agent_whose_groups_are_too_small_for_the_option_sends_none_and_has_them_later() -> None:
    fleet = fg.Fleet(paper_shards(60, 3), theta=THETA, kernel="matern32", normalize=False)
    first, before = fleet.predict([[1.0, 1.0]]), _as_sets(fleet)
    assert sorted(map(len, before.values())) == [3, 3, 3]
    fleet.predict([[1.0, 1.0]], min_rows=21)
    assert _as_sets(fleet) == before
    assert fleet.condition().predict([[1.0, 1.0]]).mean == first.mean
    fleet.predict([[1.0, 1.0]], min_rows=20)
    assert _as_sets(fleet) == {agent: {frozenset(range(20))} for agent in range(3)}


def _as_sets(fleet: fg.Fleet) -> dict[int, set[frozenset[int]]]:
    return {agent: {frozenset(some.tolist()) for some in sent} for agent, sent in fleet.sent_groups.items()}
