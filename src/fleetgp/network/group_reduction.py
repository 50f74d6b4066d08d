"""A reduction along the tree for a group of agents: what it merges, wave by wave, and what goes to other groups.

An agent's rows are ready in the wave that is the largest number of cut edges on a way up to it. In each wave a group
merges all that is ready, level by level, and sends each other group once what that one waits for: as soon as it has
what it needs, and as often as the longest way crosses between groups, not once for each level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.errors import NonsenseError
from fleetgp.graph import Tree
from fleetgp.network.reduction import Reduced, Reducing, Way
from fleetgp.network.wire import WHO, check_rows


@dataclass(frozen=True)
class Wave:
    """arriving: of each other group, the slots for what it sent in the wave before.  turns: what is merged, (below,
    above) by slots.  leaving: of each other group, the slots of what goes to it.
    """

    arriving: dict[int, IntArray]
    turns: list[tuple[IntArray, IntArray]]
    leaving: dict[int, IntArray]


class GroupTree:
    """The spanning tree as a group sees it: what it can merge by itself, and what must come from other groups.

    Rows of a group have slots: first those of its agents, in their order, then of their children in other groups.
    waves: as many here as in every group; in the last one the root has everything.
    children: the agents behind the slots of others.
    above: of every group but the root's, the one from which it gets the result: where the way down comes first.
    """

    def __init__(self, tree: Tree, hosted: IntArray, group_of: IntArray, own: int) -> None:
        agents, parents = np.arange(len(tree.parents)), tree.parents
        up = group_of[parents]
        cut = group_of != up
        ready, crossings = np.zeros_like(agents), np.zeros_like(agents)
        for below, above in tree.levels:
            np.maximum.at(ready, above, ready[below] + cut[below])
        for below, above in reversed(tree.levels):
            crossings[below] = crossings[above] + cut[below]
        self.tree, self.own, self.root = tree, own, int(group_of[tree.root])
        self.children = agents[cut & (up == own)]
        slot = np.full(len(agents), -1, dtype=np.int64)
        slot[hosted] = np.arange(len(hosted))
        slot[self.children] = len(hosted) + np.arange(len(self.children))
        self.slots = len(hosted) + len(self.children)
        leaving = agents[cut & (group_of == own)]
        last = int(ready[tree.root])
        turns: list[list[tuple[IntArray, IntArray]]] = [[] for _ in range(last + 1)]
        for below, above in tree.turns:
            here = group_of[above] == own
            for wave in np.unique(ready[above[here]]):
                some = here & (ready[above] == wave)
                turns[wave].append((slot[below[some]], slot[above[some]]))
        self.waves = [
            Wave(
                _by_group(self.children[ready[self.children] == wave - 1], group_of, slot),
                turns[wave],
                _by_group(leaving[ready[leaving] == wave], up, slot),
            )
            for wave in range(last + 1)
        ]
        self.above = {}
        for group in range(int(group_of.max()) + 1):
            if group != self.root:
                members = np.flatnonzero((group_of == group) & cut)
                self.above[group] = int(up[members[int(np.argmin(crossings[members]))]])

    @property
    def below(self) -> list[int]:
        """The groups that get the result from this one."""
        return [group for group, above in self.above.items() if above == self.own]

    def way_to(self, group: int) -> set[int]:
        """The groups over which the result comes to one, itself among them."""
        way = {group}
        while group != self.root:
            group = self.above[group]
            way.add(group)
        return way


def _by_group(agents: IntArray, group_of: IntArray, slot: IntArray) -> dict[int, IntArray]:
    """The agents' slots, by group."""
    return {int(group): slot[agents[group_of[agents] == group]] for group in np.unique(group_of[agents])}


#: What groups send each other: a kind of content and an array.
Content = tuple[str, NDArray[Any]]
Arrays = tuple[NDArray[Any], ...]


class GroupReduction:
    """Rows stand in the slots of the group's tree, `steps`. hosting: all groups."""

    def __init__(self, task: Reducing, steps: GroupTree, hosting: Sequence[Sequence[int]]) -> None:
        self._task, self._steps, self._hosting = task, steps, hosting
        self._agents = len(steps.tree.parents)
        self._rows = np.empty((steps.slots, *task.x.shape[1:]))
        self._rows[: len(task.x)] = task.x
        self._counts: IntArray | None = None  # (slots, n) how many are present below
        self._who: BoolArray | None = None  # (M, n) where the result goes
        if task.present is not None:
            self._counts = np.zeros((steps.slots, task.rows), dtype=np.int64)
            self._counts[: len(task.x)] = task.present
        self._value: Array | None = None
        self._total: IntArray | None = None  # (n,) how many are present in the fleet
        way = None if task.recipient is None else steps.way_to(_group_of(hosting, task.recipient))
        self._informed = {group for group in range(len(hosting)) if way is None or group in way}

    # ---- up -------------------------------------------------------------------------------------------

    def take(self, wave: int, arrived: dict[int, Arrays]) -> None:
        task, own = self._task, len(self._task.x)
        for group, (rows, *counts) in arrived.items():
            slots = self._steps.waves[wave].arriving[group]
            children = self._steps.children[slots - own]
            check_rows(task.kind, children, rows, (len(slots), task.x[0].size))
            present = None
            if self._counts is not None:
                self._counts[slots] = _counted(counts, children, task.rows)
                present = self._counts[slots] > 0
            self._rows[slots] = rows.reshape(len(slots), *task.x.shape[1:])
            task.merge.check(children, self._rows[slots], present)

    def merge(self, wave: int) -> None:
        """All that is ready, level by level, all agents of a level at once: as every agent would, child by child."""
        for below, above in self._steps.waves[wave].turns:
            self._rows[above] = self._task.merge.function(self._rows[above], self._rows[below])
            if self._counts is not None:
                self._counts[above] += self._counts[below]

    def content_up(self, wave: int, group: int) -> list[Content]:
        slots = self._steps.waves[wave].leaving[group]
        content: list[Content] = [(self._task.kind, self._rows[slots].reshape(len(slots), self._task.x[0].size))]
        if self._counts is not None:
            content.append((WHO, self._counts[slots].ravel().astype(np.uint32)))
        return content

    # ---- at the root, and down ------------------------------------------------------------------------

    def own_who(self) -> list[Content]:
        assert self._task.present is not None
        return packed(self._task.present)

    def gather_who(self, arrived: dict[int, Arrays]) -> None:
        """At the root's group: who is present, from all groups."""
        assert self._task.present is not None
        who = np.zeros((self._agents, self._task.rows), dtype=bool)
        who[list(self._hosting[self._steps.own])] = self._task.present
        for group, arrays in arrived.items():
            ids = list(self._hosting[group])
            who[ids] = unpacked(arrays, (len(ids), self._task.rows), ids[0])
        self._who = who

    def finish(self) -> None:
        root = self._hosting[self._steps.own].index(self._steps.tree.root)
        self._value = self._task.finished(self._rows[root], self._who)
        if self._counts is not None:
            self._total = self._counts[root]

    def content_down(self, group: int) -> list[Content]:
        content: list[Content] = []
        if self._total is not None:
            content.append((WHO, self._total.astype(np.uint32)))
        if group in self._informed:
            assert self._value is not None
            content.append((self._task.kind, self._value.reshape(-1)))
            if self._who is not None:
                content += packed(self._who)
        return content

    def take_down(self, arrays: Arrays) -> None:
        task, parts = self._task, list(arrays)
        sender = self._hosting[self._steps.above[self._steps.own]][0]
        if self._counts is not None:
            self._total = _counted(parts[:1], [sender], task.rows)[0]
            del parts[0]
        if self._steps.own in self._informed:
            shape = (task.rows, *task.result_shape)
            check_rows(task.kind, [sender], parts[0][None], (1, int(np.prod(shape))))
            self._value = parts.pop(0).reshape(shape)
            if self._counts is not None:
                self._who = unpacked(tuple(parts), (self._agents, task.rows), sender)

    # ---- what it comes to -----------------------------------------------------------------------------

    def counts(self, way: Way) -> tuple[IntArray, IntArray] | None:
        """(K, n) how many are present below each sender, and (n,) in the fleet."""
        if self._counts is None or self._total is None:
            return None
        return self._counts[way.senders], self._total

    def reduced(self) -> Reduced:
        task = self._task
        absent = np.zeros(task.rows, dtype=bool) if self._total is None else np.asarray(self._total == 0)
        informed = task.recipient is None or task.recipient in self._hosting[self._steps.own]
        return Reduced(self._value if informed else None, self._who if informed else None, absent)


def _group_of(hosting: Sequence[Sequence[int]], agent: int) -> int:
    return next(number for number, group in enumerate(hosting) if agent in group)


def _counted(words: Sequence[NDArray[Any]], senders: Sequence[int] | IntArray, rows: int) -> IntArray:
    """(K, n) how many are present below each sender."""
    if len(words) != 1 or words[0].dtype != np.uint32 or words[0].shape != (len(senders) * rows,):
        raise NonsenseError(int(senders[0]), f"expected how many are present in each of {rows} rows, got no such list")
    return words[0].astype(np.int64).reshape(len(senders), rows)


def packed(who: BoolArray) -> list[Content]:
    """Who (K, n) is present where: as bits, or as the places of those who are, whichever is shorter.

    >>> (kind, words), = packed(np.eye(2, dtype=bool))
    >>> kind, words.dtype.name, unpacked((words,), (2, 2), 0).astype(int).tolist()
    ('participants', 'uint8', [[1, 0], [0, 1]])
    """
    count = np.count_nonzero(who)
    if who.size < 2**32 and 32 * count < who.size:
        return [(WHO, np.flatnonzero(who).astype(np.uint32))]
    return [(WHO, np.packbits(who))]


def unpacked(arrays: Arrays, shape: tuple[int, int], sender: int) -> BoolArray:
    """The same back, or a NonsenseError that names the sender."""
    who = np.zeros(shape[0] * shape[1], dtype=bool)
    words: NDArray[Any] = arrays[0] if arrays else np.zeros(0)
    if words.dtype == np.uint8 and len(words) == -(-len(who) // 8):
        who[:] = np.unpackbits(words, count=len(who))
    elif words.dtype == np.uint32 and (not len(words) or words.max() < len(who)):
        who[words] = True
    else:
        raise NonsenseError(sender, f"expected who is present in {shape[1]} rows, got no such list")
    return who.reshape(shape)
