"""Posteriors of several data sets at fixed hyperparameters: computed when first needed, kept, asked in chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.gp.evaluation import Posterior
from fleetgp.gp.expert import Expert, condition
from fleetgp.linalg.threads import cores, memory, side_by_side
from fleetgp.model.observations import Observations

#: Bytes of posteriors that are kept for the next queries; what does not fit is computed again for each block of them.
#: 49 agents with 600 points each need 141 MB, and 271 MB more for grBCM; 100 with 1,000 each 0.8 GB, and 1.6 GB more.
#: No more than a quarter of the machine's memory.
KEPT_BYTES = min(1 << 32, memory() // 4)
#: Entries of k(X_i, x*) that are worked on at a time, 4 MB: solves of fewer columns are slower, and all at once need
#: fresh memory. But no fewer queries than these.
CHUNK, SHORTEST_CHUNK = 1 << 19, 128
#: Instead of an engine: no query needed this posterior, so it was not computed.
UNUSED = "unused"

Item = TypeVar("Item")
#: Of observations, and the number of the agent whose they are; None for the fleet's.
MakesExpert = Callable[[Observations, int | None], Expert]


@dataclass(frozen=True)
class Marginals:
    """mean and variance (n, T) of n posteriors, the engine of each (or UNUSED), and the largest jitter."""

    mean: Array
    variance: Array
    engine: tuple[str, ...]
    jitter: float

    def completed(self, other: Marginals, where: BoolArray) -> Marginals:
        """With another's values in some places (n, T)."""
        return Marginals(
            np.where(where, other.mean, self.mean),
            np.where(where, other.variance, self.variance),
            first_used(self.engine, other.engine),
            max(self.jitter, other.jitter),
        )


def first_used(*engines: Sequence[str]) -> tuple[str, ...]:
    """The engine of each agent, from several parts of a prediction in which it may have been needed or not."""
    return tuple(next((name for name in row if name != UNUSED), UNUSED) for row in zip(*engines, strict=True))


class Room:
    """Bytes that are left for posteriors to be kept in."""

    def __init__(self, bytes: int = KEPT_BYTES) -> None:
        self.left = bytes

    def take(self, bytes: int) -> bool:
        """Whether there was room; then it is taken."""
        fits = bytes <= self.left
        self.left -= bytes if fits else 0
        return fits


class Lazy(Generic[Item]):
    """One item per data set, computed by a subclass when it is first needed, and kept if there is room."""

    def __init__(self, data: Sequence[Observations], room: Room) -> None:
        self.data, self._room = list(data), room
        self._kept: list[Item | None] = [None] * len(data)
        self._held = [0] * len(data)  # bytes of the room
        self._before: dict[int, Item] = {}  # of the first rows of some, until these are asked for

    def compute(self, positions: Sequence[int]) -> Sequence[Item]:
        raise NotImplementedError

    def grow(self, i: int, data: Observations) -> None:
        """All rows of one data set, the old ones first: its item is computed anew, from the one that there is."""
        known = self._before.get(i) if self._kept[i] is None else self._kept[i]
        self.forget(i)
        self.data[i] = data
        if known is not None:
            self._before[i] = known

    def items(self, positions: Sequence[int]) -> list[Item]:
        missing = [i for i in positions if self._kept[i] is None]
        found = {i: item for i in positions if (item := self._kept[i]) is not None}
        for i, item in zip(missing, self.compute(missing) if missing else (), strict=True):
            found[i] = item
            size = held_bytes(item)
            taken = self._room.take(size)
            self._held[i] = size if taken else 0
            if taken or len(self.data) == 1:  # a single one is in memory anyway
                self._kept[i] = item
        return [found[i] for i in positions]

    def groups(self, positions: Sequence[int]) -> Iterator[list[int]]:
        """Positions in groups whose covariances fit in memory at the same time; no fewer than there are cores."""
        group: list[int] = []
        expected = 0
        for i in positions:
            size = 0 if self._kept[i] is not None else 8 * len(self.data[i]) ** 2
            if len(group) >= cores() and expected + size > KEPT_BYTES:
                yield group
                group, expected = [], 0
            group.append(i)
            expected += size
        if group:
            yield group

    def release(self) -> None:
        """Give the room back; whatever is asked later is computed again."""
        for i in range(len(self.data)):
            self.forget(i)

    def forget(self, i: int) -> None:
        """Give back the room of one item."""
        self._room.left += self._held[i]
        self._kept[i], self._held[i] = None, 0
        self._before.pop(i, None)


class Posteriors(Lazy[Posterior]):
    """f | data[i] at thetas[i], for each i. agents: whose data they are, for errors.  expert: makes their GP.

    prior: k(x*, x*) (n, T) at queries, by these thetas (n, P).
    """

    def __init__(
        self,
        data: Sequence[Observations],
        agents: Sequence[int | None],
        thetas: Array,
        expert: MakesExpert,
        room: Room,
        prior: Callable[[Array, Array], Array],
    ) -> None:
        super().__init__(data, room)
        self.thetas, self._prior = thetas, prior
        self._agents, self._make = agents, expert
        self._experts: dict[int, Expert] = {}

    def compute(self, positions: Sequence[int]) -> list[Posterior]:
        for i in positions:
            if i not in self._experts:
                self._experts[i] = self._make(self.data[i], self._agents[i])
        experts, thetas = [self._experts[i] for i in positions], self.thetas[list(positions)]
        before = [self._before.pop(i, None) for i in positions]
        return condition(experts, thetas, lambda posterior: posterior, before)

    def grow(self, i: int, data: Observations) -> None:
        super().grow(i, data)
        if i in self._experts:
            self._experts[i].grow(data)

    def renew(self, i: int, data: Observations) -> None:
        """Other observations of one."""
        self.data[i] = data
        self._experts.pop(i, None)
        self.forget(i)

    def at(self, queries: Array, wanted: BoolArray | None = None) -> Marginals:
        """Mean and variance at the queries (T, D); with `wanted` (n, T) only there, and the prior elsewhere."""
        count = len(queries)
        columns = [np.arange(count)] * len(self.data) if wanted is None else [np.flatnonzero(row) for row in wanted]
        found = Marginals(
            np.zeros((len(self.data), count)),
            np.array(self._prior(queries, self.thetas)),
            (UNUSED,) * len(self.data),
            0.0,
        )
        for group in self.groups([i for i, asked in enumerate(columns) if len(asked)]):
            found = self._asked(found, dict(zip(group, self.items(group), strict=True)), queries, columns)
        return found

    def all_at(self, queries: Array) -> tuple[list[Posterior], Marginals]:
        """Every posterior at once, and what they say at the queries."""
        found = self.items(range(len(self.data)))
        values = np.empty((len(found), len(queries)))
        empty = Marginals(values, values.copy(), (UNUSED,) * len(found), 0.0)
        return found, self._asked(empty, dict(enumerate(found)), queries, [np.arange(len(queries))] * len(found))

    def _asked(
        self, found: Marginals, posteriors: Mapping[int, Posterior], queries: Array, columns: Sequence[IntArray]
    ) -> Marginals:
        """With the answers of some posteriors, each to its own columns; the arrays of `found` are written to."""

        def ask(task: tuple[int, IntArray]) -> None:
            i, here = task
            found.mean[i, here], found.variance[i, here] = posteriors[i].mean_and_variance(queries[here])

        side_by_side(ask, [(i, part) for i in posteriors for part in chunks(columns[i], len(self.data[i]))])
        engine = [posteriors[i].engine if i in posteriors else name for i, name in enumerate(found.engine)]
        jitter = max([found.jitter, *(posterior.jitter for posterior in posteriors.values())])
        return replace(found, engine=tuple(engine), jitter=jitter)


def chunks(columns: IntArray, size: int) -> list[IntArray]:
    """Queries in chunks, for an agent with `size` observations."""
    step = max(SHORTEST_CHUNK, CHUNK // max(1, size))
    return [columns[start : start + step] for start in range(0, len(columns), step)]


def held_bytes(thing: Any) -> int:
    """Bytes of all arrays that an object holds, directly or through others.

    >>> held_bytes([np.zeros(3), (np.zeros(2), "x")])
    40
    """
    found, seen, waiting = 0, set(), [thing]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, np.ndarray):
            found += one.nbytes
        elif isinstance(one, list | tuple):
            waiting += one
        else:
            waiting += getattr(one, "__dict__", {}).values()
    return found
