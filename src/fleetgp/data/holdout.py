"""Which of its rows an agent hides from its own model, to see how well they are predicted.

Rows are dealt into pieces, and pieces into folds: each fold is hidden once. There are two ways to deal them.

"rows": every row is a piece, numbered at random. A hidden row has neighbours that are not hidden: this tells how good
    the model is where it has data.
"blocks": a piece is what lies in one cell of a box, so a hidden fold leaves gaps as large as a cell: this tells how
    good the model is where it has none. The cells are those of random points in the box, each with all that is nearest
    to it in units of the box: compact in any number of dimensions, where a grid would have too many. The points are
    drawn from the seed alone. On the box of the whole fleet all agents hide the same places, and nobody observes them;
    on its own box an agent hides pieces of its own area, and needs nobody for it.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import scipy

from fleetgp.arrays import Array, BoolArray, IntArray, order_by_place

Hold = Literal["rows", "blocks"]
HOLDS: tuple[Hold, ...] = get_args(Hold)
#: Each fold hides about a fifth of the rows.
FOLDS = 5
#: An agent with fewer rows hides none.
FEWEST = 20


def row_pieces(inputs: Array, observations: Array, seed: int, folds: int = 2 * FOLDS) -> IntArray:
    """(N,) every row's number, drawn by where the rows lie and the seed: not by their order, nor by whose they are.

    folds: what the numbers are divided by later. Rows that are next to each other in the order of `order_by_place` have
    the same remainder where possible, so that few change folds where small changes of the data change that order.

    >>> sorted(row_pieces(np.arange(8.0).reshape(4, 2), np.zeros(4), seed=0).tolist())
    [0, 1, 2, 3]
    """
    numbers, found = np.arange(len(observations)), np.empty(len(observations), dtype=np.int64)
    found[order_by_place(inputs, observations, seed)] = numbers[np.argsort(numbers % folds, kind="stable")]
    return found


def block_pieces(inputs: Array, low: Array, high: Array, cells: int, seed: int) -> IntArray:
    """(N,) the number of the cell that each row is in.

    low, high: (D,) corners of the box.  cells: how many it has: in two dimensions each is some 1 / sqrt(cells) of the
    box wide.

    >>> X = np.array([[0.1, 0.1], [0.11, 0.1], [0.9, 0.8]])
    >>> first, second, third = block_pieces(X, np.zeros(2), np.ones(2), cells=20, seed=1).tolist()
    >>> first == second, first == third
    (True, False)
    """
    width = np.where(high > low, high - low, 1.0)
    centres = np.random.default_rng(seed).random((cells, inputs.shape[1]))
    return np.asarray(scipy.spatial.cKDTree(centres).query((inputs - low) / width)[1])


def hidden(pieces: IntArray, fold: int, folds: int = FOLDS) -> BoolArray:
    """(N,) the rows that an agent hides in a fold: none of few, and of all but one at most.

    >>> [int(hidden(pieces, 0).sum()) for pieces in (np.arange(20), np.zeros(20, dtype=int), np.arange(19))]
    [4, 19, 0]
    """
    found = pieces % folds == fold
    if len(pieces) < FEWEST:
        found[:] = False
    elif found.all():
        found[0] = False
    return np.asarray(found)


def second_half(pieces: IntArray) -> BoolArray:
    """(N,) whose pieces are in the second of two halves, which have no piece in common, in any fold."""
    return np.asarray(pieces % 2 == 1)


def lattice(low: Array, high: Array, count: int) -> Array:
    """(count, D) places all over a box, which depend on nothing else: the first of Halton's sequence.

    >>> lattice(np.zeros(2), np.array([1.0, 2.0]), 3).round(3).tolist()
    [[0.5, 0.667], [0.25, 1.333], [0.75, 0.222]]
    """
    from scipy.stats.qmc import Halton  # takes as long to load as all of the rest of an agent's imports

    return np.asarray(low + (high - low) * Halton(len(low), scramble=False).random(count + 1)[1:])


def drawn(rows: IntArray, most: int, inputs: Array, observations: Array, seed: int) -> IntArray:
    """Of the numbers of rows at most so many, drawn by where the rows lie and the seed, in increasing order.

    inputs, observations: of all rows.

    >>> X, y = np.arange(20.0).reshape(10, 2), np.zeros(10)
    >>> len(drawn(np.arange(10), 4, X, y, seed=0)), drawn(np.array([3, 8]), 4, X, y, seed=0).tolist()
    (4, [3, 8])
    """
    if len(rows) <= most:
        return rows
    return np.sort(rows[order_by_place(inputs[rows], observations[rows], seed)[:most]])
