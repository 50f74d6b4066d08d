"""Arrays of different shapes as three flat ones, and back: what everyone in a group says, for another group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetgp.arrays import Array, IntArray
from fleetgp.network.wire import MAX_NDIM, part_bytes

#: Words about a value: its bytes a number, how many dimensions it has, and how long they are.
WORDS = 2 + MAX_NDIM


def shapes_of(values: Sequence[Array]) -> IntArray:
    """(n, WORDS) about each value: doubles, or bytes."""
    filler = (1,) * MAX_NDIM
    words = [(v.itemsize, v.ndim, *v.shape, *filler[v.ndim :]) for v in values]
    return np.array(words, dtype=np.int64).reshape(len(values), WORDS)


def prices_of(shapes: IntArray) -> tuple[IntArray, IntArray]:
    """(n,) the scalars in each value, and its bytes as a part of a message."""
    scalars = shapes[:, 2:].prod(axis=1)
    return scalars, part_bytes(0, 0) + 4 * shapes[:, 1] + shapes[:, 0] * scalars


def flattened(values: Sequence[Array]) -> tuple[Array, NDArray[np.uint8]]:
    """All doubles, and all bytes, one value after the other."""
    doubles = [v.ravel() for v in values if v.itemsize > 1]
    octets = [v.ravel() for v in values if v.itemsize == 1]
    return np.concatenate([np.zeros(0), *doubles]), np.concatenate([np.zeros(0, dtype=np.uint8), *octets])


def unflattened(shapes: IntArray, doubles: Array, octets: NDArray[np.uint8]) -> list[Any]:
    """The values again.

    >>> given = [np.ones((2, 1)), np.zeros(0), np.array([7], dtype=np.uint8)]
    >>> [value.tolist() for value in unflattened(shapes_of(given), *flattened(given))]
    [[[1.0], [1.0]], [], [7]]
    """
    scalars, _ = prices_of(shapes)
    wide = shapes[:, 0] > 1
    ends = np.where(wide, np.cumsum(scalars * wide), np.cumsum(scalars * ~wide))
    found = []
    for (_, ndim, *shape), start, end, is_wide in zip(
        shapes.tolist(), (ends - scalars).tolist(), ends.tolist(), wide.tolist(), strict=True
    ):
        found.append((doubles if is_wide else octets)[start:end].reshape(shape[:ndim]))
    return found
