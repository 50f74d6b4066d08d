"""Sums over data by a Fourier transform: their errors, their bits, and when they are taken."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from fleetgp.arrays import Array
from fleetgp.engines.moments import sums as tiles
from fleetgp.engines.moments import sums as transform
from fleetgp.engines.moments.engine import EPS, ULPS
from fleetgp.engines.moments.sums import ChebyshevSums
from fleetgp.linalg import threads
from tests.engines.moments.problems import places, summed_by

needs_finufft = pytest.mark.skipif(transform.library() is None, reason="needs finufft")
GRIDS = [(41,), (301,), (33, 65), (11, 15, 13)]


def exact(positions: Array, y: Array, sizes: tuple[int, ...]) -> Array:
    """The sums in extended precision."""
    angles = np.arccos(positions.astype(np.longdouble))
    found = np.stack([np.ones(len(y), dtype=np.longdouble), y.astype(np.longdouble)])
    for d, size in enumerate(sizes):
        found = found[..., None, :] * np.cos(np.arange(size)[:, None] * angles[:, d])
    return np.asarray(found.sum(axis=-1))


@needs_finufft
@pytest.mark.parametrize("sizes", GRIDS)
@pytest.mark.parametrize("kind", ["uniform", "clusters", "repeats", "far", "faces"])
def test_errors_are_what_the_certificate_takes_rounding_for(kind: str, sizes: tuple[int, ...]) -> None:
    """As a part of N, and of N times the deviation of y_n: besides, each row may be displaced by rounding.

    A displacement by a unit in the last place changes a sum by as many units as the degree, and nothing that matters.
    """
    rng = np.random.default_rng(len(kind))
    x = places("uniform" if kind == "faces" else kind, 60, len(sizes), rng)
    if kind == "faces":
        x = 1.0 + np.sign(x - 1.0) * (1.0 - 1e-6 * x)
    for scale in (1e-200, 1.0, 1e6):
        y = scale * rng.standard_normal(60)
        with summed_by("transform"):
            data = ChebyshevSums(x, y)
            found = data.up_to(sizes)
        error = np.abs(found - exact(data.box.positions(x), y, sizes)).reshape(2, -1).max(axis=1)
        assert (error < (2 * ULPS + 4 * sum(sizes)) * EPS * 60 * np.array([1.0, scale])).all()


@needs_finufft
def test_many_rows_have_the_errors_of_few() -> None:
    """Random roundings do not add up: far below what the certificate takes them for."""
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0, 1, (4000, 2)), rng.standard_normal(4000)
    found = {}
    for way in ("tiles", "transform"):
        with summed_by(way) as patch:
            patch.setattr(transform, "chunk_for", lambda _: 512)
            found[way] = ChebyshevSums(x, y).up_to((33, 65))
    assert np.abs(found["tiles"] - found["transform"]).max() < ULPS * EPS * 4000


@needs_finufft
@pytest.mark.parametrize("cores", [1, 2, 5])
def test_the_number_of_threads_changes_no_bit(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0, 1, (3000, 2)), rng.standard_normal(3000)
    monkeypatch.setattr(transform, "chunk_for", lambda _: 256)
    with summed_by("transform"):
        data = ChebyshevSums(x, y)
        monkeypatch.setattr(transform, "spread", lambda work, items: [work(item) for item in items])
        expected = data.up_to((17, 33))
        monkeypatch.setattr(transform, "spread", threads.spread)
        monkeypatch.setattr(transform, "cores", lambda: cores)
        assert np.array_equal(ChebyshevSums(x, y).up_to((17, 33)), expected)


@needs_finufft
def test_grids_are_kept_by_their_sizes_and_forgetting_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0, 1, (500, 2)), rng.standard_normal(500)
    grids = [(9, 17), (17, 33), (9, 33)]
    with summed_by("transform"):
        data = ChebyshevSums(x, y)
        expected = [data.up_to(sizes) for sizes in grids]
        for sizes, sums in zip(reversed(grids), reversed(expected), strict=True):
            assert np.array_equal(data.up_to(sizes), sums)
        assert data.passes == 3
        monkeypatch.setattr(transform, "MOST_SUMS", 17 * 33)
        assert np.array_equal(data.up_to(grids[2]), expected[2])
        assert np.array_equal(data.up_to(grids[1]), expected[1])
        assert data.passes == 4, "only the last was kept"


def test_few_rows_and_large_grids_are_multiplied_and_many_rows_transformed() -> None:
    installed = transform.library() is not None
    assert transform.worthwhile((63, 129), 100_000) == installed
    assert transform.worthwhile((339, 413), 1_000_000) == installed
    assert transform.worthwhile((41, 41, 41), 1_000_000) == installed
    assert not transform.worthwhile((339, 413), 50)
    assert not transform.worthwhile((9, 9, 9), 1_000_000)
    assert not transform.worthwhile((9, 9, 9, 9), 1_000_000)
    assert not transform.worthwhile((2001, 1501), 10**9), "too much memory"


@needs_finufft
def test_rows_that_become_many_are_transformed_as_if_they_had_come_at_once() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0, 1, (20_000, 2)), rng.standard_normal(20_000)
    x[:2] = [[0.0, 0.0], [1.0, 1.0]]
    sizes = (33, 33)
    assert not transform.worthwhile(sizes, 100)
    assert transform.worthwhile(sizes, 20_000)
    grown = ChebyshevSums(x[:100], y[:100])
    grown.up_to(sizes)
    grown.grow(x, y)
    assert np.array_equal(grown.up_to(sizes), ChebyshevSums(x, y).up_to(sizes))


def test_without_the_library_the_rows_are_multiplied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "finufft", None)
    transform.library.cache_clear()
    try:
        assert transform.library() is None
        rng = np.random.default_rng(0)
        x, y = rng.uniform(0, 1, (20_000, 1)), rng.standard_normal(20_000)
        data = ChebyshevSums(x, y)
        found = data.up_to((65,))
        assert np.array_equal(found, tiles.Tiles().up_to(data.rows, (65,)))
    finally:
        monkeypatch.undo()
        transform.library.cache_clear()
