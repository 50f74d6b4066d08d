"""What the moments engine answers depends on its data and on theta, not on what it was asked before."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.arrays import Array
from fleetgp.engines.base import Evaluation
from fleetgp.engines.dense.engine import DenseEngine
from fleetgp.engines.expert import tolerance
from fleetgp.engines.moments import sums as tiles
from fleetgp.engines.moments import sums as transform
from fleetgp.engines.moments.engine import MomentsEngine
from fleetgp.engines.moments.sums import ChebyshevSums
from fleetgp.linalg.threads import blas_threads
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations
from tests.conftest import paper_shards
from tests.engines.moments.problems import SE, THETA, WAYS, summed_by

ROWS = 300
#: Length-scales at which grids in so many dimensions are small, also those of half the length.
LONG = {1: 0.5, 2: 1.5, 3: 8.0}


def data(dimension: int, seed: int) -> tuple[Array, Array]:
    """At times those at the faces of the box come first, and later batches lie inside it."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 2, (ROWS, dimension))
    if seed % 2 == 0:
        x = x[np.argsort(-np.abs(x - 1.0).max(axis=1))]
    return x, np.sin(x.sum(axis=1)) + rng.choice([0.3, 20.0]) * rng.standard_normal(ROWS)


def bits(found: Evaluation | None) -> tuple[float, ...] | None:
    return None if found is None else (found.nll, *found.gradient.tolist(), found.error)


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=12)
@given(st.integers(0, 10**6), st.integers(1, 3), st.permutations(range(4)), st.lists(st.integers(1, ROWS - 1)))
def test_neither_order_nor_batches_change_a_bit(
    way: str, seed: int, dimension: int, order: list[int], cuts: list[int]
) -> None:
    """The same thetas in another order, on data that came in batches with questions in between."""
    x, y = data(dimension, seed)
    rng = np.random.default_rng(seed + 1)
    scales = LONG[dimension] * np.exp(rng.uniform(-0.7, 0.7, (4, dimension)))
    thetas = np.column_stack([scales, rng.uniform(0.5, 2.0, 4), 10.0 ** rng.uniform(-0.7, 0.3, 4)])
    queries = rng.uniform(0, 2, (4, dimension))
    ends = [0, *sorted(set(cuts))[:4], ROWS]
    with blas_threads(1), summed_by(way) as patch:
        patch.setattr(tiles, "CHUNK", 128)  # two whole chunks of rows, and part of another
        patch.setattr(transform, "chunk_for", lambda _: 128)
        whole, expert = MomentsEngine(Observations(x, y), 0), MomentsEngine(Observations(x[: ends[1]], y[: ends[1]]), 0)
        expected = {i: bits(whole.evaluate(np.log(thetas[i]))) for i in range(4)}
        for high in ends[2:]:
            expert.evaluate(np.log(thetas[order[0]]))
            expert.grow(Observations(x[:high], y[:high]))
        assert {i: bits(expert.evaluate(np.log(thetas[i]))) for i in order} == expected
        posteriors = [each.condition(thetas[order[1]]) for each in (whole, expert)]
        answers = [p.mean_and_variance(queries) for p in posteriors if p is not None]
    assert len(answers) == 2
    assert np.array_equal(answers[0], answers[1])
    assert None not in expected.values()


def test_four_dimensions_have_tiles_of_whole_grids() -> None:
    x, y = data(4, 0)
    whole, parts = ChebyshevSums(x, y), ChebyshevSums(x[:200], y[:200])
    grids = [(5, 3, 7, 4), (3, 9, 3, 3)]
    expected = [whole.up_to(sizes) for sizes in grids]
    parts.up_to(grids[1])
    parts.grow(x, y)
    assert all(np.array_equal(parts.up_to(sizes), sums) for sizes, sums in zip(grids, expected, strict=True))


def test_no_tile_is_read_twice_and_forgetting_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transform, "library", lambda: None)
    monkeypatch.setitem(tiles.TILES, 2, (16, 16))
    x, y = paper_shards(900, 1)[0]
    kept = ChebyshevSums(x, y)
    expected = {sizes: kept.up_to(sizes) for sizes in [(21, 33), (33, 21), (21, 15), (33, 33)]}
    assert kept.passes == 3, "the third is part of the first; of the fourth only a corner is new"
    monkeypatch.setattr(tiles, "MOST_SUMS", 0)
    forgetful = ChebyshevSums(x, y)
    for sizes in reversed(expected):
        assert np.array_equal(forgetful.up_to(sizes), expected[sizes])
    forgetful.up_to((21, 49))
    assert np.array_equal(forgetful.up_to((33, 21)), expected[33, 21])
    assert forgetful.passes == 3, "what (21, 49) did not need was forgotten"


@pytest.mark.parametrize("sizes", [(70,), (9, 37), (5, 9, 17), (3, 5, 3, 4)])
@pytest.mark.parametrize("way", WAYS)
def test_sums_are_those_over_the_data(way: str, sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-1, 3, (ROWS, len(sizes))), rng.standard_normal(ROWS)
    with summed_by(way):
        found = ChebyshevSums(x, y).up_to(sizes)
    positions = ChebyshevSums(x, y).box.positions(x)
    for degrees in [tuple(size - 1 for size in sizes), tuple(size // 2 for size in sizes), (0,) * len(sizes)]:
        values = np.prod(np.cos(np.asarray(degrees) * np.arccos(np.clip(positions, -1, 1))), axis=1)
        assert np.allclose([found[0][degrees], found[1][degrees]], [values.sum(), y @ values], atol=1e-10 * ROWS)


@pytest.mark.parametrize("way", WAYS)
def test_new_points_inside_the_box_need_no_pass_over_old_ones(way: str) -> None:
    x, y = paper_shards(900, 1)[0]
    order = np.argsort(-np.abs(x - x.mean(axis=0)).max(axis=1))
    x, y = x[order], y[order]
    with summed_by(way):
        expert = MomentsEngine(Observations(x[:850], y[:850]), 0)
        expert.evaluate(np.log(THETA))
        passes = expert.data.passes
        expert.grow(Observations(x, y))
        found, dense = expert.evaluate(np.log(THETA)), DenseEngine(Observations(x, y), SE, 0).evaluate(np.log(THETA))
    assert expert.data.passes == passes
    assert found is not None
    assert abs(found.nll - dense.nll) <= found.error


@pytest.mark.parametrize("way", WAYS)
def test_appending_outside_the_box_leaves_no_stale_posterior(way: str) -> None:
    rng = np.random.default_rng(3)
    x = np.sort(rng.uniform(0, 6, (400, 1)), axis=0)
    y = np.sin(3 * x[:, 0])
    theta = np.array([0.4, 1.0, 0.1])
    with summed_by(way) as patch:
        patch.setattr(tiles, "CHUNK", 64)  # whole chunks, which are not read again otherwise
        patch.setattr(transform, "chunk_for", lambda _: 64)
        expert = MomentsEngine(Observations(x[:100], y[:100]), 0)
        assert expert.condition(theta) is not None
        expert.grow(Observations(x, y))
        ours, reference = expert.condition(theta), DenseEngine(Observations(x, y), SE, 0).condition(theta)
    assert ours is not None
    for a, b in zip(ours.mean_and_variance(x), reference.mean_and_variance(x), strict=True):
        assert np.allclose(a, b, atol=1e-8)


def test_grids_follow_the_length_scales() -> None:
    """Neighbouring length-scales share a grid; shorter ones have a finer one, of which only what is new is read."""
    x, y = paper_shards(900, 1)[0]
    expert = MomentsEngine(Observations(x, y), 0)
    sizes = []
    for scales in ([1.9, 1.9], [1.88, 1.89], [0.5, 0.3], [1.9, 1.9]):
        moments = expert.prepare(Hyperparameters.from_theta([*scales, 1.0, 0.5]))
        assert moments is not None
        sizes.append(moments.sizes)
    assert sizes[0] == sizes[1] == sizes[3]
    assert all(fine > coarse for fine, coarse in zip(sizes[2], sizes[0], strict=True))
    assert expert.data.passes == 2
    short = np.log([0.5, 0.3, 1.0, 0.5])
    found = expert.evaluate(short)
    assert found is not None
    assert abs(found.nll - DenseEngine(Observations(x, y), SE, 0).evaluate(short).nll) <= found.error <= tolerance(900)
    assert expert.evaluate(np.log([1e-9, 1.0, 1.0, 0.5])) is None, "no grid of a sensible size"
