"""Verdicts on data that pass by in parts: the same as on all of it at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.arrays import Array
from fleetgp.data.suspicions import (
    FILLS,
    MOST_HASHES,
    Copies,
    Inspection,
    Sample,
    Tally,
    refuse_suspicious,
    row_keys,
    suspicions_of,
)
from fleetgp.errors import InputError
from tests.data.verdicts import refuse_directly, suspicions_directly

NAMES = ("lon", "day", "y")


def table(seed: int) -> Array:
    """Rows that are strange in some way, or not at all."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 60))
    west, east = rng.choice([[-20, 20], [170, 200], [-20, 200]])
    columns = [rng.uniform(west, east, n), np.full(n, 3.0), rng.normal(15, 2, n)]
    if rng.random() < 0.3:
        columns[1] = 20240101.0 + rng.integers(0, 31, n)
    if rng.random() < 0.3:
        columns[1] = rng.integers(0, 4, n).astype(float)
    if rng.random() < 0.3:
        columns[2][rng.random(n) < 0.2] = rng.choice(FILLS)
    if rng.random() < 0.4:
        columns[2][rng.random(n) < 0.2] = rng.choice([-99.9, 500.0])
    if rng.random() < 0.3:
        columns[2] = np.round(columns[2] / 3)
    for column in columns:
        column[rng.random(n) < 0.05] = np.nan
    return np.column_stack(columns)


def parts_of(rows: Array, seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    cuts = np.sort(rng.integers(0, len(rows) + 1, int(rng.integers(0, 5))))
    parts = [part for part in np.split(rows, cuts) if len(part)]
    return [parts[i] for i in rng.permutation(len(parts))]


def verdict(refuse: object) -> str:
    assert callable(refuse)
    try:
        refuse()
    except InputError as error:
        return str(error)
    return ""


def test_the_tables_are_strange_in_all_ways() -> None:
    words = [verdict(lambda seed=seed: refuse_directly(table(seed), NAMES, "t", fills=True)) for seed in range(300)]
    assert sum(not word for word in words) > 50
    for strange in ("-99.9", "mixes two conventions", "column 'y' has the value", "value 500"):
        assert any(strange in word for word in words)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.booleans())
@settings(max_examples=200, deadline=None)
def test_parts_in_any_order_have_the_verdict_of_the_whole(seed: int, cuts: int, fills: bool) -> None:
    rows = table(seed)
    parts = parts_of(rows, cuts)
    tally = Tally.of(parts[0])
    for part in parts[1:]:
        tally = tally.plus(Tally.of(part))
    expected = verdict(lambda: refuse_directly(rows, NAMES, "t", fills=fills))
    assert verdict(lambda: refuse_suspicious(rows, NAMES, "t", fills=fills)) == expected
    assert verdict(lambda: tally.refuse(NAMES, "t", fills=fills)) == expected
    assert verdict(lambda: Tally.from_arrays(tally.arrays).refuse(NAMES, "t", fills=fills)) == expected


@given(st.integers(0, 10**6), st.integers(1, 40))
@settings(max_examples=200, deadline=None)
def test_new_rows_are_judged_by_those_that_were_there(seed: int, cut: int) -> None:
    rows = table(seed)
    rows = rows[np.isfinite(rows).all(axis=1)]
    old, new = rows[:cut], rows[cut:]
    if len(old) and len(new):
        verdicts = [
            verdict(lambda refuse=refuse: refuse(new, NAMES, "t", fills=True, of_agent=True, among=old))
            for refuse in (refuse_suspicious, refuse_directly)
        ]
        assert verdicts[0] == verdicts[1]


@given(st.integers(0, 10**6), st.integers(0, 10**6))
@settings(max_examples=50, deadline=None)
def test_what_is_describe_inputs_is_the_same(seed: int, cuts: int) -> None:
    rows = table(seed)
    rows = rows[np.isfinite(rows).all(axis=1)]
    if not len(rows):
        return
    parts = parts_of(rows, cuts)
    tally = Tally.of(parts[0])
    for part in parts[1:]:
        tally = tally.plus(Tally.of(part))
    told = suspicions_directly(rows[:, :-1], rows[:, -1], NAMES[:-1])
    assert suspicions_of(rows[:, :-1], rows[:, -1], NAMES[:-1]) == told
    assert tally.describe_inputs(NAMES[:-1]) == [words for words in told if words.startswith("input")]
    watched = Inspection.of(parts[0][:, :-1], parts[0][:, -1])
    for part in parts[1:]:
        watched = watched.plus(Inspection.of(part[:, :-1], part[:, -1]))
    assert watched.describe(NAMES[:-1]) == told


@given(st.integers(1, 200), st.integers(1, 50), st.integers(0, 10**6))
@settings(max_examples=50, deadline=None)
def test_a_sample_does_not_depend_on_the_parts(count: int, most: int, cuts: int) -> None:
    rows = np.arange(2.0 * count).reshape(count, 2)
    keys = row_keys(rows, 0, 1)
    together = np.column_stack([np.arange(count), np.arange(count)]).astype(float)
    samples = [
        Sample.of(rows[part[:, 0].astype(int)], keys[part[:, 0].astype(int)], most) for part in parts_of(together, cuts)
    ]
    found = samples[0]
    for sample in samples[1:]:
        found = found.plus(sample, most)
    expected = Sample.of(rows, keys, most)
    np.testing.assert_array_equal(found.rows, expected.rows)
    assert len(found.rows) == min(most, count)
    assert len(np.unique(found.rows, axis=0)) == len(found.rows)


def test_every_row_is_as_likely_to_be_drawn() -> None:
    count, most, draws = 40, 10, 4000
    drawn = np.zeros(count)
    for seed in range(draws):
        keys = row_keys(np.arange(float(count))[:, None], 0, seed)
        drawn[Sample.of(np.arange(float(count))[:, None], keys, most).rows[:, 0].astype(int)] += 1
    # Six deviations of a hypergeometric count.
    assert np.abs(drawn - draws * most / count).max() < 6 * np.sqrt(draws * 0.25 * 0.75)


def test_numbers_of_rows_follow_from_what_is_in_them_and_their_order() -> None:
    rows = np.arange(200.0).reshape(100, 2)
    keys = row_keys(rows, 0, 1)
    np.testing.assert_array_equal(keys[40:], row_keys(rows[40:], 40, 1))
    assert not np.isin(keys, row_keys(-rows, 0, 1)).any()
    assert not np.isin(keys, row_keys(rows, 0, 2)).any()
    assert len(np.unique(row_keys(np.ones((100, 2)), 0, 1))) == 100, "copies are rows like all others"


@pytest.mark.parametrize("copied", [0.0, 0.02, 0.3])
def test_copies_are_estimated(copied: float) -> None:
    rng = np.random.default_rng(3)
    once = rng.standard_normal((10 * MOST_HASHES, 3))
    again = once[: int(copied * len(once))]
    rows = rng.permutation(np.concatenate([once, again]))
    found = Copies.of(rows[:5000])
    for part in (rows[5000:20_000], rows[20_000:]):
        found = found.plus(Copies.of(part))
    np.testing.assert_array_equal(found.hashes, Copies.of(rows).hashes)
    np.testing.assert_array_equal(found.times, Copies.of(rows).times)
    if copied < 0.05:
        assert found.estimate(len(rows)) == 0
    else:
        assert abs(found.estimate(len(rows)) / len(again) - 1.0) < 0.15
