"""Array types for annotations, hashes of rows, and a random order of rows that depends only on where they lie.

Shapes are written with fixed letters: M agents, A agents hosted here, N points, D input dimensions,
P = D + 2 hyperparameters, T queries, E edges.

`order_by_place` sorts rows by the values of a smooth random function, a sum of cosines drawn from the seed. The result
does not depend on the order in which rows came, nor on their digits from the seventh on, and hardly on additional rows.
A hash would not do: inputs that are computed (kilometres from degrees) move a little when the data are rounded, and a
smooth function then moves only a little. It varies within the distance between neighbouring rows, so that neighbours
get different values. Rows at the same place are ordered by their observations.

Limits: rows with nearly equal values change places. Units are powers of two, so where the width of the rows, or the
share of cells that hold a row, is close to a threshold, a small change of the data gives another order.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
Keys = NDArray[np.uint64]


def duplicate_rows(inputs: Array) -> tuple[int, int] | None:
    """Return the first pair of equal rows, or None.

    >>> duplicate_rows(np.array([[0.0, 1.0], [2.0, 3.0], [0.0, 1.0]]))
    (0, 2)
    """
    order = np.lexsort(inputs.T)
    equal = np.flatnonzero((np.diff(inputs[order], axis=0) == 0.0).all(axis=1))
    if not equal.size:
        return None
    first, second = sorted((int(order[equal[0]]), int(order[equal[0] + 1])))
    return first, second


def row_hashes(rows: Array) -> Keys:
    """Return one number per row, the same for equal rows."""
    bits = np.ascontiguousarray(rows + 0.0).view(np.uint64)  # + 0.0: -0.0 equals 0.0
    hashes = np.zeros(len(rows), dtype=np.uint64)
    for column in bits.T:
        hashes ^= column
        hashes *= np.uint64(0x9E3779B97F4A7C15)
        hashes ^= hashes >> np.uint64(29)
    return hashes


#: The number of cosines, and how fast they vary, in radians per distance between neighbours.
COSINES, PACE = 16, 6.0
#: The distance between neighbours is at least 2 ** -FINEST of the width: closer rows have one place.
FINEST = 12
#: Cells are as large as possible while at least this share of the places have a cell of their own.
OWN_CELLS = 0.5
#: Widths are multiplied by this before rounding up to a power of two, so that round widths are not at a threshold.
ODD = 1.37
#: Digits of the inputs that count.
DIGITS = 6


def order_by_place(inputs: Array, observations: Array, seed: int) -> IntArray:
    """Return (N,) row numbers in an order that looks random. inputs: (N, D).

    >>> X, y = np.random.default_rng(0).random((50, 2)), np.zeros(50)
    >>> turned = order_by_place(X[::-1], y, seed=1)
    >>> np.array_equal(order_by_place(X, y, seed=1), 49 - turned)
    True
    >>> np.array_equal(order_by_place(X.round(6), y, seed=1), order_by_place(X, y, seed=1))
    True
    """
    rounded = _rounded(inputs)
    width = np.ptp(rounded, axis=0) if len(inputs) else np.zeros(inputs.shape[1])
    power = np.ceil(np.log2(ODD * width, out=np.zeros_like(width), where=width > 0.0))
    same, scaled = row_hashes(rounded), rounded / np.exp2(power)
    scaled = scaled * _finer(scaled, len(np.unique(same)))
    rng = np.random.default_rng([seed, 1])
    turn, values = occurrences(same, observations).astype(float), np.zeros(len(inputs))
    for _ in range(COSINES):
        start, step = rng.uniform(0.0, 2.0 * np.pi, 2)
        values += np.cos(scaled @ (PACE * rng.standard_normal(inputs.shape[1])) + start + step * turn)
    return np.argsort(values, kind="stable")


def _rounded(inputs: Array) -> Array:
    """Round to DIGITS significant digits. Values that are rounded already stay the same to the last bit."""
    size = np.floor(np.log10(np.abs(inputs), out=np.zeros_like(inputs), where=inputs != 0.0))
    unit = 10.0 ** np.abs(size - DIGITS + 1.0)  # exact, as a negative power would not be
    small = size < DIGITS - 1
    return np.asarray(np.where(small, np.rint(inputs * unit) / unit, np.rint(inputs / unit) * unit) + 0.0)


def _finer(scaled: Array, places: int) -> float:
    """Return the power of two that makes neighbours about 1 apart, from rows in units of their width."""
    for power in range(FINEST):
        finer = float(2**power)
        if len(np.unique(row_hashes(np.floor(scaled * finer)))) >= OWN_CELLS * places:
            return finer
    return float(2**FINEST)


def occurrences(hashes: Keys, order: Array) -> Keys:
    """Return (N,) for every row, how many with the same hash come before it."""
    turns = np.lexsort((order, hashes))
    arranged, places = hashes[turns], np.arange(len(hashes))
    starts = np.flatnonzero(np.append(True, arranged[1:] != arranged[:-1])[: len(hashes)])
    result = np.empty(len(hashes), dtype=np.uint64)
    result[turns] = places - np.repeat(starts, np.diff(np.append(starts, len(hashes))))
    return result
