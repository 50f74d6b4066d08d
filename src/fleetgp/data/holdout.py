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
from scipy.spatial import cKDTree
from scipy.stats.qmc import Halton

from fleetgp.arrays import Array, BoolArray, IntArray

Hold = Literal["rows", "blocks"]
HOLDS: tuple[Hold, ...] = get_args(Hold)
#: Each fold hides about a fifth of the rows.
FOLDS = 5
#: An agent with fewer rows hides none.
FEWEST = 20


def row_pieces(count: int, seed: int, agent: int) -> IntArray:
    """(N,) every row's number, drawn by (seed, agent).

    >>> sorted(row_pieces(4, seed=0, agent=3).tolist())
    [0, 1, 2, 3]
    """
    return np.asarray(np.random.default_rng([seed, agent]).permutation(count))


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
    return np.asarray(cKDTree(centres).query((inputs - low) / width)[1])


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
    return np.asarray(low + (high - low) * Halton(len(low), scramble=False).random(count + 1)[1:])


def drawn(rows: IntArray, most: int, seed: int, agent: int) -> IntArray:
    """Of the numbers of rows at most so many, at random by (seed, agent), in increasing order.

    >>> len(drawn(np.arange(10), 4, seed=0, agent=1)), drawn(np.array([3, 8]), 4, seed=0, agent=1).tolist()
    (4, [3, 8])
    """
    if len(rows) <= most:
        return rows
    return np.sort(np.random.default_rng([seed, agent]).permutation(rows)[:most])
