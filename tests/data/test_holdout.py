"""What agents hide: every row once, and in blocks the same places for all."""

from __future__ import annotations

import numpy as np

from fleetgp.data.partition import FOLDS, block_pieces, hidden, row_pieces, second_half


def test_every_row_is_hidden_once_and_by_its_own_draw() -> None:
    X, y = np.random.default_rng(1).random((103, 2)), np.zeros(103)
    for pieces in (row_pieces(X, y, seed=3), np.random.default_rng(0).integers(0, 40, 103)):
        folds = np.array([hidden(pieces, fold) for fold in range(FOLDS)])
        assert (folds.sum(axis=0) == 1).all()
    assert not np.array_equal(row_pieces(X, y, seed=3), row_pieces(X, y, seed=4))
    assert np.array_equal(row_pieces(X, y, seed=3)[::-1], row_pieces(X[::-1], y[::-1], seed=3))


def test_nobody_observes_what_is_near_the_middle_of_a_hidden_block(rng: np.random.Generator) -> None:
    """Two agents with overlapping areas, on the box of both: cells are hidden for both of them."""
    low, high, cells = np.zeros(3), np.array([2.0, 1.0, 50.0]), 60
    one, other = (low + (high - low) * rng.random((4000, 3)) for _ in range(2))
    own = [block_pieces(x, low, high, cells, seed=2) for x in (one, other)]
    for fold in range(FOLDS):
        mine, theirs = (hidden(pieces, fold) for pieces in own)
        assert set(own[0][mine]).isdisjoint(own[1][~theirs])
    # A cell is what is nearest to its centre: brute force, in units of the box.
    centres = np.random.default_rng(2).random((cells, 3))
    distances = (((one / high)[:, None] - centres) ** 2).sum(axis=-1)
    assert np.array_equal(own[0], distances.argmin(axis=1))


def test_halves_have_no_piece_in_common_and_both_are_in_every_fold() -> None:
    pieces = np.repeat(np.arange(40), 3)
    second = second_half(pieces)
    assert set(pieces[second]).isdisjoint(pieces[~second])
    for fold in range(FOLDS):
        mask = hidden(pieces, fold)
        assert second[mask].sum() == (~second)[mask].sum()


def test_an_axis_along_which_nothing_varies_is_no_trouble(rng: np.random.Generator) -> None:
    x = np.column_stack([rng.random(200), np.full(200, 7.0)])
    assert len(set(block_pieces(x, x.min(axis=0), x.max(axis=0), 30, seed=0))) > 5
