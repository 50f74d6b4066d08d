"""Rows that keep coming: only what is new is computed and sent, and the answers are those of all rows at once."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.consensus import agreements
from fleetgp.consensus.agreements import sample
from fleetgp.data import Shard
from fleetgp.engines.basis import Box
from fleetgp.engines.moments import sums
from fleetgp.engines.moments.fleet import FleetMoments, moments_on
from fleetgp.engines.moments.sums import ChebyshevSums, Rows
from fleetgp.linalg import cholesky
from fleetgp.linalg.cholesky import factorize
from fleetgp.model.observations import Observations
from fleetgp.prediction import prediction_method
from tests.conftest import paper_shards, positive_definite

THETA = (0.5, 0.4, 1.3, 0.2)
POINTS = np.random.default_rng(3).uniform(0.1, 1.9, (6, 2))
#: With a dense engine the squared pivots of C lie between the noise and N sigma_f^2: its condition is at most some
#: 90 (1.3 / 0.2)^2 = 4,000, and rounding some 1e-12. The basis of moments is certified to 1e-6, far above that.
CLOSE: dict[str, Any] = {"rtol": 1e-7, "atol": 1e-8}
#: With groups of at least five rows new ones may have to wait.
AT_ONCE: dict[str, Any] = {"min_rows": 1, "budget": 1e12}
CASES = [("dense", "se"), ("dense", "matern32"), ("moments", "se"), ("vecchia", "matern12"), ("auto", "se")]


def same(one: fg.Prediction, other: fg.Prediction) -> None:
    assert one.engine == other.engine
    np.testing.assert_allclose(one.means, other.means, **CLOSE)
    np.testing.assert_allclose(one.variances, other.variances, **CLOSE)
    assert np.array_equal(one.participants, other.participants)


def turned(shards: Any, seed: int) -> list[Shard]:
    """The same rows of each agent, in another order."""
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(len(y)) for _, y in shards]
    return [(x[order], y[order]) for (x, y), order in zip(shards, orders, strict=True)]


@pytest.mark.parametrize(("engine", "kernel"), CASES)
@pytest.mark.filterwarnings("ignore:.*no better known than the prior")
@settings(max_examples=4)
@given(data=st.data())
def test_any_schedule_ends_with_the_answers_of_all_rows_at_once(engine: str, kernel: str, data: Any) -> None:
    """Random batches of random agents, in a random order of rows, with questions by random methods in between."""
    whole = turned(paper_shards(90, 3), data.draw(st.integers(0, 10**6)))
    fits = [name for name in fg.PREDICTION_METHODS if name != "dec-full-gp" or (kernel, engine) == ("se", "auto")]
    methods = data.draw(st.lists(st.sampled_from(fits), min_size=1, max_size=3, unique=True))
    how = {method: prediction_method(method).those_of(engine=engine, **AT_ONCE) for method in methods}
    had = [data.draw(st.integers(1, 25)) for _ in whole]
    options: dict[str, Any] = {"theta": THETA, "kernel": kernel}
    fleet = fg.Fleet(
        [(x[:n], y[:n]) for (x, y), n in zip(whole, had, strict=True)],
        **{"kernel": "se", "normalize": False, **options},
    )
    while min(had) < 30:
        agent = data.draw(st.sampled_from([i for i, n in enumerate(had) if n < 30]))
        end = data.draw(st.integers(had[agent] + 1, 30))
        for method in data.draw(st.lists(st.sampled_from(methods), max_size=2)):
            fleet.predict(POINTS, method, **how[method])
        x, y = whole[agent]
        fleet.observe(agent, x[had[agent] : end], y[had[agent] : end])
        had[agent] = end
    fresh = fg.Fleet(paper_shards(90, 3), **{"kernel": "se", "normalize": False, **options})
    for method in methods:
        same(fleet.predict(POINTS, method, **how[method]), fresh.predict(POINTS, method, **how[method]))


@cache
def trained_on_few() -> tuple[list[Shard], fg.Fit]:
    """Rows of three agents, and what they trained on the first ten of each."""
    whole = turned(paper_shards(120, 3), 1)
    fleet = fg.Fleet([(x[:10], y[:10]) for x, y in whole], normalize=True, kernel="se")
    return whole, fleet.train("dec-full-gp", theta0=THETA)


@pytest.mark.parametrize("method", fg.PREDICTION_METHODS)
def test_every_method_after_every_batch_of_a_trained_fleet(method: str) -> None:
    """Single rows, and batches that make the box of the data larger: the moments of the training are added to."""
    (whole, fit), ends = trained_on_few(), (10, 11, 25, 40)
    fleet = fg.Fleet([(x[:10], y[:10]) for x, y in whole], normalize=True, kernel="se")
    fleet.adopt(fit)
    options = prediction_method(method).those_of(**AT_ONCE)
    for start, end in pairwise(ends):
        for agent, (x, y) in enumerate(whole):
            fleet.observe(agent, x[start:end], y[start:end])
        found = fleet.predict(POINTS, method, **options)
    fresh = fg.Fleet(paper_shards(120, 3), normalize=True, kernel="se")
    fresh.adopt(replace(fit, moments=None))  # which are of fewer rows
    same(found, fresh.predict(POINTS, method, **options))


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 12))
def test_a_factor_that_is_extended_is_that_of_all_points(seed: int, old: int, new: int) -> None:
    c = positive_definite(np.random.default_rng(seed), old + new) / (old + new)  # whose condition is some ten
    first = factorize(c[:old, :old], 1.0)
    assert first is not None
    found = first.extended(c[:old, old:], c[old:, old:], np.ones(new))
    assert found is not None
    expected = np.linalg.cholesky(c + np.eye(old + new))
    np.testing.assert_allclose(np.tril(found.lower), expected, rtol=0, atol=1e-12 * np.abs(expected).max())


def test_where_rounding_is_larger_than_the_noise_all_is_factorized_again_with_the_jitter_that_it_needs() -> None:
    x, y = paper_shards(60, 2)[0]
    options: dict[str, Any] = {"theta": (0.5, 0.4, 1.3, 1e-12)}
    fleet = fg.Fleet([(x, y), (x + 2.0, y)], **{"kernel": "se", "normalize": False, **options})
    fleet.predict(POINTS, "dec-rbcm", engine="dense")
    fleet.observe(0, x[:3] + 1e-13, y[:3])
    found = fleet.predict(POINTS, "dec-rbcm", engine="dense")
    fresh = fg.Fleet(fleet.shards, **{"kernel": "se", "normalize": False, **options}).predict(
        POINTS, "dec-rbcm", engine="dense"
    )
    assert found.jitter == fresh.jitter > 0.0
    assert np.array_equal(found.means, fresh.means)


@pytest.fixture
def factorized(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all matrices that were factorized, in turn."""
    sizes: list[int] = []
    real = cholesky.cholesky_in_place

    def counted(matrix: Array) -> bool:
        sizes.append(len(matrix))
        return real(matrix)

    monkeypatch.setattr(cholesky, "cholesky_in_place", counted)
    return sizes


def batches(count: int, size: int, seed: int = 4) -> Iterator[tuple[int, Array, Array]]:
    """Of one agent after the other, in the box of the paper's field."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        yield number % 2, rng.uniform(0.0, 2.0, (size, 2)), rng.standard_normal(size)


def kept(fleet: fg.Fleet) -> int:
    """Bytes of all that a fleet keeps of its data, each array once."""
    return len(pickle.dumps((fleet.data, fleet._cache, fleet._inspections)))


@pytest.mark.parametrize(
    ("method", "count"), [("dec-rbcm", 100), pytest.param("dec-rbcm", 1000, marks=pytest.mark.long), ("dec-grbcm", 40)]
)
def test_of_many_batches_each_costs_what_is_new_in_it(method: str, count: int, factorized: list[int]) -> None:
    fleet = fg.Fleet(
        [(x[:40], y[:40]) for x, y in paper_shards(200, 2)], theta=THETA, kernel="matern32", normalize=False
    )
    fleet.predict(POINTS[:1], method)
    anew = 0
    for agent, x, y in batches(count, 1):
        factorized.clear()
        fleet.observe(agent, x, y)
        fleet.predict(POINTS[:1], method)
        anew += factorized != [1]
        assert factorized == [1] or (method == "dec-grbcm" and len(factorized) == 3), (
            "the samples, and the rest of each"
        )
    assert anew <= 0.8 * count, "where a row enters the samples or another one leaves them: some half, of two agents"
    fresh = fg.Fleet(fleet.shards, theta=THETA, kernel="matern32", normalize=False)
    same(fleet.predict(POINTS, method), fresh.predict(POINTS, method))
    assert kept(fleet) < 1.5 * kept(fresh)


def test_a_thousand_batches_of_moments_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the rows of a chunk that is not full, which is read again for the sake of the last bits."""
    read: list[int] = []
    real = Rows.part

    def part(self: Rows, start: int, count: int) -> tuple[Array, Array]:
        found = real(self, start, count)
        read.append(len(found[1]))
        return found

    monkeypatch.setattr(Rows, "part", part)
    monkeypatch.setattr(sums, "CHUNK", 64)
    monkeypatch.setattr(sums, "chunk_for", lambda _: 64)
    rng = np.random.default_rng(0)
    x = np.concatenate([[[0.0, 0.0], [2.0, 2.0]], rng.uniform(0.0, 2.0, (2998, 2))])
    y = rng.standard_normal(3000)
    data = ChebyshevSums(x[:1000], y[:1000])
    data.up_to((9, 9))
    for end in range(1002, 3001, 2):
        read.clear()
        data.grow(x[:end], y[:end])
        data.up_to((9, 9))
        assert sum(read) <= 64 + 2
    assert np.array_equal(data.up_to((9, 9)), ChebyshevSums(x, y).up_to((9, 9)))


def test_moments_of_new_rows_are_all_that_dec_full_gp_takes_and_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def counted(box: Box, sizes: tuple[int, ...], inputs: Array, observations: Array) -> FleetMoments:
        taken.append(len(observations))
        return moments_on(box, sizes, inputs, observations)

    monkeypatch.setattr(agreements, "moments_on", counted)
    fleet = fg.Fleet(paper_shards(150, 5), fg.Graph.path(5), kernel="se", normalize=False)
    fleet.train("dec-full-gp", theta0=THETA)
    assert fleet.predict(POINTS, "dec-full-gp").ledger.rounds == 0
    for agent, x, y in batches(20, 2):
        taken.clear()
        fleet.observe(agent, 0.1 + 0.9 * x, y)
        found = fleet.predict(POINTS, "dec-full-gp")
        assert sorted(taken) == [0, 0, 0, 0, 2]
        assert found.ledger.rounds_by_phase == {"moments": 2 * 2}, "up and down the tree, once"
        sent = {edge: found.ledger.total(kind="moments", sender=edge[0], receiver=edge[1]).scalars for edge in EDGES}
        up = {(i, i + 1) for i in range(agent, 2)}
        assert {edge for edge, count in sent.items() if count} == up | {(2, 1), (1, 0), (2, 3), (3, 4)}
    fresh = fg.Fleet(fleet.shards, fg.Graph.path(5), theta=fleet.theta, kernel="se", normalize=False)
    same(found, fresh.predict(POINTS, "dec-full-gp"))


EDGES = [(i, j) for i in range(5) for j in (i - 1, i + 1) if 0 <= j < 5]


def test_only_new_rows_go_to_a_server_and_only_other_samples_to_anybody() -> None:
    fleet = fg.Fleet(paper_shards(300, 5), fg.Graph.path(5), theta=THETA, kernel="matern32", normalize=False)
    for method in ("full-gp", "grbcm", "dec-grbcm"):
        fleet.predict(POINTS, method)
    changed = []
    for agent, x, y in batches(40, 1):
        before = sample(fleet.data[agent], 5, 0)
        fleet.observe(agent, x, y)
        after = sample(fleet.data[agent], 5, 0)
        new = len({row.tobytes() for row in after.inputs} - {row.tobytes() for row in before.inputs})
        changed.append(new > 0)
        assert fleet.predict(POINTS, "full-gp").ledger.total(kind="observations").scalars == 1
        for method, copies in (("grbcm", 6), ("dec-grbcm", 4)):  # to the server and from it; over each edge once
            ledger = fleet.predict(POINTS, method).ledger
            assert ledger.total(kind="observations").scalars == copies * new
            assert ledger.total(kind="inputs").scalars == copies * 2 * new
    # One in five is drawn. A row that widens the box can draw another sample altogether.
    assert 0 < sum(changed) < 20


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(0, 20), st.integers(1, 8))
def test_samples_hang_on_what_rows_say_and_change_by_few(seed: int, old: int, new: int, agents: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, 4, (old + new, 2)).astype(float), rng.standard_normal(old + new)  # many at the same place
    order = rng.permutation(old + new)
    whole, turned = (sample(Observations(x[rows], y[rows]), agents, 7) for rows in (slice(None), order))
    rows = [np.column_stack([one.inputs, one.values]).tolist() for one in (whole, turned)]
    assert sorted(rows[0]) == sorted(rows[1])
    assert len(whole) == max(1, (old + new) // agents)
    scaled = sample(
        Observations((1.0 + 1e-15) * x, 3.0 + 0.1 * y), agents, 7
    )  # as another order of rows may scale them
    np.testing.assert_allclose(scaled.values, 3.0 + 0.1 * whole.values)


def test_samples_look_random() -> None:
    """Every row of a grid is drawn about as often: over 400 seeds, each of 100 in one of ten."""
    x = np.stack(np.meshgrid(np.arange(10.0), np.arange(10.0)), axis=-1).reshape(-1, 2)
    times = np.zeros(100)
    for seed in range(400):
        times[sample(Observations(x, np.arange(100.0)), 10, seed).values.astype(int)] += 1
    assert times.sum() == 4000
    assert ((times - 40.0) ** 2 / 36.0).sum() < 160.0, "chi-squared with 99 degrees: once in 10,000"
