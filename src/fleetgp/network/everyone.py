"""Everyone's values, of shapes that may differ, from all groups of a fleet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetgp.arrays import Array, IntArray
from fleetgp.errors import NonsenseError
from fleetgp.network.peer_checks import is_sound
from fleetgp.network.ragged import WORDS, flattened, prices_of, shapes_of, unflattened

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
