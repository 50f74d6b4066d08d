"""The array types used in annotations, and what is asked of arrays everywhere.

Shapes are written with fixed letters: M agents, A agents hosted here, N points, D input dimensions,
P = D + 2 hyperparameters, T queries, E edges.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
Keys = NDArray[np.uint64]


def duplicate_rows(inputs: Array) -> tuple[int, int] | None:
    """The first pair of equal rows, or None.

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
    """One number a row, the same for the same rows."""
    bits = np.ascontiguousarray(rows + 0.0).view(np.uint64)  # + 0.0: -0.0 equals 0.0
    hashes = np.zeros(len(rows), dtype=np.uint64)
    for column in bits.T:
        hashes ^= column
        hashes *= np.uint64(0x9E3779B97F4A7C15)
        hashes ^= hashes >> np.uint64(29)
    return hashes
