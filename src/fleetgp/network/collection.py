"""Rows that everyone contributes, collected at every agent, and their flat form on the wire.

Arrays of different shapes as three flat ones, and back: what everyone in a group says, for another group.

Everyone's values, of shapes that may differ, from all groups of a fleet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetgp.arrays import Array, IntArray
from fleetgp.errors import NonsenseError
from fleetgp.network.wire import MAX_NDIM, is_sound, part_bytes

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


#: Of each kind of content, everyone's scalars and bytes, (M,) each.
Prices = dict[str, tuple[IntArray, IntArray]]


class Everyone:
    """What the agents of the groups say, by kind. items: those of the group here.  values: all agents', by id.

    Shapes go to all groups, since all of them count messages; content to those that need it.
    """

    def __init__(self, items: dict[str, list[Array]], hosting: Sequence[Sequence[int]], own: int) -> None:
        self._items, self._hosting = items, hosting
        agents = sum(map(len, hosting))
        self._own_shapes = {kind: shapes_of(values) for kind, values in items.items()}
        self._shapes = {kind: np.zeros((agents, WORDS), dtype=np.int64) for kind in items}
        self.values: dict[str, list[Array]] = {kind: [np.zeros(0)] * agents for kind in items}
        for kind, values in items.items():
            self._put(own, kind, self._own_shapes[kind], values)

    @property
    def prices(self) -> Prices:
        return {kind: prices_of(shapes) for kind, shapes in self._shapes.items()}

    def told(self, *, content: bool) -> list[tuple[str, NDArray[Any]]]:
        """To another group."""
        words: list[tuple[str, NDArray[Any]]] = []
        for kind, values in self._items.items():
            words.append(("participants", self._own_shapes[kind].ravel().astype(np.uint32)))
            if content:
                doubles, octets = flattened(values)
                words += [(kind, doubles), ("agenda", octets)]
        return words

    def take(self, group: int, heard: Sequence[NDArray[Any]], *, content: bool, check: bool) -> None:
        """From another group. check: whether values that make no sense for their kind are refused."""
        ids = self._hosting[group]
        stride = 3 if content else 1
        if len(heard) != stride * len(self._items):
            raise NonsenseError(ids[0], f"expected values of {len(self._items)} kinds, got {len(heard)} arrays")
        for k, kind in enumerate(self._items):
            words, *flat = heard[stride * k : stride * (k + 1)]
            if words.dtype != np.uint32 or words.shape != (len(ids) * WORDS,):
                raise NonsenseError(ids[0], f"expected the shapes of {len(ids)} values, got {words.size} words")
            shapes = words.astype(np.int64).reshape(len(ids), WORDS)
            if content and sum(map(len, flat)) != prices_of(shapes)[0].sum():
                raise NonsenseError(ids[0], f"expected {kind} of the shapes that it says, got others")
            values = unflattened(shapes, flat[0], flat[1]) if content else None
            if check and values is not None and not all(is_sound(kind, part) for part in flat if len(part)):
                wrong = next(k for k, value in enumerate(values) if not is_sound(kind, value.ravel()))
                raise NonsenseError(ids[wrong], f"{kind} that are not finite, or out of range")
            self._put(group, kind, shapes, values)

    def _put(self, group: int, kind: str, shapes: IntArray, values: Sequence[Array] | None) -> None:
        ids = self._hosting[group]
        self._shapes[kind][list(ids)] = shapes
        if values is not None:
            for agent, value in zip(ids, values, strict=True):
                self.values[kind][agent] = value
